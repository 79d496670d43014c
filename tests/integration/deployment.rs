//! The manifests in `deploy/` with the tools that operators use: kustomize (in kubectl), Helm, and a real API
//! server. Each way yields the objects that `ccm::manifests` renders.

mod chart;

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use ccm::{
    manifests::{CaObject, CloudConfig, ManifestOptions, MonitorAccess},
    yaml,
};
use cloudprovider::SecretName;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ControlPlane, ControlPlanePrograms, built};

use crate::{
    api::Api,
    daemon::{DaemonProcess, binary},
    peers::Borrowed,
    scenarios::Trials,
    serving::Curl,
    shipped_roles,
    support::eventually,
    trial::Outcome,
};
use chart::{Helm, chart_cases, chart_faults, helm};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("deployment::kustomize_gives_what_the_code_renders", kustomize)
        .trial("deployment::helm_gives_what_the_code_renders", helm)
        .trial("deployment::the_binary_prints_what_the_code_renders", printed)
        .trial("deployment::the_chart_refuses_what_cannot_work", chart_faults)
        .trial("apiserver::deployment::manifests_apply_cleanly", apply)
        .trial("apiserver::deployment::applied_twice_is_unchanged", apply_twice)
        .api_server("deployment::the_probes_are_answered", probes)
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

/// Parses a YAML stream, removes the labels that only Helm adds, and sorts the rules.
fn read(text: &str) -> anyhow::Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let mut objects = Objects::new();
    for mut object in documents.into_iter().filter(|document| !document.is_null()) {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.remove("helm.sh/chart");
            labels.remove("app.kubernetes.io/managed-by");
        }
        if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
            rules.sort_by_key(ToString::to_string);
        }
        let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (
            part(&object["kind"]),
            part(&object["metadata"]["namespace"]),
            part(&object["metadata"]["name"]),
        );
        ensure!(!objects.contains_key(&key), "{key:?} stands twice");
        objects.insert(key, object);
    }
    Ok(objects)
}

fn rendered(options: &ManifestOptions) -> anyhow::Result<String> {
    let objects = options.render().map_err(|faults| anyhow::anyhow!(faults.join("; ")))?;
    Ok(yaml::stream(&objects))
}

fn same(what: &str, found: &str, options: &ManifestOptions) -> anyhow::Result<()> {
    let (found, expected) = (read(found)?, read(&rendered(options)?)?);
    ensure!(
        found.keys().eq(expected.keys()),
        "{what} has {:?}, the code renders {:?}",
        found.keys(),
        expected.keys()
    );
    for (key, object) in &found {
        ensure!(object == &expected[key], "{what}, {key:?}:\n{object}\nthe code renders\n{}", expected[key]);
    }
    Ok(())
}

fn kustomize() -> Outcome {
    let kubectl = ControlPlanePrograms::find()?.kubectl;
    for provider in ["libvirt", "vsphere", "rancher"] {
        let overlay = deploy("kustomize/overlays").join(provider);
        let found = run(Command::new(&kubectl).arg("kustomize").arg(overlay))?;
        same(provider, &found, &ManifestOptions::new(provider))?;
    }
    let plain = std::fs::read_to_string(deploy("daemonset.yaml")).map_err(anyhow::Error::from)?;
    same("daemonset.yaml", &plain, &ManifestOptions::new("libvirt"))?;
    Ok(())
}

fn printed() -> Outcome {
    let manifests = |arguments: &[&str]| {
        run(Command::new(binary()?).arg("manifests").arg("--provider=libvirt").args(arguments))
    };
    let base = || ManifestOptions::new("libvirt");
    same("manifests", &manifests(&[])?, &base())?;
    let options = ManifestOptions {
        image: "registry.example.org/ccm:v9".into(),
        replicas: Some(2),
        arguments: vec!["--use-service-account-credentials=true".into(), "--v=4".into()],
        service_monitor: true,
        monitor_access: MonitorAccess::Verified {
            ca: CaObject::Secret { name: "tls".into(), key: "ca.crt".into() },
            server_name: "ccm.example.org".into(),
        },
        ..base()
    };
    let found = manifests(&[
        "--image=registry.example.org/ccm:v9",
        "--replicas=2",
        "--set=use-service-account-credentials=true",
        "--set",
        "v=4",
        "--service-monitor",
        "--service-monitor-ca=secret/tls/ca.crt",
        "--service-monitor-server-name=ccm.example.org",
    ])?;
    same("manifests with options", &found, &options)?;
    // The Secret is the one in vSphere's configuration.
    let config = TempDir::new().map_err(anyhow::Error::from)?;
    let config = config.path().join("vsphere.conf");
    Ok(printed_faults(&manifests).and_then(|()| printed_secrets(&config))?)
}

fn printed_faults(manifests: &dyn Fn(&[&str]) -> anyhow::Result<String>) -> anyhow::Result<()> {
    for (arguments, words) in [
        (&["--set=concurrent-node-syncs=0"][..], "concurrent-node-syncs"),
        (&["--secret=nobody"], "NAMESPACE/NAME"),
        (&["--service-monitor", "--service-monitor-ca=tls"], "secret/NAME/KEY"),
        (&["--service-monitor", "--service-monitor-ca=secret//ca.crt"], "secret/NAME/KEY"),
    ] {
        let error = manifests(arguments).err().with_context(|| format!("{arguments:?} is accepted"))?;
        ensure!(format!("{error:#}").contains(words), "{error:#}");
    }
    let typo = run(Command::new(binary()?).args(["manifests", "--provider=vspere"]));
    let error = format!("{:#}", typo.err().context("any provider is accepted")?);
    ensure!(error.contains("--provider") && error.contains("known: libvirt, rancher, vsphere"), "{error}");
    Ok(())
}

