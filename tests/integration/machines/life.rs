//! The life of machines: what they wait for, how they come to be, and how they go.

use std::time::Duration;

use anyhow::ensure;
use cloudprovider::{
    Error, ErrorKind,
    testing::{Fault, Operation},
};
use serde_json::{Value, json};

use super::world::*;
use crate::{api::Api, scenarios::Trials};

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("machines::a_machine_from_its_beginning_to_its_end", whole_life)
        .both("machines::first_the_cluster_then_bootstrap_data_then_a_machine", order)
        .sandbox("machines::nothing_is_done_while_paused", paused)
        .sandbox("machines::deleted_before_there_were_bootstrap_data", deleted_early)
        .sandbox("machines::deleted_while_it_is_made", deleted_while_made)
        .sandbox("machines::a_machine_that_is_gone_is_told_and_not_made_again", lost)
        .sandbox("machines::something_foreign_is_left_alone", foreign)
        .sandbox("machines::what_is_made_again_gets_its_bootstrap_data_again", made_again)
        .sandbox("machines::an_error_is_told_and_tried_again", errors)
        .sandbox("machines::short_waits_are_not_written", short)
}

/// Each wait whose status is written costs a write. Where the clock runs as it likes, a short one may seem long.
async fn short(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.cloud.set_task_time(Duration::from_millis(500));
    world.cloud.set_address_time(Duration::from_millis(500));
    world.add_machine("one").await?;
    world.is_up("one").await?;
    let writes = world.tape.of_object("fakemachines", "one");
    ensure!(writes == ["object", "object", "status"], "{writes:?}");
    let bodies = world.tape.steps();
    let second = bodies.iter().filter(|write| write.name == "one" && write.resource == "fakemachines").nth(1);
    ensure!(second.is_some_and(|write| write.body.contains("providerID")), "{second:?}");
    let told = world.events("one").await?;
    let is_told = |reason: &str| told.iter().any(|(known, _)| known == reason);
    ensure!(is_told("Ready") && told.len() == 1, "a wait is no event: {told:?}");

    // That it exists is written at once.
    world.cloud.set_address_time(LASTS);
    world.add_machine("two").await?;
    let has_id = |one: &Value| one["spec"]["providerID"].is_string();
    let begun = world.becomes("FakeMachine", "two", "has a provider ID", has_id).await?;
    ensure!(condition(&begun, "Ready")["reason"] != "WaitingForAddress", "{begun}");
    world.waits_for("two", "WaitingForAddress").await?;
    world.is_up("two").await?;
    daemon.stop().await
}

/// A cloud has the bootstrap data of a machine once it makes it, and has none once that has failed.
async fn made_again(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.cloud.set_task_time(Duration::from_secs(1));
    world.cloud.set_address_time(Duration::from_secs(1));
    world.cloud.fail_next_task(Error::new(ErrorKind::Unavailable, "no space left"));
    world.add_machine("one").await?;
    world.is_up("one").await?;
    ensure!(world.cloud.count(Operation::CreateMachine) == 2, "{:?}", world.cloud.calls());
    let reads = world.tape.requests("GET secrets");
    ensure!(reads == 2, "its Secret is read {reads} times: once for each try");
    daemon.stop().await
}

