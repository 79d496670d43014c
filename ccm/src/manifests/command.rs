//! `cloud-controller-manager manifests`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::Args;
use cloudprovider::{Registry, SecretName, decode_config};

use super::{
    CONFIG_KEY, CONFIG_SECRET, CaObject, CloudConfig, ManifestOptions, MonitorAccess, NAME, content,
    workload::CONFIG_FOLDER,
};
use crate::{serving::is_always_allowed, yaml};

/// Prints the deployment for these options as YAML, for `kubectl apply -f -`.
#[derive(Args, Clone, Debug)]
pub struct ManifestsCommand {
    /// The provider for cloud services, as for the daemon's flag --cloud-provider.
    #[arg(long, value_name = "NAME")]
    pub provider: String,

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

    /// A flag of the daemon, as in --set v=4 or --set leader-elect-lease-duration=30s. Can be repeated.
    #[arg(long, value_name = "FLAG=VALUE", allow_hyphen_values = true)]
    pub set: Vec<String>,
}

impl ManifestsCommand {
    /// The YAML, and warnings.
    ///
    /// # Errors
    /// Everything that is wrong with the options, each fault with its option. `registry` has the providers that there
    /// are.
    pub fn run(&self, registry: &Registry) -> Result<(String, Vec<String>), Vec<String>> {
        let (options, warnings) = self.options(registry)?;
        let rendered = options.render();
        if registry.names().any(|known| known == self.provider) {
            return Ok((yaml::stream(&rendered?), warnings));
        }
        let known: Vec<_> = registry.names().collect();
        let mut faults = vec![format!(
            "--provider: unknown cloud provider {:?} (known: {})",
            self.provider,
            known.join(", ")
        )];
        faults.extend(rendered.err().into_iter().flatten());
        Err(faults)
    }

    fn options(&self, registry: &Registry) -> Result<(ManifestOptions, Vec<String>), Vec<String>> {
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        if self.provider.is_empty() {
            faults.push("--provider cannot be empty".to_owned());
        }
        let mut secrets = BTreeSet::new();
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
            Some(path) => match read_text(path) {
                Ok((text, oddity)) => {
                    let told = |warning: &str| format!("--cloud-config {}: {warning}", path.display());
                    warnings.extend(oddity.map(told));
                    let mut files = BTreeMap::new();
                    // Whether there is such a provider is told elsewhere.
                    if registry.names().any(|known| known == self.provider) {
                        match content::read(&text, path, &self.provider, registry) {
                            Ok(wanted) => {
                                secrets.extend(wanted.secrets);
                                files = wanted.files;
                                warnings.extend(wanted.warnings.iter().map(|warning| told(warning)));
                                warnings.extend(wanted.elsewhere.iter().map(|file| elsewhere(path, file)));
                            }
                            Err(fault) => faults.push(format!(
                                "--cloud-config {}: {fault} ({CONFIG_FOLDER} is where the pods will have it, with \
                                 the files that are beside it here)",
                                path.display()
                            )),
                        }
                    }
                    CloudConfig::Content { secret: CONFIG_SECRET.to_owned(), text, files }
                }
                Err(why) => {
                    faults.push(format!("--cloud-config {}: {why}", path.display()));
                    CloudConfig::None
                }
            },
            None if self.no_cloud_config => CloudConfig::None,
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
        let defaults = ManifestOptions::new(&self.provider);
        let options = ManifestOptions {
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            image: self.image.clone().unwrap_or(defaults.image),
            replicas: self.replicas,
            host_network: !self.no_host_network,
            api_server,
            cloud_config,
            secrets: secrets.into_iter().collect(),
            arguments: self.set.iter().map(|flag| argument(flag)).collect(),
            image_pull_secrets: self.image_pull_secret.clone(),
            service_monitor: self.service_monitor,
            monitor_access,
            provider: defaults.provider,
        };
        Ok((options, warnings))
    }
}

/// The text of a configuration, and what is odd about how it is written.
fn read_text(path: &Path) -> Result<(String, Option<&'static str>), String> {
    let bytes = std::fs::read(path).map_err(|error| format!("the file cannot be read: {error}"))?;
    decode_config(&bytes).map_err(|error| error.to_string())
}

