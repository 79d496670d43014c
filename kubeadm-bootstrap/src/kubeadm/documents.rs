//! kubeadm's kinds, versions `v1beta3` and `v1beta4`, as Go writes them: empty texts and lists are left out, and empty parts are
//! `{}`. Fields of one version alone are options.

use std::collections::BTreeMap;
use std::ops::Not;

use cluster_api::kubeadm::{EncryptionAlgorithmType, PullPolicy};
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterConfiguration<'a> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) etcd: Etcd<'a>,
    pub(super) networking: Networking<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) kubernetes_version: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) control_plane_endpoint: String,
    pub(super) api_server: ApiServer<'a>,
    pub(super) controller_manager: Component<'a>,
    pub(super) scheduler: Component<'a>,
    pub(super) dns: ImageMeta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) proxy: Option<BTreeMap<String, Value>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) certificates_dir: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) image_repository: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) feature_gates: &'a BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) cluster_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encryption_algorithm: Option<EncryptionAlgorithmType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) certificate_validity_period: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ca_certificate_validity_period: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitConfiguration<'a> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) bootstrap_tokens: Vec<BootstrapToken<'a>>,
    pub(super) node_registration: NodeRegistration<'a>,
    #[serde(rename = "localAPIEndpoint")]
    pub(super) local_api_endpoint: Endpoint<'a>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) skip_phases: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patches: Option<Patches<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeouts: Option<Timeouts>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JoinConfiguration<'a> {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) node_registration: NodeRegistration<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) ca_cert_path: &'a str,
    pub(super) discovery: Discovery<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) control_plane: Option<JoinControlPlane<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) skip_phases: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patches: Option<Patches<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeouts: Option<Timeouts>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Etcd<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) local: Option<LocalEtcd<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) external: Option<ExternalEtcd<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalEtcd<'a> {
    #[serde(flatten)]
    pub(super) image: ImageMeta<'a>,
    pub(super) data_dir: &'a str,
    #[serde(skip_serializing_if = "Args::is_empty")]
    pub(super) extra_args: Args<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) extra_envs: Vec<EnvVar<'a>>,
    #[serde(rename = "serverCertSANs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) server_cert_sans: &'a [String],
    #[serde(rename = "peerCertSANs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) peer_cert_sans: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExternalEtcd<'a> {
    pub(super) endpoints: &'a [String],
    pub(super) ca_file: &'a str,
    pub(super) cert_file: &'a str,
    pub(super) key_file: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageMeta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) image_repository: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) image_tag: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Networking<'a> {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) service_subnet: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) pod_subnet: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) dns_domain: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiServer<'a> {
    #[serde(flatten)]
    pub(super) component: Component<'a>,
    #[serde(rename = "certSANs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) cert_sans: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_for_control_plane: Option<String>,
}

/// What the three components of the control plane have in common.
#[expect(clippy::struct_field_names, reason = "these are kubeadm's names")]
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Component<'a> {
    #[serde(skip_serializing_if = "Args::is_empty")]
    pub(super) extra_args: Args<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) extra_volumes: Vec<HostPathMount<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) extra_envs: Vec<EnvVar<'a>>,
}

/// Flags of a program: a mapping in `v1beta3`, a list in `v1beta4`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Args<'a> {
    Mapping(BTreeMap<&'a str, &'a str>),
    List(Vec<Arg<'a>>),
}

impl Args<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Mapping(args) => args.is_empty(),
            Self::List(args) => args.is_empty(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Arg<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnvVar<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value_from: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostPathMount<'a> {
    pub(super) name: &'a str,
    pub(super) host_path: &'a str,
    pub(super) mount_path: &'a str,
    #[serde(skip_serializing_if = "Not::not")]
    pub(super) read_only: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) path_type: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRegistration<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) cri_socket: &'a str,
    /// `null` lets kubeadm choose, an empty list means none.
    pub(super) taints: Option<Vec<Taint<'a>>>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    pub(super) kubelet_extra_args: Args<'a>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) ignore_preflight_errors: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image_pull_policy: Option<PullPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image_pull_serial: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Taint<'a> {
    pub(super) key: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) value: &'a str,
    pub(super) effect: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_added: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Endpoint<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) advertise_address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bind_port: Option<i32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BootstrapToken<'a> {
    pub(super) token: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) usages: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) groups: &'a [String],
}

#[derive(Serialize)]
pub(super) struct Patches<'a> {
    pub(super) directory: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timeouts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) control_plane_component_health_check: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kubelet_health_check: Option<String>,
    #[serde(rename = "kubernetesAPICall", skip_serializing_if = "Option::is_none")]
    pub(super) kubernetes_api_call: Option<String>,
    #[serde(rename = "etcdAPICall", skip_serializing_if = "Option::is_none")]
    pub(super) etcd_api_call: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_bootstrap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) discovery: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Discovery<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bootstrap_token: Option<BootstrapTokenDiscovery<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<FileDiscovery<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) tls_bootstrap_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BootstrapTokenDiscovery<'a> {
    pub(super) token: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) api_server_endpoint: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) ca_cert_hashes: &'a [String],
    #[serde(rename = "unsafeSkipCAVerification", skip_serializing_if = "Not::not")]
    pub(super) unsafe_skip_ca_verification: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileDiscovery<'a> {
    pub(super) kube_config_path: &'a str,
}

#[derive(Serialize)]
pub(super) struct JoinControlPlane<'a> {
    #[serde(rename = "localAPIEndpoint")]
    pub(super) local_api_endpoint: Endpoint<'a>,
}
