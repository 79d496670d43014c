//! The kinds `KubeadmConfig` and `KubeadmConfigTemplate`.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ClusterConfiguration, DiskSetup, File, IgnitionSpec, InitConfiguration, JoinConfiguration, NTP, User,
};
use crate::meta::{Condition, ObjectMeta};
use crate::rules;
use crate::serde_with::is_default;

/// What kubeadm is given, and what else a machine gets at its first boot.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "KubeadmConfig",
    namespaced,
    schema = "disabled",
    doc = "What one machine runs at its first boot to become a Node by kubeadm.",
    derive = "Default",
    derive = "PartialEq",
    // Go's clients leave an empty spec out. kube takes attributes of serde in disguise only.
    attr = "cfg_attr(not(any()), serde(default))",
    status = "KubeadmConfigStatus",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = rules::IGNITION))]
pub struct KubeadmConfigSpec {
    /// What kubeadm is given about the cluster. For the first machine of a control plane.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_configuration: ClusterConfiguration,
    /// What `kubeadm init` is given. For the first machine of a control plane.
    #[serde(default, skip_serializing_if = "is_default")]
    pub init_configuration: InitConfiguration,
    /// What `kubeadm join` is given. For all other machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub join_configuration: JoinConfiguration,
    /// Files that are written before kubeadm runs. Each path at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-list-type" = "atomic"), extend("x-kubernetes-validations" = rules::FILES))]
    pub files: Vec<File>,
    /// Partitions and file systems.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disk_setup: DiskSetup,
    /// What is mounted where: the fields of lines of `/etc/fstab`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 100), inner(length(min = 1, max = 512))), extend("x-kubernetes-list-type" = "atomic"))]
    pub mounts: Vec<Vec<String>>,
    /// Commands that run early at every boot. Not with `ignition`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 10240)), extend("x-kubernetes-list-type" = "atomic"))]
    pub boot_commands: Vec<String>,
    /// Commands that run before kubeadm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 10240)), extend("x-kubernetes-list-type" = "atomic"))]
    pub pre_kubeadm_commands: Vec<String>,
    /// Commands that run after kubeadm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 10240)), extend("x-kubernetes-list-type" = "atomic"))]
    pub post_kubeadm_commands: Vec<String>,
    /// Users that are added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<User>,
    /// Time servers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ntp: NTP,
    /// The format of the bootstrap data. Default: `cloud-config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// How much kubeadm logs, its flag `--v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<i32>,
    /// What is added to Ignition's data. Only with the format `ignition`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignition: IgnitionSpec,
}

/// What is known about the bootstrap data.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigStatus {
    /// The conditions `Ready`, `CertificatesAvailable`, `DataSecretAvailable` and `Paused`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Milestones. They are not taken back; the machine controller waits for them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: KubeadmConfigInitializationStatus,
    /// The Secret with the bootstrap data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub data_secret_name: Option<String>,
    /// The `metadata.generation` that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// Milestones of bootstrap data.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigInitializationStatus {
    /// Whether the Secret with the bootstrap data exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_created: Option<bool>,
}

/// What `KubeadmConfig` objects are made from.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "KubeadmConfigTemplate",
    namespaced,
    schema = "disabled",
    doc = "The template of `KubeadmConfig` objects: each Machine gets a copy.",
    derive = "Default",
    derive = "PartialEq",
    // Go's clients leave an empty spec out. kube takes attributes of serde in disguise only.
    attr = "cfg_attr(not(any()), serde(default))",
    category = "cluster-api"
)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmConfigTemplateSpec {
    /// The template.
    pub template: KubeadmConfigTemplateResource,
}

/// What `KubeadmConfig` objects are made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigTemplateResource {
    /// Labels and annotations of the objects.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: ObjectMeta,
    /// Their spec.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: KubeadmConfigSpec,
}

/// A format of bootstrap data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Format {
    /// What cloud-init reads.
    #[serde(rename = "cloud-config")]
    CloudConfig,
    /// What Ignition reads.
    #[serde(rename = "ignition")]
    Ignition,
}