impl ManifestsCommand {
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

/// A warning about a file that the configuration at `config` names.
fn elsewhere(config: &Path, file: &Path) -> String {
    format!(
        "--cloud-config {}: the pods have {} only if their image does: a file becomes part of the Secret if it is \
         beside the configuration, named without a folder or in {CONFIG_FOLDER}",
        config.display(),
        file.display()
    )
}

/// `v=4`, `-v=4` and `--v=4` are one.
fn argument(flag: &str) -> String {
    format!("--{}", flag.trim_start_matches('-'))
}

/// What `--authorization-always-allow-paths` has after these flags: its values are joined.
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
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use cloudprovider::{
        CloudProvider, Clusters, ConfigProblem, Error, FactoryInput, Instances, LoadBalancer, Result, Routes,
        StartContext, Zones, async_trait,
    };

    use super::*;
    use crate::yaml::without_comments;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        command: ManifestsCommand,
    }

    fn command(arguments: &[&str]) -> ManifestsCommand {
        Line::parse_from(["manifests"].iter().chain(arguments)).command
    }

    /// A provider whose configuration is the name of a Secret in `vault`, or nothing.
    #[derive(Debug)]
    struct Cloud(Option<String>);

    #[async_trait]
    impl CloudProvider for Cloud {
        fn name(&self) -> &'static str {
            "libvirt"
        }

        async fn start(&self, _: StartContext) -> Result<()> {
            Ok(())
        }

        fn secrets(&self) -> Vec<SecretName> {
            self.0.iter().map(|name| SecretName { namespace: "vault".into(), name: name.clone() }).collect()
        }

        fn instances(&self) -> Option<&dyn Instances> {
            None
        }

        fn zones(&self) -> Option<&dyn Zones> {
            None
        }

        fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
            None
        }

        fn routes(&self) -> Option<&dyn Routes> {
            None
        }

        fn clusters(&self) -> Option<&dyn Clusters> {
            None
        }
    }

    fn registry() -> Registry {
        let mut registry = Registry::new();
        let factory = |input: &FactoryInput| -> Result<Arc<dyn CloudProvider>> {
            match input.config.as_deref() {
                Some("odd") => {
                    input.warn(ConfigProblem::new("colour", "is not known"));
                    Ok(Arc::new(Cloud(None)))
                }
                Some("bad") => Err(Error::invalid_configuration(vec![ConfigProblem::new("uri", "missing")])),
                // The files that it names, of which those beside the configuration are relative.
                Some(text) if text.starts_with("files ") => {
                    let folder = input.config_path.as_deref().and_then(Path::parent).expect("a folder");
                    let unreadable = |name: &&str| input.read_file(folder.join(name)).is_err();
                    let missing: Vec<_> = text.split(' ').skip(1).filter(unreadable).collect();
                    let problem = |name: &&str| ConfigProblem::new(*name, "cannot be read");
                    match missing[..] {
                        [] => Ok(Arc::new(Cloud(None))),
                        _ => Err(Error::invalid_configuration(missing.iter().map(problem).collect())),
                    }
                }
                config => Ok(Arc::new(Cloud(config.map(str::to_owned)))),
            }
        };
        registry.register("libvirt", factory).expect("free");
        registry
    }

    fn faults(arguments: &[&str]) -> Vec<String> {
        command(arguments).run(&registry()).expect_err("faulty")
    }

    #[test]
    fn a_provider_has_to_be_one_that_there_is() {
        assert_eq!(
            faults(&["--provider=libvrit"]),
            ["--provider: unknown cloud provider \"libvrit\" (known: libvirt)"]
        );
    }

    #[test]
    fn secrets_that_the_configuration_names_can_be_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let config = format!("--cloud-config={}", file.path().display());
        std::fs::write(file.path(), "vc").expect("written");
        let run = |arguments: &[&str]| {
            let (options, warnings) =
                command(&[&["--provider=libvirt"], arguments].concat()).options(&registry()).expect("good");
            let objects = options.render().expect("good");
            let roles = objects.iter().filter(|object| {
                object["kind"] == "Role" && object["metadata"]["name"] == "cloud-controller-manager-secrets"
            });
            let found: Vec<_> = roles
                .map(|role| {
                    let names: Vec<_> = role["rules"]
                        .as_array()
                        .expect("rules")
                        .iter()
                        .map(|rule| rule["resourceNames"][0].as_str().expect("a name").to_owned())
                        .collect();
                    format!("{}: {}", role["metadata"]["namespace"].as_str().expect("one"), names.join(","))
                })
                .collect();
            (found.join("; "), warnings)
        };
        assert_eq!(run(&[]), (String::new(), Vec::new()));
        assert_eq!(run(&[&config]), ("vault: vc".to_owned(), Vec::new()));
        let (found, _) = run(&[&config, "--secret=vault/b.c", "--secret=kube-system/a", "--secret=vault/vc"]);
        assert_eq!(found, "kube-system: a; vault: b.c,vc");
        std::fs::write(file.path(), "bad").expect("written");
        let found = faults(&["--provider=libvirt", &config, "--replicas=0"]);
        assert!(found[0].starts_with("--cloud-config ") && found[0].contains("uri: missing"), "{found:?}");
        std::fs::write(file.path(), "odd").expect("written");
        let (_, warnings) = run(&[&config]);
        assert!(warnings.len() == 1 && warnings[0].ends_with(": colour: is not known"), "{warnings:?}");
        std::fs::write(file.path(), b"b\0a\0d\0").expect("written");
        let found = faults(&["--provider=libvirt", &config]);
        assert!(found[0].contains("UTF-16"), "{found:?}");
        for wrong in ["vc", "a/", "/b", "A/b", "a/b/c"] {
            let found = faults(&["--provider=libvirt", "--secret", wrong]);
            assert!(found[0].starts_with("--secret: ") && found[0].contains("NAMESPACE/NAME"), "{found:?}");
        }
    }

    #[test]
    fn files_beside_the_configuration_come_along() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("my.yaml");
        let config = format!("--cloud-config={}", path.display());
        std::fs::write(folder.path().join("password"), "hunter2").expect("written");
        std::fs::write(folder.path().join("ca.pem"), "CA").expect("written");
        std::fs::write(&path, "files password /etc/cloud-config/ca.pem /no/such/key sub/x").expect("written");
        let arguments = ["--provider=libvirt", &config];
        let (options, warnings) = command(&arguments).options(&registry()).expect("good");
        let objects = options.render().expect("good");
        let secret = objects.iter().find(|object| object["kind"] == "Secret").expect("a Secret");
        let data = secret["data"].as_object().expect("data");
        assert_eq!(data.keys().collect::<Vec<_>>(), ["ca.pem", "cloud.conf", "password"]);
        assert_eq!(data["password"], "aHVudGVyMg==");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("/no/such/key") && warnings[1].contains("/etc/cloud-config/sub/x"));
        // One that is not here would not be there.
        std::fs::remove_file(folder.path().join("password")).expect("removed");
        let found = faults(&arguments);
        assert!(found.len() == 1 && found[0].contains("password: cannot be read"), "{found:?}");
    }

    #[test]
    fn flags_that_cannot_work_in_pods_are_refused() {
        let alone = ["--provider=libvirt", "--set=leader-elect=false"];
        for more in [&[][..], &["--replicas=3"]] {
            let found = faults(&[&alone[..], more].concat());
            assert!(found[0].starts_with("--set leader-elect=false: ") && found.len() == 1, "{found:?}");
        }
        let workload = |arguments: &[&str]| {
            let (options, _) = command(arguments).options(&registry()).expect("good");
            options.render().expect("good").pop().expect("a workload")
        };
        let one = workload(&[&alone[..], &["--replicas=1"]].concat());
        assert_eq!(one["spec"]["strategy"]["type"], "Recreate");
        let elected = workload(&["--provider=libvirt", "--replicas=1"]);
        assert_eq!(elected["spec"]["strategy"]["type"], "RollingUpdate");
        // Nobody writes.
        workload(&[&alone[..], &["--set=dry-run=true"]].concat());

        let paths = "--set=authorization-always-allow-paths=/metrics,/readyz";
        let found = faults(&["--provider=libvirt", paths]);
        assert!(
            found[0].contains("always-allow-paths") && found[0].contains("needs /livez too"),
            "{found:?}"
        );
        workload(&["--provider=libvirt", "--set=authorization-always-allow-paths=/metrics,/livez,/readyz"]);
        workload(&["--provider=libvirt", "--set=authorization-always-allow-paths=/*"]);
        workload(&["--provider=libvirt", paths, "--set=secure-port=0"]);
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let found = faults(&[
            "--provider=Lib",
            "--namespace=a/b",
            "--image=",
            "--config-key=a/b",
            "--replicas=0",
            "--set=cloud-config=/x",
            "--set=concurrent-node-syncs=0",
        ]);
        for option in [
            "--provider",
            "--namespace",
            "--image",
            "--config-key",
            "--replicas",
            "--set cloud-config",
            "--concurrent-node-syncs",
        ] {
            assert!(found.iter().any(|fault| fault.starts_with(option)), "{option} in {found:?}");
        }
        assert!(faults(&["--provider="])[0].starts_with("--provider cannot be empty"));
        assert!(faults(&["--provider=libvirt", "--set=no-such-flag=1"])[0].contains("--no-such-flag"));
        assert!(faults(&["--provider=libvirt", "--cloud-config=/no/such"])[0].contains("/no/such"));
        for address in ["api", "api:", ":6443", "api:0", "a b:1", "api:99999"] {
            assert!(faults(&["--provider=libvirt", "--api-server", address])[0].contains("HOST:PORT"));
        }
    }

    #[test]
    fn flags_reach_the_daemon_and_its_roles() {
        let options = command(&[
            "--provider=libvirt",
            "--set=v=4",
            "--set",
            "--leader-elect-resource-name=mine",
            "--set=leader-elect-resource-namespace=locks",
            "--api-server=[fd00::1]:6443",
        ])
        .options(&registry())
        .expect("good options")
        .0;
        let objects: Vec<_> = options.render().expect("good options").iter().map(without_comments).collect();
        let container = &objects.last().expect("objects")["spec"]["template"]["spec"]["containers"][0];
        let arguments: Vec<_> =
            container["args"].as_array().expect("a list").iter().filter_map(|a| a.as_str()).collect();
        assert_eq!(
            arguments,
            [
                "--cloud-provider=libvirt",
                "--cloud-config=/etc/cloud-config/cloud.conf",
                "--v=4",
                "--leader-elect-resource-name=mine",
                "--leader-elect-resource-namespace=locks",
            ]
        );
        assert_eq!(container["env"][0]["value"], "fd00::1");
        let role = objects
            .iter()
            .find(|object| object["kind"] == "Role" && object["metadata"]["namespace"] == "locks")
            .expect("a role where the Lease is");
        assert!(
            role["rules"].as_array().expect("rules").iter().any(|rule| rule["resourceNames"][0] == "mine")
        );
    }

    #[test]
    fn whom_prometheus_shows_its_token_is_chosen() {
        let options = |arguments: &[&str]| {
            command(&[&["--provider=libvirt", "--service-monitor"], arguments].concat()).options(&registry())
        };
        let (alone, warnings) = options(&[]).expect("accepted");
        assert_eq!(alone.monitor_access, MonitorAccess::NoToken);
        assert!(warnings.iter().any(|warning| warning.contains("--service-monitor-ca")), "{warnings:?}");
        for (paths, is_allowed) in [
            ("/healthz,/metrics", true),
            ("healthz,metrics", true),
            ("/metric*", true),
            ("/metrics/*", false),
            ("/*", true),
            ("/metricsx", false),
        ] {
            let (_, warnings) =
                options(&[&format!("--set=authorization-always-allow-paths={paths}")]).expect("accepted");
            assert_eq!(warnings.is_empty(), is_allowed, "{paths}: {warnings:?}");
        }
        let (unverified, warnings) = options(&["--service-monitor-unverified"]).expect("accepted");
        assert_eq!((unverified.monitor_access, warnings.len()), (MonitorAccess::Unverified, 0));
        let (verified, warnings) = options(&["--service-monitor-ca=configmap/ca/ca.crt"]).expect("accepted");
        let ca = CaObject::ConfigMap { name: "ca".into(), key: "ca.crt".into() };
        assert_eq!(verified.monitor_access, MonitorAccess::Verified { ca, server_name: String::new() });
        assert!(warnings.is_empty());
        for ca in ["tls", "secret/tls", "secret//key", "pod/a/b", "secret/a/b/c"] {
            let faults = options(&[&format!("--service-monitor-ca={ca}")]).expect_err("refused");
            assert!(faults.iter().any(|fault| fault.contains("secret/NAME/KEY")), "{faults:?}");
        }
    }
}
