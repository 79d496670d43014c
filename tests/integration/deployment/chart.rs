//! The Helm chart.

use super::*;

/// Runs Helm on our chart, for a release with the chart's name.
pub(super) struct Helm {
    program: PathBuf,
    folder: TempDir,
}

impl Helm {
    pub(super) fn find() -> Result<Self, test_env::StartError> {
        let folder = TempDir::new().map_err(anyhow::Error::from)?;
        Ok(Self { program: built("helm")?.join("helm"), folder })
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        // Do not use the user's own Helm configuration.
        for variable in ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.folder.path());
        }
        command.env_remove("KUBECONFIG").arg(verb);
        command
    }

    pub(super) fn template(&self, values: &Value) -> anyhow::Result<String> {
        let file = self.folder.path().join("values.json");
        std::fs::write(&file, values.to_string())?;
        run(self
            .command("template")
            .args(["cloud-controller-manager", "--namespace=kube-system", "--values"])
            .arg(file)
            .arg(deploy("helm/cloud-controller-manager")))
    }
}

/// Values of the chart, and the equivalent options.
pub(super) fn chart_cases() -> Vec<(Value, ManifestOptions)> {
    let base = || ManifestOptions::new("libvirt");
    let config = "hypervisors:\n- name: kvm1\n  uri: \"qemu:///system\"\n";
    let secret = |name: &str| CloudConfig::Secret { name: name.into(), key: "cloud.conf".into() };
    let strings = |items: &[&str]| items.iter().map(ToString::to_string).collect();
    vec![
        (json!({"provider": "libvirt"}), base()),
        (json!({"provider": "vsphere"}), ManifestOptions::new("vsphere")),
        (
            json!({"provider": "libvirt", "image": {"repository": "registry.example.org/ccm", "tag": "v9"},
                   "imagePullSecrets": [{"name": "registry"}], "kind": "Deployment", "replicas": 3}),
            ManifestOptions {
                image: "registry.example.org/ccm:v9".into(),
                image_pull_secrets: strings(&["registry"]),
                replicas: Some(3),
                ..base()
            },
        ),
        (
            json!({"provider": "libvirt", "cloudConfig": config}),
            ManifestOptions {
                cloud_config: CloudConfig::Content {
                    secret: "cloud-config".into(),
                    text: config.into(),
                    files: BTreeMap::new(),
                },
                ..base()
            },
        ),
        (
            json!({"provider": "libvirt", "existingSecret": "mine"}),
            ManifestOptions { cloud_config: secret("mine"), ..base() },
        ),
        (
            json!({"provider": "vsphere", "existingConfigMap": "vsphere-cloud-config", "configKey": "vsphere.conf"}),
            ManifestOptions {
                cloud_config: CloudConfig::ConfigMap {
                    name: "vsphere-cloud-config".into(),
                    key: "vsphere.conf".into(),
                },
                ..ManifestOptions::new("vsphere")
            },
        ),
        (
            json!({"provider": "vsphere", "secrets": [
                {"namespace": "kube-public", "name": "vc.example.org"},
                {"namespace": "kube-system", "name": "vsphere-credentials"},
                {"namespace": "kube-public", "name": "second"},
            ]}),
            ManifestOptions {
                secrets: [
                    ("kube-public", "vc.example.org"),
                    ("kube-system", "vsphere-credentials"),
                    ("kube-public", "second"),
                ]
                .map(|(namespace, name)| SecretName { namespace: namespace.into(), name: name.into() })
                .into(),
                ..ManifestOptions::new("vsphere")
            },
        ),
        (
            json!({"provider": "libvirt", "existingSecret": "", "hostNetwork": false}),
            ManifestOptions { cloud_config: CloudConfig::None, host_network: false, ..base() },
        ),
        (
            json!({"provider": "libvirt", "hostNetworkAdmin": true}),
            ManifestOptions { host_network_admin: true, ..base() },
        ),
        (
            json!({"provider": "libvirt", "useServiceAccountCredentials": true, "securePort": 11000}),
            ManifestOptions {
                arguments: strings(&["--secure-port=11000", "--use-service-account-credentials"]),
                ..base()
            },
        ),
        (
            json!({"provider": "libvirt", "leaderElection": {"resourceName": "true"}}),
            ManifestOptions { arguments: strings(&["--leader-elect-resource-name=true"]), ..base() },
        ),
        (
            json!({"provider": "libvirt", "dryRun": true, "securePort": 10259,
                   "useServiceAccountCredentials": true, "fullnameOverride": "ccm-trial"}),
            ManifestOptions {
                name: "ccm-trial".into(),
                arguments: strings(&[
                    "--secure-port=10259",
                    "--use-service-account-credentials",
                    "--dry-run",
                ]),
                ..base()
            },
        ),
        (
            json!({"provider": "mycloud", "image": {"repository": "registry.example.org/mycloud-ccm", "tag": "v1"},
                   "extraArgs": ["--authorization-always-allow-paths=/metrics,/livez,/readyz"]}),
            ManifestOptions {
                image: "registry.example.org/mycloud-ccm:v1".into(),
                arguments: strings(&["--authorization-always-allow-paths=/metrics,/livez,/readyz"]),
                ..ManifestOptions::new("mycloud")
            },
        ),
        (
            json!({"provider": "libvirt", "logging": {"verbosity": 4, "format": "json"},
                   "extraArgs": ["--concurrent-node-syncs=32", "--controllers=*,-route"],
                   "apiServer": {"host": "10.0.0.1"}, "serviceMonitor": {"enabled": true},
                   "fullnameOverride": "second"}),
            ManifestOptions {
                name: "second".into(),
                arguments: strings(&[
                    "--logging-format=json",
                    "--v=4",
                    "--concurrent-node-syncs=32",
                    "--controllers=*,-route",
                ]),
                api_server: Some(("10.0.0.1".into(), 6443)),
                service_monitor: true,
                ..base()
            },
        ),
        (
            json!({"provider": "libvirt",
                   "serviceMonitor": {"enabled": true, "ca": {"secret": {"name": "tls", "key": "ca.crt"}}}}),
            ManifestOptions {
                service_monitor: true,
                monitor_access: MonitorAccess::Verified {
                    ca: CaObject::Secret { name: "tls".into(), key: "ca.crt".into() },
                    server_name: String::new(),
                },
                ..base()
            },
        ),
        (
            json!({"provider": "libvirt",
                   "serviceMonitor": {"enabled": true, "ca": {"configMap": {"name": "tls", "key": "ca"}},
                                      "serverName": "ccm.example.org"}}),
            ManifestOptions {
                service_monitor: true,
                monitor_access: MonitorAccess::Verified {
                    ca: CaObject::ConfigMap { name: "tls".into(), key: "ca".into() },
                    server_name: "ccm.example.org".into(),
                },
                ..base()
            },
        ),
        (
            json!({"provider": "libvirt", "serviceMonitor": {"enabled": true, "sendTokenUnverified": true}}),
            ManifestOptions { service_monitor: true, monitor_access: MonitorAccess::Unverified, ..base() },
        ),
    ]
}

