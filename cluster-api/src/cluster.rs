//! Types of Cluster API.

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{
    Condition, ConditionPolarity, ContractVersionedObjectReference, StatusUpgradePlanVersion, StatusVersion,
};
use crate::schema;
use crate::serde_with::is_default;

/// `ClusterSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    namespaced,
    schema = "disabled",
    doc = "Kind `Cluster` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    status = "ClusterStatus",
    shortname = "cl",
    category = "cluster-api",
    printcolumn(name = "ClusterClass", type_ = "string", json_path = ".spec.topology.classRef.name"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(name = "CP Desired", type_ = "integer", json_path = ".status.controlPlane.desiredReplicas"),
    printcolumn(
        name = "CP Current",
        type_ = "integer",
        json_path = ".status.controlPlane.replicas",
        priority = 10
    ),
    printcolumn(
        name = "CP Ready",
        type_ = "integer",
        json_path = ".status.controlPlane.readyReplicas",
        priority = 10
    ),
    printcolumn(
        name = "CP Available",
        type_ = "integer",
        json_path = ".status.controlPlane.availableReplicas"
    ),
    printcolumn(
        name = "CP Up-to-date",
        type_ = "integer",
        json_path = ".status.controlPlane.upToDateReplicas"
    ),
    printcolumn(name = "W Desired", type_ = "integer", json_path = ".status.workers.desiredReplicas"),
    printcolumn(
        name = "W Current",
        type_ = "integer",
        json_path = ".status.workers.replicas",
        priority = 10
    ),
    printcolumn(
        name = "W Ready",
        type_ = "integer",
        json_path = ".status.workers.readyReplicas",
        priority = 10
    ),
    printcolumn(name = "W Available", type_ = "integer", json_path = ".status.workers.availableReplicas"),
    printcolumn(name = "W Up-to-date", type_ = "integer", json_path = ".status.workers.upToDateReplicas"),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Paused")].status"#,
        priority = 10
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.topology.version")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterSpec {
    /// `paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// `clusterNetwork`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_network: ClusterNetwork,
    /// `controlPlaneEndpoint`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane_endpoint: APIEndpoint,
    /// `controlPlaneRef`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane_ref: ContractVersionedObjectReference,
    /// `infrastructureRef`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub infrastructure_ref: ContractVersionedObjectReference,
    /// `topology`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::anything")]
    pub topology: Value,
    /// `availabilityGates`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub availability_gates: Vec<ClusterAvailabilityGate>,
}

/// `ClusterNetwork` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterNetwork {
    /// `apiServerPort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub api_server_port: Option<i32>,
    /// `services`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub services: NetworkRanges,
    /// `pods`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods: NetworkRanges,
    /// `serviceDomain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_domain: Option<String>,
}

/// `NetworkRanges` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRanges {
    /// `cidrBlocks`.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 43)), extend("x-kubernetes-list-type" = "atomic"))]
    pub cidr_blocks: Vec<String>,
}

/// `APIEndpoint` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct APIEndpoint {
    /// `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub host: Option<String>,
    /// `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// `ClusterAvailabilityGate` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAvailabilityGate {
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

/// `ClusterStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterStatus {
    /// `conditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// `initialization`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: ClusterInitializationStatus,
    /// `controlPlane`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub control_plane: ClusterControlPlaneStatus,
    /// `workers`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub workers: WorkersStatus,
    /// `failureDomains`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClusterPhase>,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// `ClusterInitializationStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterInitializationStatus {
    /// `infrastructureProvisioned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// `controlPlaneInitialized`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// `ClusterControlPlaneStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterControlPlaneStatus {
    /// `desiredReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `upToDateReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// `readyReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// `availableReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// `versions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<StatusVersion>,
    /// `upgradePlan`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub upgrade_plan: Vec<StatusUpgradePlanVersion>,
}

/// `WorkersStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkersStatus {
    /// `desiredReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `upToDateReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// `readyReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// `availableReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// `versions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<StatusVersion>,
    /// `upgradePlan`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub upgrade_plan: Vec<StatusUpgradePlanVersion>,
}

/// `FailureDomain` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// `name`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// `controlPlane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// `attributes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// `ClusterPhase` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ClusterPhase {
    /// `Pending`.
    Pending,
    /// `Provisioning`.
    Provisioning,
    /// `Provisioned`.
    Provisioned,
    /// `Deleting`.
    Deleting,
    /// `Failed`.
    Failed,
    /// `Unknown`.
    #[serde(other)]
    Unknown,
}
