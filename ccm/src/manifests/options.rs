//! What a deployment is made from.

use std::collections::BTreeMap;

use cloudprovider::{MachineTypes, SecretName, ServiceAccessNeeds};
use component::program::Program;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::flags::Flags;

/// The name of all objects, the Lease included, unless another one is given.
pub const NAME: &str = "cloud-controller-manager";

/// The default name of the Secret that holds the cloud configuration.
pub const CONFIG_SECRET: &str = "cloud-config";

/// Where the cloud configuration is mounted.
pub(super) const CONFIG_FOLDER: &str = "/etc/cloud-config";

/// The key of the cloud configuration in its Secret or ConfigMap.
pub const CONFIG_KEY: &str = "cloud.conf";

/// What a deployment is made from.
#[derive(Clone, Debug)]
pub struct ManifestOptions {
    /// The name of the workload, the service account and the roles.
    pub name: String,
    /// The namespace of the pods and their service account. The Lease stays in
    /// `--leader-elect-resource-namespace`, so that no second CCM becomes active in the cluster.
    pub namespace: String,
    /// `--cloud-provider`. Empty if it is added elsewhere.
    pub provider: String,
    /// The container image with its tag.
    pub image: String,
    /// How many pods a Deployment has; `None` for a DaemonSet.
    pub replicas: Option<u32>,
    /// Whether the pods use the host network, which they need before the pod network works.
    pub host_network: bool,
    /// Whether the daemon changes the network of its host, for which it needs the host network and two capabilities.
    pub host_network_admin: bool,
    /// Host and port of the API server, in place of the Service `kubernetes`.
    pub api_server: Option<(String, u16)>,
    /// `--cloud-config`
    pub cloud_config: CloudConfig,
    /// Secrets that the cloud configuration names, besides the Secret with the configuration itself.
    pub secrets: Vec<SecretName>,
    /// What the provider does with Services.
    pub service_access: ServiceAccessNeeds,
    /// The providers whose machines are served. Their kinds are part of the manifests.
    pub machines: Vec<MachineOptions>,
    /// Whether the lifecycle controllers run. `arguments` names them in `--controllers`.
    pub lifecycle: bool,
    /// More flags of the daemon, as `--name=value`.
    pub arguments: Vec<String>,
    /// Secrets with credentials for the image's registry.
    pub image_pull_secrets: Vec<String>,
    /// Whether a Service and a ServiceMonitor (of the Prometheus operator) are wanted.
    pub service_monitor: bool,
    /// How Prometheus authenticates at the endpoint of the ServiceMonitor.
    pub monitor_access: MonitorAccess,
}

/// A provider whose machines are served.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// Its name.
    pub provider: String,
    /// Its kinds.
    pub types: MachineTypes,
    /// Its configuration. Without effect for the provider of `--cloud-provider`, which has one already.
    pub cloud_config: CloudConfig,
}

/// How far Prometheus trusts the server at the secure port. That has a self-signed certificate unless `--tls-cert-file` names
/// another one. Whoever gets Prometheus's token can do everything that Prometheus may do in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MonitorAccess {
    /// Prometheus sends no token. It can read the metrics only if `--authorization-always-allow-paths` allows
    /// that to everybody.
    #[default]
    NoToken,
    /// It shows its token to a server with a certificate of this authority.
    Verified {
        /// Where the authority's certificate is, in the namespace of the ServiceMonitor.
        ca: CaObject,
        /// The name in the endpoint's certificate. Empty for the Service's name.
        server_name: String,
    },
    /// It shows its token to any server that answers.
    Unverified,
}

/// A Secret or a ConfigMap with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaObject {
    /// A key of a Secret.
    Secret {
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A key of a ConfigMap.
    ConfigMap {
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
}

/// Where the cloud configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudConfig {
    /// The provider needs none.
    None,
    /// A Secret that is not part of the manifests.
    Secret {
        /// Its name.
        name: String,
        /// The configuration's key in it; other keys are files beside the configuration.
        key: String,
    },
    /// A ConfigMap that is not part of the manifests.
    ConfigMap {
        /// Its name.
        name: String,
        /// The configuration's key in it.
        key: String,
    },
    /// A Secret with this content is part of the manifests.
    Content {
        /// The Secret's name.
        secret: String,
        /// The configuration.
        text: String,
        /// Files beside the configuration, by name. They are keys of the Secret like the configuration
        /// itself.
        files: BTreeMap<String, ByteString>,
    },
}

