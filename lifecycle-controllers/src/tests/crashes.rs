//! The daemon dies right before and right after a write, and another one goes on.

use std::time::Duration;

use serde_json::json;

use super::{
    line::Side,
    world::{World, in_time},
};

const GROUP: &str = "cluster.x-k8s.io";

/// All writes are tried with this variable, and else a choice of them.
const ALL: &str = "CCM_ALL_CRASHES";

/// How many are tried without it.
const CHOSEN: usize = 8;

/// Waits until something holds. The daemon that is dead by then has a successor.
async fn until(world: &mut World, what: &str, mut holds: impl AsyncFnMut(&World) -> bool) {
    let mut looks = 0;
    loop {
        if world.line.is_cut() {
            world.restart().await;
        }
        if holds(world).await {
            return;
        }
        looks += 1;
        if looks > 3000 {
            return in_time(world, what, std::future::pending()).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn complete(world: &mut World, replicas: usize, version: &str) {
    until(world, "a complete deployment", async |world| world.is_complete(replicas, version).await).await;
    // What was created in vain is gone.
    until(world, "nothing but what belongs to Machines", async |world| {
        let machines = world.names(GROUP, "Machine").await;
        let others = [
            world.names("infrastructure.cluster.x-k8s.io", "FakeMachine").await,
            world.names("bootstrap.cluster.x-k8s.io", "FakeConfig").await,
            world.nodes().await.into_keys().collect(),
        ];
        others.iter().all(|names| *names == machines)
    })
    .await;
}

/// From the creation to the end. Returns how many writes it took.
async fn history(cut: Option<(usize, Side)>) -> usize {
    let mut world = World::new().await;
    if let Some((write, side)) = cut {
        world.line.cut_at(write, side);
    }
    world.create_templates().await;
    world.create_deployment(2).await;
    world.start().await;
    complete(&mut world, 2, "v1.37.1").await;
    world.patch_deployment(json!({"replicas": 3})).await;
    complete(&mut world, 3, "v1.37.1").await;
    world.patch_deployment(json!({"template": {"spec": {"version": "v1.37.2"}}})).await;
    complete(&mut world, 3, "v1.37.2").await;
    world.patch_deployment(json!({"replicas": 1})).await;
    complete(&mut world, 1, "v1.37.2").await;
    world.delete(GROUP, "MachineDeployment", "d").await;
    until(&mut world, "the end", async |world| {
        let mut left = Vec::new();
        for kind in ["Machine", "MachineSet", "MachineDeployment"] {
            left.extend(world.names(GROUP, kind).await);
        }
        left.extend(world.names("infrastructure.cluster.x-k8s.io", "FakeMachine").await);
        left.extend(world.names("bootstrap.cluster.x-k8s.io", "FakeConfig").await);
        left.is_empty() && world.nodes().await.is_empty()
    })
    .await;
    world.line.writes()
}

#[tokio::test(start_paused = true)]
async fn whenever_a_daemon_dies_the_next_one_comes_to_the_same() {
    let writes = history(None).await;
    assert!(writes > 50, "{writes}");
    let mut random = fastrand::Rng::with_seed(7);
    let mut cuts: Vec<_> =
        (0..writes).flat_map(|write| [(write, Side::Before), (write, Side::After)]).collect();
    if std::env::var_os(ALL).is_none() {
        random.shuffle(&mut cuts);
        cuts.truncate(CHOSEN);
    }
    for cut in cuts {
        history(Some(cut)).await;
    }
}
