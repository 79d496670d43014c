//! The files that are written by `make manifests` and never by hand.

use cloudprovider::MachineTypes;
use component::yaml;
use machine_controller::{crds::Definitions, reference::reference};
use serde_json::{Value, json};

use super::{ManifestOptions, clusterctl_metadata, rbac};
use crate::{flags, permissions};

/// The providers that have an overlay.
const PROVIDERS: [&str; 3] = ["libvirt", "vsphere", "rancher"];

/// The placeholder in objects for what Helm puts there.
const CHART_NAME: &str = "chart-full-name";
const CHART_NAMESPACE: &str = "chart-namespace";
const CHART_LEASE: &str = "chart-lease";

/// Every such file: its path in `deploy/`, and its content.
///
/// # Errors
/// Faults of our own options. A test of this crate checks that there are none.
pub fn generated_files() -> Result<Vec<(String, String)>, Vec<String>> {
    let mut files = Vec::new();

    let plain = ManifestOptions::new("libvirt").render()?;
    let hint = "# Put the image and the provider of your cluster in, or print this file for them:\n\
                #   cloud-controller-manager manifests --provider PROVIDER --image IMAGE\n";
    files.push(("daemonset.yaml".to_owned(), format!("{}{hint}{}", header("#"), yaml::stream(&plain))));

    // The base has no provider, since the overlays name it.
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

/// The files about the machines of a provider: each path in the repository, and its content.
///
/// # Errors
/// What cannot be said in a definition.
pub fn generated_machine_files(
    provider: &str,
    types: MachineTypes,
) -> Result<Vec<(String, String)>, Vec<String>> {
    let definitions = Definitions::of(provider, &types).map_err(|error| vec![error.to_string()])?;
    let components = ManifestOptions::for_clusterctl(provider, types).clusterctl_components()?;
    let hint = "# Put the image of your registry in, or print this file for it:\n\
                #   cloud-controller-manager manifests --for-clusterctl --image IMAGE --provider ";
    let for_clusterctl = |name: &str| format!("deploy/clusterctl/{provider}/{name}");
    Ok(vec![
        (
            for_clusterctl("infrastructure-components.yaml"),
            format!("{}{hint}{provider}\n{}", header("#"), yaml::stream(&components)),
        ),
        (for_clusterctl("metadata.yaml"), format!("{}{}", header("#"), clusterctl_metadata())),
        (format!("docs/reference/{provider}-machines.md"), reference(provider, &definitions)),
    ])
}

fn header(comment: &str) -> String {
    format!("{comment} Written by `make manifests` from ccm/src/manifests.rs: change it there.\n")
}

/// The chart's roles, from the table of permissions, with and without the values that change them.
fn chart_roles() -> Result<String, Vec<String>> {
    let documents = |arguments: &[&str]| -> Result<String, Vec<String>> {
        let lease = format!("--leader-elect-resource-name={CHART_LEASE}");
        let line = ["", "--cloud-provider=any", &lease]
            .into_iter()
            .chain(arguments.iter().copied())
            .map(str::to_owned);
        let flags = flags::parse(line).map_err(|error| vec![error.to_string()])?;
        let mut options = ManifestOptions::new("any");
        CHART_NAME.clone_into(&mut options.name);
        CHART_NAMESPACE.clone_into(&mut options.namespace);
        let mut objects = rbac::roles(&options, &permissions::needed(&flags));
        for object in &mut objects {
            object["metadata"]["labels"] = json!("chart-labels");
        }
        Ok(objects.iter().map(chart_text).collect::<Vec<_>>().join("---\n"))
    };
    let (dry, accounts) = (documents(&["--dry-run"])?, documents(&["--use-service-account-credentials"])?);
    let own = documents(&[])?;
    Ok(format!(
        "{{{{- /*\n{}*/}}}}\n\
         {{{{- if .Values.rbac.create }}}}\n\
         {{{{- if .Values.dryRun }}}}\n{dry}\
         {{{{- else if .Values.useServiceAccountCredentials }}}}\n{accounts}\
         {{{{- else }}}}\n{own}{{{{- end }}}}\n\
         {{{{- end }}}}\n",
        header("")
    ))
}

fn chart_text(object: &Value) -> String {
    yaml::document(object)
        .replace(CHART_NAMESPACE, "{{ .Release.Namespace }}")
        .replace(CHART_LEASE, "{{ .Values.leaderElection.resourceName | quote }}")
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
