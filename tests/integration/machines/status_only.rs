//! Objects beside machines and clusters whose status the provider says.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use cloudprovider::{
    Error, ErrorKind, InstanceChange,
    testing::{self, FAKE_REGION, FakeInstance, Operation},
};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::{core, world::*};
use crate::{
    api::Api,
    faults::faults,
    scenarios::Trials,
    stage::{Kill, at_every_step},
    support::eventually,
};

/// The finalizer of a failure domain.
const HELD: &str = "fakeregion.infrastructure.cluster.x-k8s.io";

/// Longer than anything here takes.
const LIFE: Duration = Duration::from_secs(90);

pub(super) fn trials() -> Trials {
    Trials::new()
        .both("machines::a_status_only_object_is_observed_and_kept", observed)
        .sandbox("machines::a_status_only_object_of_another_program", taken_over)
        .sandbox("machines::a_failure_domain_stays_while_machines_are_in_it", in_use)
        .sandbox("machines::objects_that_end_without_a_deletion_are_forgotten", forgotten)
        .sandbox("machines::a_dry_run_writes_no_status", dry_run)
        .sandbox("machines::killed_while_a_status_is_written", killed)
        .sandbox("machines::a_status_that_is_refused_is_written_later", refused)
        .sandbox("machines::an_observation_that_hangs_holds_up_no_other", hangs)
}

fn regions(world: &World<'_>) -> kube::Api<DynamicObject> {
    core::auxiliary_objects(&world.api.client, &FAKE_REGION)
}

async fn region(world: &World<'_>) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(regions(world).get("west").await?)?)
}

/// A region that is to have one flavor.
async fn add(world: &World<'_>, metadata: Value) -> anyhow::Result<()> {
    let mut object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "FakeRegion", "metadata": metadata,
        "spec": {"flavors": ["large"]},
    });
    object["metadata"]["name"] = "west".into();
    let made = regions(world).create(&PostParams::default(), &serde_json::from_value(object)?).await;
    made.map(drop).context("a region")
}

async fn change(world: &World<'_>, patch: Value) -> anyhow::Result<()> {
    regions(world).patch("west", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn becomes(world: &World<'_>, what: &str, check: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    eventually(SOON, what, || async { Ok(Some(region(world).await?).filter(|one| check(one))) }).await
}

async fn observed(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start(&[])?;
    add(&world, json!({})).await?;
    let reason = |one: &Value| condition(one, "Ready")["reason"].clone();
    let first = becomes(&world, "it has a status", |one| reason(one) == "FlavorMissing").await?;
    ensure!(first["status"]["ready"] == false && first["status"]["machines"] == 0, "{first}");

    // What it has read changes, and so does the cloud.
    world.add_flavor("large", 8).await?;
    becomes(&world, "it is complete", |one| is_ready(one) && one["status"]["ready"] == true).await?;
    world.cloud.put("a", FakeInstance::running("192.0.2.7"));
    world.cloud.push(InstanceChange::Resync);
    becomes(&world, "it tells of the cloud", |one| one["status"]["machines"] == 1).await?;

    // Nothing is written once all is well, and what somebody else writes does not stay.
    world.pause().await;
    world.tape.clear();
    world.pause().await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    let lie = Patch::Merge(json!({"status": {"machines": 9}}));
    regions(&world).patch_status("west", &PatchParams::default(), &lie).await?;
    becomes(&world, "it says the truth", |one| one["status"]["machines"] == 1).await?;

    // Nothing is said about one that is paused.
    change(&world, json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})).await?;
    world.pause().await;
    core::flavors(&world.api.client).delete("large", &DeleteParams::default()).await?;
    world.pause().await;
    ensure!(is_ready(&region(&world).await?), "its status stays");
    change(&world, json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}})).await?;
    becomes(&world, "it is observed again", |one| reason(one) == "FlavorMissing").await?;
    daemon.stop().await
}

/// One that goes loses the finalizer that another program has left.
async fn taken_over(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    add(&world, json!({"finalizers": ["fakeregion.example.org"]})).await?;
    let daemon = world.start(&[])?;
    let kept = becomes(&world, "it has a status", |one| !condition(one, "Ready").is_null()).await?;
    ensure!(kept["metadata"]["finalizers"] == json!(["fakeregion.example.org", HELD]), "{kept}");
    regions(&world).delete("west", &DeleteParams::default()).await?;
    let gone = || async { Ok(regions(&world).get_opt("west").await?.is_none().then_some(())) };
    eventually(SOON, "it is gone", gone).await?;
    daemon.stop().await
}

/// A failure domain that is deleted goes with its last machine, also if the daemon was away meanwhile.
async fn in_use(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    add(&world, json!({})).await?;
    becomes(&world, "it is held", |one| one["metadata"]["finalizers"] == json!([HELD])).await?;
    for name in ["one", "two"] {
        world.add_machine_without_data(name).await?;
        world.change("Machine", name, json!({"spec": {"failureDomain": "west"}})).await?;
    }
    regions(&world).delete("west", &DeleteParams::default()).await?;
    let names = |one: &Value, names: &str| {
        let ready = condition(one, "Ready");
        ready["reason"] == "InUse" && ready["message"].as_str().is_some_and(|words| words.ends_with(names))
    };
    let both = "Machine default/one, Machine default/two";
    becomes(&world, "it says who is in it", |one| names(one, both)).await?;
    world.pause().await;
    world.change("Machine", "one", json!({"spec": {"failureDomain": "east"}})).await?;
    becomes(&world, "it says who is left", |one| names(one, ": Machine default/two")).await?;
    daemon.stop().await?;
    world.delete("Machine", "two").await?;
    world.vanishes("Machine", "two").await?;
    ensure!(region(&world).await?["metadata"]["finalizers"] == json!([HELD]), "nobody has removed it");
    let daemon = world.start(&[])?;
    let gone = || async { Ok(regions(&world).get_opt("west").await?.is_none().then_some(())) };
    eventually(SOON, "it is gone", gone).await?;
    daemon.stop().await
}

