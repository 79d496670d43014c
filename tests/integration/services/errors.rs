//! What the controller does with errors of the cloud and of the API server.

use std::time::Duration;

use anyhow::{Context, ensure};
use cloudprovider::{
    Error, ErrorKind, LoadBalancerStatus,
    testing::{Fault, Operation},
};
use sandbox::{Action, Matcher};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::world::*;
use crate::{api::Api, fake_cloud::unavailable, faults::faults, scenarios::Trials};

/// The time that the cloud asks for.
const RETRY_AFTER: Duration = Duration::from_secs(17);
const NEARLY_RETRY_AFTER: Duration = Duration::from_secs(16);
/// How late a timer may be.
const LATE: Duration = Duration::from_secs(1);
/// Upstream's pauses between tries: from 5 seconds, doubled up to 5 minutes.
const MAX_PAUSE: Duration = Duration::from_secs(300);

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::implemented_elsewhere_is_left_alone", elsewhere)
        .sandbox("services::an_error_is_told_and_tried_again", told)
        .sandbox("services::tries_are_further_and_further_apart", backoff)
        .sandbox("services::a_change_does_not_wait_for_the_pause", changed)
        .sandbox("services::the_time_that_the_cloud_asks_for_is_honoured", retry_after)
        .sandbox("services::what_the_cloud_cannot_do_is_said_once", unsupported)
        .sandbox("services::a_provider_that_panics_is_an_error_of_one_service", panics)
        .sandbox("services::refused_writes_are_tried_again", refused)
        .sandbox("services::a_service_that_vanishes_before_its_status_is_no_failure", no_status)
        .sandbox("services::a_call_that_never_ends_is_given_up", hangs)
        .sandbox("services::what_the_cloud_cannot_do_holds_no_node_back", unsupported_and_nodes)
        .sandbox("services::a_load_balancer_without_an_address_is_no_failure", empty)
}

async fn elsewhere(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let error = Error::implemented_elsewhere("kube-vip does this").wrap("ensure").wrap("once more");
    world.cloud.fail(Operation::EnsureLoadBalancer, Fault::Error(error));
    let daemon = world.start(&[])?;
    world.balanced("web").await?;
    world.steps("web", "ensure", 1).await?;
    // Whoever does it writes the status
    let ingress_of_others = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    world.change_status("web", ingress_of_others).await?;
    world.pause().await;
    let service = world.get("web").await?;
    ensure!(has_finalizer(&service) && ingress(&service) == ["192.0.2.1"], "{}", world.describe("web").await);
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    for reason in ["EnsuredLoadBalancer", "SyncLoadBalancerFailed"] {
        world.no_event("web", reason).await?;
    }
    ensure!(world.event("web", "EnsuringLoadBalancer").await?.count == 1);
    let error = Error::implemented_elsewhere("kube-vip does this").wrap("delete");
    world.cloud.fail(Operation::DeleteLoadBalancer, Fault::Error(error));
    world.delete("web").await?;
    world.vanishes("web", SOON).await?;
    world.no_event("web", "SyncLoadBalancerFailed").await?;
    daemon.stop().await
}

async fn told(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let words = "the management network is down";
    world.cloud.fail_next(Operation::EnsureLoadBalancer, unavailable(words));
    world.with_load_balancer("web").await?;
    let event = world.event("web", "SyncLoadBalancerFailed").await?;
    ensure!(event.kind == "Warning", "{event:?}");
    ensure!(
        event.message == format!("Error syncing load balancer: failed to ensure load balancer: {words}"),
        "{event:?}"
    );
    world.cloud.fail_next(Operation::GetLoadBalancer, unavailable(words));
    world.delete("web").await?;
    world.vanishes("web", SOON).await?;
    let message = format!(
        "Error syncing load balancer: failed to check if load balancer exists before cleanup: {words}"
    );
    let events = world.events("web").await?;
    ensure!(events.iter().any(|event| event.message == message), "{events:?}");
    world.with_load_balancer("other").await?;
    world.cloud.fail_next(Operation::DeleteLoadBalancer, unavailable(words));
    world.delete("other").await?;
    world.vanishes("other", SOON).await?;
    let message = format!("Error syncing load balancer: failed to delete load balancer: {words}");
    let events = world.events("other").await?;
    ensure!(events.iter().any(|event| event.message == message), "{events:?}");
    ensure!(world.cloud.load_balancers().is_empty());
    daemon.stop().await
}