async fn whole_life(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let made = world.add_machine_without_data("one").await?;
    let waits = world.waits_for("one", "WaitingForBootstrapData").await?;
    ensure!(waits["metadata"]["finalizers"].is_null(), "{waits}");
    world.add_data("one").await?;
    let up = world.is_up("one").await?;
    let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
    ensure!(up["spec"]["providerID"] == format!("fake:///{uid}"), "{up}");
    ensure!(up["metadata"]["annotations"][IDENTITY] == uid, "{up}");
    ensure!(up["metadata"]["annotations"][BLOCK_MOVE].is_null(), "{up}");
    ensure!(up["metadata"]["finalizers"] == json!([FINALIZER]), "{up}");
    let status = &up["status"];
    ensure!(status["initialization"]["provisioned"] == true && status["ready"] == true, "{status}");
    ensure!(status["failureDomain"] == "a", "{status}");
    ensure!(status["addresses"][0]["type"] == "InternalIP", "{status}");
    ensure!(condition(&up, "Paused")["status"] == "False", "{status}");
    let reads = world.tape.requests("GET secrets");
    ensure!(reads == 1, "its Secret is read {reads} times: the cloud has what is in it");
    let data = world.cloud.bootstrap_of(uid).map(|data| data.expose().to_vec());
    ensure!(data.as_deref() == Some(b"#cloud-config one hunter2"), "{data:?}");
    world.cloud_has(&["disk/one", "instance/one"])?;

    // One for what it waits for, one for the finalizer, two for the task, one with the provider ID, and one at the end.
    let writes = world.tape.of_object("fakemachines", "one");
    ensure!(writes.len() <= 6, "{writes:?}");
    let is_whole = |write: &&String| !["object", "status"].contains(&write.as_str());
    ensure!(!writes.iter().any(|write| is_whole(&write)), "{writes:?}");

    // Nothing is written and nobody is asked while nothing happens.
    world.tape.clear();
    world.cloud.forget_calls();
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    ensure!(world.cloud.calls().is_empty(), "{:?}", world.cloud.calls());

    world.cloud.set_task_time(LASTS);
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    let told = world.events("one").await?;
    for reason in ["WaitingForBootstrapData", "Ready", "Deleting"] {
        ensure!(told.iter().any(|(known, _)| known == reason), "{reason} is not in {told:?}");
    }
    let everything = format!("{told:?} {:?}", world.tape.steps());
    ensure!(!everything.contains("hunter2"), "bootstrap data are shown: {everything}");

    world.delete("FakeCluster", "prod").await?;
    world.vanishes("FakeCluster", "prod").await?;
    ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
    daemon.stop().await
}

async fn order(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&[])?;
    // A machine that a MachineSet has made, before there is a Machine.
    let label = json!({"labels": {"cluster.x-k8s.io/cluster-name": "prod"}});
    world.create("FakeMachine", "early", json!({"metadata": label, "spec": {}})).await?;
    world.add_cluster("prod").await?;
    world.becomes("FakeCluster", "prod", "is ready", is_ready).await?;
    world.add_machine("one").await?;
    world.waits_for("one", "WaitingForClusterInfrastructureReady").await?;
    world.pause().await;
    ensure!(
        world.cloud.objects().iter().all(|line| line.starts_with("endpoint/")),
        "{:?}",
        world.cloud.objects()
    );
    let early = world.get("FakeMachine", "early").await?;
    ensure!(early["status"].is_null() && early["metadata"]["finalizers"].is_null(), "{early}");
    world.cluster_is_ready("prod").await?;
    world.is_up("one").await?;

    // The Machine names a Secret that is not there yet.
    world.add_machine_without_data("two").await?;
    world.waits_for("two", "WaitingForBootstrapData").await?;
    world.name_secret("two").await?;
    let waits = |object: &Value| {
        condition(object, "Ready")["message"].as_str().is_some_and(|message| message.contains("\"two-data\""))
    };
    world.becomes("FakeMachine", "two", "waits for the Secret", waits).await?;
    world.add_secret("two").await?;
    world.is_up("two").await?;
    daemon.stop().await
}

async fn paused(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let is_paused = |object: &Value| condition(object, "Paused")["status"] == "True";
    world.change("Cluster", "prod", json!({"spec": {"paused": true}})).await?;
    world.add_machine("one").await?;
    world.becomes("FakeMachine", "one", "is paused", is_paused).await?;
    world.becomes("FakeCluster", "prod", "is paused", is_paused).await?;
    world.pause().await;
    world.cloud_has(&[])?;
    world.change("Cluster", "prod", json!({"spec": {"paused": false}})).await?;
    world.is_up("one").await?;
    world.becomes("FakeCluster", "prod", "is not paused", |object| !is_paused(object)).await?;

    // A deletion waits too.
    let annotation = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    world.change("FakeMachine", "one", annotation("".into())).await?;
    world.becomes("FakeMachine", "one", "is paused", is_paused).await?;
    world.delete("FakeMachine", "one").await?;
    world.pause().await;
    world.cloud_has(&["disk/one", "instance/one"])?;
    world.change("FakeMachine", "one", annotation(Value::Null)).await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    daemon.stop().await
}

async fn deleted_early(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.add_machine_without_data("one").await?;
    world.waits_for("one", "WaitingForBootstrapData").await?;
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    daemon.stop().await
}

async fn deleted_while_made(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.cloud.set_task_time(LASTS);
    world.add_machine("one").await?;
    world.waits_for("one", "WaitingForTask").await?;
    world.cloud.set_task_time(Duration::from_millis(100));
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    // While it waits for its address.
    world.cloud.set_address_time(SOON * 10);
    world.add_machine("two").await?;
    let waits = world.waits_for("two", "WaitingForAddress").await?;
    ensure!(
        waits["spec"]["providerID"].is_string() && waits["status"]["initialization"].is_null(),
        "{waits}"
    );
    world.delete("FakeMachine", "two").await?;
    world.vanishes("FakeMachine", "two").await?;
    world.cloud_has(&[])?;
    daemon.stop().await
}

