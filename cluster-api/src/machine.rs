//! Types of Cluster API.

use k8s_openapi::api::core::v1::NodeSystemInfo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{
    Condition, ConditionPolarity, ContractVersionedObjectReference, MachineAddress, MachineTaint,
};
use crate::schema;
use crate::serde_with::is_default;

/// `MachineSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    namespaced,
    schema = "disabled",
    doc = "Kind `Machine` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineStatus",
    shortname = "ma",
    category = "cluster-api",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Node Name", type_ = "string", json_path = ".status.nodeRef.name"),
    printcolumn(name = "Provider ID", type_ = "string", json_path = ".spec.providerID", priority = 10),
    printcolumn(name = "Failure domain", type_ = "string", json_path = ".status.failureDomain"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Up-to-date",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UpToDate")].status"#
    ),
    printcolumn(
        name = "Internal-IP",
        type_ = "string",
        json_path = r#".status.addresses[?(@.type=="InternalIP")].address"#,
        priority = 10
    ),
    printcolumn(
        name = "External-IP",
        type_ = "string",
        json_path = r#".status.addresses[?(@.type=="ExternalIP")].address"#,
        priority = 10
    ),
    printcolumn(name = "OS-Image", type_ = "string", json_path = ".status.nodeInfo.osImage", priority = 10),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Paused")].status"#,
        priority = 10
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// `clusterName`.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
    /// `bootstrap`.
    pub bootstrap: Bootstrap,
    /// `infrastructureRef`.
    pub infrastructure_ref: ContractVersionedObjectReference,
    /// `version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub version: Option<String>,
    /// `providerID`.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
    /// `failureDomain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// `minReadySeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// `readinessGates`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub readiness_gates: Vec<MachineReadinessGate>,
    /// `deletion`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineDeletionSpec,
    /// `taints`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    pub taints: Vec<MachineTaint>,
}

/// `Bootstrap` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// `configRef`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub config_ref: ContractVersionedObjectReference,
    /// `dataSecretName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 0, max = 253))]
    pub data_secret_name: Option<String>,
}

/// `MachineReadinessGate` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineReadinessGate {
    /// `conditionType`.
    #[schemars(
        length(min = 1, max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub condition_type: String,
    /// `polarity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polarity: Option<ConditionPolarity>,
}

/// `MachineDeletionSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeletionSpec {
    /// `nodeDrainTimeoutSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_drain_timeout_seconds: Option<i32>,
    /// `nodeVolumeDetachTimeoutSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_volume_detach_timeout_seconds: Option<i32>,
    /// `nodeDeletionTimeoutSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_deletion_timeout_seconds: Option<i32>,
}

/// `MachineStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineStatus {
    /// `conditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// `initialization`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: MachineInitializationStatus,
    /// `nodeRef`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_ref: MachineNodeReference,
    /// `nodeInfo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_system_info")]
    pub node_info: Option<NodeSystemInfo>,
    /// `lastUpdated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
    /// `addresses`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<MachineAddress>,
    /// `failureDomain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,
    /// `certificatesExpiryDate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub certificates_expiry_date: Option<Time>,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// `deletion`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineDeletionStatus,
}

/// `MachineInitializationStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineInitializationStatus {
    /// `infrastructureProvisioned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// `bootstrapDataSecretCreated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_secret_created: Option<bool>,
}

/// `MachineNodeReference` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineNodeReference {
    /// `name`.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
}

/// `MachineDeletionStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeletionStatus {
    /// `nodeDrainStartTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub node_drain_start_time: Option<Time>,
    /// `waitForNodeVolumeDetachStartTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub wait_for_node_volume_detach_start_time: Option<Time>,
    /// `waitForPreDrainHookStartTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub wait_for_pre_drain_hook_start_time: Option<Time>,
    /// `waitForPreTerminateHookStartTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub wait_for_pre_terminate_hook_start_time: Option<Time>,
}

/// `MachinePhase` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum MachinePhase {
    /// `Pending`.
    Pending,
    /// `Provisioning`.
    Provisioning,
    /// `Provisioned`.
    Provisioned,
    /// `Running`.
    Running,
    /// `Updating`.
    Updating,
    /// `Deleting`.
    Deleting,
    /// `Deleted`.
    Deleted,
    /// `Failed`.
    Failed,
    /// `Unknown`.
    #[serde(other)]
    Unknown,
}