async fn backoff(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    world.cloud.fail(Operation::EnsureLoadBalancer, unavailable("the cloud is away"));
    let daemon = world.start(&[])?;
    world.balanced("web").await?;
    sleep(Duration::from_secs(3600)).await;
    let times = world.tape.times("web", "ensure");
    let pauses: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    ensure!(pauses[0] >= Duration::from_secs(4) && pauses[0] <= Duration::from_secs(8), "{pauses:?}");
    ensure!(pauses.iter().all(|pause| *pause <= MAX_PAUSE + MAX_PAUSE / 4), "{pauses:?}");
    ensure!((12..=22).contains(&times.len()), "{} tries in an hour: {pauses:?}", times.len());
    ensure!(world.tape.count("web", "+finalizer") == 1, "{:?}", world.tape.of("web"));
    // A success starts again from the beginning
    world.cloud.mend();
    world.becomes("web", MAX_PAUSE * 2, "has an address", |one| !ingress(one).is_empty()).await?;
    world.cloud.fail(Operation::EnsureLoadBalancer, unavailable("away again"));
    world.tape.clear();
    world.change("web", json!({"metadata": {"annotations": {"example.com/a": "1"}}})).await?;
    sleep(Duration::from_secs(12)).await;
    ensure!(world.tape.count("web", "ensure") == 2, "{:?}", world.tape.of("web"));
    daemon.stop().await
}

/// Neither a change of the Service nor its deletion waits for the pause after a failure.
async fn changed(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    world.cloud.fail(Operation::EnsureLoadBalancer, unavailable("the cloud is away"));
    let daemon = world.start(&[])?;
    world.balanced("web").await?;
    sleep(Duration::from_secs(1000)).await;
    world.cloud.mend();
    world.change("web", json!({"metadata": {"annotations": {"example.com/a": "1"}}})).await?;
    world.becomes("web", Duration::from_secs(2), "has an address", |one| !ingress(one).is_empty()).await?;
    world.cloud.fail(Operation::EnsureLoadBalancer, unavailable("the cloud is away"));
    world.balanced("other").await?;
    sleep(Duration::from_secs(1000)).await;
    world.delete("other").await?;
    world.vanishes("other", Duration::from_secs(2)).await?;
    daemon.stop().await
}

/// Upstream loses the time in most places.
async fn retry_after(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let later = |words: &'static str| {
        let error = Error::in_progress(RETRY_AFTER, "still working").wrap(words).wrap("outermost");
        Fault::Error(error)
    };
    let check = |name: &str, what: &str, count: usize| {
        let times = world.tape.times(name, what);
        ensure!(times.len() == count, "{what}: {} tries: {:?}", times.len(), world.tape.of(name));
        for pair in times.windows(2) {
            let pause = pair[1] - pair[0];
            ensure!((RETRY_AFTER..=RETRY_AFTER + LATE).contains(&pause), "{what}: a pause of {pause:?}");
        }
        Ok(())
    };
    let limit = RETRY_AFTER * 6;
    // Four times, so that an exponential pause would show
    for _ in 0..4 {
        world.cloud.fail_next(Operation::EnsureLoadBalancer, later("ensure"));
    }
    world.balanced("web").await?;
    let service = world.becomes("web", limit, "has an address", |one| !ingress(one).is_empty()).await?;
    check("web", "ensure", 5)?;

    for _ in 0..3 {
        world.cloud.fail_next(Operation::UpdateLoadBalancer, later("update"));
        world.cloud.fail_next(Operation::EnsureLoadBalancer, later("ensure"));
    }
    world.tape.clear();
    world.add_node("n2").await?;
    sleep(NEARLY_RETRY_AFTER).await;
    let tries = |name: &str| world.tape.count(name, "update") + world.tape.count(name, "ensure");
    ensure!(tries("web") == 1, "{:?}", world.tape.of("web"));
    sleep(Duration::from_secs(2)).await;
    ensure!(tries("web") == 2, "{:?}", world.tape.of("web"));
    world.has_backends(&service, &["n1", "n2"], limit * 2).await?;
    world.cloud.mend();

    for (operation, step) in [(Operation::GetLoadBalancer, "get"), (Operation::DeleteLoadBalancer, "delete")]
    {
        let name = format!("by-{step}");
        world.with_load_balancer(&name).await?;
        sleep(Duration::from_secs(30)).await;
        world.tape.clear();
        for _ in 0..3 {
            world.cloud.fail_next(operation, later(step));
        }
        world.delete(&name).await?;
        world.vanishes(&name, limit).await?;
        check(&name, step, 4)?;
    }
    // The path of a Service that vanished
    world.with_load_balancer("vanished").await?;
    world.tape.clear();
    for _ in 0..3 {
        world.cloud.fail_next(Operation::DeleteLoadBalancer, later("delete"));
    }
    world.unseen(world.force_delete("vanished")).await?;
    sleep(limit).await;
    check("vanished", "delete", 4)?;
    daemon.stop().await
}

