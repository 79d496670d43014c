//! `clusterctl move`: the objects are made again with other UIDs and without a status, and nothing happens to the machines.

use anyhow::ensure;
use cloudprovider::testing::Operation;
use serde_json::{Value, json};

use super::{core::forget, world::*};
use crate::{api::Api, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("machines::a_move_touches_no_machine", moved)
        .sandbox("machines::a_move_waits_until_the_provider_id_is_written", blocked)
}

/// What is carried over of an object.
fn carried(object: &Value) -> Value {
    json!({
        "metadata": {"labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"]},
        "spec": object["spec"],
    })
}

async fn moved(api: &Api) -> anyhow::Result<()> {
    let (world, source) = World::with_cluster(api).await?;
    world.add_machine("one").await?;
    let before = world.is_up("one").await?;
    world.change("Cluster", "prod", json!({"spec": {"paused": true}})).await?;
    let is_paused = |object: &Value| condition(object, "Paused")["status"] == "True";
    world.becomes("FakeMachine", "one", "is paused", is_paused).await?;
    world.becomes("FakeCluster", "prod", "is paused", is_paused).await?;
    let mut objects = Vec::new();
    for (kind, name, owner) in [
        ("Cluster", "prod", None),
        ("FakeCluster", "prod", Some(("Cluster", "prod"))),
        ("Machine", "one", None),
        ("FakeMachine", "one", Some(("Machine", "one"))),
    ] {
        objects.push((kind, name, owner, carried(&world.get(kind, name).await?)));
    }
    for (kind, name, ..) in objects.iter().rev() {
        forget(&world.objects(kind), name).await?;
    }
    source.stop().await?;
    let in_the_cloud = world.cloud.objects();
    ensure!(in_the_cloud.len() == 3, "{in_the_cloud:?}");
    world.cloud.forget_calls();

    let target = world.start(&[])?;
    for (kind, name, owner, mut object) in objects {
        if let Some((kind, name)) = owner {
            object["metadata"]["ownerReferences"] = json!([world.owner(kind, name).await?]);
        }
        world.create(kind, name, object).await?;
    }
    world.pause().await;
    ensure!(world.cloud.calls().iter().all(|call| call.operation != Operation::EnsureMachine));
    world.change("Cluster", "prod", json!({"spec": {"paused": false}})).await?;
    world.cluster_is_ready("prod").await?;
    let after = world.is_up("one").await?;
    ensure!(after["metadata"]["uid"] != before["metadata"]["uid"], "it is another object");
    for pointer in [
        "/spec/providerID",
        "/status/addresses",
        "/status/initialization/provisioned",
        "/status/failureDomain",
        "/metadata/finalizers",
        "/metadata/annotations",
    ] {
        ensure!(after.pointer(pointer) == before.pointer(pointer), "{pointer}: {after}");
    }
    ensure!(world.cloud.objects() == in_the_cloud, "{:?}", world.cloud.objects());
    ensure!(world.cloud.count(Operation::CreateMachine) == 0, "{:?}", world.cloud.calls());
    // It is still ours to delete.
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    target.stop().await
}

async fn blocked(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let begun = world.cloud.count(Operation::CreateMachine);
    world.cloud.set_task_time(LASTS);
    world.add_machine("one").await?;
    let waits = world.waits_for("one", "WaitingForTask").await?;
    ensure!(world.cloud.count(Operation::CreateMachine) == begun + 1);
    ensure!(waits["metadata"]["annotations"][BLOCK_MOVE] == "machine-controller", "{waits}");
    let up = world.is_up("one").await?;
    ensure!(up["metadata"]["annotations"][BLOCK_MOVE].is_null(), "{up}");
    // The block of somebody else stays.
    let theirs = json!({"metadata": {"annotations": {BLOCK_MOVE: "theirs"}}});
    world.change("FakeMachine", "one", theirs).await?;
    world.change("FakeMachine", "one", json!({"spec": {"cpus": 3}})).await?;
    world.pause().await;
    let kept = world.get("FakeMachine", "one").await?;
    ensure!(kept["metadata"]["annotations"][BLOCK_MOVE] == "theirs", "{kept}");
    daemon.stop().await
}
