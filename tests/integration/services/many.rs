//! Many Services and Nodes: what runs at the same time, and what costs nothing.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use cloudprovider::testing::{FakeCloud, Operation};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::ListParams;
use sandbox::kubelet;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::world::*;
use crate::{api::Api, daemon::InProcess, scenarios::Trials};

const SERVICES: usize = 500;
const NODES: usize = 200;

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::a_service_is_never_worked_on_twice_at_once", never_twice)
        .sandbox("services::services_do_not_wait_for_each_other", parallel)
        .sandbox("services::hundreds_of_services_and_nodes", hundreds)
}

/// Changes of the Service, of Nodes and the deletion come while a call is in progress.
async fn never_twice(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n0"]).await?;
    world.cloud.set_latency(Duration::from_secs(3));
    let daemon = world.start(&[])?;
    for name in ["a", "b", "c"] {
        world.balanced(name).await?;
    }
    for number in 1..40 {
        sleep(Duration::from_millis(700)).await;
        world.add_node(&format!("n{number}")).await?;
        world.delete_node(&format!("n{}", number - 1)).await?;
        let name = ["a", "b", "c"][number % 3];
        let annotation = json!({"metadata": {"annotations": {"example.com/a": number.to_string()}}});
        world.change(name, annotation).await?;
    }
    sleep(Duration::from_secs(60)).await;
    let overlaps = world.tape.overlaps();
    ensure!(overlaps.is_empty(), "two calls at once for {overlaps:?}");
    for (name, last) in [("a", "39"), ("b", "37"), ("c", "38")] {
        let service = world.get(name).await?;
        world.has_backends(&service, &["n39"], SOON).await?;
        let known = world.load_balancer(&service).map(|one| one.service.annotations).unwrap_or_default();
        ensure!(known["example.com/a"] == last, "{name}: {known:?}");
    }
    world.change("a", json!({"metadata": {"annotations": {"example.com/a": "40"}}})).await?;
    world.change("b", json!({"spec": {"type": "ClusterIP"}})).await?;
    sleep(Duration::from_millis(500)).await;
    for name in ["a", "b", "c"] {
        world.delete(name).await?;
        world.add_node(&format!("late-{name}")).await?;
    }
    for name in ["a", "b", "c"] {
        world.vanishes(name, Duration::from_secs(60)).await?;
    }
    ensure!(world.tape.overlaps().is_empty(), "two calls at once for {:?}", world.tape.overlaps());
    ensure!(world.cloud.load_balancers().is_empty());
    daemon.stop().await
}

async fn parallel(api: &Api) -> anyhow::Result<()> {
    for (flags, wanted) in [(&[][..], 8..=100), (&["--concurrent-service-syncs=1"], 1..=1)] {
        let world = World::new(api);
        world.cloud.set_latency(Duration::from_secs(1));
        let daemon = world.start(flags)?;
        let names: Vec<String> = (0..40).map(|number| format!("web-{number}")).collect();
        let begin = Instant::now();
        for name in &names {
            world.balanced(name).await?;
        }
        for name in &names {
            let limit = Duration::from_secs(90);
            world.becomes(name, limit, "has an address", |one| !ingress(one).is_empty()).await?;
        }
        let took = begin.elapsed();
        ensure!(
            wanted.contains(&world.tape.most_at_once()),
            "{flags:?}: {} at once",
            world.tape.most_at_once()
        );
        ensure!(!flags.is_empty() || took < crate::support::patience(Duration::from_secs(10)), "{took:?}");
        for name in &names {
            world.delete(name).await?;
        }
        for name in &names {
            world.vanishes(name, Duration::from_secs(180)).await?;
        }
        daemon.stop().await?;
    }
    Ok(())
}

fn calls(cloud: &FakeCloud) -> BTreeMap<Operation, usize> {
    let operations = [
        Operation::GetLoadBalancer,
        Operation::EnsureLoadBalancer,
        Operation::UpdateLoadBalancer,
        Operation::DeleteLoadBalancer,
    ];
    let counts = operations.into_iter().map(|operation| (operation, cloud.count(operation)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// The daemon's plain client and provider: nothing is on the tape.
async fn hundreds(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api);
    let name = |number: usize| format!("web-{number}");
    let node = |number: usize| format!("node-{number}");
    for number in 0..NODES {
        world.add_node(&node(number)).await?;
    }
    stream::iter(0..SERVICES)
        .map(|number| {
            let (world, name) = (&world, name(number));
            async move { world.balanced(&name).await.map(drop) }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<()>>()
        .await?;
    world.cloud.set_latency(Duration::from_millis(200));
    // Verifications would be among the counted calls
    let flags = ["--controllers=service-lb-controller", "--service-verification-period=24h"];
    let daemon = InProcess::start(&api.daemon_client, world.cloud.provider(), &flags)?;
    let begin = Instant::now();
    crate::support::eventually(Duration::from_secs(300), "every Service has an address", || async {
        let all = world.services().list(&ListParams::default()).await?;
        Ok(all.iter().all(|service| !ingress(service).is_empty()).then_some(()))
    })
    .await?;
    println!("{SERVICES} Services with a cloud that takes 200 ms: {:?}", begin.elapsed());
    ensure!(
        calls(&world.cloud) == [(Operation::EnsureLoadBalancer, SERVICES)].into(),
        "{:?}",
        calls(&world.cloud)
    );
    let writes: usize = api.requests.writes().values().sum();
    ensure!(writes == SERVICES * 2, "{writes} writes");
    sleep(Duration::from_secs(60)).await;

    world.cloud.forget_calls();
    api.requests.reset();
    for number in 0..NODES {
        kubelet::heartbeat(&api.client, &node(number), number % 2 == 0).await?;
    }
    sleep(Duration::from_secs(60)).await;
    ensure!(calls(&world.cloud).is_empty(), "heartbeats cost {:?}", calls(&world.cloud));
    ensure!(api.requests.writes().is_empty(), "heartbeats cost {:?}", api.requests.writes());

    // Nodes that go together cost each Service a few updates, not one for each Node
    for number in 0..20 {
        world.delete_node(&node(number)).await?;
    }
    sleep(Duration::from_secs(120)).await;
    let updates = world.cloud.count(Operation::UpdateLoadBalancer);
    ensure!((SERVICES..=SERVICES * 5).contains(&updates), "{updates} updates for 20 Nodes");
    ensure!(calls(&world.cloud).len() == 1, "{:?}", calls(&world.cloud));
    let balancers = world.cloud.load_balancers();
    ensure!(balancers.values().all(|one| one.nodes.len() == NODES - 20), "not all have the new Nodes");
    world.cloud.set_latency(Duration::ZERO);
    daemon.stop().await
}
