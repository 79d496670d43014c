//! The kind Cluster.

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{
    Condition, ConditionPolarity, ContractVersionedObjectReference, StatusUpgradePlanVersion, StatusVersion,
};
use crate::serde_with::is_default;
use crate::{patterns, rules, schema};

/// What a cluster is made of.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    namespaced,
    schema = "disabled",
    doc = "A Kubernetes cluster: references to what makes it, and what is known about it.",
    derive = "Default",
    derive = "PartialEq",
    status = "ClusterStatus",
    shortname = "cl",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = rules::CLUSTER))]
pub struct ClusterSpec {
    /// Whether all controllers leave the cluster and its objects alone. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The networks inside of the cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_network: ClusterNetwork,
    /// Where clients reach the API server. Filled in from the infrastructure or the control plane, if it is
    /// not given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane_endpoint: APIEndpoint,
    /// The object that runs the control plane, such as a `KubeadmControlPlane`. Without one, Machines with
    /// the label of control planes are the control plane. It cannot be taken away.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane_ref: ContractVersionedObjectReference,
    /// The object with the infrastructure that all machines share, such as a load balancer. Without one, it
    /// counts as provisioned. It cannot be taken away.
    #[serde(default, skip_serializing_if = "is_default")]
    pub infrastructure_ref: ContractVersionedObjectReference,
    /// The managed topology. This daemon does not manage topologies and keeps the field as it is.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::anything")]
    pub topology: Value,
    /// Conditions beyond the usual ones that must hold before the cluster is available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub availability_gates: Vec<ClusterAvailabilityGate>,
}

/// The networks inside of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterNetwork {
    /// The port of the API server. Default: 6443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub api_server_port: Option<i32>,
    /// The addresses of Services.
    #[serde(default, skip_serializing_if = "is_default")]
    pub services: NetworkRanges,
    /// The addresses of Pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods: NetworkRanges,
    /// The DNS domain of Services, such as `cluster.local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_domain: Option<String>,
}

/// Ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRanges {
    /// The ranges, such as `10.0.0.0/16`; one of each family for dual stack.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 43)), extend("x-kubernetes-list-type" = "atomic"), extend("x-kubernetes-validations" = rules::RANGES))]
    pub cidr_blocks: Vec<String>,
}

/// Where an API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct APIEndpoint {
    /// A DNS name or an IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub host: Option<String>,
    /// The TCP port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// A condition of the cluster that counts for `Available`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAvailabilityGate {
    /// The type of the condition. If it is missing, it counts as unknown.
    #[schemars(length(min = 1, max = 316), regex(pattern = patterns::QUALIFIED_NAME))]
    pub condition_type: String,
    /// Which value is the good one. Default: `Positive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polarity: Option<ConditionPolarity>,
}

/// What is known about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterStatus {
    /// The conditions `Available`, `RemoteConnectionProbe`, `InfrastructureReady`, those of the control plane
    /// and of the workers, `RollingOut`, `ScalingUp`, `ScalingDown`, `Remediating`, `Deleting` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Milestones of the first provisioning. They are not taken back; providers wait for them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: ClusterInitializationStatus,
    /// Counts of Machines of the control plane.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane: ClusterControlPlaneStatus,
    /// Counts of Machines of workers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub workers: WorkersStatus,
    /// The failure domains that the infrastructure offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// A word for people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClusterPhase>,
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// Milestones of the first provisioning of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterInitializationStatus {
    /// Whether the shared infrastructure is complete. Machines are made afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the API server answered once. Workers join afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// Counts of Machines of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterControlPlaneStatus {
    /// How many are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// How many exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many have the condition `UpToDate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// How many have the condition `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many have the condition `Available`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many there are of each version of Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<StatusVersion>,
    /// The versions that an upgrade still goes through, the next one first. Only managed topologies have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub upgrade_plan: Vec<StatusUpgradePlanVersion>,
}

/// Counts of Machines of workers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkersStatus {
    /// How many are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// How many exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many have the condition `UpToDate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// How many have the condition `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many have the condition `Available`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many there are of each version of Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<StatusVersion>,
    /// The versions that an upgrade still goes through, the next one first. Only managed topologies have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub upgrade_plan: Vec<StatusUpgradePlanVersion>,
}

/// A part of the infrastructure that fails together, such as a zone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// The name, as Machines give it in `spec.failureDomain`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Whether Machines of the control plane may be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// What the infrastructure provider says about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// How far a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ClusterPhase {
    /// Nothing began.
    Pending,
    /// The infrastructure or the control plane is on its way.
    Provisioning,
    /// The infrastructure is complete and the endpoint is known.
    Provisioned,
    /// It is being deleted.
    Deleting,
    /// A person has to look. Controllers do not set it any more.
    Failed,
    /// Nobody knows, or a newer controller set another phase.
    #[serde(other)]
    Unknown,
}
