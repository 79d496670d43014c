//! Events and metrics: names and words are upstream's.

use std::time::Duration;

use anyhow::ensure;
use cloudprovider::testing::Operation;
use tokio::time::sleep;

use super::world::*;
use crate::{api::Api, fake_cloud::unavailable, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("services::events_have_upstreams_words", events)
        .sandbox("services::a_failed_deletion_is_told", failed_deletion)
        .sandbox("services::metrics_have_upstreams_names", metrics)
}

fn normal(reason: &str, message: &str) -> Told {
    Told {
        kind: "Normal".into(),
        reason: reason.into(),
        message: message.into(),
        source: "service-controller".into(),
        count: 1,
    }
}

async fn events(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    world.with_load_balancer("web").await?;
    world.event("web", "EnsuredLoadBalancer").await?;
    world.add_node("n2").await?;
    world.event("web", "UpdatedLoadBalancer").await?;
    world.delete("web").await?;
    world.vanishes("web", SOON).await?;
    world.event("web", "DeletedLoadBalancer").await?;
    let mut found = world.events("web").await?;
    let mut wanted = vec![
        normal("EnsuringLoadBalancer", "Ensuring load balancer"),
        normal("EnsuredLoadBalancer", "Ensured load balancer"),
        normal("UpdatedLoadBalancer", "Updated load balancer with new hosts"),
        normal("DeletingLoadBalancer", "Deleting load balancer"),
        normal("DeletedLoadBalancer", "Deleted load balancer"),
    ];
    // Their times have seconds only
    found.sort();
    wanted.sort();
    ensure!(found == wanted, "{found:?}");
    daemon.stop().await
}

async fn failed_deletion(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    world.with_load_balancer("web").await?;
    world.cloud.fail_next(Operation::DeleteLoadBalancer, unavailable("the cloud is away"));
    world.unseen(world.force_delete("web")).await?;
    let event = world.event("web", "DeleteLoadBalancerFailed").await?;
    ensure!(event.kind == "Warning" && event.source == "service-controller", "{event:?}");
    ensure!(event.message == "Error deleting load balancer: the cloud is away", "{event:?}");
    world.steps("web", "delete", 2).await?;
    ensure!(world.cloud.load_balancers().is_empty());
    world.event("web", "DeletedLoadBalancer").await?;
    daemon.stop().await
}

async fn metrics(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    for name in ["a", "b"] {
        world.with_load_balancer(name).await?;
    }
    world.add_node("n2").await?;
    for name in ["a", "b"] {
        world.steps(name, "update", 1).await?;
    }
    sleep(Duration::from_secs(5)).await;
    let text = daemon.process.metrics.text();
    for name in [
        "service_controller_loadbalancer_sync_total",
        "service_controller_nodesync_error_total",
        "service_controller_nodesync_latency_seconds",
        "service_controller_update_loadbalancer_host_latency_seconds",
    ] {
        ensure!(text.lines().any(|line| line.starts_with(&format!("# TYPE {name} "))), "{name} in {text}");
    }
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<f64>().ok())
    };
    // Only updates of Nodes are counted
    let syncs = value("service_controller_loadbalancer_sync_total");
    ensure!(syncs == Some(2.0), "{syncs:?}");
    ensure!(value("service_controller_nodesync_error_total") == Some(0.0), "{text}");
    let updates = value("service_controller_update_loadbalancer_host_latency_seconds_count");
    ensure!(updates == Some(2.0), "{updates:?}");
    let last = "service_controller_nodesync_latency_seconds_bucket{le=\"16384\"}";
    ensure!(value(last).is_some_and(|count| count >= 1.0), "{text}");
    ensure!(text.contains("service_controller_nodesync_latency_seconds_bucket{le=\"1\"}"), "{text}");
    daemon.stop().await
}
