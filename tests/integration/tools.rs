//! `check` and `explain` as an operator runs them.

mod clouds;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::{daemon::binary, peers::Borrowed, scenarios::Trials, trial::Outcome};

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("tools::check_names_what_is_wrong", check_faults)
        .trial("tools::check_names_the_missing_permission", check_permissions)
        .trial("tools::explain_says_what_the_daemon_would_do", explain)
        .and(clouds::trials())
}

/// Exit code, stdout and stderr.
fn run(arguments: &[&str]) -> anyhow::Result<(i32, String, String)> {
    let output = Command::new(binary()?).args(arguments).env_remove("KUBERNETES_SERVICE_HOST").output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code().context("ended by a signal")?, text(&output.stdout), text(&output.stderr)))
}

/// The one domain of libvirt's test driver is called `test`.
fn cloud_config(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("cloud.yaml");
    fs::write(&path, "hypervisors:\n- name: kvm1\n  uri: test:///default\n  zone: rack-1\n")?;
    Ok(format!("--cloud-config={}", path.display()))
}

const PROVIDER: &str = "--cloud-provider=libvirt";
/// The same flag for `manifests`.
const PROVIDER_OPTION: &str = "--provider=libvirt";
/// The shipped name belongs to the tests that use this control plane later.
const NAME_OPTION: &str = "--name=ccm-tools";
const ACCOUNT: &str = "system:serviceaccount:kube-system:ccm-tools";

fn check_faults() -> Outcome {
    Ok(check_wrong_command_lines()?)
}

fn check_wrong_command_lines() -> anyhow::Result<()> {
    let (code, out, _) = run(&["check", "--concurrent-node-syncs=0", "--controllers=nope"])?;
    for text in
        ["--cloud-provider cannot be empty", "\"nope\" is not in the list", "must be a positive number"]
    {
        ensure!(out.contains(text), "{text} in {out}");
    }
    ensure!(code == 1, "{out}");
    let (code, out, _) =
        run(&["check", PROVIDER, "--cloud-config=/no/such/file", "--master=http://127.0.0.1:1"])?;
    ensure!(code == 1 && out.contains("/no/such/file") && out.contains("cannot be reached"), "{out}");
    let folder = TempDir::new()?;
    let config = cloud_config(folder.path())?;
    let (code, out, _) = run(&["check", PROVIDER, &config, "--master=http://127.0.0.1:1"])?;
    ensure!(code == 1 && out.contains("the API server does not say which there are"), "{out}");
    let files = [
        "--client-ca-file=/no/such/ca",
        "--webhook-tls-cert-file=/no/crt",
        "--webhook-tls-private-key-file=/no/key",
    ];
    let (_, out, _) =
        run(&[&["check", PROVIDER, &config, "--master=http://127.0.0.1:1"], &files[..]].concat())?;
    ensure!(out.contains("--client-ca-file: /no/such/ca"), "{out}");
    ensure!(!out.contains("/no/crt"), "libvirt's machines are not converted: {out}");
    let vsphere = folder.path().join("vsphere.yaml");
    fs::write(&vsphere, "vcenter: {}\n")?;
    let provider = format!("--machine-provider=vsphere={}", vsphere.display());
    let (_, out, _) = run(&[
        &["check", &provider, "--controllers=machine-controller", "--master=http://127.0.0.1:1"],
        &files[1..],
    ]
    .concat())?;
    ensure!(out.contains("--webhook-tls-cert-file") && out.contains("/no/crt"), "{out}");
    let (code, _, err) = run(&["check", "--nope"])?;
    ensure!(code == 1 && err.contains("unknown flag: --nope"), "{err}");
    Ok(())
}

fn check_permissions() -> Outcome {
    let control_plane = Borrowed::control_plane()?;
    Ok(check_as_admin_and_as_shipped(&control_plane)?)
}

fn check_as_admin_and_as_shipped(control_plane: &Borrowed) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let config = cloud_config(folder.path())?;
    let admin = format!("--kubeconfig={}", control_plane.kubeconfig().display());
    let (code, out, err) = run(&["check", PROVIDER, &config, &admin])?;
    ensure!(code == 0 && out.contains("Everything"), "{code}: {out}{err}");
    ensure!(out.contains("v1.") && out.contains("has all"), "the version and the permissions: {out}");

    // The shipped roles without one verb.
    let without_delete = |manifests: String| manifests.replace("delete, ", "").replace(", delete", "");
    as_shipped(control_plane, &[PROVIDER_OPTION], without_delete, |kubeconfig| {
        check_with_one_lacking(kubeconfig, &config)
    })
}

