//! The deployment as Kubernetes objects: the one source of the subcommand `manifests`, of every file in `deploy/` that
//! says so in its first line, and of what the Helm chart is compared with.

mod command;
mod content;
mod files;
mod monitoring;
mod rbac;
mod workload;

use std::collections::BTreeMap;

use cloudprovider::SecretName;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::{
    flags::{self, CommandLineError, Flags},
    permissions::{self, Permission},
    program::Program,
    serving::is_always_allowed,
};

pub use command::ManifestsCommand;
pub use files::generated_files;

/// The name of everything, unless another one is asked for; the Lease's too.
pub const NAME: &str = "cloud-controller-manager";

/// The Secret that holds the cloud configuration, unless another one is named.
pub const CONFIG_SECRET: &str = "cloud-config";

/// The key of the cloud configuration in its Secret or ConfigMap.
pub const CONFIG_KEY: &str = "cloud.conf";

/// What a deployment is made from.
#[derive(Clone, Debug)]
pub struct ManifestOptions {
    /// The name of the workload, the service account and the roles.
    pub name: String,
    /// The namespace of the pods and their service account. The Lease stays where `--leader-elect-resource-namespace`
    /// says, so that no second CCM works in the cluster.
    pub namespace: String,
    /// `--cloud-provider`; empty where somebody else adds it.
    pub provider: String,
    /// The container image with its tag.
    pub image: String,
    /// How many pods a Deployment has; `None` for a DaemonSet.
    pub replicas: Option<u32>,
    /// Whether the pods have their node's network, as they need to before the pod network works.
    pub host_network: bool,
    /// Where the API server is, host and port, in place of the Service `kubernetes`.
    pub api_server: Option<(String, u16)>,
    /// `--cloud-config`
    pub cloud_config: CloudConfig,
    /// Secrets that the cloud configuration names, beside that with the configuration.
    pub secrets: Vec<SecretName>,
    /// More flags of the daemon, as `--name=value`.
    pub arguments: Vec<String>,
    /// Secrets with credentials for the image's registry.
    pub image_pull_secrets: Vec<String>,
    /// Whether a Service and a ServiceMonitor (of the Prometheus operator) are wanted.
    pub service_monitor: bool,
    /// What Prometheus shows to the endpoint that the ServiceMonitor names.
    pub monitor_access: MonitorAccess,
}

/// How far Prometheus trusts who answers at the secure port, whose certificate is self-signed unless `--tls-cert-file` names
/// another one. Its token is good for whatever Prometheus may do in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MonitorAccess {
    /// It shows no token: metrics are read where `--authorization-always-allow-paths` lets everybody read them.
    #[default]
    NoToken,
    /// It shows its token to whoever has a certificate of this authority.
    Verified {
        /// Where the authority's certificate is, in the namespace of the ServiceMonitor.
        ca: CaObject,
        /// The name in the endpoint's certificate. Empty: the Service's.
        server_name: String,
    },
    /// It shows its token to whoever answers.
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
    /// A Secret that somebody else makes.
    Secret {
        /// Its name.
        name: String,
        /// The configuration's key in it; other keys are files beside the configuration.
        key: String,
    },
    /// A ConfigMap that somebody else makes.
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
        /// Files beside it, by their names: keys of the Secret like the configuration itself.
        files: BTreeMap<String, ByteString>,
    },
}

impl CloudConfig {
    fn key(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Secret { key, .. } | Self::ConfigMap { key, .. } => Some(key),
            Self::Content { .. } => Some(CONFIG_KEY),
        }
    }

    fn object_name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Secret { name, .. } | Self::ConfigMap { name, .. } | Self::Content { secret: name, .. } => {
                Some(name)
            }
        }
    }
}

impl ManifestOptions {
    /// What is deployed for a provider unless more is said.
    pub fn new(provider: &str) -> Self {
        let program = Program::current();
        Self {
            name: NAME.to_owned(),
            namespace: "kube-system".to_owned(),
            provider: provider.to_owned(),
            image: format!("{}:{}", program.name(), program.version().trim_start_matches('v')),
            replicas: None,
            host_network: true,
            api_server: None,
            cloud_config: CloudConfig::Secret { name: CONFIG_SECRET.to_owned(), key: CONFIG_KEY.to_owned() },
            secrets: Vec::new(),
            arguments: Vec::new(),
            image_pull_secrets: Vec::new(),
            service_monitor: false,
            monitor_access: MonitorAccess::default(),
        }
    }

