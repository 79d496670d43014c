//! `cloud-controller-manager manifests`.

mod machines;

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;
use cloudprovider::{Registry, SecretName, ServiceAccessNeeds};
use component::{serving::is_always_allowed, yaml};
use lifecycle_controllers::gate;
use serde_json::Value;

use super::{
    CONFIG_KEY, CONFIG_SECRET, CaObject, CloudConfig, ManifestOptions, MonitorAccess, NAME, content,
    options::CONFIG_FOLDER,
};
use crate::flags::{LIFECYCLE, LIFECYCLE_PARTS, MACHINE_CONTROLLER};

/// Prints the deployment for these options as YAML, for `kubectl apply -f -`.
#[derive(Args, Clone, Debug)]
pub struct ManifestsCommand {
    /// The provider for cloud services, as for the daemon's flag --cloud-provider. Needed, unless --machine-provider or
    /// --lifecycle is given.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    pub provider: String,

    /// A provider whose machines are served, as for the daemon's flag of that name: adds what --machines adds for it, and
    /// mounts its configuration. FILE has that configuration: the output holds it, as the Secret `cloud-config-NAME`, with
    /// the files beside it that it names. Without FILE, that Secret is not part of the output. Can be repeated.
    #[arg(long, value_name = "NAME=FILE")]
    pub machine_provider: Vec<String>,

    /// The container image with its tag. [default: cloud-controller-manager:VERSION]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// A Secret with credentials for the image's registry. Can be repeated.
    #[arg(long, value_name = "NAME")]
    pub image_pull_secret: Vec<String>,

    /// The namespace of the pods.
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    pub namespace: String,

    /// The name of the workload, the service account and the roles. With a name of its own, a second deployment can
    /// stand beside the first one.
    #[arg(long, default_value = NAME, value_name = "NAME")]
    pub name: String,

    /// A Deployment with so many pods in place of a DaemonSet.
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,

    /// The Secret with the provider's configuration, which is not part of the output. [default: cloud-config]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config_map", "cloud_config", "no_cloud_config"])]
    pub config_secret: Option<String>,

    /// The ConfigMap with the provider's configuration, in place of a Secret.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cloud_config", "no_cloud_config"])]
    pub config_map: Option<String>,

    /// The configuration's key in its Secret or ConfigMap.
    #[arg(long, default_value = CONFIG_KEY, value_name = "KEY")]
    pub config_key: String,

    /// A file with the provider's configuration: the output holds it, as a Secret, with the files beside it that it names.
    #[arg(long, value_name = "FILE", conflicts_with = "no_cloud_config")]
    pub cloud_config: Option<PathBuf>,

    /// A Secret with credentials that the provider's configuration names: the daemon may read it. Can be repeated; not
    /// needed for those that the file of --cloud-config names.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub secret: Vec<String>,

    /// The provider needs no configuration.
    #[arg(long)]
    pub no_cloud_config: bool,

    /// The address of the API server for the pods, in place of the Service "kubernetes", which needs kube-proxy.
    #[arg(long, value_name = "HOST:PORT")]
    pub api_server: Option<String>,

    /// The pods get addresses of their own in place of their node's.
    #[arg(long)]
    pub no_host_network: bool,

    /// The daemon announces addresses of load balancers or makes routes on its own host: the pods run as root with the
    /// capabilities NET_ADMIN and NET_RAW. Not needed where the file of --cloud-config says so.
    #[arg(long, conflicts_with = "no_host_network")]
    pub host_network_admin: bool,

    /// Adds a Service and a ServiceMonitor for the Prometheus operator.
    #[arg(long)]
    pub service_monitor: bool,

    /// The authority of the secure port's certificate, in the namespace of the pods: Prometheus verifies it, and shows its
    /// token. Without it no token is shown.
    #[arg(long, value_name = "secret/NAME/KEY or configmap/NAME/KEY", requires = "service_monitor")]
    pub service_monitor_ca: Option<String>,

    /// The name in the secure port's certificate. [default: that of the Service]
    #[arg(long, value_name = "NAME", requires = "service_monitor_ca")]
    pub service_monitor_server_name: Option<String>,

    /// Prometheus shows its token to whoever answers at the secure port.
    #[arg(long, requires = "service_monitor", conflicts_with = "service_monitor_ca")]
    pub service_monitor_unverified: bool,