async fn lost(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let made = world.add_machine("one").await?;
    world.is_up("one").await?;
    world.cloud.remove(made["metadata"]["uid"].as_str().unwrap_or_default());
    let lost = world.waits_for("one", "MachineLost").await?;
    ensure!(lost["status"]["initialization"]["provisioned"] == true, "{lost}");
    world.pause().await;
    world.cloud_has(&["disk/one"])?;
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&[])?;
    daemon.stop().await
}

async fn foreign(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.cloud.put_object("disk/one", None);
    world.add_machine("one").await?;
    let told = world.waits_for("one", "ForeignObject").await?;
    ensure!(
        condition(&told, "Ready")["message"].as_str().is_some_and(|words| words.contains("disk/one")),
        "{told}"
    );
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    world.cloud_has(&["disk/one"])?;
    world.cloud.remove_object("disk/one");

    // A manifest that was copied together with the annotation of another machine.
    world.add_machine("original").await?;
    let original = world.is_up("original").await?;
    let identity = &original["metadata"]["annotations"][IDENTITY];
    let metadata = json!({"annotations": {IDENTITY: identity}, "finalizers": [FINALIZER]});
    world.add_machine_with("copy", metadata, json!({})).await?;
    world.add_data("copy").await?;
    let copy = world.waits_for("copy", "IdentityInUse").await?;
    ensure!(copy["spec"]["providerID"].is_null(), "{copy}");
    world.pause().await;
    world.cloud_has(&["disk/original", "instance/original"])?;
    world.delete("FakeMachine", "copy").await?;
    world.vanishes("FakeMachine", "copy").await?;
    world.cloud_has(&["disk/original", "instance/original"])?;
    ensure!(is_ready(&world.get("FakeMachine", "original").await?));

    // Once the original is gone, nobody else has the identity.
    let metadata = json!({"annotations": {IDENTITY: identity}});
    world.delete("Machine", "copy").await?;
    world.add_machine_with("copy", metadata, json!({})).await?;
    world.name_secret("copy").await?;
    world.waits_for("copy", "IdentityInUse").await?;
    world.delete("FakeMachine", "original").await?;
    world.vanishes("FakeMachine", "original").await?;
    world.is_up("copy").await?;
    world.cloud_has(&["disk/copy", "instance/copy"])?;
    daemon.stop().await
}

async fn errors(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let fault = |kind: ErrorKind, words: &'static str| Fault::Error(Error::new(kind, words));
    world.cloud.fail_next(Operation::EnsureMachine, fault(ErrorKind::Unavailable, "the cloud is away"));
    world.cloud.fail_next(Operation::EnsureMachine, Fault::Panic);
    world.add_machine("one").await?;
    world.is_up("one").await?;
    let told = world.events("one").await?;
    let is_told = |reason: &str| told.iter().any(|(known, _)| known == reason);
    ensure!(is_told("ProviderUnavailable") && is_told("ProviderError"), "{told:?}");

    world.cloud.fail(Operation::EnsureMachine, fault(ErrorKind::InvalidInput, "cpus: at most 4"));
    world.add_machine("two").await?;
    let wrong = world.waits_for("two", "InvalidSpec").await?;
    ensure!(condition(&wrong, "Ready")["message"] == "cpus: at most 4", "{wrong}");
    world.cloud.forget_calls();
    world.pause().await;
    ensure!(world.cloud.count(Operation::EnsureMachine) == 0, "{:?}", world.cloud.calls());
    world.cloud.mend();
    world.change("FakeMachine", "two", json!({"spec": {"cpus": 4}})).await?;
    world.is_up("two").await?;
    // What cannot be confirmed keeps the object.
    world.cloud.fail(Operation::DeleteMachine, fault(ErrorKind::NotFound, "no such pool"));
    world.delete("FakeMachine", "two").await?;
    world.waits_for("two", "DependencyNotFound").await?;
    world.pause().await;
    world.cloud_has(&["disk/one", "disk/two", "instance/one", "instance/two"])?;
    world.cloud.mend();
    // As somebody would who repaired it.
    let annotation = json!({"metadata": {"annotations": {"example.com/a": "1"}}});
    world.change("FakeMachine", "two", annotation).await?;
    daemon.stop().await
}
