//! The kind `MachineHealthCheck`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, ConditionStatus};
use crate::serde_with::is_default;
use crate::{patterns, rules, schema};

/// Which Machines are looked at, what is unhealthy, and what follows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineHealthCheck",
    namespaced,
    schema = "disabled",
    doc = "Finds unhealthy Machines and has them replaced or repaired.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineHealthCheckStatus",
    shortname = "mhc",
    shortname = "mhcs",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::HEALTH_CHECK))]
pub struct MachineHealthCheckSpec {
    /// The Cluster of the Machines. It cannot change.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::UNCHANGED))]
    pub cluster_name: String,
    /// Chooses the Machines, by their labels. It must not be empty.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// What is unhealthy. Without any check, a Machine is unhealthy when its Node is gone or never came.
    #[serde(default, skip_serializing_if = "is_default")]
    pub checks: MachineHealthCheckChecks,
    /// What is done about unhealthy Machines. Default: their owner replaces them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub remediation: MachineHealthCheckRemediation,
}

/// What is unhealthy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckChecks {
    /// After how many seconds a Machine without Node is unhealthy: at least 30, or 0 for never. Default: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("x-kubernetes-validations" = rules::NODE_STARTUP_TIMEOUT))]
    pub node_startup_timeout_seconds: Option<i32>,
    /// Conditions of the Node, one of which is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_node_conditions: Vec<UnhealthyNodeCondition>,
    /// Conditions of the Machine, one of which is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_machine_conditions: Vec<UnhealthyMachineCondition>,
}

/// A condition of a Node that means illness when it lasts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNodeCondition {
    /// The type of the condition, such as `Ready`.
    #[schemars(length(min = 1))]
    pub type_: String,
    /// The value that means illness.
    #[schemars(length(min = 1))]
    pub status: String,
    /// For how many seconds the condition must have the value.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// A condition of a Machine that means illness when it lasts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyMachineCondition {
    /// The type of the condition. Those that health checks and remediation write cannot be used.
    #[schemars(length(min = 1, max = 316), regex(pattern = patterns::QUALIFIED_NAME), extend("x-kubernetes-validations" = rules::CONDITION_OF_HEALTH_CHECK))]
    pub type_: String,
    /// The value that means illness.
    pub status: ConditionStatus,
    /// For how many seconds the condition must have the value.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// What is done about unhealthy Machines.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckRemediation {
    /// When nothing is done, since too many are ill. Default: something is always done.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trigger_if: MachineHealthCheckRemediationTriggerIf,
    /// What an object for another controller is made from, one for each unhealthy Machine. Default: the owner
    /// replaces the Machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub template_ref: MachineHealthCheckRemediationTemplateReference,
}

/// How many Machines may be ill, so that something is done. `unhealthyInRange` counts if both are given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckRemediationTriggerIf {
    /// At most so many: a number, or a percentage of the Machines, rounded down. Default: 100 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    #[schemars(extend("x-kubernetes-validations" = rules::NUMBER_OR_PERCENTAGE))]
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// At least and at most so many, as in `[3-5]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = patterns::RANGE), extend("x-kubernetes-validations" = rules::RANGE_OF_UNHEALTHY))]
    pub unhealthy_in_range: Option<String>,
}

/// A reference to a template in the same namespace, with its version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckRemediationTemplateReference {
    /// The kind of the template.
    #[schemars(length(min = 1, max = 63), regex(pattern = patterns::KIND))]
    pub kind: String,
    /// The name of the template.
    #[schemars(length(min = 1, max = 253), regex(pattern = patterns::OBJECT_NAME))]
    pub name: String,
    /// The group and version of the kind, such as `infrastructure.cluster.x-k8s.io/v1beta2`.
    #[schemars(length(min = 1, max = 317), regex(pattern = patterns::API_VERSION))]
    pub api_version: String,
}

/// What is known about a health check.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckStatus {
    /// The conditions `RemediationAllowed` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many Machines the selector chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub expected_machines: Option<i32>,
    /// How many of them are healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub current_healthy: Option<i32>,
    /// How many more may fall ill before nothing is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub remediations_allowed: Option<i32>,
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// The names of the Machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<String>,
}
