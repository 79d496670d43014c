//! The kind `MachineSet`, and the template of Machines.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::MachineSpec;
use crate::meta::{Condition, ObjectMeta, StatusVersion};
use crate::serde_with::is_default;
use crate::{rules, schema};

/// How many Machines there are and what they are made from.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineSet",
    namespaced,
    schema = "disabled",
    doc = "Keeps a number of Machines that are made from one template.",
    derive = "Default",
    derive = "PartialEq",
    status = "MachineSetStatus",
    shortname = "ms",
    category = "cluster-api",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::TEMPLATE_OF_MACHINES))]
pub struct MachineSetSpec {
    /// The Cluster that the Machines belong to. It cannot change.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::UNCHANGED))]
    pub cluster_name: String,
    /// How many Machines are wanted. If it is not given, it stays between the limits of the autoscaler's
    /// annotations; without those it is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Chooses the Machines that are counted, by their labels. It must match those of the template. Default:
    /// the name of the set.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// What new Machines are made from.
    pub template: MachineTemplateSpec,
    /// How new Machines are called.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine_naming: MachineNamingSpec,
    /// Which Machines go first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deletion: MachineSetDeletionSpec,
}

/// How Machines are called.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineNamingSpec {
    /// The name, with `{{ .cluster.name }}`, `{{ .machineSet.name }}` and `{{ .random }}` replaced. `{{
    /// .random }}`, five letters and digits, must be there. Default: `{{ .machineSet.name }}-{{ .random }}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), extend("x-kubernetes-validations" = rules::NAME_OF_MACHINES))]
    pub template: Option<String>,
}

/// What Machines are made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplateSpec {
    /// Labels and annotations of the Machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: ObjectMeta,
    /// What the Machines are made of. Its references name templates.
    pub spec: MachineSpec,
}

/// Which Machines go first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineSetDeletionSpec {
    /// The order among Machines that are equally healthy. Default: `Random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<MachineSetDeletionOrder>,
}

/// What is known about a set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineSetStatus {
    /// The conditions `MachinesReady`, `MachinesUpToDate`, `ScalingUp`, `ScalingDown`, `Remediating`,
    /// `Deleting` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
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
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// Which of several equally healthy Machines goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum MachineSetDeletionOrder {
    /// Any.
    Random,
    /// The one that was made last.
    Newest,
    /// The one that was made first.
    Oldest,
}
