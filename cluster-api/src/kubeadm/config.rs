//! Types of Cluster API.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterConfiguration;
use super::InitConfiguration;
use super::JoinConfiguration;
use super::{DiskSetup, File, IgnitionSpec, NTP, User};
use crate::meta::{Condition, ObjectMeta};
use crate::serde_with::is_default;

/// `KubeadmConfigSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "KubeadmConfig",
    namespaced,
    schema = "disabled",
    doc = "Kind `KubeadmConfig` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    status = "KubeadmConfigStatus",
    category = "cluster-api",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = r".metadata.labels['cluster\.x-k8s\.io/cluster-name']"
    ),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Paused")].status"#,
        priority = 10
    ),
    printcolumn(
        name = "Data secret created",
        type_ = "string",
        json_path = ".status.initialization.dataSecretCreated"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigSpec {
    /// `clusterConfiguration`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_configuration: ClusterConfiguration,
    /// `initConfiguration`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub init_configuration: InitConfiguration,
    /// `joinConfiguration`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub join_configuration: JoinConfiguration,
    /// `files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-list-type" = "atomic"))]
    pub files: Vec<File>,
    /// `diskSetup`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disk_setup: DiskSetup,
    /// `mounts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub mounts: Vec<Vec<String>>,
    /// `bootCommands`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 10240)), extend("x-kubernetes-list-type" = "atomic"))]
    pub boot_commands: Vec<String>,
    /// `preKubeadmCommands`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 10240)), extend("x-kubernetes-list-type" = "atomic"))]
    pub pre_kubeadm_commands: Vec<String>,
    /// `postKubeadmCommands`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1000), inner(length(min = 1, max = 10240)), extend("x-kubernetes-list-type" = "atomic"))]
    pub post_kubeadm_commands: Vec<String>,
    /// `users`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub users: Vec<User>,
    /// `ntp`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ntp: NTP,
    /// `format`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// `verbosity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<i32>,
    /// `ignition`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignition: IgnitionSpec,
}

/// `KubeadmConfigStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigStatus {
    /// `conditions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// `initialization`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub initialization: KubeadmConfigInitializationStatus,
    /// `dataSecretName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub data_secret_name: Option<String>,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

/// `KubeadmConfigInitializationStatus` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigInitializationStatus {
    /// `dataSecretCreated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_created: Option<bool>,
}

/// `KubeadmConfigTemplateSpec` of Cluster API.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "bootstrap.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "KubeadmConfigTemplate",
    namespaced,
    schema = "disabled",
    doc = "Kind `KubeadmConfigTemplate` of Cluster API.",
    derive = "Default",
    derive = "PartialEq",
    category = "cluster-api",
    printcolumn(
        name = "ClusterClass",
        type_ = "string",
        json_path = r#".metadata.ownerReferences[?(@.kind=="ClusterClass")].name"#
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = r#".metadata.ownerReferences[?(@.kind=="Cluster")].name"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct KubeadmConfigTemplateSpec {
    /// `template`.
    pub template: KubeadmConfigTemplateResource,
}

/// `KubeadmConfigTemplateResource` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeadmConfigTemplateResource {
    /// `metadata`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: ObjectMeta,
    /// `spec`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spec: KubeadmConfigSpec,
}

/// `Format` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Format {
    /// `cloud-config`.
    #[serde(rename = "cloud-config")]
    CloudConfig,
    /// `ignition`.
    #[serde(rename = "ignition")]
    Ignition,
}
