//! The daemon's endpoints.

use std::time::Duration;

use anyhow::{Context, ensure};
use ccm::{
    daemon::{Parts, run_elected},
    flags,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{curl::Curl, options_with};
use crate::{api::Api, fake_cloud::FakeCloud, scenarios::Trials, support::*};

const SOON: Duration = Duration::from_secs(30);

pub(super) fn trials() -> Trials {
    Trials::new().api_server("serving::the_daemon_shows_its_health_and_state", daemon)
}

async fn daemon(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let start = || -> anyhow::Result<_> {
        let mut parts = Parts::new(api.client.clone(), FakeCloud::new().provider())?;
        let mut options = options_with(control_plane.kubeconfig())?;
        options.configz = json!({"cloudcontrollermanager.config.k8s.io": {}});
        let port = options.secure_port;
        parts.serving = Some(options);
        let flags = flags::parse(["ccm", "--cloud-provider=test"].map(str::to_owned))?;
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { Box::pin(run_elected(&flags, parts, stop)).await }
        });
        Ok((port, stop, task))
    };
    let token = control_plane.admin_token();
    let get = |port: u16, path: &str| Curl::get(&format!("https://127.0.0.1:{port}{path}")).token(token);
    let serves = async |port: u16| {
        eventually(SOON, "it serves", || async {
            Ok((get(port, "/healthz").send().await?.status == 200).then_some(()))
        })
        .await
    };
    let (first, stop_first, first_task) = start()?;
    serves(first).await?;
    eventually(SOON, "the first one leads", || async {
        let health = get(first, "/healthz?verbose").expect(200).await?.text();
        Ok(health.contains("[+]cloud-node-controller ok").then_some(()))
    })
    .await?;
    let health = get(first, "/readyz?verbose&exclude=leaderElection&exclude=nope").expect(200).await?.text();
    ensure!(
        health
            == "[+]ping ok\n[+]shutdown ok\n[+]leaderElection excluded: ok\n[+]cloud-node-controller ok\n\
                [+]cloud-node-lifecycle-controller ok\n\
                warn: some health checks cannot be excluded: no matches for \"nope\"\nreadyz check passed\n",
        "{health}"
    );
    get(first, "/livez/cloud-node-controller").expect(200).await?;
    get(first, "/livez/nope").expect(404).await?;

    // A standby is healthy and ready, and shows its state.
    let (second, stop_second, second_task) = start()?;
    serves(second).await?;
    let standby = get(second, "/readyz?verbose").expect(200).await?.text();
    ensure!(standby.contains("leaderElection ok") && !standby.contains("cloud-node"), "{standby}");

    sandbox_node(api).await?;
    let state = eventually(SOON, "the state has the node", || async {
        let state = get(first, "/debug/state").expect(200).await?.json()?;
        let node = &state["cloud-node-controller"]["nodes"]["unknown-to-the-cloud"];
        Ok(node["waitingFor"].is_string().then_some(state))
    })
    .await?;
    let node = &state["cloud-node-controller"]["nodes"]["unknown-to-the-cloud"];
    ensure!(node["lastResult"] == "NotInitialized" && node["failures"].is_number(), "{node:#}");
    ensure!(state["cloud-node-lifecycle-controller"]["breaker"]["open"] == false, "{state:#}");
    ensure!(state["leader-election"]["leading"] == true, "{state:#}");
    ensure!(state["provider"]["instances"] == true, "{state:#}");
    ensure!(!state.to_string().contains(token));
    let other = get(second, "/debug/state").expect(200).await?.json()?;
    ensure!(other["leader-election"]["leading"] == false, "{other:#}");
    ensure!(other["leader-election"]["holder"] == state["leader-election"]["identity"], "{other:#}");

    get(first, "/metrics").expect(200).await?;
    let slis = get(first, "/metrics/slis").expect(200).await?.text();
    ensure!(slis.contains("kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 1"), "{slis}");
    ensure!(get(first, "/metrics/slis").method("DELETE").expect(200).await?.text() == "metrics reset\n");
    let configz = get(first, "/configz").expect(200).await?.json()?;
    ensure!(configz == json!({"cloudcontrollermanager.config.k8s.io": {}}), "{configz}");
    profile(&get(first, "/debug/pprof/profile?seconds=1").expect(200).await?.body)?;

    stop_first.cancel();
    eventually(SOON, "it is not ready while it stops, or has stopped", || async {
        Ok((get(first, "/readyz").send().await?.status != 200).then_some(()))
    })
    .await?;
    first_task.await??;
    serves(second).await?;
    stop_second.cancel();
    second_task.await??;
    Ok(())
}

/// A Node that waits for its initialisation, and has no known instance.
async fn sandbox_node(api: &Api) -> anyhow::Result<()> {
    let node = serde_json::from_value(json!({
        "metadata": {"name": "unknown-to-the-cloud"},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
    }))?;
    nodes(&api.client).create(&kube::api::PostParams::default(), &node).await?;
    Ok(())
}

/// Checks a profile with Go's own tool.
fn profile(content: &[u8]) -> anyhow::Result<()> {
    ensure!(content.starts_with(&[0x1f, 0x8b]), "it is not compressed");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), content)?;
    let output =
        std::process::Command::new("go").args(["tool", "pprof", "-top"]).arg(file.path()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && text.contains("Type: cpu"), "{text} {output:?}");
    Ok(())
}
