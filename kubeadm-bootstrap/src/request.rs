//! What goes in, and what comes out.

use std::collections::BTreeMap;
use std::fmt;

use cluster_api::kubeadm::{Format, KubeadmConfigSpec};
use cluster_api::{Cluster, SecretText};

use crate::certificates::Certificates;

/// Most bytes of the data. A Secret holds 1 MiB, and the format is in it too.
pub const MOST_BYTES: usize = (1 << 20) - 1024;

/// What the bootstrap data of one machine are made from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The spec of the machine's `KubeadmConfig`.
    pub spec: &'a KubeadmConfigSpec,
    /// What the machine becomes.
    pub role: Role,
    /// `spec.version` of the Machine, such as `v1.35.0`.
    pub kubernetes_version: &'a str,
    /// Facts of the Cluster.
    pub cluster: &'a ClusterFacts,
    /// The certificates that [`certificate_files`](crate::certificate_files) names.
    pub certificates: &'a Certificates,
    /// The bootstrap token that the caller has made, if [`needs_token`](crate::needs_token).
    pub token: Option<&'a SecretText>,
    /// The values that [`secret_references`] names.
    pub secrets: &'a SecretValues,
    /// `spec.version` of the object behind the Cluster's `controlPlaneRef`. Files with the format `Template` may use it.
    pub control_plane_version: Option<&'a str>,
}

/// What a machine becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first machine of the control plane: `kubeadm init`.
    Init,
    /// A further machine of the control plane: `kubeadm join`.
    JoinControlPlane,
    /// A machine outside of the control plane: `kubeadm join`.
    JoinWorker,
}

/// Facts of the Cluster that a machine belongs to. An empty text or list: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The name of the Cluster.
    pub name: String,
    /// `spec.controlPlaneEndpoint.host`, a DNS name or an IP address without brackets.
    pub endpoint_host: String,
    /// `spec.controlPlaneEndpoint.port`.
    pub endpoint_port: i32,
    /// `spec.clusterNetwork.serviceDomain`.
    pub service_domain: String,
    /// `spec.clusterNetwork.services.cidrBlocks`.
    pub service_cidrs: Vec<String>,
    /// `spec.clusterNetwork.pods.cidrBlocks`.
    pub pod_cidrs: Vec<String>,
}

impl From<&Cluster> for ClusterFacts {
    fn from(cluster: &Cluster) -> Self {
        let network = &cluster.spec.cluster_network;
        let endpoint = &cluster.spec.control_plane_endpoint;
        Self {
            name: cluster.metadata.name.clone().unwrap_or_default(),
            endpoint_host: endpoint.host.clone().unwrap_or_default(),
            endpoint_port: endpoint.port.unwrap_or_default(),
            service_domain: network.service_domain.clone().unwrap_or_default(),
            service_cidrs: network.services.cidr_blocks.clone(),
            pod_cidrs: network.pods.cidr_blocks.clone(),
        }
    }
}

impl ClusterFacts {
    /// Host and port, with brackets around an IPv6 address. `None` before both are known.
    pub fn endpoint(&self) -> Option<String> {
        let (host, port) = (&self.endpoint_host, self.endpoint_port);
        if host.is_empty() || port == 0 {
            return None;
        }
        Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }
}

/// Values of keys of Secrets, in the namespace of the `KubeadmConfig`. `Debug` shows their names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretValues(BTreeMap<(String, String), Vec<u8>>);

impl SecretValues {
    /// Adds the value of a key of the Secret `name`.
    pub fn insert(&mut self, name: impl Into<String>, key: impl Into<String>, value: Vec<u8>) {
        self.0.insert((name.into(), key.into()), value);
    }

    pub(crate) fn get(&self, name: &str, key: &str) -> Option<&[u8]> {
        self.0.get(&(name.to_owned(), key.to_owned())).map(Vec::as_slice)
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

/// A key of a Secret that a spec refers to, in the namespace of the `KubeadmConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReference {
    /// The path of the field with the reference, such as `spec.files[0].contentFrom.secret`.
    pub field: String,
    /// The name of the Secret.
    pub name: String,
    /// The key in its data.
    pub key: String,
}

/// The keys of Secrets that the spec refers to: contents of files, and passwords of users.
pub fn secret_references(spec: &KubeadmConfigSpec) -> Vec<SecretReference> {
    let files = spec.files.iter().enumerate().map(|(index, file)| {
        let secret = &file.content_from.secret;
        (format!("spec.files[{index}].contentFrom.secret"), &secret.name, &secret.key)
    });
    let users = spec.users.iter().enumerate().map(|(index, user)| {
        let secret = &user.passwd_from.secret;
        (format!("spec.users[{index}].passwdFrom.secret"), &secret.name, &secret.key)
    });
    let references = files.chain(users).filter(|(_, name, key)| !name.is_empty() && !key.is_empty());
    references
        .map(|(field, name, key)| SecretReference { field, name: name.clone(), key: key.clone() })
        .collect()
}

/// What a machine reads at its first boot. It contains keys and tokens, so that `Debug` shows its size only.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapData {
    /// The document.
    pub bytes: Vec<u8>,
    /// Its format, as the key `format` of the Secret says it.
    pub format: Format,
}

impl BootstrapData {
    /// The value of the key `format` of the Secret.
    pub fn format_name(&self) -> &'static str {
        match self.format {
            Format::CloudConfig => "cloud-config",
            Format::Ignition => "ignition",
        }
    }
}

impl fmt::Debug for BootstrapData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BootstrapData({}, {} bytes)", self.format_name(), self.bytes.len())
    }
}
