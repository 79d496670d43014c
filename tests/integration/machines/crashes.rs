//! The daemon is killed before and after each thing that it does to the world outside, and started again: nothing leaks,
//! and nothing is made twice.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use cloudprovider::testing::Operation;
use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::world::*;
use crate::{
    api::Api,
    faults::faults,
    scenarios::Trials,
    stage::{Kill, at_every_change, at_every_step},
};

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("machines::killed_while_a_machine_is_made", async |api: &Api| {
            everywhere(api, "made", made).await
        })
        .sandbox("machines::killed_and_deleted_before_the_next_start", async |api: &Api| {
            everywhere(api, "deleted meanwhile", deleted_meanwhile).await
        })
        .sandbox("machines::killed_while_a_machine_is_deleted", async |api: &Api| {
            everywhere(api, "deleted", deleted).await
        })
        .sandbox("machines::killed_while_a_machine_is_to_move", async |api: &Api| {
            everywhere(api, "to move", to_move).await
        })
        .sandbox("machines::refused_and_lost_writes_are_made_up_for", refused)
        .sandbox("machines::the_last_finalizer_is_removed_whatever_the_answer", last_write)
        .sandbox("machines::a_refused_write_is_not_put_off", put_off)
}

/// Lets `act` happen, and kills the daemon at this point. Whether it died there.
async fn during(
    kill: Kill,
    world: &World<'_>,
    daemon: Daemon,
    act: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<bool> {
    kill.during((&world.tape.trap, &world.cloud), daemon, act).await
}

/// What every daemon of these stories asks for.
const REQUESTS: [&str; 23] = [
    "DISCOVER",
    "GET secrets",
    "GET fakemachines",
    "GET fakeclusters",
    "GET fakemachinetemplates",
    "GET machines",
    "GET clusters",
    "WATCH fakemachines",
    "WATCH fakeclusters",
    "WATCH machines",
    "WATCH clusters",
    "PATCH fakemachines",
    "PATCH fakemachines/status",
    "PATCH fakeclusters",
    "PATCH fakeclusters/status",
    "GET fakeflavors",
    "GET fakeguests",
    "WATCH fakeflavors",
    "WATCH fakeguests",
    "POST fakeguests",
    "PATCH fakeguests",
    "PATCH fakeguests/status",
    "DELETE fakeguests",
];

/// Tells a story with the death of the daemon at one point after the other. A story is what happens in one life of a daemon, and what
/// happens before the next one. It gives whether the daemon died where it was to die.
async fn everywhere(
    api: &Api,
    what: &str,
    story: impl AsyncFn(&World<'_>, Kill) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut kinds = BTreeSet::new();
    let mut dies = async |kill: Kill| {
        let world = World::new(api).await?;
        let outcome = run(&world, kill, &story).await;
        kinds.extend(world.tape.kinds());
        outcome.with_context(|| format!("{what}, {kill:?}: {:?}", world.cloud.objects()))
    };
    let requests = at_every_step(async |at, side| dies(Kill::Step(at, side)).await).await?;
    let changes = at_every_change(&mut dies).await?;
    for expected in REQUESTS.into_iter().chain(["POST events"]) {
        ensure!(kinds.contains(expected), "{what}: no {expected} among {kinds:?}");
    }
    println!(
        "machines, {what}: {} fault points: before and after each of {requests} requests of {} kinds, and {changes} at changes of the cloud",
        2 * requests + changes,
        kinds.len(),
    );
    Ok(())
}

async fn run(
    world: &World<'_>,
    kill: Kill,
    story: impl AsyncFnOnce(&World<'_>, Kill) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let is_dead = story(world, kill).await?;
    // Whatever happened, a new life brings everything in order.
    let daemon = world.start(&[])?;
    let now = world.get("FakeMachine", "one").await?;
    if !now.is_null() && now["metadata"]["deletionTimestamp"].is_null() {
        let up = world.is_up("one").await?;
        let identity = up["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default();
        ensure!(up["spec"]["providerID"] == format!("fake:///{identity}"), "{up}");
        world.becomes("FakeCluster", "prod", "is ready", is_ready).await?;
        let cluster = world.get("FakeCluster", "prod").await?;
        let of_cluster = cluster["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default();
        let expected = [
            format!("disk/one of {identity}"),
            format!("endpoint/prod of {of_cluster}"),
            format!("instance/one of {identity}"),
        ];
        ensure!(world.cloud.objects() == expected);
        let guest = world.get("FakeGuest", "one").await?;
        ensure!(guest["spec"]["instance"] == identity && guest["status"]["phase"] == "Running", "{guest}");
        if matches!(kill, Kill::Step(..)) {
            ensure!(world.cloud.count(Operation::CreateMachine) == 1, "made twice");
        }
        world.delete("FakeMachine", "one").await?;
    }
    world.vanishes("FakeMachine", "one").await?;
    let cluster = world.get("FakeCluster", "prod").await?;
    if !cluster.is_null() && cluster["metadata"]["deletionTimestamp"].is_null() {
        world.delete("FakeCluster", "prod").await?;
    }
    world.vanishes("FakeCluster", "prod").await?;
    ensure!(world.cloud.objects().is_empty(), "something is left");
    ensure!(world.list("FakeGuest").await?.is_empty(), "a guest is left");
    daemon.stop().await?;
    Ok(is_dead)
}

/// Everything at once: the cluster counts as provisioned before it is.
async fn make(world: &World<'_>) -> anyhow::Result<()> {
    world.add_cluster("prod").await?;
    world
        .change_status("Cluster", "prod", json!({"initialization": {"infrastructureProvisioned": true}}))
        .await?;
    world.add_flavor("large", 8).await?;
    world.add_machine_with("one", json!({}), json!({"flavor": "large", "guest": true})).await?;
    world.add_data("one").await
}

async fn made(world: &World<'_>, kill: Kill) -> anyhow::Result<bool> {
    during(kill, world, world.start(&[])?, make(world)).await
}

async fn delete(world: &World<'_>) -> anyhow::Result<()> {
    world.delete("FakeMachine", "one").await?;
    world.delete("FakeCluster", "prod").await
}

async fn deleted_meanwhile(world: &World<'_>, kill: Kill) -> anyhow::Result<bool> {
    let is_dead = made(world, kill).await?;
    delete(world).await?;
    Ok(is_dead)
}

async fn deleted(world: &World<'_>, kill: Kill) -> anyhow::Result<bool> {
    let daemon = world.start(&[])?;
    make(world).await?;
    world.is_up("one").await?;
    world.becomes("FakeCluster", "prod", "is ready", is_ready).await?;
    during(kill, world, daemon, delete(world)).await
}

/// While its instance is made, the Cluster is paused, as `clusterctl move` does it. It waits until nothing holds the machine.
async fn to_move(world: &World<'_>, kill: Kill) -> anyhow::Result<bool> {
    let pause = async |is_paused: bool| {
        world.change("Cluster", "prod", json!({"spec": {"paused": is_paused}})).await.map(drop)
    };
    let daemon = world.start(&[])?;
    let act = async {
        make(world).await?;
        sleep(Duration::from_secs(5)).await;
        pause(true).await
    };
    let is_dead = during(kill, world, daemon, act).await?;
    let daemon = world.start(&[])?;
    let may_move = |one: &Value| {
        condition(one, "Paused")["status"] == "True" && one["metadata"]["annotations"][BLOCK_MOVE].is_null()
    };
    world.becomes("FakeMachine", "one", "may move", may_move).await?;
    daemon.stop().await?;
    pause(false).await?;
    Ok(is_dead)
}

/// What the API server did not take is written with the next step, also where that waits for something.
async fn put_off(api: &Api) -> anyhow::Result<()> {
    let (world, daemon) = World::with_cluster(api).await?;
    world.cloud.set_task_time(Duration::from_millis(20));
    world.cloud.set_address_time(LASTS);
    let status = Matcher::any().verb("patch").resource("fakemachines").subresource("status");
    faults(api)?.inject(Fault::new(status, Action::InternalError).times(1));
    world.add_machine("one").await?;
    world.is_up("one").await?;
    let writes = world.tape.of_object("fakemachines", "one");
    ensure!(writes == ["object", "object", "status 500", "status", "status"], "{writes:?}");
    daemon.stop().await
}

async fn refused(api: &Api) -> anyhow::Result<()> {
    let actions = [
        Action::Conflict,
        Action::TooManyRequests(1),
        Action::InternalError,
        Action::ServiceUnavailable,
        Action::LoseResponse,
        Action::ResetConnection,
    ];
    for action in actions {
        for verb in ["patch", "get", "create", "delete"] {
            let world = World::new(api).await?;
            let daemon = world.start(&[])?;
            let outcome = async {
                // The scenario itself reads all but Secrets.
                let resources: &[&str] = match verb {
                    "get" => &["secrets"],
                    "create" | "delete" => &["fakeguests"],
                    _ => &["fakemachines", "fakeclusters", "fakeguests"],
                };
                for resource in resources {
                    let requests = Matcher::any().verb(verb).resource(resource);
                    faults(api)?.inject(Fault::new(requests, action.clone()).times(3));
                }
                make(&world).await?;
                world.is_up("one").await?;
                world.cloud_has(&["disk/one", "instance/one"])?;
                ensure!(world.cloud.count(Operation::CreateMachine) == 1, "made twice");
                if verb != "delete" {
                    faults(api)?.clear();
                }
                let machines = Matcher::any().verb("patch").resource("fakemachines");
                faults(api)?.inject(Fault::new(machines, action.clone()).times(2));
                delete(&world).await?;
                world.vanishes("FakeMachine", "one").await?;
                world.vanishes("FakeCluster", "prod").await?;
                ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
                ensure!(world.list("FakeGuest").await?.is_empty(), "a guest is left");
                anyhow::Ok(())
            };
            outcome.await.with_context(|| format!("{action:?} for {verb}"))?;
            faults(api)?.clear();
            daemon.stop().await?;
        }
    }
    Ok(())
}

/// The write that lets an object go is refused, or happens and its answer is lost. Meanwhile another object may get the name.
async fn last_write(api: &Api) -> anyhow::Result<()> {
    for (action, expected) in [
        (Action::LoseResponse, &[][..]),
        (Action::ResetConnection, &["object"]),
        (Action::ErrorEvent(404), &["object 404", "object"]),
        (Action::ErrorEvent(422), &["object 422", "object"]),
        (Action::Conflict, &["object 409", "object"]),
        (Action::InternalError, &["object 500", "object"]),
    ] {
        let (world, daemon) = World::with_cluster(api).await?;
        let outcome = async {
            let first = world.add_machine("one").await?["metadata"]["uid"].clone();
            world.is_up("one").await?;
            world.delete("FakeMachine", "one").await?;
            world.waits_for("one", "Deleting").await?;
            world.tape.clear();
            let removal = Matcher::any().verb("patch").resource("fakemachines").subresource("");
            faults(api)?.inject(Fault::new(removal, action.clone()).times(1));
            // A 404 is believed for a minute: the watch will show it.
            world.pause().await;
            world.vanishes("FakeMachine", "one").await?;
            let mut writes = world.tape.of_object("fakemachines", "one");
            writes.retain(|write| write.starts_with("object"));
            ensure!(writes == expected, "{writes:?}");
            world.cloud_has(&[])?;
            world.delete("Machine", "one").await?;
            let second = world.add_machine_without_data("one").await?["metadata"]["uid"].clone();
            world.name_secret("one").await?;
            let up = world.is_up("one").await?;
            ensure!(first != second && up["metadata"]["uid"] == second, "{up}");
            world.pause().await;
            let now = world.get("FakeMachine", "one").await?;
            ensure!(now["metadata"]["finalizers"] == json!([FINALIZER]) && is_ready(&now), "{now}");
            world.cloud_has(&["disk/one", "instance/one"])?;
            ensure!(world.cloud.count(Operation::CreateMachine) == 2, "made twice");
            world.delete("FakeMachine", "one").await?;
            world.vanishes("FakeMachine", "one").await?;
            world.cloud_has(&[])
        };
        outcome.await.with_context(|| format!("{action:?}"))?;
        faults(api)?.clear();
        daemon.stop().await?;
    }
    Ok(())
}