async fn unsupported(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let words = "this cloud has no UDP";
    let error = Error::unsupported(words).wrap("listener 53");
    world.cloud.fail(Operation::EnsureLoadBalancer, Fault::Error(error));
    let daemon = world.start(&[])?;
    let dns = json!({"type": "LoadBalancer", "ports": [{"port": 53, "protocol": "UDP"}]});
    world.create("dns", dns).await?;
    sleep(Duration::from_secs(3600)).await;
    let told = world.events("dns").await?;
    let told: Vec<&Told> = told.iter().filter(|event| event.message.contains(words)).collect();
    ensure!(told.len() == 1 && told[0].count == 1 && told[0].kind == "Warning", "{told:?}");
    let tries = world.tape.count("dns", "ensure");
    ensure!(tries <= 8, "{tries} tries in an hour");
    // Another Service, and another wish
    world.cloud.mend();
    let tcp = json!({"spec": {"ports": [{"port": 53, "protocol": "TCP"}]}});
    world.change("dns", tcp).await?;
    world.is_balanced("dns").await?;
    daemon.stop().await
}

async fn panics(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    for operation in [
        Operation::EnsureLoadBalancer,
        Operation::UpdateLoadBalancer,
        Operation::GetLoadBalancer,
        Operation::DeleteLoadBalancer,
    ] {
        world.cloud.fail_next(operation, Fault::Panic);
    }
    let service = world.with_load_balancer("web").await?;
    world.event("web", "SyncLoadBalancerFailed").await?;
    world.add_node("n2").await?;
    world.has_backends(&service, &["n1", "n2"], SOON).await?;
    world.delete("web").await?;
    world.vanishes("web", Duration::from_secs(60)).await?;
    ensure!(world.cloud.load_balancers().is_empty());
    daemon.stop().await
}

async fn refused(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let writes = Matcher::any().verb("patch").resource("services");
    for (number, action) in [
        Action::Conflict,
        Action::TooManyRequests(2),
        Action::InternalError,
        Action::ServiceUnavailable,
        Action::LoseResponse,
        Action::ResetConnection,
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("web-{number}");
        faults(api)?.inject(sandbox::Fault::new(writes.clone(), action.clone()).times(2));
        world.balanced(&name).await?;
        let limit = Duration::from_secs(60);
        let service = world.becomes(&name, limit, "has an address", |one| !ingress(one).is_empty()).await?;
        ensure!(
            world.tape.of(&name).iter().position(|step| step == "+finalizer")
                < world.tape.of(&name).iter().position(|step| step.starts_with("ensure")),
            "{action:?}: {:?}",
            world.tape.of(&name)
        );
        faults(api)?.inject(sandbox::Fault::new(writes.clone(), action).times(2));
        world.delete(&name).await?;
        world.vanishes(&name, limit).await?;
        ensure!(world.load_balancer(&service).is_none());
    }
    daemon.stop().await
}

