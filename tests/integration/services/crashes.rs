//! The daemon is killed before and after each thing that it does to the world outside, and started again:
//! nothing leaks, and nothing is made twice.

use std::time::Duration;

use anyhow::{Context, ensure};
use cloudprovider::testing::{Call, Operation};
use futures::{FutureExt, future::LocalBoxFuture};
use k8s_openapi::api::core::v1::Service;
use sandbox::{Action, Matcher};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::world::*;
use crate::{api::Api, faults::faults, scenarios::Trials, trap::Side};

/// Longer than the daemon believes that an object is gone which the watch still shows.
const LONGEST_BELIEF: Duration = Duration::from_secs(120);

/// More calls and writes than anything here needs.
const MOST_STEPS: usize = 12;

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::killed_while_a_load_balancer_is_made", async |api: &Api| {
            at_every_step(api, "made", made).await
        })
        .sandbox("services::killed_and_the_service_is_deleted_before_the_next_start", async |api: &Api| {
            at_every_step(api, "deleted meanwhile", deleted_meanwhile).await
        })
        .sandbox("services::killed_and_the_type_changes_before_the_next_start", async |api: &Api| {
            at_every_step(api, "changed meanwhile", changed_meanwhile).await
        })
        .sandbox("services::killed_while_a_service_is_deleted", async |api: &Api| {
            at_every_step(api, "deleted", deleted).await
        })
        .sandbox("services::killed_while_the_type_changes", async |api: &Api| {
            at_every_step(api, "changed", changed).await
        })
        .sandbox("services::killed_while_nodes_change", async |api: &Api| {
            at_every_step(api, "nodes", nodes_change).await
        })
        .sandbox("services::killed_after_each_lost_answer", lost_answers)
        .sandbox("services::the_last_finalizer_is_removed_whatever_the_answer", last_write)
        .sandbox("services::killed_after_a_write_for_an_older_service", older_service)
        .sandbox("services::killed_after_a_call_for_what_no_watch_has_told", stale_watch)
}

/// What happens in one life of a daemon, and what happens before the next one.
type Story = for<'a> fn(&'a World<'_>, &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// When to kill the daemon.
struct Kill {
    name: String,
    at: usize,
    side: Side,
}

impl Kill {
    /// Sets the trap, lets `act` happen, and kills the daemon in the trap. Without the step, it lives a minute.
    async fn during(
        &self,
        world: &World<'_>,
        daemon: Daemon,
        act: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let caught = world.tape.trap.set(self.at, self.side);
        act.await?;
        // A trap that is not reached: the story has fewer steps
        let _ = timeout(Duration::from_secs(60), caught.notified()).await;
        daemon.crash().await;
        world.tape.trap.remove();
        Ok(())
    }
}

async fn at_every_step(api: &Api, what: &str, story: Story) -> anyhow::Result<()> {
    for at in 0..MOST_STEPS {
        for side in [Side::Before, Side::After] {
            let world = World::new(api);
            let kill = Kill { name: format!("web-{at}-{side:?}").to_lowercase(), at, side };
            let outcome = run(&world, &kill, story).await;
            outcome.with_context(|| {
                format!("{what}, killed {side:?} step {at}: {:?}", world.tape.of(&kill.name))
            })?;
        }
    }
    Ok(())
}

async fn run(world: &World<'_>, kill: &Kill, story: Story) -> anyhow::Result<()> {
    for name in ["n1", "n2"] {
        world.add_node(name).await?;
    }
    story(world, kill).await?;
    // Whatever happened, a new life brings everything in order
    let daemon = world.start(&[])?;
    let now = world.services().get_opt(&kill.name).await?;
    if let Some(service) = now.filter(|service| service.metadata.deletion_timestamp.is_none()) {
        let wants = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        if wants {
            let service = world.is_balanced(&kill.name).await?;
            ensure!(has_finalizer(&service), "no finalizer");
            let nodes = world.api_nodes().await?;
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            world.has_backends(&service, &nodes, SOON).await?;
            ensure!(world.cloud.load_balancers().len() == 1, "{:?}", world.cloud.load_balancers().keys());
        } else {
            let free = |one: &Service| !has_finalizer(one) && ingress(one).is_empty();
            world.becomes(&kill.name, SOON, "has nothing of a load balancer", free).await?;
            sleep(Duration::from_secs(5)).await;
            ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.cloud.load_balancers().keys());
        }
        world.delete(&kill.name).await?;
    }
    world.vanishes(&kill.name, SOON).await?;
    ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.cloud.load_balancers().keys());
    ensure!(world.tape.shown().is_empty(), "deleted while the status had addresses");
    daemon.stop().await?;
    for name in world.api_nodes().await? {
        world.delete_node(&name).await?;
    }
    Ok(())
}