/// Runs `act` with a kubeconfig of the shipped service account. Its roles are those of the manifests with
/// these options, modified by `change`.
fn as_shipped(
    control_plane: &Borrowed,
    options: &[&str],
    change: impl FnOnce(String) -> String,
    act: impl FnOnce(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (_, manifests, _) = run(&[&["manifests", NAME_OPTION], options].concat())?;
    let file = folder.path().join("roles.yaml");
    fs::write(&file, change(manifests))?;
    let file = file.display().to_string();
    control_plane.kubectl_output(&["apply", "-f", &file])?;
    let kubeconfig: PathBuf = control_plane
        .kubeconfig_for(ACCOUNT, &["system:serviceaccounts", "system:serviceaccounts:kube-system"])?;
    let outcome = act(&format!("--kubeconfig={}", kubeconfig.display()));
    control_plane.kubectl_output(&["delete", "--wait=false", "-f", &file])?;
    outcome
}

fn check_with_one_lacking(kubeconfig: &str, config: &str) -> anyhow::Result<()> {
    let (code, out, err) = run(&["check", PROVIDER, config, kubeconfig, "--output=json"])?;
    let report: Value = serde_json::from_str(&out).with_context(|| format!("{out}{err}"))?;
    let failed: Vec<&str> = report["findings"]
        .as_array()
        .context("findings")?
        .iter()
        .filter(|finding| finding["verdict"] != "ok")
        .filter_map(|finding| finding["detail"].as_str())
        .collect();
    let expected =
        format!("{ACCOUNT} may not delete nodes; needed for: deleting Nodes whose instance is gone");
    ensure!(code == 1 && failed == [expected.as_str()], "{code}: {out}");
    // A daemon without the deleting controller does not need the permission.
    let (code, out, _) = run(&["check", PROVIDER, config, kubeconfig, "--controllers=cloud-node"])?;
    ensure!(code == 0, "{out}");
    Ok(())
}

fn explain() -> Outcome {
    let control_plane = Borrowed::control_plane()?;
    let folder = TempDir::new()?;
    let config = cloud_config(folder.path())?;
    let nodes = folder.path().join("nodes.yaml");
    let taint =
        "[{key: node.cloudprovider.kubernetes.io/uninitialized, value: \"true\", effect: NoSchedule}]";
    fs::write(
        &nodes,
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: test}}\nspec: {{taints: {taint}}}\n---\n\
             apiVersion: v1\nkind: Node\nmetadata: {{name: nobody}}\nspec: {{taints: {taint}}}\n---\n\
             apiVersion: v1\nkind: Node\nmetadata: {{name: foreign}}\nspec: {{providerID: \"aws:///x/i-1\"}}\n"
        ),
    )?;
    let file = nodes.display().to_string();
    control_plane.kubectl_output(&["apply", "-f", &file])?;
    // A pod has only the daemon's own account.
    let outcome = as_shipped(
        &control_plane,
        &[PROVIDER_OPTION],
        |manifests| manifests,
        |kubeconfig| explain_nodes(&[PROVIDER, &config, kubeconfig]),
    );
    control_plane.kubectl_output(&["delete", "-f", &file])?;
    Ok(outcome?)
}

fn explain_nodes(flags: &[&str]) -> anyhow::Result<()> {
    let explain = |more: &[&str]| run(&[&["explain"], more, flags].concat());
    let (code, out, err) = explain(&["test", "--output=json"])?;
    ensure!(code == 0, "{out}{err}");
    let found: Value = serde_json::from_str(&out)?;
    ensure!(found["cloud"]["instance"] == "present" && found["cloud"]["matchedBy"] == "name", "{found:#}");
    ensure!(found["initialized"] == false && found["cloud"]["powerState"] == "running", "{found:#}");
    let zone =
        |entry: &Value| entry["field"] == "label topology.kubernetes.io/zone" && entry["cloud"] == "rack-1";
    ensure!(found["differences"].as_array().is_some_and(|all| all.iter().any(zone)), "{found:#}");

    for (node, texts) in [
        ("test", &["Found by:", "provider ID", "A daemon with these flags would:"][..]),
        ("nobody", &["absent", "InstanceNotFound", "no instance for this node"]),
        ("foreign", &["leave the Node alone", "aws:///x/i-1 is of another cloud"]),
    ] {
        let (code, out, err) = explain(&[node])?;
        ensure!(code == 0 && texts.iter().all(|text| out.contains(text)), "{node}: {out}{err}");
    }
    let (code, _, err) = explain(&["tset"])?;
    ensure!(code == 1 && err.contains("there is no Node \"tset\"; did you mean test?"), "{err}");
    // As it is written for a machine.
    let (code, _, err) = explain(&["node"])?;
    ensure!(code == 1 && err.contains("give the name of the Node: explain NAME"), "{err}");
    let (code, _, err) = explain(&["machine"])?;
    ensure!(code == 1 && err.contains("give its name too: explain machine NAMESPACE/NAME"), "{err}");
    for none in [&[][..], &[""], &["a b"]] {
        let (code, _, err) = explain(none)?;
        ensure!(code == 1 && (err.contains("NODE") || err.contains("no Node \"a b\"")), "{none:?}: {err}");
    }
    plugin_says_no_secret(flags)
}

fn plugin_says_no_secret(flags: &[&str]) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let kubeconfig = folder.path().join("plugin.kubeconfig");
    fs::write(
        &kubeconfig,
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n\
         contexts: [{name: c, context: {cluster: c, user: u}}]\n\
         users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, \
         args: [-c, \"echo hunter2; exit 3\"], interactiveMode: Never}}}]\n",
    )?;
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    for tool in [&["check"][..], &["explain", "test"]] {
        let (code, out, err) = run(&[tool, flags, &[&kubeconfig]].concat())?;
        ensure!(code == 1 && !format!("{out}{err}").contains("hunter2"), "{out}{err}");
        ensure!(format!("{out}{err}").contains(&kubeconfig.replacen('=', " ", 1)), "{out}{err}");
    }
    Ok(())
}
