//! Objects beside machines and clusters: those that steps read, and those that they want to have.

use std::time::Duration;

use anyhow::ensure;
use cloudprovider::{
    InstanceChange,
    testing::{FAKE_FLAVOR, Operation},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{core, world::*};
use crate::{
    api::Api,
    faults::faults,
    scenarios::Trials,
    support::{eventually, patience},
};

/// The condition about owned objects.
const COMPANIONS: &str = "CompanionsUpToDate";

/// A wait for what is missing is over when it is there, and not when the clock says so: that would take a minute.
const AT_ONCE: Duration = Duration::from_secs(45);

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("machines::a_step_waits_for_an_object_that_it_reads", read)
        .both("machines::owned_objects_are_made_kept_and_removed", kept)
        .sandbox("machines::a_foreign_object_in_the_place_of_an_owned_one", foreign)
        .sandbox("machines::owned_objects_that_another_program_made", taken_over)
        .sandbox("machines::an_auxiliary_kind_that_is_missing_stops_only_what_uses_it", missing_kind)
        .sandbox("machines::trouble_with_an_owned_object_hides_nothing", refused)
        .sandbox("machines::a_list_that_does_not_arrive_stops_no_machine", unlisted)
}

async fn add(world: &World<'_>, name: &str, spec: Value) -> anyhow::Result<()> {
    world.add_machine_with(name, json!({}), spec).await?;
    world.add_data(name).await
}

