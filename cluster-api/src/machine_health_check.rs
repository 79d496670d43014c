//! Types of Cluster API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, ConditionStatus};
use crate::schema;
use crate::serde_with::is_default;

/// `MachineHealthCheckSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineHealthCheck",
    namespaced,
    schema = "disabled",
    doc = "Kind `MachineHealthCheck` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineHealthCheckStatus",
    shortname = "mhc",
    shortname = "mhcs",
    category = "cluster-api",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.expectedMachines"),
    printcolumn(name = "Healthy", type_ = "integer", json_path = ".status.currentHealthy"),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Paused")].status"#,
        priority = 10
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckSpec {
    /// `clusterName`.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
    /// `selector`.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// `checks`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub checks: MachineHealthCheckChecks,
    /// `remediation`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub remediation: MachineHealthCheckRemediation,
}

/// `MachineHealthCheckChecks` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckChecks {
    /// `nodeStartupTimeoutSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_startup_timeout_seconds: Option<i32>,
    /// `unhealthyNodeConditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_node_conditions: Vec<UnhealthyNodeCondition>,
    /// `unhealthyMachineConditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_machine_conditions: Vec<UnhealthyMachineCondition>,
}

/// `UnhealthyNodeCondition` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNodeCondition {
    /// `type`.
    #[schemars(length(min = 1))]
    pub type_: String,
    /// `status`.
    #[schemars(length(min = 1))]
    pub status: String,
    /// `timeoutSeconds`.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// `UnhealthyMachineCondition` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyMachineCondition {
    /// `type`.
    #[schemars(length(min = 1, max = 316), regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"), extend("x-kubernetes-validations" = [{"message": "type must not be one of: Ready, Available, HealthCheckSucceeded, OwnerRemediated, ExternallyRemediated", "rule": "!(self in ['Ready','Available','HealthCheckSucceeded','OwnerRemediated','ExternallyRemediated'])"}]))]
    pub type_: String,
    /// `status`.
    pub status: ConditionStatus,
    /// `timeoutSeconds`.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// `MachineHealthCheckRemediation` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckRemediation {
    /// `triggerIf`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trigger_if: MachineHealthCheckRemediationTriggerIf,
    /// `templateRef`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub template_ref: MachineHealthCheckRemediationTemplateReference,
}

/// `MachineHealthCheckRemediationTriggerIf` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckRemediationTriggerIf {
    /// `unhealthyLessThanOrEqualTo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// `unhealthyInRange`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^\[[0-9]+-[0-9]+\]$"))]
    pub unhealthy_in_range: Option<String>,
}

/// `MachineHealthCheckRemediationTemplateReference` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckRemediationTemplateReference {
    /// `kind`.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub kind: String,
    /// `name`.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
    /// `apiVersion`.
    #[schemars(
        length(min = 1, max = 317),
        regex(
            pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[a-z]([-a-z0-9]*[a-z0-9])?$"
        )
    )]
    pub api_version: String,
}

/// `MachineHealthCheckStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckStatus {
    /// `conditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// `expectedMachines`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub expected_machines: Option<i32>,
    /// `currentHealthy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub current_healthy: Option<i32>,
    /// `remediationsAllowed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub remediations_allowed: Option<i32>,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// `targets`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<String>,
}
