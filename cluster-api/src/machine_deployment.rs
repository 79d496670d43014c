//! Types of Cluster API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine_set::{MachineSetDeletionOrder, MachineTemplateSpec};
use crate::meta::{Condition, StatusVersion};
use crate::schema;
use crate::serde_with::is_default;

/// `MachineNamingSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineNamingSpec {
    /// `template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub template: Option<String>,
}

/// `MachineDeploymentSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDeployment",
    namespaced,
    schema = "disabled",
    doc = "Kind `MachineDeployment` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineDeploymentStatus",
    shortname = "md",
    category = "cluster-api",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Up-to-date", type_ = "integer", json_path = ".status.upToDateReplicas"),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Paused")].status"#,
        priority = 10
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.template.spec.version")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentSpec {
    /// `clusterName`.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `rollout`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: MachineDeploymentRolloutSpec,
    /// `selector`.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// `template`.
    pub template: MachineTemplateSpec,
    /// `machineNaming`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine_naming: MachineNamingSpec,
    /// `remediation`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub remediation: MachineDeploymentRemediationSpec,
    /// `deletion`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineDeploymentDeletionSpec,
    /// `paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// `MachineDeploymentRolloutSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRolloutSpec {
    /// `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub after: Option<Time>,
    /// `strategy`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: MachineDeploymentRolloutStrategy,
}

/// `MachineDeploymentRolloutStrategy` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRolloutStrategy {
    /// `type`.
    pub type_: MachineDeploymentRolloutStrategyType,
    /// `rollingUpdate`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rolling_update: MachineDeploymentRolloutStrategyRollingUpdate,
}

/// `MachineDeploymentRolloutStrategyRollingUpdate` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRolloutStrategyRollingUpdate {
    /// `maxUnavailable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// `maxSurge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_surge: Option<IntOrString>,
}

/// `MachineDeploymentRemediationSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRemediationSpec {
    /// `maxInFlight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_in_flight: Option<IntOrString>,
}

/// `MachineDeploymentDeletionSpec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentDeletionSpec {
    /// `order`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<MachineSetDeletionOrder>,
}

/// `MachineDeploymentStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentStatus {
    /// `conditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// `selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub selector: Option<String>,
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `readyReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// `availableReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// `upToDateReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// `versions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<StatusVersion>,
    /// `phase`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachineDeploymentPhase>,
}

/// `MachineDeploymentRolloutStrategyType` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineDeploymentRolloutStrategyType {
    /// `RollingUpdate`.
    #[default]
    RollingUpdate,
    /// `OnDelete`.
    OnDelete,
}

/// `MachineDeploymentPhase` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum MachineDeploymentPhase {
    /// `ScalingUp`.
    ScalingUp,
    /// `ScalingDown`.
    ScalingDown,
    /// `Running`.
    Running,
    /// `Failed`.
    Failed,
    /// `Unknown`.
    #[serde(other)]
    Unknown,
}
