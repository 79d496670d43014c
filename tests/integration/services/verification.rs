//! What others did to the status and to the cloud is repaired, and nothing is written where nothing changed.
//! Upstream does neither.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::ensure;
use serde_json::json;
use tokio::time::sleep;

use super::world::*;
use crate::{api::Api, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::a_status_that_was_wiped_is_repaired", wiped)
        .sandbox("services::a_lost_load_balancer_is_made_again", lost)
        .sandbox("services::the_verification_period_is_a_flag", period)
        .sandbox("services::a_watch_that_lags_causes_no_second_write", lagging)
        .sandbox("services::two_who_disagree_about_a_status_do_not_race", disagreement)
        .sandbox("services::a_settled_hour_costs_no_writes", settled)
        .sandbox("services::a_restart_changes_nothing", restart)
}

async fn wiped(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    let address = ingress(&service);
    for wrong in [json!([]), json!([{"ip": "192.0.2.99"}])] {
        world.change_status("web", json!({"status": {"loadBalancer": {"ingress": wrong}}})).await?;
        world.becomes("web", SOON, "has its address again", |one| ingress(one) == address).await?;
        world.pause().await;
    }
    ensure!(world.tape.count("web", "status") == 3, "{:?}", world.tape.of("web"));
    daemon.stop().await
}

async fn lost(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    world.cloud.lose_load_balancer(&load_balancer_name(&service));
    world.has_backends(&service, &["n1"], VERIFICATION_PERIOD + VERIFICATION_PERIOD / 4).await?;
    sleep(Duration::from_secs(5)).await;
    let again = world.get("web").await?;
    let known = world.load_balancer(&service).map(|one| one.status.ingress);
    let known: Vec<_> = known.into_iter().flatten().filter_map(|one| one.ip).collect();
    ensure!(ingress(&again) == known, "{:?} and {known:?}", ingress(&again));
    daemon.stop().await
}

async fn period(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&["--service-verification-period=30s"])?;
    let service = world.with_load_balancer("web").await?;
    for _ in 0..3 {
        world.cloud.lose_load_balancer(&load_balancer_name(&service));
        world.has_backends(&service, &["n1"], Duration::from_secs(45)).await?;
    }
    daemon.stop().await
}

async fn settled(api: &Api) -> anyhow::Result<()> {
    const SERVICES: usize = 10;
    // Chance decides when each is verified: the pauses are the period or a part of it, at least half of it.
    const OFTEN: RangeInclusive<usize> = 5..=13;
    let world = World::with_nodes(api, &["n1", "n2"]).await?;
    let daemon = world.start(&[])?;
    for number in 0..SERVICES {
        world.with_load_balancer(&format!("web-{number}")).await?;
    }
    sleep(Duration::from_secs(60)).await;
    world.tape.clear();
    api.requests.reset();
    sleep(Duration::from_secs(3600)).await;
    let steps = world.tape.steps();
    let calls = steps.iter().filter(|step| step.what != "get").count();
    ensure!(calls == 0, "{steps:?}");
    for number in 0..SERVICES {
        let verifications = world.tape.of(&format!("web-{number}")).len();
        ensure!(OFTEN.contains(&verifications), "{verifications} verifications of web-{number} in an hour");
    }
    ensure!(api.requests.writes().is_empty(), "{:?}", api.requests.writes());
    daemon.stop().await
}

/// All that is needed is on the objects and in the cloud.
async fn restart(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1", "n2"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    sleep(Duration::from_secs(10)).await;
    daemon.stop().await?;
    world.tape.clear();
    let daemon = world.start(&[NO_VERIFICATION])?;
    sleep(Duration::from_secs(60)).await;
    let steps = world.tape.of("web");
    // The API server is asked whether the finalizer is still there, with a patch that changes nothing
    ensure!(steps == ["nothing", "ensure n1,n2"], "{steps:?}");
    daemon.stop().await?;
    // What happened meanwhile is found
    world.delete_node("n1").await?;
    world.change("web", json!({"metadata": {"annotations": {"example.com/a": "1"}}})).await?;
    let daemon = world.start(&[])?;
    world.has_backends(&service, &["n2"], SOON).await?;
    let known = world.load_balancer(&service).map(|one| one.service.annotations).unwrap_or_default();
    ensure!(known.get("example.com/a").is_some_and(|value| value == "1"), "{known:?}");
    daemon.stop().await
}

/// Another controller sets the status to its own address whenever it sees another one.
async fn disagreement(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let address = ingress(&world.with_load_balancer("web").await?);
    world.tape.clear();
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.99"}]}}});
    for _ in 0..300 {
        world.change_status("web", theirs.clone()).await?;
        sleep(Duration::from_secs(1)).await;
    }
    let writes = world.tape.count("web", "status");
    ensure!((10..=40).contains(&writes), "{writes} writes in five minutes");
    ensure!(world.tape.count("web", "ensure") == 0, "{:?}", world.tape.of("web"));
    world
        .becomes("web", Duration::from_secs(60), "has its address again", |one| ingress(one) == address)
        .await?;
    daemon.stop().await
}

/// The watch shows neither our finalizer nor our status for a while.
async fn lagging(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[NO_VERIFICATION])?;
    world.cloud.set_latency(Duration::from_secs(3));
    world.balanced("web").await?;
    world.steps("web", "+finalizer", 1).await?;
    let lag = async {
        sleep(Duration::from_secs(60)).await;
        ensure!(world.tape.of("web").len() == 3, "{:?}", world.tape.of("web"));
        Ok(())
    };
    world.unseen(lag).await?;
    sleep(Duration::from_secs(60)).await;
    ensure!(world.tape.of("web").len() == 3, "{:?}", world.tape.of("web"));
    daemon.stop().await
}
