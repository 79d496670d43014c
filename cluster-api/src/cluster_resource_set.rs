//! Types of Cluster API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::Condition;
use crate::schema;

/// `ClusterResourceSetSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterResourceSet",
    namespaced,
    schema = "disabled",
    doc = "Kind `ClusterResourceSet` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    status = "ClusterResourceSetStatus",
    category = "cluster-api",
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ResourcesApplied")].status"#
    ),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Paused")].status"#,
        priority = 10
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceSetSpec {
    /// `clusterSelector`.
    #[schemars(schema_with = "schema::label_selector")]
    pub cluster_selector: LabelSelector,
    /// `resources`.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<ResourceRef>,
    /// `strategy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ClusterResourceSetStrategy>,
}

/// `ResourceRef` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRef {
    /// `name`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `kind`.
    pub kind: ClusterResourceSetResourceKind,
}

/// `ClusterResourceSetStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterResourceSetStatus {
    /// `conditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// `ClusterResourceSetBindingSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "addons.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterResourceSetBinding",
    namespaced,
    schema = "disabled",
    doc = "Kind `ClusterResourceSetBinding` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceSetBindingSpec {
    /// `bindings`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub bindings: Vec<ResourceSetBinding>,
    /// `clusterName`.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
}

/// `ResourceSetBinding` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSetBinding {
    /// `clusterResourceSetName`.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_resource_set_name: String,
    /// `resources`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub resources: Vec<ResourceBinding>,
}

/// `ResourceBinding` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBinding {
    /// `name`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `kind`.
    pub kind: ClusterResourceSetResourceKind,
    /// `hash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub hash: Option<String>,
    /// `lastAppliedTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_applied_time: Option<Time>,
    /// `applied`.
    pub applied: bool,
}

/// `ClusterResourceSetResourceKind` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum ClusterResourceSetResourceKind {
    /// `Secret`.
    #[default]
    Secret,
    /// `ConfigMap`.
    ConfigMap,
}

/// `ClusterResourceSetStrategy` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ClusterResourceSetStrategy {
    /// `ApplyOnce`.
    ApplyOnce,
    /// `Reconcile`.
    Reconcile,
}