    /// The machine controller runs too, for Cluster API: adds the definitions of the provider's kinds and the permissions for
    /// them, and the flag --controllers=*,machine-controller unless --set has another one.
    #[arg(long)]
    pub machines: bool,

    /// The lifecycle controllers run too, in place of Cluster API's managers: adds the definitions of Cluster API's kinds, the
    /// permissions for them, and `lifecycle` to the flag --controllers unless --set has another one. Without --provider
    /// and --machine-provider, nothing else runs.
    #[arg(long)]
    pub lifecycle: bool,

    /// Prints nothing but the definitions of kinds, and the policies that belong to them: those of the provider's machines, and with
    /// --lifecycle Cluster API's own.
    #[arg(long)]
    pub only_definitions: bool,

    /// The version in which the API server stores the objects of machines, such as v1beta1 for those who may go back to a program that
    /// knows only that one. [default: the newest]
    #[arg(long, value_name = "VERSION")]
    pub stored_version: Option<String>,

    /// Prints the file infrastructure-components.yaml of a repository for clusterctl: the machine controller alone, in a
    /// namespace of its own. The provider's configuration is a variable, such as `LIBVIRT_CONFIG_B64`. With --lifecycle, and
    /// without --provider, the file core-components.yaml of the lifecycle controllers; also with
    /// --set=controllers=lifecycle-bootstrap, the file bootstrap-components.yaml of that part.
    #[arg(long, conflicts_with_all = [
        "namespace", "name", "replicas", "machine_provider", "config_secret", "config_map", "config_key", "cloud_config", "secret",
        "no_cloud_config", "api_server", "no_host_network", "host_network_admin", "service_monitor", "machines",
        "only_definitions",
    ])]
    pub for_clusterctl: bool,

    /// A flag of the daemon, as in --set v=4 or --set leader-elect-lease-duration=30s. Can be repeated.
    #[arg(long, value_name = "FLAG=VALUE", allow_hyphen_values = true)]
    pub set: Vec<String>,
}

impl ManifestsCommand {
    /// The YAML, and warnings.
    ///
    /// # Errors
    /// Everything that is wrong with the options, each fault with its option. `registry` has the known
    /// providers.
    pub fn run(&self, registry: &Registry) -> Result<(String, Vec<String>), Vec<String>> {
        if self.for_clusterctl {
            return Ok((yaml::stream(&self.components(registry)?), Vec::new()));
        }
        let (options, warnings) = self.options(registry)?;
        let rendered = if self.only_definitions { options.definitions() } else { options.render() };
        if self.provider.is_empty() || registry.names().any(|known| known == self.provider) {
            return Ok((yaml::stream(&rendered?), warnings));
        }
        let mut faults = vec![unknown_provider("--provider", &self.provider, registry)];
        faults.extend(rendered.err().into_iter().flatten());
        Err(faults)
    }

    /// What `clusterctl` installs.
    fn components(&self, registry: &Registry) -> Result<Vec<Value>, Vec<String>> {
        if self.lifecycle {
            return self.lifecycle_components();
        }
        if !registry.names().any(|known| known == self.provider) {
            return Err(vec![unknown_provider("--provider", &self.provider, registry)]);
        }
        let Some(machines) = registry.machines(&self.provider) else {
            return Err(vec![format!(
                "--for-clusterctl: cloud provider {:?} has no machines",
                self.provider
            )]);
        };
        if let Some(fault) = set_fault(Some("--for-clusterctl"), &self.set) {
            return Err(vec![fault]);
        }
        let mut options = ManifestOptions::for_clusterctl(&self.provider, machines);
        self.choose_stored_version(&mut options.machines).map_err(|fault| vec![fault])?;
        if let Some(image) = &self.image {
            options.image.clone_from(image);
        }
        options.image_pull_secrets.clone_from(&self.image_pull_secret);
        options.arguments.extend(self.set.iter().map(|flag| argument(flag)));
        options.clusterctl_components()
    }