impl World<'_> {
    async fn api_nodes(&self) -> anyhow::Result<Vec<String>> {
        let all = crate::support::nodes(&self.api.client).list(&kube::api::ListParams::default()).await?;
        Ok(all.into_iter().filter_map(|node| node.metadata.name).collect())
    }
}

fn made<'a>(world: &'a World<'_>, kill: &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        let act = async { world.balanced(&kill.name).await.map(drop) };
        kill.during(world, world.start(&[])?, act).await
    }
    .boxed_local()
}

fn deleted_meanwhile<'a>(world: &'a World<'_>, kill: &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        made(world, kill).await?;
        world.delete(&kill.name).await
    }
    .boxed_local()
}

fn changed_meanwhile<'a>(world: &'a World<'_>, kill: &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        made(world, kill).await?;
        world.change(&kill.name, json!({"spec": {"type": "ClusterIP"}})).await.map(drop)
    }
    .boxed_local()
}

fn deleted<'a>(world: &'a World<'_>, kill: &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        let daemon = world.start(&[])?;
        world.with_load_balancer(&kill.name).await?;
        kill.during(world, daemon, world.delete(&kill.name)).await
    }
    .boxed_local()
}

fn changed<'a>(world: &'a World<'_>, kill: &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        let daemon = world.start(&[])?;
        world.with_load_balancer(&kill.name).await?;
        let plain = json!({"spec": {"type": "ClusterIP"}});
        kill.during(world, daemon, async { world.change(&kill.name, plain).await.map(drop) }).await
    }
    .boxed_local()
}

fn nodes_change<'a>(world: &'a World<'_>, kill: &'a Kill) -> LocalBoxFuture<'a, anyhow::Result<()>> {
    async move {
        let daemon = world.start(&[])?;
        world.with_load_balancer(&kill.name).await?;
        let act = async {
            world.add_node("n3").await?;
            sleep(Duration::from_secs(1)).await;
            world.delete_node("n1").await
        };
        kill.during(world, daemon, act).await
    }
    .boxed_local()
}

/// The API server has written, and the daemon dies before it knows.
async fn lost_answers(api: &Api) -> anyhow::Result<()> {
    for number in 0..6_u64 {
        let world = World::new(api);
        let kill = Kill { name: format!("web-{number}"), at: usize::MAX, side: Side::After };
        let daemon = world.start(&[])?;
        let writes = Matcher::any().verb("patch").resource("services");
        faults(api)?.inject(sandbox::Fault::new(writes.clone(), Action::LoseResponse).times(number % 3 + 1));
        world.balanced(&kill.name).await?;
        sleep(Duration::from_millis(200) * u32::try_from(number)?).await;
        daemon.crash().await;
        faults(api)?.clear();
        if number % 2 == 0 {
            world.delete(&kill.name).await?;
        }
        run(&world, &kill, |_, _| async { Ok(()) }.boxed_local())
            .await
            .with_context(|| format!("round {number}"))?;
    }
    Ok(())
}

