//! The concurrency of the node-lifecycle controller, and its metrics with upstream's names.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use cloudprovider::PowerState;
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use sandbox::kubelet;
use tokio::time::sleep;

use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, running},
    scenarios::Trials,
    support::*,
};

const SOON: Duration = Duration::from_secs(20);

const NODES: usize = 6;

pub(crate) fn trials() -> Trials {
    Trials::new().sandbox("node_lifecycle::so_many_nodes_at_once_as_the_flag_says", at_once)
}

async fn at_once(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let names: Vec<String> = (0..NODES).map(|number| format!("n{number}")).collect();
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    for (number, name) in names.iter().enumerate() {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(name, &uuid(number))).await?;
        node_becomes(&api.client, name, SOON, "initialized", is_initialized).await?;
    }
    daemon.stop().await?;

    let is_tainted = |node: &_| has_taint(node, SHUTDOWN);
    for (flags, expected) in [
        (&["--concurrent-node-lifecycle-syncs=1"][..], 1),
        (&["--concurrent-node-lifecycle-syncs=4"], 4),
        (&[], NODES),
    ] {
        for (number, name) in names.iter().enumerate() {
            cloud.change(&uuid(number), |machine| machine.power_state = PowerState::Off);
            set_ready_unknown(&api.client, name).await?;
        }
        let most = Arc::default();
        let daemon = InProcess::start(&slow_patches(api, &most), cloud.provider(), flags)?;
        for name in &names {
            node_becomes(&api.client, name, SOON, "tainted", is_tainted).await?;
        }
        let metrics = daemon.metrics.text();
        daemon.stop().await?;
        let most = most.load(Ordering::SeqCst);
        ensure!(most == expected, "{flags:?}: {most} at once instead of {expected}");
        check_metrics(&metrics)?;

        // Restore the state for the next round.
        let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
        for name in &names {
            kubelet::heartbeat(&api.client, name, true).await?;
            node_becomes(&api.client, name, SOON, "not tainted", |node| !is_tainted(node)).await?;
        }
        daemon.stop().await?;
    }
    Ok(())
}

/// A client with slow patches of Nodes. `most` is the largest number of concurrent ones.
fn slow_patches(api: &Api, most: &Arc<AtomicUsize>) -> Client {
    let (client, most, now) = (api.daemon_client.clone(), Arc::clone(most), Arc::new(AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, most, now) = (client.clone(), Arc::clone(&most), Arc::clone(&now));
        async move {
            let path = request.uri().path();
            let is_patch = request.method() == Method::PATCH && !path.ends_with("/status");
            if is_patch && path.starts_with("/api/v1/nodes/") {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(100)).await;
                now.fetch_sub(1, Ordering::SeqCst);
            }
            let answer: Response<Body> = client.send(request).await?;
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, "default")
}

/// Checks that every Node was looked up, and a pass was measured.
fn check_metrics(text: &str) -> anyhow::Result<()> {
    let value = |beginning: &str| -> usize {
        let line = text.lines().find_map(|line| line.strip_prefix(beginning));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_default()
    };
    let calls = |operation: &str, result: &str| {
        let labels = format!("{{operation=\"{operation}\",result=\"{result}\"}}");
        value(&format!("cloud_node_lifecycle_controller_cloud_provider_calls_total{labels}"))
    };
    let exist = calls("instance_exists", "success");
    ensure!(exist >= NODES && calls("instance_shutdown", "success") == exist, "{text}");
    ensure!(calls("instance_exists", "instance_not_found") == 0, "{text}");
    ensure!(value("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count") >= 1, "{text}");
    Ok(())
}
