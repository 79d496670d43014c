//! Types of Cluster API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// `MachineDrainRuleSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDrainRule",
    namespaced,
    schema = "disabled",
    doc = "Kind `MachineDrainRule` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    printcolumn(name = "Behavior", type_ = "string", json_path = ".spec.drain.behavior"),
    printcolumn(name = "Order", type_ = "string", json_path = ".spec.drain.order"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineDrainRuleSpec {
    /// `drain`.
    pub drain: MachineDrainRuleDrainConfig,
    /// `machines`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = [{"message": "entries in machines must be unique", "rule": "self.all(x, self.exists_one(y, x == y))"}]))]
    pub machines: Vec<MachineDrainRuleMachineSelector>,
    /// `pods`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = [{"message": "entries in pods must be unique", "rule": "self.all(x, self.exists_one(y, x == y))"}]))]
    pub pods: Vec<MachineDrainRulePodSelector>,
}

/// `MachineDrainRuleDrainConfig` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDrainRuleDrainConfig {
    /// `behavior`.
    pub behavior: MachineDrainRuleDrainBehavior,
    /// `order`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<i32>,
}

/// `MachineDrainRuleMachineSelector` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDrainRuleMachineSelector {
    /// `selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// `clusterSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub cluster_selector: Option<LabelSelector>,
}

/// `MachineDrainRulePodSelector` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDrainRulePodSelector {
    /// `selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// `namespaceSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
}

/// `MachineDrainRuleDrainBehavior` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineDrainRuleDrainBehavior {
    /// `Drain`.
    #[default]
    Drain,
    /// `Skip`.
    Skip,
    /// `WaitCompleted`.
    WaitCompleted,
}
