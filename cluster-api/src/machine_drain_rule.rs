//! The kind `MachineDrainRule`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{rules, schema};

/// Which Pods on which Machines, and how they leave. Of two rules for one Pod, the first by name counts.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDrainRule",
    namespaced,
    schema = "disabled",
    doc = "Says how Pods leave a Node before its Machine goes.",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineDrainRuleSpec {
    /// How the Pods leave.
    pub drain: MachineDrainRuleDrainConfig,
    /// The Machines. One entry is enough. Default: all of the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::ENTRIES))]
    pub machines: Vec<MachineDrainRuleMachineSelector>,
    /// The Pods. One entry is enough. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::ENTRIES))]
    pub pods: Vec<MachineDrainRulePodSelector>,
}

/// How Pods leave.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::DRAIN))]
pub struct MachineDrainRuleDrainConfig {
    /// Whether Pods are evicted, left alone, or waited for.
    pub behavior: MachineDrainRuleDrainBehavior,
    /// When they are evicted: lower numbers first, 0 for Pods without a rule. Only with the behavior `Drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<i32>,
}

/// Chooses Machines. Both selectors must match.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDrainRuleMachineSelector {
    /// Chooses Machines by their labels. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Chooses Machines by the labels of their Cluster. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub cluster_selector: Option<LabelSelector>,
}

/// Chooses Pods. Both selectors must match.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineDrainRulePodSelector {
    /// Chooses Pods by their labels. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Chooses Pods by the labels of their namespace. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
}

/// What a drain does with a Pod.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineDrainRuleDrainBehavior {
    /// It is evicted.
    #[default]
    Drain,
    /// It stays.
    Skip,
    /// It stays, and the drain waits for its end.
    WaitCompleted,
}
