//! The kind Machine.

use k8s_openapi::api::core::v1::NodeSystemInfo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{
    Condition, ConditionPolarity, ContractVersionedObjectReference, MachineAddress, MachineTaint,
};
use crate::serde_with::is_default;
use crate::{patterns, rules, schema};

/// What a machine is made of.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    namespaced,
    schema = "disabled",
    doc = "A machine that becomes a Node of a cluster: which bootstrap data it gets and what it runs on.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineStatus",
    shortname = "ma",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The Cluster that it belongs to. It cannot change.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::UNCHANGED))]
    pub cluster_name: String,
    /// Where its bootstrap data come from.
    pub bootstrap: Bootstrap,
    /// The object that is the machine in the infrastructure, or its template in a template of Machines.
    pub infrastructure_ref: ContractVersionedObjectReference,
    /// The version of Kubernetes, such as `v1.35.0`. A missing `v` is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-validations" = rules::VERSION))]
    pub version: Option<String>,
    /// The provider ID of the Node, as the infrastructure reports it.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
    /// The failure domain that the machine has to be in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// For how many seconds it must be ready before it is available. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Conditions beyond the usual ones that must hold before it is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub readiness_gates: Vec<MachineReadinessGate>,
    /// How long the steps of its deletion may take.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineDeletionSpec,
    /// Taints of its Node. A worker must not ask for the taint of control planes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]), extend("x-kubernetes-validations" = rules::TAINTS))]
    pub taints: Vec<MachineTaint>,
}

/// Where bootstrap data come from: an object that makes them, or a Secret.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::BOOTSTRAP))]
pub struct Bootstrap {
    /// The object that makes the bootstrap data, or its template in a template of Machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub config_ref: ContractVersionedObjectReference,
    /// The Secret with the bootstrap data. Filled in from the object, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 0, max = 253))]
    pub data_secret_name: Option<String>,
}

/// A condition of the Machine that counts for `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineReadinessGate {
    /// The type of the condition. If it is missing, it counts as unknown.
    #[schemars(length(min = 1, max = 316), regex(pattern = patterns::QUALIFIED_NAME))]
    pub condition_type: String,
    /// Which value is the good one. Default: `Positive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polarity: Option<ConditionPolarity>,
}

/// How long the steps of a deletion may take.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeletionSpec {
    /// For how many seconds Pods may take to leave the Node. 0 and nothing: without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_drain_timeout_seconds: Option<i32>,
    /// For how many seconds volumes may take to leave the Node. 0 and nothing: without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_volume_detach_timeout_seconds: Option<i32>,
    /// For how many seconds the deletion of the Node object is tried. 0: without limit. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_deletion_timeout_seconds: Option<i32>,
}

/// What is known about a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineStatus {
    /// The conditions `Available`, `Ready`, `UpToDate`, `BootstrapConfigReady`, `InfrastructureReady`,
    /// `NodeReady`, `NodeHealthy`, `HealthCheckSucceeded`, `OwnerRemediated`, `Updating`, `Deleting` and
    /// `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Milestones of the first provisioning. They are not taken back; providers wait for them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: MachineInitializationStatus,
    /// The Node of the machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_ref: MachineNodeReference,
    /// What the kubelet says about its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_system_info")]
    pub node_info: Option<NodeSystemInfo>,
    /// When the phase changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
    /// The addresses that the infrastructure reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<MachineAddress>,
    /// The failure domain where the infrastructure put it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// A word for people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,
    /// When its certificates expire. Only machines of the control plane have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub certificates_expiry_date: Option<Time>,
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// When the steps of its deletion began.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineDeletionStatus,
}

/// Milestones of the first provisioning of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineInitializationStatus {
    /// Whether the machine exists in the infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the Secret with the bootstrap data exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_secret_created: Option<bool>,
}

/// A reference to a Node of the workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineNodeReference {
    /// The name of the Node.
    #[schemars(length(min = 1, max = 253), regex(pattern = patterns::OBJECT_NAME))]
    pub name: String,
}

/// When the steps of a deletion began.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeletionStatus {
    /// When the drain of the Node began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub node_drain_start_time: Option<Time>,
    /// When the wait for volumes began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub wait_for_node_volume_detach_start_time: Option<Time>,
    /// When the wait for hooks before the drain began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub wait_for_pre_drain_hook_start_time: Option<Time>,
    /// When the wait for hooks before the end of the infrastructure began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub wait_for_pre_terminate_hook_start_time: Option<Time>,
}

/// How far a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum MachinePhase {
    /// Its bootstrap data are missing.
    Pending,
    /// It is being made in the infrastructure.
    Provisioning,
    /// It exists and has no Node yet.
    Provisioned,
    /// It has a Node.
    Running,
    /// It is being changed in place.
    Updating,
    /// It is being deleted.
    Deleting,
    /// Its infrastructure is gone.
    Deleted,
    /// A person has to look. Controllers do not set it any more.
    Failed,
    /// Nobody knows, or a newer controller set another phase.
    #[serde(other)]
    Unknown,
}