    /// What `clusterctl` installs as its core provider, or as its bootstrap provider.
    fn lifecycle_components(&self) -> Result<Vec<Value>, Vec<String>> {
        if !self.provider.is_empty() {
            return Err(vec![
                "--for-clusterctl: clusterctl installs each provider by itself; give --provider or --lifecycle".to_owned(),
            ]);
        }
        if let Some(fault) = self.lifecycle_fault() {
            return Err(vec![fault]);
        }
        let named = self.controllers().unwrap_or_else(|| LIFECYCLE.to_owned());
        let mut options = match gate::PARTS.iter().find(|part| part.name == named) {
            Some(part) => ManifestOptions::part_for_clusterctl(part),
            None if named == LIFECYCLE => ManifestOptions::lifecycle_for_clusterctl(),
            None => {
                return Err(vec![format!(
                    "--for-clusterctl --set controllers={named}: clusterctl installs each provider by itself; expected {LIFECYCLE}, \
                     or one of {}",
                    LIFECYCLE_PARTS.join(" and ")
                )]);
            }
        };
        if let Some(image) = &self.image {
            options.image.clone_from(image);
        }
        options.image_pull_secrets.clone_from(&self.image_pull_secret);
        options.arguments.extend(self.set.iter().map(|flag| argument(flag)));
        options.clusterctl_components()
    }

    fn options(&self, registry: &Registry) -> Result<(ManifestOptions, Vec<String>), Vec<String>> {
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        let mut host_network_admin = self.host_network_admin;
        if self.provider.is_empty() {
            faults.extend(self.faults_without_provider());
        }
        if self.only_definitions && !self.machines && self.machine_provider.is_empty() && !self.lifecycle {
            faults.push("--only-definitions needs --machines, --machine-provider or --lifecycle".to_owned());
        }
        let (mut secrets, mut service_access) = (BTreeSet::new(), ServiceAccessNeeds::default());
        for text in &self.secret {
            match text.split_once('/') {
                Some((namespace, name)) => {
                    secrets.insert(SecretName { namespace: namespace.to_owned(), name: name.to_owned() });
                }
                None => faults.push(format!("--secret: {text:?} is not a Secret; expected NAMESPACE/NAME")),
            }
        }
        let api_server = self.api_server.as_deref().and_then(|address| {
            let parsed = host_and_port(address);
            if parsed.is_none() {
                faults.push(format!("--api-server: {address:?} is not an address; expected HOST:PORT"));
            }
            parsed
        });
        let cloud_config = match &self.cloud_config {
            Some(path) => {
                let option = format!("--cloud-config {}", path.display());
                let of = (&*self.provider, registry);
                match content::embed(&option, path, of, CONFIG_SECRET.to_owned(), CONFIG_FOLDER) {
                    Ok(embedded) => {
                        secrets.extend(embedded.wanted.secrets);
                        host_network_admin |= embedded.wanted.changes_host_network;
                        service_access = embedded.wanted.service_access;
                        warnings.extend(embedded.warnings);
                        embedded.cloud_config
                    }
                    Err(fault) => {
                        faults.push(fault);
                        CloudConfig::None
                    }
                }
            }
            None if self.no_cloud_config || self.provider.is_empty() => CloudConfig::None,
            None => match &self.config_map {
                Some(name) => CloudConfig::ConfigMap { name: name.clone(), key: self.config_key.clone() },
                None => CloudConfig::Secret {
                    name: self.config_secret.clone().unwrap_or_else(|| CONFIG_SECRET.to_owned()),
                    key: self.config_key.clone(),
                },
            },
        };
        let monitor_access = self.monitor_access().unwrap_or_else(|fault| {
            faults.push(fault);
            MonitorAccess::default()
        });
        if host_network_admin && self.no_host_network {
            faults.push(
                "--no-host-network: the provider's configuration asks for announcements or routes on the host, which need \
                 the host network"
                    .to_owned(),
            );
        }
        let machines = self.machine_options(registry, &mut secrets, &mut warnings);
        let mut machines = machines.unwrap_or_else(|found| {
            faults.extend(found);
            Vec::new()
        });
        if faults.is_empty() {
            faults.extend(self.choose_stored_version(&mut machines).err());
        }
        let option = (!self.machine_provider.is_empty()).then_some("--machine-provider");
        let option = self.machines.then_some("--machines").or(option);
        faults.extend(set_fault(option, &self.set));
        faults.extend(self.lifecycle_fault());
        if !faults.is_empty() {
            return Err(faults);
        }
        let allowed = always_allowed_paths(&self.set);
        if self.service_monitor
            && monitor_access == MonitorAccess::NoToken
            && !is_always_allowed(&allowed, "/metrics")
        {
            warnings.push(
                "--service-monitor: Prometheus shows no token, since nobody knows who answers, and is refused: name the \
                 authority of the certificate with --service-monitor-ca, or let everybody read the metrics with \
                 --set=authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics, or have the token sent with \
                 --service-monitor-unverified"
                    .to_owned(),
            );
        }
        let mut arguments: Vec<_> = self.set.iter().map(|flag| argument(flag)).collect();
        let named: Vec<_> = [
            ("*", !self.provider.is_empty()),
            (MACHINE_CONTROLLER, !machines.is_empty()),
            (LIFECYCLE, self.lifecycle),
        ]
        .into_iter()
        .filter_map(|(name, runs)| runs.then_some(name))
        .collect();
        let are_given = arguments.iter().any(|flag| flag.starts_with("--controllers="));
        if (self.lifecycle || !machines.is_empty()) && !are_given {
            arguments.push(format!("--controllers={}", named.join(",")));
        }
        let defaults = ManifestOptions::new(&self.provider);
        let options = ManifestOptions {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            image: self.image.clone().unwrap_or(defaults.image),
            replicas: self.replicas,
            host_network: !self.no_host_network,
            host_network_admin,
            api_server,
            cloud_config,
            secrets: secrets.into_iter().collect(),
            service_access,
            machines,
            lifecycle: self.lifecycle,
            arguments,
            image_pull_secrets: self.image_pull_secret.clone(),
            service_monitor: self.service_monitor,
            monitor_access,
            provider: defaults.provider,
        };
        Ok((options, warnings))
    }

