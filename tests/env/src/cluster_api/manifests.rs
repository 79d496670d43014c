//! The objects of Cluster API's managers, and what other programs of a cluster do with them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::ControlPlane;
use crate::process::run;
use crate::scratch::Scratch;

/// Applies the objects of a file, and waits until its kinds can be used.
pub(super) fn install(control_plane: &ControlPlane, file: &Path) -> Result<()> {
    let file = file.to_str().context("a path is text")?;
    control_plane.kubectl_output(&["apply", "--server-side", "--filename", file])?;
    control_plane
        .kubectl_output(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"])
        .map(drop)
}

/// The flag with the feature gates, as the Deployment in this namespace has it. None if they are variables that nobody
/// replaced.
pub(super) fn feature_gates(control_plane: &ControlPlane, namespace: &str) -> Result<Option<String>> {
    let found = control_plane.get(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"))?;
    let found: Value = serde_json::from_str(&found)?;
    let deployments = found["items"].as_array().into_iter().flatten();
    let containers =
        deployments.filter_map(|one| one["spec"]["template"]["spec"]["containers"].as_array()).flatten();
    let mut flags = containers.filter_map(|one| one["args"].as_array()).flatten().filter_map(Value::as_str);
    let gates = flags.find(|flag| flag.starts_with("--feature-gates="));
    Ok(gates.filter(|gates| !gates.contains('$')).map(str::to_owned))
}

/// Does what cert-manager and a Service do for the webhooks of a provider: they lead to `port` of 127.0.0.1, and
/// the API server trusts `ca.crt` in `scratch`.
pub(super) fn lead_webhooks_to(
    control_plane: &ControlPlane,
    scratch: &Scratch,
    provider: &str,
    port: u16,
) -> Result<()> {
    const KINDS: &str = "crd,mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let ca = run(Command::new("base64").arg("--wrap=0").arg(scratch.join("ca.crt")))?;
    let label = format!("cluster.x-k8s.io/provider={provider}");
    change(control_plane, scratch, &["get", KINDS, "--selector", &label], |object| {
        lead_to(object, port, &ca);
    })
}

fn lead_to(object: &mut Value, port: u16, ca: &str) {
    let lead = |config: &mut Value| {
        if let Some(path) = config["service"]["path"].as_str() {
            *config = json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": ca});
        }
    };
    if let Some(conversion) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        lead(conversion);
    }
    for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        lead(&mut webhook["clientConfig"]);
    }
}

/// Does what kube-controller-manager does for roles that collect the rules of others.
pub(super) fn aggregate_roles(control_plane: &ControlPlane, scratch: &Scratch) -> Result<()> {
    let all = control_plane.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")?;
    let all: Value = serde_json::from_str(&all)?;
    let all = all["items"].as_array().cloned().unwrap_or_default();
    // those of Kubernetes itself are of no use here
    let ours = ["get", "clusterroles", "--selector=cluster.x-k8s.io/provider"];
    change(control_plane, scratch, &ours, |role| {
        let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array().cloned();
        let Some(selectors) = selectors else { return };
        let chosen = all.iter().filter(|other| selectors.iter().any(|selector| selects(selector, other)));
        let rules: Vec<_> = chosen.filter_map(|other| other["rules"].as_array().cloned()).flatten().collect();
        role["rules"] = rules.into();
    })
}

fn selects(selector: &Value, role: &Value) -> bool {
    let mut labels = selector["matchLabels"].as_object().into_iter().flatten();
    labels.all(|(key, value)| role["metadata"]["labels"].get(key) == Some(value))
}

/// Changes all objects that `kubectl get` prints.
fn change(
    control_plane: &ControlPlane,
    scratch: &Scratch,
    get: &[&str],
    change: impl FnMut(&mut Value),
) -> Result<()> {
    let found = control_plane.kubectl_output(&[get, &["--output=json"]].concat())?;
    let mut list: Value = serde_json::from_str(&found)?;
    list["items"].as_array_mut().into_iter().flatten().for_each(change);
    let file = scratch.write("changed.json", &list.to_string())?;
    let file = file.to_str().context("a path is text")?;
    control_plane.kubectl_output(&["replace", "--filename", file]).map(drop)
}
