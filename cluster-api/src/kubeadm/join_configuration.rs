//! What `kubeadm join` is given.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{APIEndpoint, NodeRegistrationOptions, Patches, Timeouts};
use crate::SecretText;
use crate::serde_with::is_default;
use crate::{rules, schema};

/// What `kubeadm join` is given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct JoinConfiguration {
    /// How the machine registers its Node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_registration: NodeRegistrationOptions,
    /// The file where the certificate authority of the cluster is put. Default: `/etc/kubernetes/pki/ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub ca_cert_path: Option<String>,
    /// How the machine finds and trusts the cluster. Default: the controller fills in a token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discovery: Discovery,
    /// That the machine runs a control plane. An empty object is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<JoinControlPlane>,
    /// Phases of kubeadm that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub skip_phases: Vec<String>,
    /// Patches of what kubeadm writes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub patches: Patches,
    /// For how long kubeadm waits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
}

/// How a machine finds and trusts a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Discovery {
    /// By a token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bootstrap_token: BootstrapTokenDiscovery,
    /// By a kubeconfig.
    #[serde(default, skip_serializing_if = "is_default")]
    pub file: FileDiscovery,
    /// The token for the kubelet's certificate. Default: the one for discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub tls_bootstrap_token: Option<SecretText>,
}

/// Discovery by a token.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct BootstrapTokenDiscovery {
    /// The token. The controller makes one if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub token: Option<SecretText>,
    /// The API server, as `host:port`. Default: the endpoint of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub api_server_endpoint: Option<String>,
    /// Hashes of public keys of certificate authorities, as `sha256:...`. Default: that of the Cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ca_cert_hashes: Vec<String>,
    /// Whether any API server with the token is trusted. Default: false.
    #[serde(rename = "unsafeSkipCAVerification", default, skip_serializing_if = "Option::is_none")]
    pub unsafe_skip_ca_verification: Option<bool>,
}

/// Discovery by a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDiscovery {
    /// The file, or a URL of it.
    #[schemars(length(min = 1, max = 512))]
    pub kube_config_path: String,
    /// What is written to that file. Without its cluster, the endpoint and the certificate authority of the
    /// Cluster are taken.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kube_config: FileDiscoveryKubeConfig,
}

/// A kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDiscoveryKubeConfig {
    /// The API server. Default: the endpoint of the Cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: KubeConfigCluster,
    /// How to authenticate.
    pub user: KubeConfigUser,
}

/// An API server in a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct KubeConfigCluster {
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub server: Option<String>,
    /// The name in its certificate, if it is not that of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub tls_server_name: Option<String>,
    /// Whether its certificate is not looked at. Default: false.
    #[serde(rename = "insecureSkipTLSVerify", default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_tls_verify: Option<bool>,
    /// Its certificate authority, PEM in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::bytes")]
    #[schemars(length(min = 1, max = 51200))]
    pub certificate_authority_data: Option<ByteString>,
    /// The proxy on the way to it.
    #[serde(rename = "proxyURL", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub proxy_url: Option<String>,
}

/// How to authenticate: by one of the two.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = rules::USER_OF_KUBECONFIG))]
pub struct KubeConfigUser {
    /// By a plugin of the client.
    #[serde(default, skip_serializing_if = "is_default")]
    pub auth_provider: KubeConfigAuthProvider,
    /// By a program.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exec: KubeConfigAuthExec,
}

/// A plugin of the client.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigAuthProvider {
    /// The name of the plugin.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// What the plugin is given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

/// A program that gives credentials.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigAuthExec {
    /// The program.
    #[schemars(length(min = 1, max = 1024))]
    pub command: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub args: Vec<String>,
    /// More of its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub env: Vec<KubeConfigAuthExecEnv>,
    /// The version of its output. Default: `client.authentication.k8s.io/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub api_version: Option<String>,
    /// Whether it is given the API server in its environment. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provide_cluster_info: Option<bool>,
}

/// A variable of an environment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigAuthExecEnv {
    /// The name.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// The value.
    #[schemars(length(min = 1, max = 512))]
    pub value: SecretText,
}

/// What a machine of the control plane runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinControlPlane {
    /// Where the API server of this machine listens.
    #[serde(rename = "localAPIEndpoint", default, skip_serializing_if = "is_default")]
    pub local_api_endpoint: APIEndpoint,
}
