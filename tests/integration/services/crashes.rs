//! The daemon is killed before and after each thing that it does to the world outside, and started again:
//! nothing leaks, and nothing is made twice.

use std::time::Duration;

use anyhow::{Context, ensure};
use cloudprovider::testing::{Call, Operation};
use k8s_openapi::api::core::v1::Service;
use sandbox::{Action, Matcher};
use serde_json::json;
use tokio::time::sleep;

use super::world::*;
use crate::{
    api::Api,
    faults::faults,
    scenarios::Trials,
    stage::{Kill, Side, at_every_step},
};

/// Longer than the daemon believes that an object is gone which the watch still shows.
const LONGEST_BELIEF: Duration = Duration::from_secs(120);

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::killed_while_a_load_balancer_is_made", async |api: &Api| {
            everywhere(api, 3, made).await
        })
        .sandbox("services::killed_and_the_service_is_deleted_before_the_next_start", async |api: &Api| {
            everywhere(api, 3, deleted_meanwhile).await
        })
        .sandbox("services::killed_and_the_type_changes_before_the_next_start", async |api: &Api| {
            everywhere(api, 3, changed_meanwhile).await
        })
        .sandbox("services::killed_while_a_service_is_deleted", async |api: &Api| {
            everywhere(api, 4, deleted).await
        })
        .sandbox("services::killed_while_the_type_changes", async |api: &Api| {
            everywhere(api, 4, changed).await
        })
        .sandbox("services::killed_while_nodes_change", async |api: &Api| {
            everywhere(api, 2, nodes_change).await
        })
        .sandbox("services::killed_after_each_lost_answer", lost_answers)
        .sandbox("services::the_last_finalizer_is_removed_whatever_the_answer", last_write)
        .sandbox("services::killed_after_a_write_for_an_older_service", older_service)
        .sandbox("services::killed_after_a_call_for_what_no_watch_has_told", stale_watch)
}

/// When to kill the daemon, and the Service that this is about.
struct Death {
    name: String,
    kill: Kill,
}

impl Death {
    /// Lets `act` happen, and kills the daemon. Whether it died where it was to die.
    async fn during(
        &self,
        world: &World<'_>,
        daemon: Daemon,
        act: impl Future<Output = anyhow::Result<()>>,
    ) -> anyhow::Result<bool> {
        self.kill.during((&world.tape.trap, &world.cloud), daemon, act).await
    }
}

/// Tells a story with the death of the daemon at one step after the other, of which there are at least so many. A story is what
/// happens in one life of a daemon, and what happens before the next one. It gives whether the daemon died where it was to die.
async fn everywhere(
    api: &Api,
    least: usize,
    story: impl AsyncFn(&World<'_>, &Death) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut lives = 0;
    let steps = at_every_step(async |at, side| {
        let (world, name) = (World::new(api), format!("web-{lives}"));
        lives += 1;
        let kill = Kill::Step(at, side);
        let death = Death { name, kill };
        let outcome = run(&world, &death, &story).await;
        outcome.with_context(|| format!("{kill:?}: {:?}", world.tape.of(&death.name)))
    });
    let steps = steps.await?;
    ensure!(steps >= least, "{steps} steps, and not {least}");
    Ok(())
}

async fn run(
    world: &World<'_>,
    death: &Death,
    story: impl AsyncFnOnce(&World<'_>, &Death) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    for name in ["n1", "n2"] {
        world.add_node(name).await?;
    }
    let is_dead = story(world, death).await?;
    // Whatever happened, a new life brings everything in order
    let daemon = world.start(&[])?;
    let now = world.services().get_opt(&death.name).await?;
    if let Some(service) = now.filter(|service| service.metadata.deletion_timestamp.is_none()) {
        let wants = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        if wants {
            let service = world.is_balanced(&death.name).await?;
            ensure!(has_finalizer(&service), "no finalizer");
            let nodes = world.api_nodes().await?;
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            world.has_backends(&service, &nodes, SOON).await?;
            ensure!(world.cloud.load_balancers().len() == 1, "{:?}", world.cloud.load_balancers().keys());
        } else {
            let free = |one: &Service| !has_finalizer(one) && ingress(one).is_empty();
            world.becomes(&death.name, SOON, "has nothing of a load balancer", free).await?;
            sleep(Duration::from_secs(5)).await;
            ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.cloud.load_balancers().keys());
        }
        world.delete(&death.name).await?;
    }
    world.vanishes(&death.name, SOON).await?;
    ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.cloud.load_balancers().keys());
    ensure!(world.tape.shown().is_empty(), "deleted while the status had addresses");
    daemon.stop().await?;
    for name in world.api_nodes().await? {
        world.delete_node(&name).await?;
    }
    Ok(is_dead)
}

impl World<'_> {
    async fn api_nodes(&self) -> anyhow::Result<Vec<String>> {
        let all = crate::support::nodes(&self.api.client).list(&kube::api::ListParams::default()).await?;
        Ok(all.into_iter().filter_map(|node| node.metadata.name).collect())
    }
}

async fn made(world: &World<'_>, death: &Death) -> anyhow::Result<bool> {
    let act = async { world.balanced(&death.name).await.map(drop) };
    death.during(world, world.start(&[])?, act).await
}

async fn deleted_meanwhile(world: &World<'_>, death: &Death) -> anyhow::Result<bool> {
    let is_dead = made(world, death).await?;
    world.delete(&death.name).await?;
    Ok(is_dead)
}

async fn changed_meanwhile(world: &World<'_>, death: &Death) -> anyhow::Result<bool> {
    let is_dead = made(world, death).await?;
    world.change(&death.name, json!({"spec": {"type": "ClusterIP"}})).await?;
    Ok(is_dead)
}

async fn deleted(world: &World<'_>, death: &Death) -> anyhow::Result<bool> {
    let daemon = world.start(&[])?;
    world.with_load_balancer(&death.name).await?;
    death.during(world, daemon, world.delete(&death.name)).await
}

async fn changed(world: &World<'_>, death: &Death) -> anyhow::Result<bool> {
    let daemon = world.start(&[])?;
    world.with_load_balancer(&death.name).await?;
    let plain = json!({"spec": {"type": "ClusterIP"}});
    death.during(world, daemon, async { world.change(&death.name, plain).await.map(drop) }).await
}

async fn nodes_change(world: &World<'_>, death: &Death) -> anyhow::Result<bool> {
    let daemon = world.start(&[])?;
    world.with_load_balancer(&death.name).await?;
    let act = async {
        world.add_node("n3").await?;
        sleep(Duration::from_secs(1)).await;
        world.delete_node("n1").await
    };
    death.during(world, daemon, act).await
}

/// The API server has written, and the daemon dies before it knows.
async fn lost_answers(api: &Api) -> anyhow::Result<()> {
    for number in 0..6_u64 {
        let world = World::new(api);
        let death = Death { name: format!("web-{number}"), kill: Kill::Step(usize::MAX, Side::After) };
        let daemon = world.start(&[])?;
        let writes = Matcher::any().verb("patch").resource("services");
        faults(api)?.inject(sandbox::Fault::new(writes.clone(), Action::LoseResponse).times(number % 3 + 1));
        world.balanced(&death.name).await?;
        sleep(Duration::from_millis(200) * u32::try_from(number)?).await;
        daemon.crash().await;
        faults(api)?.clear();
        if number % 2 == 0 {
            world.delete(&death.name).await?;
        }
        let outcome = run(&world, &death, async |_: &World<'_>, _: &Death| Ok(true)).await;
        outcome.with_context(|| format!("round {number}"))?;
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