pub(super) fn helm() -> Outcome {
    let helm = Helm::find()?;
    for (values, options) in chart_cases() {
        same(&values.to_string(), &helm.template(&values)?, &options)?;
    }
    // The chart's roles include the Lease even without an election.
    let alone = json!({"provider": "libvirt", "kind": "Deployment", "replicas": 1,
                       "extraArgs": ["--leader-elect=false"]});
    let options = ManifestOptions {
        replicas: Some(1),
        arguments: vec!["--leader-elect=false".into()],
        ..ManifestOptions::new("libvirt")
    };
    let deployment = |text: &str| -> anyhow::Result<Value> {
        read(text)?.into_values().find(|object| object["kind"] == "Deployment").context("a Deployment")
    };
    let (found, expected) = (deployment(&helm.template(&alone)?)?, deployment(&rendered(&options)?)?);
    if found != expected || found["spec"]["strategy"]["type"] != "Recreate" {
        return Err(anyhow::anyhow!("{found}\nthe code renders\n{expected}").into());
    }
    run(helm
        .command("lint")
        .arg("--strict")
        .arg("--set=provider=libvirt")
        .arg(deploy("helm/cloud-controller-manager")))?;
    let chart = std::fs::read_to_string(deploy("helm/cloud-controller-manager/Chart.yaml"))
        .map_err(anyhow::Error::from)?;
    let chart: Value = serde_saphyr::from_str(&chart).map_err(anyhow::Error::from)?;
    for key in ["version", "appVersion"] {
        if chart[key] != env!("CARGO_PKG_VERSION") {
            return Err(anyhow::anyhow!(
                "Chart.yaml: {key} is {}, the crates are {}",
                chart[key],
                env!("CARGO_PKG_VERSION")
            )
            .into());
        }
    }
    Ok(())
}

pub(super) fn chart_faults() -> Outcome {
    let helm = Helm::find()?;
    for (values, words) in [
        (json!({}), "provider is required"),
        (json!({"provider": "libvirt", "extraArgs": ["--cloud-config=/x"]}), "use provider, cloudConfig"),
        (json!({"provider": "libvirt", "kind": "StatefulSet"}), "kind"),
        (json!({"provider": "libvrit"}), "known: libvirt, vsphere, rancher"),
        (
            json!({"provider": "foo", "image": {"repository": "r.example.org/cloud-controller-manager"}}),
            "known",
        ),
        (json!({"provider": "libvirt", "extraArgs": ["--leader_elect=false"]}), "replicas 1"),
        (
            json!({"provider": "libvirt", "extraArgs": ["--leader-elect=F"], "kind": "Deployment", "replicas": 3}),
            "replicas 1",
        ),
        (
            json!({"provider": "libvirt", "extraArgs": ["--leader-elect-resource-name=x"]}),
            "use leaderElection.resourceName",
        ),
        (
            json!({"provider": "libvirt", "extraArgs": ["--leader-elect-resource-namespace=x"]}),
            "do not follow it",
        ),
        (json!({"provider": "libvirt", "extraArgs": ["--enable-leader-migration"]}), "do not follow it"),
        (json!({"provider": "libvirt", "extraArgs": ["--dry-run"]}), "use dryRun"),
        (
            json!({"provider": "libvirt", "extraArgs": ["--authorization-always-allow-paths=/metrics"]}),
            "needs /livez and /readyz",
        ),
        (json!({"provider": "libvirt", "hostnetwork": true}), "hostnetwork"),
        (
            json!({"provider": "libvirt", "hostNetworkAdmin": true, "hostNetwork": false}),
            "hostNetworkAdmin: needs hostNetwork",
        ),
        (json!({"provider": "libvirt", "cloudConfig": "a", "existingConfigMap": "b"}), "exclude each other"),
    ] {
        match helm.template(&values) {
            Ok(_) => return Err(anyhow::anyhow!("the chart accepts {values}").into()),
            Err(error) if format!("{error:#}").contains(words) => {}
            Err(error) => return Err(error.context(format!("{values}: no {words:?}")).into()),
        }
    }
    Ok(())
}