async fn read(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    add(&world, "one", json!({"flavor": "large"})).await?;
    let waits = world.waits_for("one", "DependencyNotFound").await?;
    let message = condition(&waits, "Ready")["message"].to_string();
    ensure!(message.contains("FakeFlavor") && message.contains("large"), "{message}");
    let began = Instant::now();
    world.add_flavor("large", 8).await?;
    world.is_up("one").await?;
    ensure!(began.elapsed() < patience(AT_ONCE), "it took {:?}", began.elapsed());
    let up = world.is_up("one").await?;
    let uid = up["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default();
    let mut size = None;
    world.cloud.change(uid, |instance| size.clone_from(&instance.metadata.instance_type));
    ensure!(size.as_deref() == Some("8c-512m"), "{size:?}");
    daemon.stop().await
}

async fn missing_kind(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let definitions = kube::Api::<CustomResourceDefinition>::all(api.client.clone());
    let name = format!("{}.{}", FAKE_FLAVOR.plural, FAKE_FLAVOR.group);
    definitions.delete(&name, &DeleteParams::default()).await?;
    let daemon = world.start(&[])?;
    world.add_cluster("prod").await?;
    world.cluster_is_ready("prod").await?;
    add(&world, "one", json!({"flavor": "large"})).await?;
    add(&world, "two", json!({})).await?;
    world.is_up("two").await?;
    let waits = world.waits_for("one", "Unsupported").await?;
    let message = condition(&waits, "Ready")["message"].to_string();
    ensure!(message.contains(&name), "{message}");
    definitions.create(&PostParams::default(), &core::auxiliary_definition(&FAKE_FLAVOR)?).await?;
    world.waits_for("one", "DependencyNotFound").await?;
    world.add_flavor("large", 8).await?;
    world.is_up("one").await?;
    daemon.stop().await
}

fn phase(guest: &Value) -> &str {
    guest["status"]["phase"].as_str().unwrap_or_default()
}

async fn kept(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    add(&world, "one", json!({"guest": true})).await?;
    let up = world.is_up("one").await?;
    let guest = world.becomes("FakeGuest", "one", "runs", |guest| phase(guest) == "Running").await?;
    let metadata = &guest["metadata"];
    ensure!(metadata["ownerReferences"][0]["uid"] == up["metadata"]["uid"], "{guest}");
    ensure!(
        metadata["labels"]["cluster.x-k8s.io/cluster-name"] == "prod"
            && metadata["labels"]["fake"] == "guest"
    );
    ensure!(
        guest["spec"] == json!({"cpus": 2, "instance": up["metadata"]["annotations"][IDENTITY]}),
        "{guest}"
    );
    ensure!(phase(&guest) == "Running" && is_ready(&guest), "{guest}");
    ensure!(guest["status"]["addresses"].as_array().is_some_and(|all| !all.is_empty()), "{guest}");

    // Nothing is written once all is well, and by a daemon that starts again neither.
    world.tape.clear();
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    daemon.stop().await?;
    let daemon = world.start(&[])?;
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());

    // What somebody else changes comes back, and what somebody else adds stays.
    let began = Instant::now();
    world.change("FakeGuest", "one", json!({"spec": {"cpus": 7, "notes": "mine"}})).await?;
    let right = |guest: &Value| guest["spec"]["cpus"] == 2 && guest["spec"]["notes"] == "mine";
    world.becomes("FakeGuest", "one", "is right again", right).await?;
    world.change_status("FakeGuest", "one", json!({"phase": "Dreaming"})).await?;
    world.becomes("FakeGuest", "one", "says the truth", |guest| phase(guest) == "Running").await?;
    let uid = guest["metadata"]["uid"].clone();
    world.delete("FakeGuest", "one").await?;
    let anew = |guest: &Value| guest["metadata"]["uid"] != uid && phase(guest) == "Running";
    world.becomes("FakeGuest", "one", "is made again", anew).await?;
    ensure!(began.elapsed() < patience(AT_ONCE), "it took {:?}", began.elapsed());

    // The cloud changes.
    world.cloud.remove(up["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default());
    world.waits_for("one", "MachineLost").await?;
    let lost =
        world.becomes("FakeGuest", "one", "says that it is lost", |guest| phase(guest) == "Lost").await?;
    ensure!(!is_ready(&lost), "{lost}");

    // Nobody wants it any more.
    world.change("FakeMachine", "one", json!({"spec": {"guest": false}})).await?;
    world.vanishes("FakeGuest", "one").await?;
    world.change("FakeMachine", "one", json!({"spec": {"guest": true}})).await?;
    world.becomes("FakeGuest", "one", "is there", |_| true).await?;

    // It goes before its machine.
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    ensure!(world.get("FakeGuest", "one").await?.is_null(), "it is left");
    daemon.stop().await
}

/// Waits until the machine tells of trouble with its owned object, for this reason. Gives the message.
async fn trouble(world: &World<'_>, reason: &str) -> anyhow::Result<String> {
    let tells = |one: &Value| condition(one, COMPANIONS)["reason"] == reason;
    let machine = world.becomes("FakeMachine", "one", reason, tells).await?;
    Ok(condition(&machine, COMPANIONS)["message"].to_string())
}

async fn no_trouble(world: &World<'_>) -> anyhow::Result<()> {
    let is_over = |one: &Value| condition(one, COMPANIONS).is_null();
    world.becomes("FakeMachine", "one", "tells of no trouble", is_over).await.map(drop)
}

/// The API server takes no write of an owned object, for as long as it likes.
async fn refused(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    let faults = faults(api)?;
    let refuse = |verb| {
        faults.inject(Fault::new(Matcher::any().verb(verb).resource("fakeguests"), Action::InternalError));
    };
    refuse("create");
    add(&world, "one", json!({"guest": true})).await?;
    let up = world.is_up("one").await?;
    ensure!(up["spec"]["providerID"].is_string(), "{up}");
    let message = trouble(&world, "NotWritten").await?;
    ensure!(message.contains("FakeGuest default/one"), "{message}");
    let up = world.get("FakeMachine", "one").await?;
    ensure!(is_ready(&up) && up["metadata"]["annotations"][BLOCK_MOVE].is_null(), "{up}");
    let told = || async {
        Ok(world.events("one").await?.iter().any(|(reason, _)| reason == "NotWritten").then_some(()))
    };
    eventually(SOON, "an event", told).await?;
    world.cloud.remove(up["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default());
    let lost = world.waits_for("one", "MachineLost").await?;
    ensure!(condition(&lost, COMPANIONS)["reason"] == "NotWritten", "{lost}");
    faults.clear();
    // The next try may be far off.
    world.cloud.push(InstanceChange::Resync);
    no_trouble(&world).await?;
    world.becomes("FakeGuest", "one", "says that it is lost", |guest| phase(guest) == "Lost").await?;

    refuse("delete");
    world.delete("FakeMachine", "one").await?;
    let waits = world.waits_for("one", "ProviderUnavailable").await?;
    let message = condition(&waits, "Ready")["message"].to_string();
    ensure!(message.contains("FakeGuest default/one"), "{message}");
    faults.clear();
    world.cloud.push(InstanceChange::Resync);
    world.vanishes("FakeMachine", "one").await?;
    ensure!(world.get("FakeGuest", "one").await?.is_null(), "it is left");
    daemon.stop().await
}

/// The list of the owned objects does not arrive.
async fn unlisted(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let faults = faults(api)?;
    let lists = Matcher::any().verb("list").resource("fakeguests");
    faults.inject(Fault::new(lists, Action::InternalError));
    let daemon = world.start(&[])?;
    world.add_cluster("prod").await?;
    world.cluster_is_ready("prod").await?;
    add(&world, "one", json!({"guest": true})).await?;
    let up = world.is_up("one").await?;
    ensure!(condition(&up, COMPANIONS).is_null(), "{up}");
    let events = world.events("one").await?;
    ensure!(events.iter().all(|(reason, _)| reason != "ProviderUnavailable"), "{events:?}");
    faults.clear();
    world.becomes("FakeGuest", "one", "runs", |guest| phase(guest) == "Running").await?;
    daemon.stop().await
}

async fn foreign(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.create("FakeGuest", "one", json!({"spec": {"of": "somebody"}})).await?;
    let before = world.get("FakeGuest", "one").await?;
    add(&world, "one", json!({"guest": true})).await?;
    world.is_up("one").await?;
    let message = trouble(&world, "ForeignObject").await?;
    ensure!(message.contains("FakeGuest default/one"), "{message}");
    ensure!(world.get("FakeGuest", "one").await? == before, "it was touched");
    let began = Instant::now();
    world.delete("FakeGuest", "one").await?;
    no_trouble(&world).await?;
    world.becomes("FakeGuest", "one", "runs", |guest| phase(guest) == "Running").await?;
    ensure!(began.elapsed() < patience(AT_ONCE), "it took {:?}", began.elapsed());
    ensure!(world.cloud.count(Operation::CreateMachine) == 1, "made twice");

    // A machine that goes leaves alone what is not its own.
    world.change("FakeGuest", "one", json!({"metadata": {"ownerReferences": null}})).await?;
    trouble(&world, "ForeignObject").await?;
    ensure!(is_ready(&world.get("FakeMachine", "one").await?), "it runs all the same");
    world.delete("FakeMachine", "one").await?;
    let left = world.becomes("FakeGuest", "one", "is there", |_| true).await?;
    ensure!(left["metadata"]["deletionTimestamp"].is_null(), "{left}");
    world.delete("FakeGuest", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    daemon.stop().await
}

/// One with the finalizer of another program, as that program left it behind.
async fn taken_over(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    world.add_cluster("prod").await?;
    let machine = world.add_machine_with("one", json!({}), json!({"guest": true})).await?;
    world.add_data("one").await?;
    let owner = json!([{
        "apiVersion": machine["apiVersion"], "kind": "FakeMachine", "name": "one", "uid": machine["metadata"]["uid"],
    }]);
    let finalizers = json!(["fakeguest.example.org"]);
    let metadata = json!({"ownerReferences": owner, "finalizers": finalizers});
    let made = world.create("FakeGuest", "one", json!({"metadata": metadata, "spec": {"cpus": 1}})).await?;
    let daemon = world.start(&[])?;
    world.cluster_is_ready("prod").await?;
    world.is_up("one").await?;
    let guest = world.becomes("FakeGuest", "one", "is kept", |guest| phase(guest) == "Running").await?;
    ensure!(guest["metadata"]["uid"] == made["metadata"]["uid"] && guest["spec"]["cpus"] == 2, "{guest}");
    ensure!(guest["metadata"]["finalizers"] == finalizers, "{guest}");
    world.delete("FakeMachine", "one").await?;
    world.vanishes("FakeMachine", "one").await?;
    let gone = || async { Ok(world.get("FakeGuest", "one").await?.is_null().then_some(())) };
    eventually(SOON, "it is gone", gone).await?;
    daemon.stop().await
}
