//! The kind `MachineDeployment`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine_set::{MachineNamingSpec, MachineSetDeletionOrder, MachineTemplateSpec};
use crate::meta::{Condition, StatusVersion};
use crate::serde_with::is_default;
use crate::{rules, schema};

/// How many Machines there are, what they are made from, and how they are replaced.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDeployment",
    namespaced,
    schema = "disabled",
    doc = "Replaces the Machines of a template step by step whenever the template changes.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineDeploymentStatus",
    shortname = "md",
    category = "cluster-api",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::TEMPLATE_OF_MACHINES))]
pub struct MachineDeploymentSpec {
    /// The Cluster that the Machines belong to. It cannot change.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::UNCHANGED))]
    pub cluster_name: String,
    /// How many Machines are wanted. If it is not given, it stays between the limits of the autoscaler's
    /// annotations; without those it is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// When and how Machines are replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: MachineDeploymentRolloutSpec,
    /// Chooses the `MachineSet` objects that are counted, by their labels. It must match those of the
    /// template. Default: the names of the deployment and of the Cluster.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// What new Machines are made from.
    pub template: MachineTemplateSpec,
    /// How new Machines are called.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine_naming: MachineNamingSpec,
    /// How many unhealthy Machines are replaced at a time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub remediation: MachineDeploymentRemediationSpec,
    /// Which Machines go first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineDeploymentDeletionSpec,
    /// Whether no Machines are replaced and the number of replicas alone is followed. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// When and how Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRolloutSpec {
    /// Machines that were made before this time are replaced once it has come, whatever their template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub after: Option<Time>,
    /// How Machines are replaced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: MachineDeploymentRolloutStrategy,
}

/// How Machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRolloutStrategy {
    /// Who decides when an old Machine goes. Default: `RollingUpdate`.
    pub type_: MachineDeploymentRolloutStrategyType,
    /// The limits of `RollingUpdate`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rolling_update: MachineDeploymentRolloutStrategyRollingUpdate,
}

/// How many Machines may be missing or too many while they are replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = rules::ROLLING_UPDATE))]
pub struct MachineDeploymentRolloutStrategyRollingUpdate {
    /// How many may be missing: a number, or a percentage of the replicas, rounded down. Default: 0. It
    /// cannot be 0 together with `maxSurge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    #[schemars(extend("x-kubernetes-validations" = rules::NUMBER_OR_PERCENTAGE))]
    pub max_unavailable: Option<IntOrString>,
    /// How many may be too many: a number, or a percentage of the replicas, rounded up. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    #[schemars(extend("x-kubernetes-validations" = rules::NUMBER_OR_PERCENTAGE))]
    pub max_surge: Option<IntOrString>,
}

/// How many unhealthy Machines are replaced at a time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentRemediationSpec {
    /// A number, or a percentage of the replicas, rounded up. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    #[schemars(extend("x-kubernetes-validations" = rules::NUMBER_OR_PERCENTAGE))]
    pub max_in_flight: Option<IntOrString>,
}

/// Which Machines go first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentDeletionSpec {
    /// The order among Machines that are equally healthy. Default: `Random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<MachineSetDeletionOrder>,
}

/// What is known about a deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDeploymentStatus {
    /// The conditions `Available`, `MachinesReady`, `MachinesUpToDate`, `RollingOut`, `ScalingUp`,
    /// `ScalingDown`, `Remediating`, `Deleting` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// `spec.selector` as a text, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub selector: Option<String>,
    /// How many Machines exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many have the condition `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many have the condition `Available`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many have the condition `UpToDate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// How many there are of each version of Kubernetes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<StatusVersion>,
    /// A word for people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachineDeploymentPhase>,
}

/// Who decides when an old Machine goes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineDeploymentRolloutStrategyType {
    /// The controller, within the limits.
    #[default]
    RollingUpdate,
    /// The user, by deleting it.
    OnDelete,
}

/// How far a deployment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum MachineDeploymentPhase {
    /// Machines are missing.
    ScalingUp,
    /// There are too many Machines.
    ScalingDown,
    /// There are as many Machines as wanted.
    Running,
    /// A person has to look. Controllers do not set it any more.
    Failed,
    /// Nobody knows, or a newer controller set another phase.
    #[serde(other)]
    Unknown,
}