/// Roles for the Secrets in vSphere's configuration.
fn printed_secrets(path: &Path) -> anyhow::Result<()> {
    let text = "global:\n  secretName: vsphere-credentials\n  secretNamespace: kube-system\n\
                vcenter:\n  a: {server: vc.example.org, datacenters: [dc]}\n";
    std::fs::write(path, text)?;
    let found = run(Command::new(binary()?)
        .args(["manifests", "--provider=vsphere", "--cloud-config"])
        .arg(path)
        .args(["--secret", "vault/second"]))?;
    let options = ManifestOptions {
        cloud_config: CloudConfig::Content {
            secret: "cloud-config".into(),
            text: text.into(),
            files: BTreeMap::new(),
        },
        secrets: [("kube-system", "vsphere-credentials"), ("vault", "second")]
            .map(|(namespace, name)| SecretName { namespace: namespace.into(), name: name.into() })
            .into(),
        ..ManifestOptions::new("vsphere")
    };
    same("manifests with Secrets", &found, &options)
}

/// Runs `kubectl apply` with this input.
fn kubectl_apply(control_plane: &ControlPlane, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = control_plane
        .kubectl()
        .arg("apply")
        .args(arguments)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && errors.is_empty(), "kubectl apply {arguments:?}: {errors}\n{input}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Removes the ServiceMonitor: the API server does not know the kinds of the Prometheus operator.
fn without_service_monitor(text: &str) -> anyhow::Result<String> {
    let objects: Vec<Value> =
        read(text)?.into_values().filter(|object| object["kind"] != "ServiceMonitor").collect();
    Ok(yaml::stream(&objects))
}

fn apply() -> Outcome {
    let control_plane = Borrowed::control_plane()?;
    // Earlier trials may have applied the same objects.
    let dry_run = ["--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts"];
    let plain = std::fs::read_to_string(deploy("daemonset.yaml")).map_err(anyhow::Error::from)?;
    kubectl_apply(&control_plane, &dry_run, &plain)?;
    for provider in ["libvirt", "vsphere", "rancher"] {
        let overlay = deploy("kustomize/overlays").join(provider).display().to_string();
        kubectl_apply(&control_plane, &dry_run, &control_plane.kubectl_output(&["kustomize", &overlay])?)?;
    }
    let helm = Helm::find()?;
    for (values, options) in chart_cases() {
        kubectl_apply(&control_plane, &dry_run, &without_service_monitor(&helm.template(&values)?)?)?;
        kubectl_apply(&control_plane, &dry_run, &without_service_monitor(&rendered(&options)?)?)?;
    }
    Ok(())
}

fn apply_twice() -> Outcome {
    let control_plane = Borrowed::control_plane()?;
    // Separate names, since other tests use the shipped ones.
    let options = ManifestOptions {
        name: "applied-twice".into(),
        cloud_config: CloudConfig::Content {
            secret: "applied-twice".into(),
            text: "a: b\n".into(),
            files: BTreeMap::new(),
        },
        ..ManifestOptions::new("libvirt")
    };
    let text = rendered(&options)?;
    let count = read(&text)?.len();
    for words in ["created", "unchanged"] {
        let said = kubectl_apply(&control_plane, &[], &text)?;
        let lines: Vec<&str> = said.lines().collect();
        if lines.len() != count || !lines.iter().all(|line| line.ends_with(words)) {
            return Err(anyhow::anyhow!("not all are {words}: {said}").into());
        }
    }
    Ok(())
}

/// The shipped container's probes, as a kubelet sends them: without credentials, to the binary with the
/// container's arguments and the shipped service account.
async fn probes(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let options = ManifestOptions {
        arguments: vec![format!("--secure-port={}", test_env::free_port()?)],
        ..ManifestOptions::new("libvirt")
    };
    let objects = read(&rendered(&options)?)?;
    let pod = objects.values().find(|object| object["kind"] == "DaemonSet").context("a DaemonSet")?;
    let container = &pod["spec"]["template"]["spec"]["containers"][0];

    let config = folder.path().join("cloud.conf");
    std::fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let kubeconfig = shipped_roles::kubeconfig(control_plane).await?.display().to_string();
    let mut arguments: Vec<String> = serde_json::from_value(container["args"].clone())?;
    for argument in &mut arguments {
        *argument = argument.replace("/etc/cloud-config", &folder.path().display().to_string());
    }
    // The files of a pod's service account.
    arguments.extend(
        ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
            .map(|flag| format!("--{flag}={kubeconfig}")),
    );
    arguments.push("--bind-address=127.0.0.1".to_owned());
    let daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let get = &container[name]["httpGet"];
        let port =
            container["ports"].as_array().into_iter().flatten().find(|port| port["name"] == get["port"]);
        let port = &port.context("a port of this name")?["containerPort"];
        let text = |key: &str| get[key].as_str().unwrap_or_default().to_owned();
        let url = format!("{}://{}:{port}{}", text("scheme").to_lowercase(), text("host"), text("path"));
        eventually(Duration::from_secs(60), &url, || async {
            Ok((Curl::get(&url).send().await?.status == 200).then_some(()))
        })
        .await
        .with_context(|| format!("{name}: {}", daemon.log()))?;
    }
    daemon.terminate()
}
