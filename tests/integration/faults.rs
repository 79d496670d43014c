//! The sandbox's injected faults: everything comes right in the end, nothing is lost, nothing is deleted by mistake.

use std::time::Duration;

use anyhow::ensure;
use futures::FutureExt;
use libtest_mimic::Trial;
use sandbox::{Action, Fault, Matcher, kubelet};
use tokio::time::sleep;

use crate::{
    api::{Api, Target},
    daemon::InProcess,
    fake_cloud::{FakeCloud, Machine},
    support::*,
    trial::on,
};

const NODES: usize = 50;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        on(Target::Sandbox, "faulty_answers_delay_and_lose_nothing", |api| faulty_answers(api).boxed_local()),
        on(Target::Sandbox, "a_watch_that_breaks_is_taken_up_again", |api| broken_watches(api).boxed_local()),
        on(Target::Sandbox, "an_event_that_cannot_be_written_delays_no_node", |api| {
            no_events(api).boxed_local()
        }),
        on(Target::Sandbox, "deletions_that_fail_are_tried_again", |api| failed_deletion(api).boxed_local()),
    ]
}

async fn start(api: &Api, flags: &[&str]) -> anyhow::Result<(FakeCloud, InProcess)> {
    let cloud = FakeCloud::new();
    for number in 0..NODES {
        cloud.put(&uuid(number), Machine::running(number));
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), flags)?;
    Ok((cloud, daemon))
}

fn name(number: usize) -> String {
    format!("n{number}")
}

fn faults(api: &Api) -> anyhow::Result<sandbox::Faults> {
    Ok(api.sandbox.as_ref().ok_or_else(|| anyhow::anyhow!("only the sandbox has faults"))?.faults())
}

async fn all_initialized(api: &Api) -> anyhow::Result<()> {
    for number in 0..NODES {
        let (name, limit) = (name(number), Duration::from_secs(600));
        let node = node_becomes(&api.client, &name, limit, "initialized", is_initialized).await?;
        ensure!(provider_id(&node) == Some(format!("fake:///{}", uuid(number))));
        ensure!(addresses(&node).len() == 3, "{:?}", addresses(&node));
        ensure!(condition_status(&node, "CloudProviderInitialized").as_deref() == Some("True"));
    }
    Ok(())
}

async fn faulty_answers(api: &Api) -> anyhow::Result<()> {
    for action in [
        Action::Conflict,
        Action::TooManyRequests(1),
        Action::InternalError,
        Action::ServiceUnavailable,
        Action::LoseResponse,
        Action::ResetConnection,
        Action::Delay(Duration::from_secs(2)),
    ] {
        let patches = Matcher::any().verb("patch").resource("nodes");
        faults(api)?.seed(7);
        faults(api)?.inject(Fault::new(patches, action.clone()).probability(0.4));
        let (_cloud, daemon) = start(api, &[]).await?;
        all_initialized(api).await?;
        faults(api)?.clear();
        daemon.stop().await?;
        for number in 0..NODES {
            nodes(&api.client).delete(&name(number), &kube::api::DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn broken_watches(api: &Api) -> anyhow::Result<()> {
    let (_cloud, daemon) = start(api, &[]).await?;
    all_initialized(api).await?;
    for round in 0..5 {
        if round % 2 == 0 {
            faults(api)?.drop_watches();
        } else {
            faults(api)?.expire();
        }
        // A Node that comes while the watch is away.
        let number = NODES + round;
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(0))).await?;
        let limit = Duration::from_secs(60);
        node_becomes(&api.client, &name(number), limit, "initialized", is_initialized).await?;
    }
    ensure!(api.requests.of("GET nodes") < 40, "no storm of lists: {}", api.requests.of("GET nodes"));
    daemon.stop().await
}

async fn no_events(api: &Api) -> anyhow::Result<()> {
    faults(api)?.inject(Fault::new(Matcher::any().resource("events"), Action::InternalError));
    let (_cloud, daemon) = start(api, &[]).await?;
    all_initialized(api).await?;
    daemon.stop().await
}

async fn failed_deletion(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &["--node-deletion-minimum-age=0s"]).await?;
    all_initialized(api).await?;
    let deletions = Matcher::any().verb("delete").resource("nodes");
    faults(api)?.inject(Fault::new(deletions, Action::InternalError).times(3));
    set_ready_unknown(&api.client, "n0").await?;
    cloud.remove(&uuid(0));
    node_vanishes(&api.client, "n0", Duration::from_secs(60)).await?;
    let failed = event(&api.client, "default", "n0", "DeletingNodeFailed").await?;
    ensure!(failed.message.as_deref().is_some_and(|m| m.starts_with("Failed deleting node n0: ")));
    sleep(Duration::from_secs(5)).await;
    let deleting = event(&api.client, "default", "n0", "DeletingNode").await?;
    ensure!(deleting.count == Some(1), "announced once");
    daemon.stop().await
}
