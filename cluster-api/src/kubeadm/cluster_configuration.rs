//! Types of Cluster API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::serde_with::is_default;

/// `ClusterConfiguration` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterConfiguration {
    /// `etcd`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub etcd: Etcd,
    /// `controlPlaneEndpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub control_plane_endpoint: Option<String>,
    /// `apiServer`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub api_server: APIServer,
    /// `controllerManager`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub controller_manager: ControllerManager,
    /// `scheduler`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scheduler: Scheduler,
    /// `dns`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dns: DNS,
    /// `certificatesDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub certificates_dir: Option<String>,
    /// `imageRepository`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image_repository: Option<String>,
    /// `featureGates`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// `certificateValidityPeriodDays`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1095))]
    pub certificate_validity_period_days: Option<i32>,
    /// `caCertificateValidityPeriodDays`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub ca_certificate_validity_period_days: Option<i32>,
    /// `encryptionAlgorithm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_algorithm: Option<EncryptionAlgorithmType>,
}

/// `Etcd` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Etcd {
    /// `local`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local: LocalEtcd,
    /// `external`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub external: ExternalEtcd,
}

/// `LocalEtcd` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct LocalEtcd {
    /// `imageRepository`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image_repository: Option<String>,
    /// `imageTag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub image_tag: Option<String>,
    /// `dataDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub data_dir: Option<String>,
    /// `extraArgs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = [{"message": "extraArgs name must be unique", "rule": "self.all(x, self.exists_one(y, x.name == y.name))"}]))]
    pub extra_args: Vec<Arg>,
    /// `extraEnvs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
    /// `serverCertSANs`.
    #[serde(rename = "serverCertSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub server_cert_sans: Vec<String>,
    /// `peerCertSANs`.
    #[serde(rename = "peerCertSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub peer_cert_sans: Vec<String>,
}

/// `Arg` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Arg {
    /// `name`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// `value`.
    #[schemars(length(min = 0, max = 1024))]
    pub value: String,
}

/// `ExternalEtcd` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalEtcd {
    /// `endpoints`.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub endpoints: Vec<String>,
    /// `caFile`.
    #[schemars(length(min = 1, max = 512))]
    pub ca_file: String,
    /// `certFile`.
    #[schemars(length(min = 1, max = 512))]
    pub cert_file: String,
    /// `keyFile`.
    #[schemars(length(min = 1, max = 512))]
    pub key_file: String,
}

/// `APIServer` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct APIServer {
    /// `extraArgs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = [{"message": "extraArgs name must be unique", "rule": "self.all(x, self.exists_one(y, x.name == y.name))"}]))]
    pub extra_args: Vec<Arg>,
    /// `extraVolumes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_volumes: Vec<HostPathMount>,
    /// `extraEnvs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
    /// `certSANs`.
    #[serde(rename = "certSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub cert_sans: Vec<String>,
}

/// `HostPathMount` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPathMount {
    /// `name`.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
    /// `hostPath`.
    #[schemars(length(min = 1, max = 512))]
    pub host_path: String,
    /// `mountPath`.
    #[schemars(length(min = 1, max = 512))]
    pub mount_path: String,
    /// `readOnly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// `pathType`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_type: Option<String>,
}

/// `ControllerManager` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ControllerManager {
    /// `extraArgs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = [{"message": "extraArgs name must be unique", "rule": "self.all(x, self.exists_one(y, x.name == y.name))"}]))]
    pub extra_args: Vec<Arg>,
    /// `extraVolumes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_volumes: Vec<HostPathMount>,
    /// `extraEnvs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
}

/// `Scheduler` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Scheduler {
    /// `extraArgs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = [{"message": "extraArgs name must be unique", "rule": "self.all(x, self.exists_one(y, x.name == y.name))"}]))]
    pub extra_args: Vec<Arg>,
    /// `extraVolumes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub extra_volumes: Vec<HostPathMount>,
    /// `extraEnvs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_envs: Option<Vec<EnvVar>>,
}

/// `DNS` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct DNS {
    /// `imageRepository`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image_repository: Option<String>,
    /// `imageTag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub image_tag: Option<String>,
}

/// `EncryptionAlgorithmType` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum EncryptionAlgorithmType {
    /// `ECDSA-P256`.
    #[serde(rename = "ECDSA-P256")]
    EcdsaP256,
    /// `ECDSA-P384`.
    #[serde(rename = "ECDSA-P384")]
    EcdsaP384,
    /// `RSA-2048`.
    #[serde(rename = "RSA-2048")]
    Rsa2048,
    /// `RSA-3072`.
    #[serde(rename = "RSA-3072")]
    Rsa3072,
    /// `RSA-4096`.
    #[serde(rename = "RSA-4096")]
    Rsa4096,
}
