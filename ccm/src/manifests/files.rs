//! The files in `deploy/` that are written by `make manifests` and never by hand.

use serde_json::{Value, json};

use super::{ManifestOptions, rbac, yaml};
use crate::{flags, permissions};

/// The providers that have an overlay.
const PROVIDERS: [&str; 3] = ["libvirt", "vsphere", "rancher"];

/// The options of the Helm chart that change what the daemon has to be allowed: the value, and what it passes to the
/// daemon.
const CHART_OPTIONS: [(&str, &[&str]); 1] =
    [(".Values.useServiceAccountCredentials", &["--use-service-account-credentials"])];

/// What stands in objects for what Helm puts there.
const CHART_NAME: &str = "chart-full-name";
const CHART_NAMESPACE: &str = "chart-namespace";

/// Every such file: its path in `deploy/`, and its content.
///
/// # Errors
/// Faults of our own options; a test of this crate sees to it that there are none.
pub fn generated_files() -> Result<Vec<(String, String)>, Vec<String>> {
    let mut files = Vec::new();

    let plain = ManifestOptions::new("libvirt").render()?;
    let hint = "# Put the image and the provider of your cluster in, or print this file for them:\n\
                #   cloud-controller-manager manifests --provider PROVIDER --image IMAGE\n";
    files.push(("daemonset.yaml".to_owned(), format!("{}{hint}{}", header("#"), yaml::stream(&plain))));

    // The overlays name the provider.
    let base = ManifestOptions::new("").render()?;
    let (workload, rbac): (Vec<_>, Vec<_>) = base.iter().partition(|object| object["kind"] == "DaemonSet");
    let resources = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["rbac.yaml", "daemonset.yaml"],
    });
    let in_base = |name: &str| format!("kustomize/base/{name}");
    files.push((in_base("kustomization.yaml"), format!("{}{}", header("#"), yaml::document(&resources))));
    files.push((in_base("rbac.yaml"), format!("{}{}", header("#"), yaml::stream(rbac))));
    files.push((in_base("daemonset.yaml"), format!("{}{}", header("#"), yaml::stream(workload))));
    for provider in PROVIDERS {
        let overlay = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../../base"],
            "patches": [{
                "target": {"kind": "DaemonSet", "name": super::NAME},
                "patch": format!(
                    "- op: add\n  path: /spec/template/spec/containers/0/args/0\n  value: --cloud-provider={provider}\n"
                ),
            }],
        });
        files.push((
            format!("kustomize/overlays/{provider}/kustomization.yaml"),
            format!("{}{}", header("#"), yaml::document(&overlay)),
        ));
    }

    files.push(("helm/cloud-controller-manager/templates/rbac.yaml".to_owned(), chart_roles()?));
    Ok(files)
}

fn header(comment: &str) -> String {
    format!("{comment} Written by `make manifests` from ccm/src/manifests.rs: change it there.\n")
}

/// The chart's roles: the rules of the table, those of an option inside its condition.
fn chart_roles() -> Result<String, Vec<String>> {
    let needed = |arguments: &[&str]| {
        let line = ["", "--cloud-provider=any"].iter().chain(arguments).map(ToString::to_string);
        flags::parse(line).map(|flags| permissions::needed(&flags)).map_err(|error| vec![error.to_string()])
    };
    let always = needed(&[])?;
    let mut options = ManifestOptions::new("any");
    CHART_NAME.clone_into(&mut options.name);
    CHART_NAMESPACE.clone_into(&mut options.namespace);

    let mut text = format!("{{{{- /*\n{}*/}}}}\n{{{{- if .Values.rbac.create }}}}\n", header(""));
    let mut objects = rbac::roles(&options, &always);
    for object in &mut objects {
        object["metadata"]["labels"] = json!("chart-labels");
    }
    let mut documents: Vec<String> = objects.iter().map(chart_text).collect();
    for (value, arguments) in CHART_OPTIONS {
        let more: Vec<_> =
            needed(arguments)?.into_iter().filter(|permission| !always.contains(permission)).collect();
        for (object, document) in objects.iter().zip(&mut documents) {
            let rules = rbac::roles(&options, &more)
                .into_iter()
                .find(|role| {
                    role["kind"] == object["kind"]
                        && role["metadata"]["namespace"] == object["metadata"]["namespace"]
                })
                .and_then(|role| role.get("rules").cloned());
            if let Some(rules) = rules {
                let rules = yaml::document(&rules);
                *document += &["{{- if ", value, " }}\n", &rules, "{{- end }}\n"].concat();
            }
        }
    }
    text += &documents.join("---\n");
    text += "{{- end }}\n";
    Ok(text)
}

fn chart_text(object: &Value) -> String {
    yaml::document(object)
        .replace(CHART_NAMESPACE, "{{ .Release.Namespace }}")
        .replace(CHART_NAME, "{{ include \"ccm.fullname\" . }}")
        .replace("labels: chart-labels", "labels:\n    {{- include \"ccm.labels\" . | nindent 4 }}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_files_in_deploy_are_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        for (name, text) in generated_files().expect("our own options are right") {
            let found = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(found == text, "deploy/{name} is stale: run `make manifests`");
        }
    }
}