/// Somebody removes finalizers by force, so that no step towards gone is made.
async fn forgotten(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    add(&world, json!({})).await?;
    becomes(&world, "it has a status", |one| !condition(one, "Ready").is_null()).await?;
    world.add_machine("worker-1").await?;
    let machine = world.is_up("worker-1").await?;
    let cluster = world.get(&world.kind("Cluster"), world.cluster).await?;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let region = region(&world).await?;
    let is_forgotten = |object: &Value| world.cloud.has_forgotten(&uid(object));
    let all = [&machine, &cluster, &region];
    ensure!(!all.iter().any(|one| is_forgotten(one)), "all of them are there");
    let things = world.cloud.objects();

    regions(&world).delete("west", &DeleteParams::default()).await?;
    for operation in [Operation::DeleteMachine, Operation::DeleteCluster] {
        let away = Error::new(ErrorKind::Unavailable, "away");
        world.cloud.fail(operation, testing::Fault::Error(away));
    }
    for (what, name) in [("Machine", "worker-1"), ("Cluster", world.cluster)] {
        let kind = world.kind(what);
        world.delete(&kind, name).await?;
        let by_force = json!({"metadata": {"finalizers": null}});
        world.change(&kind, name, by_force).await?;
        world.vanishes(&kind, name).await?;
    }
    let forgotten = || async { Ok(all.iter().all(|one| is_forgotten(one)).then_some(())) };
    eventually(SOON, "they are forgotten", forgotten).await?;
    ensure!(world.cloud.objects() == things, "{:?}", world.cloud.objects());
    daemon.stop().await
}

async fn dry_run(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    add(&world, json!({})).await?;
    let daemon = world.start(&["--dry-run"])?;
    world.pause().await;
    ensure!(world.cloud.count(Operation::Observe) > 0, "nothing is observed");
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());
    daemon.stop().await
}

/// The daemon dies before and after each request, and the next one tells what is right.
async fn killed(api: &Api) -> anyhow::Result<()> {
    let steps = at_every_step(async |at, side| {
        let world = World::new(api).await?;
        let (daemon, made) = (world.start(&[])?, add(&world, json!({})));
        let is_dead = Kill::Step(at, side).during((&world.tape.trap, &world.cloud), daemon, made).await?;
        let daemon = world.start(&[])?;
        becomes(&world, "it has a status", |one| condition(one, "Ready")["reason"] == "FlavorMissing")
            .await?;
        daemon.stop().await?;
        if !is_dead {
            ensure!(world.tape.kinds().contains("PATCH fakeregions"), "{:?}", world.tape.kinds());
        }
        Ok(is_dead)
    });
    steps.await.map(drop)
}

async fn refused(api: &Api) -> anyhow::Result<()> {
    for action in [Action::Conflict, Action::InternalError, Action::LoseResponse] {
        let world = World::new(api).await?;
        let writes = Matcher::any().verb("patch").resource("fakeregions");
        faults(api)?.inject(Fault::new(writes, action.clone()).times(3));
        world.cloud.fail_next(Operation::Observe, Error::new(ErrorKind::Unavailable, "away"));
        let daemon = world.start(&[])?;
        add(&world, json!({})).await?;
        let told = becomes(&world, "it has a status", |one| !condition(one, "Ready").is_null()).await;
        told.with_context(|| format!("{action:?}"))?;
        faults(api)?.clear();
        daemon.stop().await?;
    }
    Ok(())
}

/// While a look at one object hangs, others are looked at, and this one not a second time.
async fn hangs(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    world.cloud.fail_next(Operation::Observe, testing::Fault::Hang);
    let daemon = world.start(&[])?;
    add(&world, json!({})).await?;
    let asked = |times: usize| {
        let cloud = &world.cloud;
        move || async move { Ok((cloud.count(Operation::Observe) == times).then_some(())) }
    };
    eventually(SOON, "it is looked at", asked(1)).await?;
    let east = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "FakeRegion",
        "metadata": {"name": "east"}, "spec": {"flavors": []},
    });
    regions(&world).create(&PostParams::default(), &serde_json::from_value(east)?).await?;
    let told = || async {
        let found = serde_json::to_value(regions(&world).get("east").await?)?;
        Ok(is_ready(&found).then_some(()))
    };
    eventually(Duration::from_secs(20), "the other one has its status", told).await?;
    change(&world, json!({"spec": {"flavors": ["small"]}})).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    // The second one of the other object found its own write.
    ensure!(world.cloud.count(Operation::Observe) == 3, "{}", world.cloud.count(Operation::Observe));
    let message = |one: &Value| condition(one, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    let late = || async { Ok(Some(region(&world).await?).filter(|one| message(one).contains("small"))) };
    eventually(LIFE, "its status says what it says now", late).await?;
    regions(&world).delete("east", &DeleteParams::default()).await?;
    daemon.stop().await
}
