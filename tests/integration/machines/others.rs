//! What others write about the objects of the controller: labels, finalizers, annotations, owners and conditions.

use std::time::Duration;

use anyhow::ensure;
use cloudprovider::{
    Error, ErrorKind,
    testing::{Fault, Operation},
};
use serde_json::{Value, json};

use super::world::*;
use crate::{api::Api, scenarios::Trials, support::eventually};

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("machines::a_machine_with_another_label_is_still_the_same", relabelled)
        .sandbox("machines::a_machine_without_a_label_holds_its_cluster", unlabelled)
        .sandbox("machines::a_machine_goes_after_its_cluster_was_removed_by_force", forced)
        .both("machines::what_others_write_while_a_step_runs_stays", meanwhile)
}

/// A merge patch that sets or removes the label with the name of the Cluster.
fn labelled(cluster: Option<&str>) -> Value {
    json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": cluster}}})
}

async fn relabelled(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    for (name, label) in [("one", Some("test")), ("two", None)] {
        world.add_machine(name).await?;
        world.is_up(name).await?;
        world.change("FakeMachine", name, labelled(label)).await?;
        // A change of the spec makes a step.
        world.change("FakeMachine", name, json!({"spec": {"cpus": 3}})).await?;
        world.pause().await;
        let object = world.get("FakeMachine", name).await?;
        ensure!(is_ready(&object), "{object}");
        ensure!(object["metadata"]["annotations"][CLUSTER_NAME] == "prod", "{object}");
        world.delete("FakeMachine", name).await?;
        world.vanishes("FakeMachine", name).await?;
        world.cloud_has(&[])?;
    }
    daemon.stop().await
}

/// As an earlier version has made it: the label alone says to which Cluster it belongs.
async fn unlabelled(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine("one").await?;
    world.is_up("one").await?;
    daemon.stop().await?;
    let mut nameless = labelled(None);
    nameless["metadata"]["annotations"] = json!({ CLUSTER_NAME: null });
    world.change("FakeMachine", "one", nameless).await?;
    world.delete("FakeCluster", "prod").await?;
    let daemon = world.start(&[])?;
    let waits = |object: &Value| condition(object, "Ready")["reason"] == "WaitingForMachinesDeletion";
    world.becomes("FakeCluster", "prod", "waits for its machines", waits).await?;
    world.delete("FakeMachine", "one").await?;
    world.waits_for("one", "Deleting").await?;
    world.cloud_has(&["disk/one", "instance/one"])?;
    world.change("FakeMachine", "one", labelled(Some("prod"))).await?;
    world.vanishes("FakeMachine", "one").await?;
    world.vanishes("FakeCluster", "prod").await?;
    ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
    daemon.stop().await
}

async fn forced(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine("one").await?;
    world.is_up("one").await?;
    for kind in ["FakeCluster", "Cluster"] {
        super::core::forget(&world.objects(kind), "prod").await?;
    }
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    daemon.stop().await
}

async fn meanwhile(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let (slow, half) = if api.sandbox.is_some() { (8000, 4000) } else { (1200, 400) };
    let is_refused = || world.tape.of_object("fakemachines", "one").iter().any(|what| what.contains(' '));
    let in_a_step = async |operation: Operation| {
        world.tape.clear();
        let before = world.cloud.count(operation);
        world.cloud.set_latency(Duration::from_millis(slow));
        let begins = || async { Ok((world.cloud.count(operation) > before).then_some(())) };
        eventually(SOON, "a step", begins).await?;
        tokio::time::sleep(Duration::from_millis(half)).await;
        anyhow::Ok(())
    };
    let their_finalizer = "example.com/theirs";
    let theirs = |object: &Value| {
        let has = |list: &Value, wanted: &Value| list.as_array().is_some_and(|all| all.contains(wanted));
        let metadata = &object["metadata"];
        has(&metadata["finalizers"], &json!(their_finalizer))
            && metadata["annotations"]["example.com/a"] == "b"
    };
    let add = async || {
        let now = world.get("FakeMachine", "one").await?;
        let mut finalizers = now["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(their_finalizer.into());
        let metadata = json!({"finalizers": finalizers, "annotations": {"example.com/a": "b"}});
        world.change("FakeMachine", "one", json!({ "metadata": metadata })).await?;
        let mut conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.push(json!({
            "type": "Theirs", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 0,
        }));
        world.change_status("FakeMachine", "one", json!({ "conditions": conditions })).await
    };

    let begin = async { in_a_step(Operation::EnsureMachine).await };
    // A failure is written at once, where a wait is not.
    let away = Error::new(ErrorKind::Unavailable, "away");
    world.cloud.fail_next(Operation::EnsureMachine, Fault::Error(away));
    world.add_machine_without_data("one").await?;
    let (began, added) = tokio::join!(begin, world.add_data("one"));
    began.and(added)?;
    add().await?;
    world.cloud.set_latency(Duration::ZERO);
    let up = world.is_up("one").await?;
    ensure!(theirs(&up), "{up}");
    let theirs_now = condition(&up, "Theirs");
    ensure!(theirs_now["message"] == "m" && theirs_now["observedGeneration"] == 0, "{up}");
    ensure!(
        up["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&FINALIZER.into())),
        "{up}"
    );
    ensure!(is_refused(), "nobody wrote in between: {:?}", world.tape.steps());

    // The finalizer of the controller goes, and theirs stays.
    let free = json!({"metadata": {"finalizers": [FINALIZER], "annotations": {"example.com/a": null}}});
    world.change("FakeMachine", "one", free).await?;
    let begin = async { in_a_step(Operation::DeleteMachine).await };
    let (began, deleted) = tokio::join!(begin, world.delete("FakeMachine", "one"));
    began.and(deleted)?;
    world.change("FakeMachine", "one", json!({"metadata": {"annotations": {"example.com/a": "b"}}})).await?;
    world.cloud.set_latency(Duration::ZERO);
    world.vanishes("FakeMachine", "one").await?;
    ensure!(is_refused(), "nobody wrote in between: {:?}", world.tape.steps());
    world.cloud_has(&[])?;
    daemon.stop().await
}
