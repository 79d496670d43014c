//! A permission is removed and restored while the daemon runs.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use ccm::api_client::ClientOptions;
use sandbox::kubelet;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{allow, over};
use crate::{
    api::{Api, RequestCounts, counted_client},
    daemon::InProcess,
    fake_cloud::{FakeCloud, running},
    forwarder::Forwarder,
    scenarios::Trials,
    support::*,
};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Trials {
    Trials::new().api_server("clients::a_watch_that_is_forbidden_is_taken_up_when_it_is_allowed", forbidden)
}

async fn forbidden(api: &Api) -> anyhow::Result<()> {
    let control_plane = api.control_plane.as_ref().context("the control plane")?;
    let user = "loses-its-binding";
    let all = "- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}";
    allow(&api.client, user, all).await?;
    // An open watch is not authorized again, so it has to be interrupted.
    let forwarder = Forwarder::start(control_plane.port()).await?;
    let folder = TempDir::new()?;
    let path = folder.path().join("kubeconfig");
    let direct = fs::read_to_string(control_plane.kubeconfig_for(user, &[])?)?;
    fs::write(&path, direct.replace(&control_plane.url(), &forwarder.url()))?;

    let cloud = FakeCloud::new();
    let requests = RequestCounts::default();
    let client = counted_client(&path, &requests).await?;
    let daemon = InProcess::start_parts(over(&client, ClientOptions::default(), cloud.provider())?, &[])?;
    let register = async |number: usize| {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&format!("n{number}"), &uuid(number))).await
    };
    let initialized =
        async |name: &str| node_becomes(&api.client, name, LIMIT, "initialized", is_initialized).await;
    register(1).await?;
    initialized("n1").await?;

    control_plane.kubectl_output(&["delete", "clusterrolebinding", user])?;
    eventually(LIMIT, "the API server refuses", || async {
        forwarder.cut();
        sleep(Duration::from_secs(1)).await;
        Ok(requests.refused().iter().any(|what| what.contains("nodes?")).then_some(()))
    })
    .await?;
    register(2).await?;
    requests.reset();
    let began = Instant::now();
    sleep(Duration::from_secs(20)).await;
    let asked = || requests.of("GET nodes");
    eventually(LIMIT, "it asks again", || async { Ok((asked() > 0).then_some(())) }).await?;
    let (asked, took) = (asked(), began.elapsed());
    ensure!(u64::try_from(asked)? * 2 <= took.as_secs() * 3, "{asked} lists and watches in {took:?}");
    ensure!(!is_initialized(&nodes(&api.client).get("n2").await?), "nobody told the daemon of it");

    allow(&api.client, user, all).await?;
    initialized("n2").await?;
    register(3).await?;
    initialized("n3").await?;
    daemon.stop().await
}
