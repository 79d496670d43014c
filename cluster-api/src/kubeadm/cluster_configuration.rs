//! What kubeadm is given about a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serde_with::is_default;
use crate::{rules, schema};

/// What kubeadm is given about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterConfiguration {
    /// Where etcd runs. Default: beside each API server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub etcd: Etcd,
    /// The address of the control plane, with or without port. Default: the endpoint of the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub control_plane_endpoint: Option<String>,
    /// The API server's static Pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub api_server: APIServer,
    /// The controller manager's static Pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub controller_manager: ControllerManager,
    /// The scheduler's static Pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scheduler: Scheduler,
    /// The DNS server that is installed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dns: DNS,
    /// The folder of certificates. Default: `/etc/kubernetes/pki`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub certificates_dir: Option<String>,
    /// Where images of the control plane are pulled from. Default: kubeadm's own, `registry.k8s.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image_repository: Option<String>,
    /// Features of kubeadm that are switched on or off.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// For how many days certificates are valid. Default: 365. At most as long as their authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1095))]
    pub certificate_validity_period_days: Option<i32>,
    /// For how many days certificate authorities are valid. Default: 3650.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub ca_certificate_validity_period_days: Option<i32>,
    /// The kind and size of keys. Default: `RSA-2048`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_algorithm: Option<EncryptionAlgorithmType>,
}

/// Where etcd runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Etcd {
    /// A static Pod of etcd beside each API server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local: LocalEtcd,
    /// An etcd outside of the cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub external: ExternalEtcd,
}

/// The static Pod of etcd.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct LocalEtcd {
    /// Where its image is pulled from. Default: as the rest of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image_repository: Option<String>,
    /// The tag of its image. Default: kubeadm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub image_tag: Option<String>,
    /// Where its data are. Default: `/var/lib/etcd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub data_dir: Option<String>,
    /// More arguments of etcd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = rules::ARGUMENTS))]
    pub extra_args: Vec<Arg>,
    /// More of its environment. An empty list differs from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
    /// More names in the certificate for clients.
    #[serde(rename = "serverCertSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub server_cert_sans: Vec<String>,
    /// More names in the certificate for other members.
    #[serde(rename = "peerCertSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub peer_cert_sans: Vec<String>,
}

/// An argument of a program. A name may be there more than once where the field allows it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Arg {
    /// The name, without dashes.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The value; it may be empty.
    #[schemars(length(min = 0, max = 1024))]
    pub value: String,
}

/// An etcd outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalEtcd {
    /// The URLs of its members.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub endpoints: Vec<String>,
    /// The file with its certificate authority.
    #[schemars(length(min = 1, max = 512))]
    pub ca_file: String,
    /// The file with the client certificate.
    #[schemars(length(min = 1, max = 512))]
    pub cert_file: String,
    /// The file with the client's key.
    #[schemars(length(min = 1, max = 512))]
    pub key_file: String,
}

/// The static Pod of the API server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct APIServer {
    /// More arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = rules::ARGUMENTS))]
    pub extra_args: Vec<Arg>,
    /// More volumes, from the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_volumes: Vec<HostPathMount>,
    /// More of its environment. An empty list differs from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
    /// More names and addresses in its certificate.
    #[serde(rename = "certSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub cert_sans: Vec<String>,
}

/// A folder or file of the host in a static Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPathMount {
    /// The name of the volume.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// The path on the host.
    #[schemars(length(min = 1, max = 512))]
    pub host_path: String,
    /// The path in the container.
    #[schemars(length(min = 1, max = 512))]
    pub mount_path: String,
    /// Whether it cannot be written to. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What must be there, such as `Directory` or `FileOrCreate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_type: Option<String>,
}

/// The static Pod of the controller manager.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ControllerManager {
    /// More arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = rules::ARGUMENTS))]
    pub extra_args: Vec<Arg>,
    /// More volumes, from the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_volumes: Vec<HostPathMount>,
    /// More of its environment. An empty list differs from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
}

/// The static Pod of the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Scheduler {
    /// More arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = rules::ARGUMENTS))]
    pub extra_args: Vec<Arg>,
    /// More volumes, from the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_volumes: Vec<HostPathMount>,
    /// More of its environment. An empty list differs from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
}

/// The DNS server that kubeadm installs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct DNS {
    /// Where its image is pulled from. Default: as the rest of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image_repository: Option<String>,
    /// The tag of its image. Default: kubeadm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub image_tag: Option<String>,
}

/// The kind and size of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum EncryptionAlgorithmType {
    /// Elliptic curve P-256.
    #[serde(rename = "ECDSA-P256")]
    EcdsaP256,
    /// Elliptic curve P-384.
    #[serde(rename = "ECDSA-P384")]
    EcdsaP384,
    /// RSA of 2,048 bits.
    #[serde(rename = "RSA-2048")]
    Rsa2048,
    /// RSA of 3,072 bits.
    #[serde(rename = "RSA-3072")]
    Rsa3072,
    /// RSA of 4,096 bits.
    #[serde(rename = "RSA-4096")]
    Rsa4096,
}