async fn no_status(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    world.cloud.set_latency(Duration::from_secs(5));
    let daemon = world.start(&[])?;
    world.balanced("web").await?;
    world.steps("web", "ensure", 1).await?;
    world.force_delete("web").await?;
    sleep(Duration::from_secs(60)).await;
    ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.tape.of("web"));
    world.no_event("web", "SyncLoadBalancerFailed").await?;
    // The API server refuses an address for another type
    world.balanced("other").await?;
    world.steps("other", "ensure", 1).await?;
    world.change("other", json!({"spec": {"type": "ClusterIP"}})).await?;
    let begin = Instant::now();
    world.becomes("other", Duration::from_secs(60), "has no finalizer", |one| !has_finalizer(one)).await?;
    ensure!(
        begin.elapsed() < crate::support::patience(Duration::from_secs(30)),
        "only after {:?}",
        begin.elapsed()
    );
    ensure!(world.cloud.load_balancers().is_empty(), "{:?}", world.tape.of("other"));
    daemon.stop().await
}

async fn empty(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    world.cloud.set_load_balancer_status(LoadBalancerStatus::default());
    let daemon = world.start(&[])?;
    world.balanced("web").await?;
    world.event("web", "EnsuredLoadBalancer").await?;
    sleep(Duration::from_secs(60)).await;
    ensure!(world.tape.of("web") == ["+finalizer", "ensure n1"], "{:?}", world.tape.of("web"));
    // An error that is none of the special ones
    world
        .cloud
        .fail_next(Operation::EnsureLoadBalancer, Fault::Error(Error::new(ErrorKind::NotFound, "nothing")));
    world.change("web", json!({"metadata": {"annotations": {"example.com/a": "1"}}})).await?;
    let event = world.event("web", "SyncLoadBalancerFailed").await?;
    ensure!(event.message.ends_with("failed to ensure load balancer: nothing"), "{event:?}");
    world.steps("web", "ensure", 3).await.context("it is tried again")?;
    daemon.stop().await
}

async fn hangs(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    world.cloud.fail_next(Operation::EnsureLoadBalancer, Fault::Hang);
    world.cloud.fail_next(Operation::EnsureLoadBalancer, Fault::HangThenPanic);
    let daemon = world.start(&[])?;
    for name in ["stuck", "other"] {
        world.balanced(name).await?;
    }
    world.with_load_balancer("fine").await?;
    let limit = Duration::from_secs(1800);
    for name in ["stuck", "other"] {
        world.becomes(name, limit, "has an address", |one| !ingress(one).is_empty()).await?;
        world.event(name, "SyncLoadBalancerFailed").await?;
    }
    world.cloud.fail_next(Operation::DeleteLoadBalancer, Fault::Hang);
    world.delete("stuck").await?;
    world.vanishes("stuck", limit).await?;
    // It does not hold up the end either
    world.cloud.fail(Operation::DeleteLoadBalancer, Fault::Hang);
    world.delete("other").await?;
    world.steps("other", "delete", 1).await?;
    let begin = Instant::now();
    daemon.stop().await?;
    ensure!(
        begin.elapsed() < crate::support::patience(Duration::from_secs(15)),
        "the end took {:?}",
        begin.elapsed()
    );
    world.cloud.mend();
    let daemon = world.start(&[])?;
    world.vanishes("other", SOON).await?;
    ensure!(world.tape.overlaps().is_empty(), "two calls at once for {:?}", world.tape.overlaps());
    daemon.stop().await
}

/// Its load balancer is there, with what was asked for before.
async fn unsupported_and_nodes(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1", "n2"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    world.cloud.fail(Operation::EnsureLoadBalancer, Fault::Error(Error::unsupported("no such size")));
    world.change("web", json!({"metadata": {"annotations": {"example.com/size": "huge"}}})).await?;
    world.event("web", "SyncLoadBalancerFailed").await?;
    let taint = json!({"spec": {"taints": [{"key": TO_BE_DELETED, "effect": "NoSchedule"}]}});
    world.change_node("n1", taint).await?;
    world.has_backends(&service, &["n2"], SOON).await?;
    // The same for a cloud that is away for changes only
    world.cloud.fail(Operation::EnsureLoadBalancer, unavailable("no changes today"));
    world.change("web", json!({"metadata": {"annotations": {"example.com/size": "small"}}})).await?;
    sleep(Duration::from_secs(300)).await;
    world.change_node("n1", json!({"spec": {"taints": null}})).await?;
    world.has_backends(&service, &["n1", "n2"], SOON).await?;
    daemon.stop().await
}