    fn monitor_access(&self) -> Result<MonitorAccess, String> {
        let Some(ca) = &self.service_monitor_ca else {
            return Ok(if self.service_monitor_unverified {
                MonitorAccess::Unverified
            } else {
                MonitorAccess::NoToken
            });
        };
        let parts: Vec<&str> = ca.split('/').collect();
        let ca = match parts[..] {
            ["secret", name, key] if !name.is_empty() && !key.is_empty() => {
                CaObject::Secret { name: name.to_owned(), key: key.to_owned() }
            }
            ["configmap", name, key] if !name.is_empty() && !key.is_empty() => {
                CaObject::ConfigMap { name: name.to_owned(), key: key.to_owned() }
            }
            _ => {
                return Err(format!(
                    "--service-monitor-ca: {ca:?} is neither secret/NAME/KEY nor configmap/NAME/KEY, as in secret/ccm-tls/ca.crt"
                ));
            }
        };
        let server_name = self.service_monitor_server_name.clone().unwrap_or_default();
        Ok(MonitorAccess::Verified { ca, server_name })
    }
}

fn unknown_provider(option: &str, provider: &str, registry: &Registry) -> String {
    let known: Vec<_> = registry.names().collect();
    format!("{option}: unknown cloud provider {provider:?} (known: {})", known.join(", "))
}

/// `v=4`, `-v=4` and `--v=4` mean the same.
fn argument(flag: &str) -> String {
    format!("--{}", flag.trim_start_matches('-'))
}

/// What is wrong with `--set`: a flag has a name, and the machine controller runs if and only if its kinds and permissions are printed.
/// `option` is the one that asks for these, if there is one.
fn set_fault(option: Option<&str>, flags: &[String]) -> Option<String> {
    let flags: Vec<_> = flags.iter().map(|flag| argument(flag)).collect();
    if flags.iter().any(|flag| flag == "--" || flag.starts_with("--=")) {
        return Some("--set: must be FLAG=VALUE, such as v=4".to_owned());
    }
    let value = flags.iter().filter_map(|flag| flag.strip_prefix("--controllers=")).next_back()?;
    match (option, value.split(',').any(|name| name.trim() == MACHINE_CONTROLLER)) {
        (Some(option), false) => Some(format!(
            "--set controllers={value}: {MACHINE_CONTROLLER} would not run, which {option} is about; add it"
        )),
        (None, true) => Some(format!(
            "--set controllers={value}: {MACHINE_CONTROLLER} needs --machines, which prints its kinds and its permissions"
        )),
        _ => None,
    }
}

/// The value of `--authorization-always-allow-paths` with these flags. Repeated flags add up.
fn always_allowed_paths(flags: &[String]) -> Vec<String> {
    let flags: Vec<_> = flags.iter().map(|flag| argument(flag)).collect();
    let values = flags.iter().filter_map(|flag| flag.strip_prefix("--authorization-always-allow-paths="));
    values.flat_map(|paths| paths.split(',')).map(str::to_owned).collect()
}

fn host_and_port(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-.:".contains(c));
    Some((is_host.then(|| host.to_owned())?, port.parse().ok().filter(|port| *port > 0)?))
}

#[cfg(test)]
mod tests;
