//! The kinds `ClusterResourceSet` and `ClusterResourceSetBinding`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::Condition;
use crate::{rules, schema};

/// What is applied to which clusters.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterResourceSet",
    namespaced,
    schema = "disabled",
    doc = "Objects that are applied to every cluster that a selector chooses.",
    derive = "Default",
    derive = "PartialEq",
    status = "ClusterResourceSetStatus",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::RESOURCE_SET))]
pub struct ClusterResourceSetSpec {
    /// Chooses Clusters of the namespace, by their labels. It must not be empty and cannot change.
    #[schemars(schema_with = "schema::label_selector")]
    #[schemars(extend("x-kubernetes-validations" = rules::UNCHANGED))]
    pub cluster_selector: LabelSelector,
    /// What is applied, in this order.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<ResourceRef>,
    /// Whether changes are applied too. It cannot change. Default: `ApplyOnce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ClusterResourceSetStrategy>,
}

/// A `ConfigMap` or Secret of the namespace, each value of which is YAML with objects.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRef {
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The kind.
    pub kind: ClusterResourceSetResourceKind,
}

/// What is known about a set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterResourceSetStatus {
    /// The conditions `ResourcesApplied` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// What was applied to one cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterResourceSetBinding",
    namespaced,
    schema = "disabled",
    doc = "What was applied to one cluster, by which sets.",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceSetBindingSpec {
    /// The sets that apply to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub bindings: Vec<ResourceSetBinding>,
    /// The Cluster. It cannot change.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::UNCHANGED))]
    pub cluster_name: String,
}

/// What one set applied to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSetBinding {
    /// The name of the set.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_resource_set_name: String,
    /// What it applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<ResourceBinding>,
}

/// What is known about one resource in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBinding {
    /// The name of the `ConfigMap` or Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Which of the two it is.
    pub kind: ClusterResourceSetResourceKind,
    /// The hash of what was applied. Another one is applied again with the strategy `Reconcile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub hash: Option<String>,
    /// When it was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_applied_time: Option<Time>,
    /// Whether all of its objects are there.
    pub applied: bool,
}

/// The kinds that may hold resources.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum ClusterResourceSetResourceKind {
    /// A Secret of the type `addons.cluster.x-k8s.io/resource-set`.
    #[default]
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
}

/// Whether changes of resources are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ClusterResourceSetStrategy {
    /// Each resource is applied once.
    ApplyOnce,
    /// A resource is applied again whenever it changed.
    Reconcile,
}