/// While the finalizer is written, the Service is replaced by another one of the same name, or deleted.
async fn older_service(api: &Api) -> anyhow::Result<()> {
    for (number, is_replaced) in [true, false].into_iter().enumerate() {
        let world = World::with_nodes(api, &[&format!("n{number}")]).await?;
        let daemon = world.start(&[])?;
        let writes = Matcher::any().verb("patch").resource("services");
        faults(api)?.inject(sandbox::Fault::new(writes, Action::Delay(Duration::from_secs(3))).times(1));
        let name = format!("web-{number}");
        let others = json!({"finalizers": ["example.com/others"]});
        let metadata = if is_replaced { json!({}) } else { others };
        let old = world.create_with(&name, metadata, json!({"type": "LoadBalancer"})).await?;
        sleep(Duration::from_secs(1)).await;
        world.delete(&name).await?;
        if is_replaced {
            world.balanced(&name).await?;
        }
        sleep(Duration::from_secs(20)).await;
        let is_of_old = |call: &Call| {
            call.operation == Operation::EnsureLoadBalancer && call.subject == load_balancer_name(&old)
        };
        let calls = world.cloud.calls();
        ensure!(!calls.iter().any(is_of_old), "made for one that is gone: {:?}", world.tape.of(&name));
        let unprotected = world.tape.unprotected();
        ensure!(unprotected.is_empty(), "{unprotected:?}: {:?}", world.tape.of(&name));
        daemon.crash().await;
        if !is_replaced {
            ensure!(world.tape.count(&name, "ensure") == 0, "{:?}", world.tape.of(&name));
            world.change(&name, json!({"metadata": {"finalizers": null}})).await?;
        }
        let daemon = world.start(&[])?;
        if is_replaced {
            world.is_balanced(&name).await?;
            world.delete(&name).await?;
        }
        world.vanishes(&name, SOON).await?;
        ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.cloud.load_balancers().keys());
        daemon.stop().await?;
    }
    Ok(())
}

/// Another leader has cleaned up a Service, and the watch of this one does not know yet. What this one makes of it has to
/// be found by the next one.
async fn stale_watch(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    let another_leader = async {
        world.change("web", json!({"spec": {"type": "ClusterIP"}})).await?;
        world.cloud.lose_load_balancer(&load_balancer_name(&service));
        world.change("web", json!({"metadata": {"finalizers": null}})).await?;
        // The watch of Nodes is up to date
        world.add_node("n2").await?;
        sleep(Duration::from_secs(20)).await;
        ensure!(world.tape.unprotected().is_empty(), "{:?}", world.tape.of("web"));
        Ok(())
    };
    world.unseen(another_leader).await?;
    daemon.crash().await;
    let daemon = world.start(&[])?;
    sleep(Duration::from_secs(60)).await;
    ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.tape.of("web"));
    daemon.stop().await
}

/// The write that lets a Service go is refused, or happens and its answer is lost. Then another Service gets the name.
async fn last_write(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    for action in [
        Action::LoseResponse,
        Action::ResetConnection,
        Action::ErrorEvent(404),
        Action::ErrorEvent(422),
        Action::Conflict,
        Action::InternalError,
    ] {
        let outcome = async {
            let first = world.with_load_balancer("web").await?;
            world.tape.clear();
            world.cloud.set_latency(Duration::from_secs(5));
            world.delete("web").await?;
            world.steps("web", "delete", 1).await?;
            let removal = Matcher::any().verb("patch").resource("services");
            faults(api)?.inject(sandbox::Fault::new(removal, action.clone()).times(1));
            world.cloud.set_latency(Duration::ZERO);
            // A 404 is believed for a minute: the watch will show it.
            world.vanishes("web", 2 * LONGEST_BELIEF).await?;
            ensure!(world.load_balancer(&first).is_none(), "it is left");
            let second = world.with_load_balancer("web").await?;
            ensure!(first.metadata.uid != second.metadata.uid);
            sleep(LONGEST_BELIEF).await;
            let now = world.get("web").await?;
            ensure!(has_finalizer(&now) && ingress(&now) == ingress(&second), "{now:?}");
            ensure!(world.load_balancer(&second).is_some(), "another Service's was deleted");
            world.delete("web").await?;
            world.vanishes("web", SOON).await
        };
        outcome.await.with_context(|| format!("{action:?}: {:?}", world.tape.of("web")))?;
        faults(api)?.clear();
    }
    daemon.stop().await
}
