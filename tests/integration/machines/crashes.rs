//! The daemon is killed before and after each thing that it does to the world outside, and started again: nothing leaks,
//! and nothing is made twice.

use std::time::Duration;

use anyhow::{Context, ensure};
use cloudprovider::testing::Operation;
use futures::{FutureExt, future::LocalBoxFuture};
use libtest_mimic::Trial;
use sandbox::{Action, Fault, Matcher};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{tape::Side, world::*};
use crate::{
    api::{Api, Target},
    faults::faults,
    trial::on,
};

/// More writes than anything here needs.
const MOST_WRITES: usize = 13;

/// More changes of the cloud than anything here needs.
const MOST_CHANGES: usize = 6;

/// Longer than anything here takes.
const LIFE: Duration = Duration::from_secs(90);

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on(Target::Sandbox, "machines::killed_while_a_machine_is_made", |api| {
            everywhere(api, "made", made).boxed_local()
        }),
        on(Target::Sandbox, "machines::killed_and_deleted_before_the_next_start", |api| {
            everywhere(api, "deleted meanwhile", deleted_meanwhile).boxed_local()
        }),
        on(Target::Sandbox, "machines::killed_while_a_machine_is_deleted", |api| {
            everywhere(api, "deleted", deleted).boxed_local()
        }),
        on(Target::Sandbox, "machines::refused_and_lost_writes_are_made_up_for", |api| {
            refused(api).boxed_local()
        }),
    ]
}

/// Where the daemon dies.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// Before or after this write.
    Write(usize, Side),
    /// After so many changes of the cloud, whose answer is lost.
    Change(usize),
}

/// What happens in one life of a daemon, and what happens before the next one.
type Story = for<'a> fn(&'a World<'_>, Kill) -> LocalBoxFuture<'a, anyhow::Result<()>>;

impl Kill {
    fn all() -> Vec<Self> {
        let writes =
            (0..MOST_WRITES).flat_map(|at| [Side::Before, Side::After].map(|side| Self::Write(at, side)));
        writes.chain((0..=MOST_CHANGES).map(Self::Change)).collect()
    }

    /// Sets the trap, lets `act` happen, and kills the daemon in the trap. Without a step there, it lives for a while.
    async fn during(
        self,
        world: &World<'_>,
        daemon: Daemon,
        act: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Write(at, side) => {
                let caught = world.tape.set_trap(at, side);
                act.await?;
                let _ = timeout(LIFE, caught.notified()).await;
            }
            Self::Change(count) => {
                world.cloud.crash_after(count);
                act.await?;
                sleep(LIFE).await;
            }
        }
        daemon.crash().await;
        world.tape.remove_trap();
        world.cloud.recover();
        Ok(())
    }
}

async fn everywhere(api: &Api, what: &str, story: Story) -> anyhow::Result<()> {
    for kill in Kill::all() {
        let world = World::new(api).await?;
        let outcome = run(&world, kill, story).await;
        outcome.with_context(|| format!("{what}, {kill:?}: {:?}", world.cloud.objects()))?;
    }
    Ok(())
}

async fn run(world: &World<'_>, kill: Kill, story: Story) -> anyhow::Result<()> {
    story(world, kill).await?;
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
        if matches!(kill, Kill::Write(..)) {
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
    daemon.stop().await
}

/// Everything at once: the cluster counts as provisioned before it is.
async fn make(world: &World<'_>) -> anyhow::Result<()> {
    world.add_cluster("prod").await?;
    world
        .change_status("Cluster", "prod", json!({"initialization": {"infrastructureProvisioned": true}}))
        .await?;
    world.add_machine("one").await.map(drop)
}

fn made<'a>(world: &'a World<'_>, kill: Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move { kill.during(world, world.start(&[])?, make(world)).await }.boxed_local()
}

async fn delete(world: &World<'_>) -> anyhow::Result<()> {
    world.delete("FakeMachine", "one").await?;
    world.delete("FakeCluster", "prod").await
}

fn deleted_meanwhile<'a>(world: &'a World<'_>, kill: Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        made(world, kill).await?;
        delete(world).await
    }
    .boxed_local()
}

fn deleted<'a>(world: &'a World<'_>, kill: Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        let daemon = world.start(&[])?;
        make(world).await?;
        world.is_up("one").await?;
        world.becomes("FakeCluster", "prod", "is ready", is_ready).await?;
        kill.during(world, daemon, delete(world)).await
    }
    .boxed_local()
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
        for verb in ["patch", "get"] {
            let world = World::new(api).await?;
            let daemon = world.start(&[])?;
            let outcome = async {
                // The scenario itself reads all but Secrets.
                let resources: &[&str] = match verb {
                    "get" => &["secrets"],
                    _ => &["fakemachines", "fakeclusters"],
                };
                for resource in resources {
                    let requests = Matcher::any().verb(verb).resource(resource);
                    faults(api)?.inject(Fault::new(requests, action.clone()).times(3));
                }
                make(&world).await?;
                world.is_up("one").await?;
                world.cloud_has(&["disk/one", "instance/one"])?;
                ensure!(world.cloud.count(Operation::CreateMachine) == 1, "made twice");
                faults(api)?.clear();
                let machines = Matcher::any().verb("patch").resource("fakemachines");
                faults(api)?.inject(Fault::new(machines, action.clone()).times(2));
                delete(&world).await?;
                world.vanishes("FakeMachine", "one").await?;
                world.vanishes("FakeCluster", "prod").await?;
                ensure!(world.cloud.objects().is_empty(), "{:?}", world.cloud.objects());
                anyhow::Ok(())
            };
            outcome.await.with_context(|| format!("{action:?} for {verb}"))?;
            faults(api)?.clear();
            daemon.stop().await?;
        }
    }
    Ok(())
}
