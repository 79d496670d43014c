//! The real API server stops and starts again.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sandbox::kubelet;
use test_env::{ControlPlane, ControlPlaneOptions};
use tokio::time::sleep;

use crate::{
    api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, running},
    scenarios::Trials,
    shipped_roles,
    support::*,
    trial::{Outcome, runtime},
};

pub(crate) fn trials() -> Trials {
    Trials::new().trial("apiserver::an_outage_of_the_api_server_is_survived", outage)
}

fn outage() -> Outcome {
    let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
    runtime(false)?.block_on(async {
        let client = api::client(control_plane.kubeconfig()).await?;
        let cloud = FakeCloud::new();
        cloud.put(&uuid(1), running(1));
        cloud.put(&uuid(2), running(2));
        let requests = api::RequestCounts::default();
        let kubeconfig = shipped_roles::kubeconfig(&control_plane).await?;
        let daemon_client = api::counted_client(&kubeconfig, &requests).await?;
        let daemon = InProcess::start(&daemon_client, cloud.provider(), &["--node-deletion-minimum-age=0s"])?;
        kubelet::register(&client, &kubelet::node("n1", &uuid(1))).await?;
        node_becomes(&client, "n1", Duration::from_secs(20), "initialized", is_initialized).await?;

        control_plane.kill_api_server()?;
        // The cloud changes while the API server cannot be reached.
        cloud.change(&uuid(1), |machine| machine.metadata.zone = Some("rack-z".into()));
        requests.reset();
        let began = Instant::now();
        sleep(Duration::from_secs(20)).await;
        let (asked, lists) = (requests.total(), requests.of("GET nodes"));
        let seconds = 1 + usize::try_from(began.elapsed().as_secs())?;
        ensure!(
            (1..=3 * seconds).contains(&asked) && 2 * lists <= 3 * seconds,
            "{asked} requests in {seconds} s, {lists} of them lists of Nodes"
        );
        control_plane.start_api_server()?;

        let client = api::client(control_plane.kubeconfig()).await?;
        kubelet::register(&client, &kubelet::node("n2", &uuid(2))).await?;
        let limit = Duration::from_secs(60);
        node_becomes(&client, "n2", limit, "initialized after the outage", is_initialized).await?;
        let follows = |node: &_| label(node, "topology.kubernetes.io/zone") == Some("rack-z");
        node_becomes(&client, "n1", limit, "follows the change of the outage", follows).await?;
        daemon.stop().await
    })?;
    Ok(())
}
