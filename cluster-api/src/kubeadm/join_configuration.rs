//! Types of Cluster API.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{APIEndpoint, NodeRegistrationOptions, Patches, Timeouts};
use crate::SecretText;
use crate::schema;
use crate::serde_with::is_default;

/// `JoinConfiguration` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct JoinConfiguration {
    /// `nodeRegistration`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_registration: NodeRegistrationOptions,
    /// `caCertPath`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub ca_cert_path: Option<String>,
    /// `discovery`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discovery: Discovery,
    /// `controlPlane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<JoinControlPlane>,
    /// `skipPhases`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub skip_phases: Vec<String>,
    /// `patches`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub patches: Patches,
    /// `timeouts`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
}

/// `Discovery` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Discovery {
    /// `bootstrapToken`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bootstrap_token: BootstrapTokenDiscovery,
    /// `file`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub file: FileDiscovery,
    /// `tlsBootstrapToken`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub tls_bootstrap_token: Option<SecretText>,
}

/// `BootstrapTokenDiscovery` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct BootstrapTokenDiscovery {
    /// `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub token: Option<SecretText>,
    /// `apiServerEndpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub api_server_endpoint: Option<String>,
    /// `caCertHashes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ca_cert_hashes: Vec<String>,
    /// `unsafeSkipCAVerification`.
    #[serde(rename = "unsafeSkipCAVerification", default, skip_serializing_if = "Option::is_none")]
    pub unsafe_skip_ca_verification: Option<bool>,
}

/// `FileDiscovery` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDiscovery {
    /// `kubeConfigPath`.
    #[schemars(length(min = 1, max = 512))]
    pub kube_config_path: String,
    /// `kubeConfig`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kube_config: FileDiscoveryKubeConfig,
}

/// `FileDiscoveryKubeConfig` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDiscoveryKubeConfig {
    /// `cluster`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: KubeConfigCluster,
    /// `user`.
    pub user: KubeConfigUser,
}

/// `KubeConfigCluster` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeConfigCluster {
    /// `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub server: Option<String>,
    /// `tlsServerName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub tls_server_name: Option<String>,
    /// `insecureSkipTLSVerify`.
    #[serde(rename = "insecureSkipTLSVerify", default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_tls_verify: Option<bool>,
    /// `certificateAuthorityData`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    #[schemars(length(min = 1, max = 51200))]
    pub certificate_authority_data: Option<ByteString>,
    /// `proxyURL`.
    #[serde(rename = "proxyURL", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub proxy_url: Option<String>,
}

/// `KubeConfigUser` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeConfigUser {
    /// `authProvider`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub auth_provider: KubeConfigAuthProvider,
    /// `exec`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exec: KubeConfigAuthExec,
}

/// `KubeConfigAuthProvider` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigAuthProvider {
    /// `name`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// `config`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

/// `KubeConfigAuthExec` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigAuthExec {
    /// `command`.
    #[schemars(length(min = 1, max = 1024))]
    pub command: String,
    /// `args`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub args: Vec<String>,
    /// `env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub env: Vec<KubeConfigAuthExecEnv>,
    /// `apiVersion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub api_version: Option<String>,
    /// `provideClusterInfo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provide_cluster_info: Option<bool>,
}

/// `KubeConfigAuthExecEnv` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigAuthExecEnv {
    /// `name`.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// `value`.
    #[schemars(length(min = 1, max = 512))]
    pub value: SecretText,
}

/// `JoinControlPlane` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinControlPlane {
    /// `localAPIEndpoint`.
    #[serde(rename = "localAPIEndpoint", default, skip_serializing_if = "is_default")]
    pub local_api_endpoint: APIEndpoint,
}