    /// The objects, in the order in which they have to be made. A mapping may hold a comment on itself, see
    /// [`yaml::COMMENT`](crate::yaml::COMMENT).
    ///
    /// # Errors
    /// Everything that is wrong with the options, each fault with its option.
    pub fn render(&self) -> Result<Vec<Value>, Vec<String>> {
        let flags = self.flags()?;
        let mut objects = vec![json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels(self)},
        })];
        objects.extend(self.roles(&permissions::needed(&flags)));
        objects.extend(rbac::secret_roles(self));
        if let CloudConfig::Content { secret, text, files } = &self.cloud_config {
            let mut data = files.clone();
            data.insert(CONFIG_KEY.to_owned(), ByteString(text.clone().into_bytes()));
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": secret, "namespace": self.namespace, "labels": labels(self)},
                // Not `stringData`, by which `kubectl apply` sees a change each time.
                "data": data,
            }));
        }
        objects.push(workload::workload(self, &flags));
        if self.service_monitor {
            objects.extend(monitoring::service_monitor(self));
        }
        Ok(objects)
    }

    /// Roles that allow these permissions and nothing else, and what binds them to the service account.
    pub fn roles(&self, permissions: &[Permission]) -> Vec<Value> {
        rbac::roles(self, permissions)
    }

    /// What the daemon will read from its arguments.
    fn flags(&self) -> Result<Flags, Vec<String>> {
        let mut faults = self.faults();
        // Any name will do: what is allowed does not depend on it.
        let line = [NAME.to_owned(), "--cloud-provider=any".to_owned()];
        match flags::parse(line.into_iter().chain(self.arguments.iter().cloned())) {
            Ok(flags) => {
                faults.extend(flags.faults());
                faults.extend(self.misfits(&flags));
                if faults.is_empty() { Ok(flags) } else { Err(faults) }
            }
            Err(CommandLineError::Faults(wrong)) => {
                faults.extend(wrong.into_iter().map(|fault| format!("--set: {fault}")));
                Err(faults)
            }
            Err(CommandLineError::Help(_)) => {
                faults.push("--set: the daemon would print its help".to_owned());
                Err(faults)
            }
        }
    }

    /// Flags that the daemon takes, and that do not work in such a deployment.
    fn misfits(&self, flags: &Flags) -> Vec<String> {
        let mut faults = Vec::new();
        if has_no_election(flags) && self.replicas != Some(1) {
            faults.push(
                "--set leader-elect=false: all pods would work at the same time; give --replicas 1 too"
                    .to_owned(),
            );
        }
        let allowed = &flags.authorization.always_allow_paths;
        let missing: Vec<_> =
            workload::PROBED.into_iter().filter(|path| !is_always_allowed(allowed, path)).collect();
        if flags.secure_serving.port().is_some() && !missing.is_empty() {
            faults.push(format!(
                "--set authorization-always-allow-paths: the pods' probes ask without credentials, so it needs {} too",
                missing.join(" and ")
            ));
        }
        faults
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut names = vec![("--name", self.name.as_str()), ("--namespace", &self.namespace)];
        names.extend(self.image_pull_secrets.iter().map(|name| ("--image-pull-secret", name.as_str())));
        names.extend(self.cloud_config.object_name().map(|name| ("--config-secret or --config-map", name)));
        names.extend(Some(("--provider", self.provider.as_str())).filter(|(_, name)| !name.is_empty()));
        for (option, name) in names {
            if !is_dns_label(name) {
                faults.push(format!(
                    "{option}: {name:?} is not a name; expected lower-case letters, digits and hyphens, 63 at most"
                ));
            }
        }
        for secret in &self.secrets {
            if !is_dns_label(&secret.namespace) || !secret.name.split('.').all(is_dns_label) {
                faults.push(format!("--secret: \"{secret}\" is not a Secret; expected NAMESPACE/NAME"));
            }
        }
        if self.image.is_empty() || self.image.contains(char::is_whitespace) {
            faults.push(format!("--image: {:?} is not the name of an image", self.image));
        }
        if let Some(key) = self.cloud_config.key().filter(|key| !is_key(key)) {
            faults.push(format!(
                "--config-key: {key:?} is not a key; expected letters, digits, hyphens, underscores and dots"
            ));
        }
        if self.replicas == Some(0) {
            faults.push("--replicas must be at least 1".to_owned());
        }
        for argument in &self.arguments {
            let name = argument.trim_start_matches('-').split('=').next().unwrap_or_default();
            let option = match name.replace('_', "-").as_str() {
                "cloud-provider" => "--provider",
                "cloud-config" => "--config-secret, --config-map or --cloud-config",
                _ => continue,
            };
            faults.push(format!("--set {name}: use {option}"));
        }
        faults
    }
}

/// Whether nothing keeps a second pod from working. In a dry run none does.
fn has_no_election(flags: &Flags) -> bool {
    !flags.leader_election.enabled && !flags.misc.dry_run
}

/// What every object of the deployment carries.
fn labels(options: &ManifestOptions) -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/instance": options.name,
        // The label of Kubernetes' own example, by which people look for the pods.
        "k8s-app": options.name,
    })
}

/// What tells our pods from others. Cannot be changed once it is deployed.
fn selector(options: &ManifestOptions) -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": options.name})
}

/// Whether this may be a key of a Secret.
fn is_key(key: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !key.is_empty() && !matches!(key, "." | "..") && key.chars().all(is_allowed)
}

fn is_dns_label(name: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 63
        && is_edge(name.chars().next())
        && is_edge(name.chars().last())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}
