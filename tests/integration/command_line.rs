//! Wrong input to the binary: a clear message, the right exit code, no panic, no secret.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::{daemon::binary, peers::Borrowed, scenarios::Trials, trial::Outcome};

const SECRET: &str = "hunter2-must-not-be-seen";

/// Upstream's exit codes.
const BAD_FLAGS: i32 = 1;
const BAD_FILES: i32 = 1;
const FATAL: i32 = 255;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .trial("command_line::wrong_flags_are_named", wrong_flags)
        .trial("command_line::wrong_configuration_is_named", wrong_configuration)
        .trial("command_line::an_api_server_out_of_reach_is_named", unreachable_api_server)
        .trial("command_line::a_wrong_token_is_named", wrong_token)
}

/// Runs the binary until it ends.
fn run(arguments: &[&str]) -> anyhow::Result<(i32, String)> {
    let mut child = Command::new(binary()?)
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > test_env::PATIENCE {
            child.kill()?;
            let Output { stderr, .. } = child.wait_with_output()?;
            bail!("{arguments:?} did not end: {}", String::from_utf8_lossy(&stderr));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let Output { status, stdout, stderr } = child.wait_with_output()?;
    let output = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(!output.contains("panicked"), "{arguments:?} panicked: {output}");
    ensure!(!output.contains(SECRET), "{arguments:?} shows a secret: {output}");
    Ok((status.code().context("ended by a signal")?, output))
}

fn expect(arguments: &[&str], code: i32, words: &[&str]) -> anyhow::Result<()> {
    let (found, output) = run(arguments)?;
    ensure!(found == code, "{arguments:?} ended with {found}, not {code}: {output}");
    // The log escapes quotes.
    let output = output.replace("\\\"", "\"");
    for word in words {
        ensure!(output.contains(word), "{arguments:?}: no {word:?} in {output}");
    }
    Ok(())
}

fn wrong_flags() -> Outcome {
    expect(&[], BAD_FLAGS, &["--cloud-provider cannot be empty"])?;
    expect(&["--no-such-flag"], BAD_FLAGS, &["--no-such-flag"])?;
    expect(&["positional"], BAD_FLAGS, &["positional"])?;
    expect(
        &["--cloud-provider=libvirt", "--node-monitor-period=soon"],
        BAD_FLAGS,
        &["--node-monitor-period", "5s, 1m30s"],
    )?;
    expect(
        &["--concurrent-node-syncs=0", "--controllers=*,nope"],
        BAD_FLAGS,
        &[
            "--cloud-provider cannot be empty",
            "--concurrent-node-syncs must be a positive number",
            "\"nope\" is not in the list of known controllers",
        ],
    )?;
    expect(&["--cloud-provider=aws"], FATAL, &["unknown cloud provider \"aws\"", "known: libvirt"])?;
    expect(&["--help"], 0, &["--cloud-provider", "--node-monitor-period"])?;
    expect(&["--version"], 0, &["Kubernetes v"])?;
    expect(
        &["--leader-elect", "false"],
        BAD_FLAGS,
        &["does not take any arguments", "--leader-elect=false"],
    )?;
    expect(
        &["--feature-gates=StableLoadBalancerNodeSet=true"],
        BAD_FLAGS,
        &["unrecognized feature gate", "is gone"],
    )?;
    expect(&["--kubeconfig=x", "check"], BAD_FLAGS, &["a subcommand comes first"])?;
    expect(&["help", "explain"], 0, &["explain", "NODE"])?;
    expect(&["completions", "bash"], 0, &["--leader-elect"])?;
    expect(&["man"], 0, &[".TH cloud-controller-manager"])?;
    Ok(())
}

fn wrong_configuration() -> Outcome {
    let folder = TempDir::new()?;
    let config = |text: &str| -> anyhow::Result<String> {
        let path = folder.path().join("cloud.yaml");
        fs::write(&path, text)?;
        Ok(format!("--cloud-config={}", path.display()))
    };
    let provider = "--cloud-provider=libvirt";
    expect(
        &[provider, "--cloud-config=/no/such/file"],
        FATAL,
        &["--cloud-config /no/such/file", "cannot be read"],
    )?;
    expect(&[provider], FATAL, &["could not init cloud provider \"libvirt\""])?;
    let several = format!(
        "hypervisors:\n- name: kvm1\n  uri: 7\n  zoen: a\n  auth: {{username: u, password: {SECRET}, pasword: {SECRET}}}\n- name: kvm1\n  uri: qemu:///system\naddresses: {{internal: [10.0.0.0/99], families: [ipv5]}}\n"
    );
    expect(
        &[provider, &config(&several)?],
        FATAL,
        &[
            "hypervisors[0].uri",
            "hypervisors[0].zoen",
            "hypervisors[1].name",
            "addresses.internal[0]",
            "addresses.families[0]",
        ],
    )?;
    let broken = format!("hypervisors:\n- name: a\n  auth:\n    password: {SECRET}\n   broken\n");
    expect(&[provider, &config(&broken)?], FATAL, &["could not init cloud provider"])?;
    Ok(())
}

fn good_config(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("cloud.yaml");
    fs::write(&path, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    Ok(format!("--cloud-config={}", path.display()))
}

fn unreachable_api_server() -> Outcome {
    let folder = TempDir::new()?;
    let config = good_config(folder.path())?;
    let provider = "--cloud-provider=libvirt";
    expect(&[provider, &config], BAD_FILES, &["neither --kubeconfig nor --master is given"])?;
    expect(&[provider, &config, "--kubeconfig=/no/such/file"], BAD_FILES, &["--kubeconfig /no/such/file"])?;
    for flag in [
        "--tls-cert-file=/no/such/file",
        "--client-ca-file=/no/such/file",
        "--requestheader-client-ca-file=/no/such/file",
        "--authentication-kubeconfig=/no/such/file",
        "--authorization-kubeconfig=/no/such/file",
    ] {
        let (name, _) = flag.split_once('=').context("a flag")?;
        let port = format!("--secure-port={}", test_env::free_port()?);
        let arguments = [
            provider,
            &config,
            "--master=http://127.0.0.1:1",
            "--bind-address=127.0.0.1",
            &port,
            "--tls-private-key-file=/no/such/file",
            flag,
        ];
        let arguments = if name == "--tls-cert-file" {
            &arguments[..]
        } else {
            &[&arguments[..5], &arguments[6..]].concat()
        };
        expect(arguments, BAD_FILES, &[name, "/no/such/file"])?;
    }
    expect(
        &[provider, &config, "--master=http://127.0.0.1:1", "--secure-port=0", "--leader-elect=false"],
        FATAL,
        &["cannot reach the API server at http://127.0.0.1:1"],
    )?;
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, format!("users:\n- name: a\n  user:\n    token: {SECRET}\n   broken\n"))?;
    let flag = format!("--kubeconfig={}", kubeconfig.display());
    expect(&[provider, &config, &flag], BAD_FILES, &["is not a kubeconfig"])?;
    Ok(())
}

fn wrong_token() -> Outcome {
    let control_plane = Borrowed::control_plane()?;
    let folder = TempDir::new()?;
    let config = good_config(folder.path())?;
    let kubeconfig = fs::read_to_string(control_plane.kubeconfig())?;
    let path = folder.path().join("kubeconfig");
    fs::write(&path, kubeconfig.replace(control_plane.admin_token(), SECRET))?;
    let flag = format!("--kubeconfig={}", path.display());
    expect(
        &["--cloud-provider=libvirt", &config, &flag, "--secure-port=0", "--leader-elect=false"],
        FATAL,
        &["refuses our credentials (401 Unauthorized)"],
    )?;
    Ok(())
}