impl CloudConfig {
    pub(super) fn key(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Secret { key, .. } | Self::ConfigMap { key, .. } => Some(key),
            Self::Content { .. } => Some(CONFIG_KEY),
        }
    }

    pub(super) fn object_name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Secret { name, .. } | Self::ConfigMap { name, .. } | Self::Content { secret: name, .. } => {
                Some(name)
            }
        }
    }
}

/// A configuration that is mounted in the pods.
pub(super) struct Mount<'o> {
    /// The name of the volume.
    pub(super) volume: String,
    /// Where it is mounted.
    pub(super) folder: String,
    pub(super) cloud_config: &'o CloudConfig,
}

impl Mount<'_> {
    /// The configuration's file, if there is one.
    pub(super) fn file(&self) -> Option<String> {
        self.cloud_config.key().map(|key| format!("{}/{key}", self.folder))
    }
}

/// Where the configuration of this provider is mounted: that of `--cloud-provider`, or with a name that of a provider of
/// `--machine-provider`.
pub(super) fn config_folder(provider: Option<&str>) -> String {
    provider.map_or_else(|| CONFIG_FOLDER.to_owned(), |provider| format!("{CONFIG_FOLDER}-{provider}"))
}

impl MachineOptions {
    /// How its configuration is mounted.
    pub(super) fn mount(&self) -> Mount<'_> {
        Mount {
            volume: format!("{CONFIG_SECRET}-{}", self.provider),
            folder: config_folder(Some(&self.provider)),
            cloud_config: &self.cloud_config,
        }
    }
}

impl ManifestOptions {
    /// The providers whose machines are served, and which are not the one of `--cloud-provider`.
    pub(super) fn other_machines(&self) -> impl Iterator<Item = &MachineOptions> {
        self.machines.iter().filter(|one| one.provider != self.provider)
    }

    /// The configurations that are mounted.
    pub(super) fn mounts(&self) -> Vec<Mount<'_>> {
        let main = Mount {
            volume: CONFIG_SECRET.to_owned(),
            folder: config_folder(None),
            cloud_config: &self.cloud_config,
        };
        let all = std::iter::once(main).chain(self.other_machines().map(MachineOptions::mount));
        all.filter(|mount| *mount.cloud_config != CloudConfig::None).collect()
    }

    /// The flags that name providers and their configurations.
    pub(super) fn provider_arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if !self.provider.is_empty() {
            arguments.push(format!("--cloud-provider={}", self.provider));
        }
        if let Some(key) = self.cloud_config.key() {
            arguments.push(format!("--cloud-config={CONFIG_FOLDER}/{key}"));
        }
        // The machines of --cloud-provider alone are what the daemon serves without the flag.
        if self.other_machines().next().is_some() {
            let named = self.machines.iter().map(|one| match one.mount().file() {
                Some(file) if one.provider != self.provider => format!("{}={file}", one.provider),
                _ => one.provider.clone(),
            });
            arguments.extend(named.map(|value| format!("--machine-provider={value}")));
        }
        arguments
    }

    /// The defaults for this provider.
    pub fn new(provider: &str) -> Self {
        let program = Program::current();
        let name = Program::said().map_or(NAME, Program::name);
        Self {
            name: NAME.to_owned(),
            namespace: "kube-system".to_owned(),
            provider: provider.to_owned(),
            image: format!("{name}:{}", program.version().trim_start_matches('v')),
            replicas: None,
            host_network: true,
            host_network_admin: false,
            api_server: None,
            cloud_config: CloudConfig::Secret { name: CONFIG_SECRET.to_owned(), key: CONFIG_KEY.to_owned() },
            secrets: Vec::new(),
            service_access: ServiceAccessNeeds::default(),
            machines: Vec::new(),
            lifecycle: false,
            arguments: Vec::new(),
            image_pull_secrets: Vec::new(),
            service_monitor: false,
            monitor_access: MonitorAccess::default(),
        }
    }
}

/// Whether a second pod would work at the same time as the first. In a dry run none of them works.
pub(super) fn has_no_election(flags: &Flags) -> bool {
    !flags.leader_election.enabled && !flags.misc.dry_run
}

/// The labels of every object of the deployment.
pub(super) fn labels(options: &ManifestOptions) -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/instance": options.name,
        // The label in Kubernetes' own example. People look for the pods by it.
        "k8s-app": options.name,
    })
}

/// The labels that tell our pods from others. They cannot be changed after the deployment.
pub(super) fn selector(options: &ManifestOptions) -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": options.name})
}

/// Whether this may be a key of a Secret.
pub(super) fn is_key(key: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !key.is_empty() && !matches!(key, "." | "..") && key.chars().all(is_allowed)
}
