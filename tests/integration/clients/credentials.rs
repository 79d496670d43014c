//! Invalid tokens, and credential plugins.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, ensure};
use ccm::{
    api_client::ClientOptions,
    reload::{ReloadMetrics, Source},
};
use sandbox::kubelet;
use tempfile::TempDir;

use super::from_file;
use crate::{
    api::Api,
    daemon::{DaemonProcess, InProcess, binary},
    fake_cloud::{FakeCloud, running},
    scenarios::Trials,
    support::*,
};

const LIMIT: Duration = Duration::from_secs(40);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("clients::credentials_that_are_none_are_refused", broken)
        .api_server("clients::a_credential_plugin_runs_once", plugin)
        .api_server("clients::a_plugin_that_hangs_does_not_hold_up_the_end", hanging)
}

/// The administrator's kubeconfig with another user.
fn of_user(api: &Api, user: &str) -> anyhow::Result<String> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let admin = fs::read_to_string(control_plane.kubeconfig())?;
    let token = format!("token: {}", control_plane.admin_token());
    ensure!(admin.contains(&token), "the administrator has a token");
    Ok(admin.replace(&token, user))
}

async fn initialized(api: &Api, cloud: &FakeCloud, number: usize) -> anyhow::Result<()> {
    let name = format!("n{number}");
    cloud.put(&uuid(number), running(number));
    kubelet::register(&api.client, &kubelet::node(&name, &uuid(number))).await?;
    node_becomes(&api.client, &name, LIMIT, "initialized", is_initialized).await?;
    Ok(())
}

async fn broken(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let (path, token) = (folder.path().join("kubeconfig"), folder.path().join("token"));
    let good = of_user(api, "tokenFile: token")?;
    fs::write(&path, &good)?;
    fs::write(&token, control_plane.admin_token())?;
    let cloud = FakeCloud::new();
    let parts = from_file(&path, ClientOptions::default(), cloud.provider()).await?;
    let daemon = InProcess::run_parts(parts, &[], true)?;
    initialized(api, &cloud, 1).await?;

    let label = Source::Kubeconfig.as_str();
    let metrics = daemon.counted::<ReloadMetrics>();
    let failures = || metrics.config_reloads.with_label_values(&[label, "failure"]).get();
    let faults: [(&Path, String); 4] = [
        (&token, String::new()),
        (&token, format!("{}\nabc", control_plane.admin_token())),
        // A user name without a password is not a credential.
        (&path, of_user(api, "username: nobody")?),
        (&path, of_user(api, "token: \"hunter2\\nabc\"")?),
    ];
    for (number, (file, content)) in faults.into_iter().enumerate() {
        let before = failures();
        let good = fs::read_to_string(file)?;
        fs::write(file, &content)?;
        eventually(LIMIT, "refused", || async { Ok((failures() > before).then_some(())) }).await?;
        initialized(api, &cloud, number + 2).await?;
        ensure!(daemon.leads(), "it leads all the time");
        fs::write(file, good)?;
    }
    // A line end is not part of a token.
    fs::write(&token, format!("{}\n", control_plane.admin_token()))?;
    eventually(LIMIT, "taken", || async {
        Ok((metrics.config_reload_failed.with_label_values(&[label]).get() == 0).then_some(()))
    })
    .await?;
    initialized(api, &cloud, 9).await?;
    daemon.stop().await
}

async fn plugin(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let folder = TempDir::new()?;
    let (path, ran, token) =
        (folder.path().join("kubeconfig"), folder.path().join("ran"), folder.path().join("token"));
    let script = folder.path().join("plugin");
    fs::write(
        &script,
        format!("echo run >> {}; echo \"status: {{token: $(cat {})}}\"", ran.display(), token.display()),
    )?;
    fs::write(&token, control_plane.admin_token())?;
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}], interactiveMode: Never}}",
        script.display()
    );
    fs::write(&path, of_user(api, &exec)?)?;
    let cloud = FakeCloud::new();
    let parts = from_file(&path, ClientOptions::default(), cloud.provider()).await?;
    let daemon = InProcess::run_parts(parts, &[], true)?;
    for number in 1..4 {
        initialized(api, &cloud, number).await?;
    }
    let runs = fs::read_to_string(&ran)?.lines().count();
    ensure!(runs == 1, "{runs} runs for all connections");
    daemon.stop().await
}

async fn hanging(api: &Api) -> anyhow::Result<()> {
    binary()?;
    let folder = TempDir::new()?;
    let (path, config, ran) =
        (folder.path().join("kubeconfig"), folder.path().join("cloud.yaml"), folder.path().join("ran"));
    fs::write(&config, "hypervisors:\n- name: kvm1\n  uri: test:///default\n")?;
    let script = format!("touch {}; exec sleep 1000", ran.display());
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, '{script}'], interactiveMode: Never}}",
    );
    fs::write(&path, of_user(api, &exec)?)?;
    let arguments = [
        "--cloud-provider=libvirt".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", path.display()),
    ];
    let daemon = DaemonProcess::start(&arguments, &folder.path().join("log"))?;
    eventually(LIMIT, "the plugin runs", || async { Ok(ran.exists().then_some(())) }).await?;
    daemon.terminate()
}
