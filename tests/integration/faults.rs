//! Faults injected by the sandbox: in the end everything is correct, nothing is lost, and nothing is deleted
//! wrongly.

use std::time::Duration;

use anyhow::ensure;
use ccm::daemon::Parts;
use cloudprovider::PowerState;
use k8s_openapi::api::core::v1::Taint;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use sandbox::{Action, Fault, Matcher, Spoil, kubelet};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, Lookups, running, unavailable},
    scenarios::Trials,
    support::*,
};

pub(crate) const NODES: usize = 50;

pub(crate) fn trials() -> Trials {
    Trials::new()
        .sandbox("faulty_answers_delay_and_lose_nothing", faulty_answers)
        .sandbox("a_watch_that_breaks_is_taken_up_again", broken_watches)
        .sandbox("a_watch_that_is_refused_comes_back_in_seconds", refused_watches)
        .sandbox("what_a_watch_leaves_out_is_listed", spoilt_events)
        .sandbox("writes_to_a_node_that_was_replaced_end", replaced)
        .sandbox("an_event_that_cannot_be_written_delays_no_node", no_events)
        .sandbox("deletions_that_fail_are_tried_again", failed_deletion)
        .sandbox("a_write_that_is_always_refused_is_no_storm", refused)
        .sandbox("a_condition_that_is_lost_is_written_again", lost_condition)
        .sandbox("leases_that_cannot_be_read_prove_nothing", unreadable_leases)
        .sandbox("many_slow_writes_are_no_hanging", slow_writes)
        .sandbox("what_others_write_meanwhile_stays", written_meanwhile)
        .sandbox("a_provider_that_hangs_does_not_delay_the_end", hanging_end)
}

/// A cloud with a machine for each Node.
pub(crate) async fn cloud_with_nodes(api: &Api) -> anyhow::Result<FakeCloud> {
    let cloud = FakeCloud::new();
    for number in 0..NODES {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    Ok(cloud)
}

async fn start(api: &Api, flags: &[&str]) -> anyhow::Result<(FakeCloud, InProcess)> {
    let cloud = cloud_with_nodes(api).await?;
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), flags)?;
    Ok((cloud, daemon))
}

pub(crate) fn name(number: usize) -> String {
    format!("n{number}")
}

pub(crate) fn faults(api: &Api) -> anyhow::Result<sandbox::Faults> {
    Ok(api.sandbox.as_ref().ok_or_else(|| anyhow::anyhow!("only the sandbox has faults"))?.faults())
}

pub(crate) async fn all_initialized(api: &Api) -> anyhow::Result<()> {
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
        // A Node that is registered while there is no watch.
        let number = NODES + round;
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(0))).await?;
        let limit = Duration::from_secs(60);
        node_becomes(&api.client, &name(number), limit, "initialized", is_initialized).await?;
    }
    ensure!(api.requests.of("GET nodes") < 40, "no storm of lists: {}", api.requests.of("GET nodes"));
    daemon.stop().await
}

/// There is no watch for minutes, while all other requests succeed.
async fn refused_watches(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &[]).await?;
    all_initialized(api).await?;
    for verb in ["watch", "list"] {
        let nodes = Matcher::any().verb(verb).resource("nodes");
        faults(api)?.inject(Fault::new(nodes, Action::ServiceUnavailable));
    }
    faults(api)?.drop_watches();
    sleep(Duration::from_secs(600)).await;
    faults(api)?.clear();
    cloud.put(&uuid(NODES), running(NODES));
    kubelet::register(&api.client, &kubelet::node(&name(NODES), &uuid(NODES))).await?;
    let limit = Duration::from_secs(8);
    node_becomes(&api.client, &name(NODES), limit, "initialized", is_initialized).await?;
    daemon.stop().await
}

async fn spoilt_events(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &[]).await?;
    all_initialized(api).await?;
    sleep(Duration::from_secs(5)).await;
    for (spoil, first) in [(Spoil::Kind, NODES), (Spoil::Cut, NODES + 2)] {
        faults(api)?.spoil_events(spoil, 1);
        for number in [first, first + 1] {
            cloud.put(&uuid(number), running(number));
            kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
        }
        for number in [first, first + 1] {
            let limit = Duration::from_secs(10);
            node_becomes(&api.client, &name(number), limit, "initialized", is_initialized).await?;
        }
        sleep(Duration::from_secs(5)).await;
    }
    daemon.stop().await
}

/// There is no watch, and some Nodes have been replaced by others of the same name.
async fn replaced(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &["--node-monitor-period=500ms"]).await?;
    all_initialized(api).await?;
    // The cloud cannot tell, so the Nodes wait for a condition.
    for number in 0..3 {
        set_ready_unknown(&api.client, &name(number)).await?;
    }
    sleep(Duration::from_secs(5)).await;
    for verb in ["watch", "list"] {
        // This does not match requests about a single Node.
        let nodes = Matcher::any().verb(verb).resource("nodes").field_selector("");
        faults(api)?.inject(Fault::new(nodes, Action::ServiceUnavailable));
    }
    faults(api)?.drop_watches();
    for number in 0..3 {
        nodes(&api.client).delete(&name(number), &kube::api::DeleteParams::default()).await?;
        kubelet::register(&api.client, &kubelet::node(&name(number), &uuid(number))).await?;
    }
    let sandbox = api.sandbox.as_ref().ok_or_else(|| anyhow::anyhow!("only the sandbox has faults"))?;
    let writes = |number: usize| {
        sandbox.requests_matching(&Matcher::any().verb("patch").resource("nodes").name(&name(number))).len()
    };
    sandbox.reset_requests();
    let written = |most: usize| {
        for number in 0..3 {
            let (writes, name) = (writes(number), name(number));
            ensure!((1..=most).contains(&writes), "{writes} writes to {name}, which is not there any more");
        }
        sandbox.reset_requests();
        Ok(())
    };
    // Each Node needs a condition all the time.
    cloud.fail_lookups(unavailable("the cloud is away"));
    sleep(Duration::from_secs(30)).await;
    written(1)?;
    // A change at the cloud causes one more try, by the other controller.
    cloud.fail_lookups(None);
    for number in 0..3 {
        cloud.change(&uuid(number), |machine| *machine = running(77));
    }
    sleep(Duration::from_secs(20)).await;
    written(2)?;
    faults(api)?.clear();
    for number in 0..3 {
        let limit = Duration::from_secs(20);
        node_becomes(&api.client, &name(number), limit, "initialized", is_initialized).await?;
    }
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

async fn refused(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &[]).await?;
    all_initialized(api).await?;
    set_ready_unknown(&api.client, "n0").await?;
    faults(api)?.inject(Fault::new(Matcher::any().verb("patch").resource("nodes"), Action::Conflict));
    api.requests.reset();
    cloud.change(&uuid(0), |machine| machine.power_state = PowerState::Off);
    kubelet::register(&api.client, &kubelet::node("new", &uuid(1))).await?;
    sleep(Duration::from_secs(600)).await;
    let patches = api.requests.of("PATCH nodes") + api.requests.of("PATCH nodes/status");
    ensure!(patches < 100, "{patches} patches in 10 minutes");
    faults(api)?.clear();
    let limit = Duration::from_secs(90);
    node_becomes(&api.client, "n0", limit, "has the shutdown taint", |node| has_taint(node, SHUTDOWN))
        .await?;
    node_becomes(&api.client, "new", limit, "initialized", is_initialized).await?;
    daemon.stop().await
}

async fn lost_condition(api: &Api) -> anyhow::Result<()> {
    let cloud = FakeCloud::new();
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
    let writes = Matcher::any().verb("patch").resource("nodes").subresource("status");
    faults(api)?.inject(Fault::new(writes, Action::InternalError).times(1));
    kubelet::register(&api.client, &kubelet::node("n0", &uuid(0))).await?;
    let says_why = |node: &_| condition_status(node, "CloudProviderInitialized").as_deref() == Some("False");
    node_becomes(&api.client, "n0", Duration::from_secs(120), "says why it waits", says_why).await?;
    daemon.stop().await
}

/// If we cannot read a lease, the kubelet may not have been able to write it.
async fn unreadable_leases(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &["--node-deletion-minimum-age=0s"]).await?;
    all_initialized(api).await?;
    kubelet::heartbeat(&api.client, "n0", true).await?;
    kubelet::renew_lease(&api.client, "n0").await?;
    cloud.remove(&uuid(0));
    sleep(Duration::from_secs(6)).await;
    faults(api)?.inject(Fault::new(Matcher::any().resource("leases"), Action::InternalError));
    sleep(Duration::from_secs(21)).await;
    faults(api)?.clear();
    // The kubelet tries again some seconds later.
    node_stays(&api.client, "n0", Duration::from_secs(7)).await?;
    for _ in 0..3 {
        kubelet::renew_lease(&api.client, "n0").await?;
        node_stays(&api.client, "n0", Duration::from_secs(10)).await?;
    }
    daemon.stop().await
}

async fn hanging_end(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = start(api, &[]).await?;
    all_initialized(api).await?;
    cloud.set_latency(Duration::from_secs(3600));
    faults(api)?
        .inject(Fault::new(Matcher::any().resource("events"), Action::Delay(Duration::from_secs(3600))));
    sleep(Duration::from_secs(10)).await;
    let begin = Instant::now();
    daemon.stop().await?;
    ensure!(begin.elapsed() < Duration::from_secs(15), "the end took {:?}", begin.elapsed());
    Ok(())
}

/// Another client writes a Node while each of our two writes is in progress: ours is repeated, and the other
/// client's changes are kept.
async fn written_meanwhile(api: &Api) -> anyhow::Result<()> {
    const SLOW: Duration = Duration::from_secs(3);
    let status = Matcher::any().verb("patch").resource("nodes").subresource("status");
    let main = Matcher::any().verb("patch").resource("nodes").subresource("");
    for (number, slow) in [(0, status), (1, main)] {
        let (name, uuid) = (name(number), uuid(number));
        let cloud = FakeCloud::new();
        cloud.put(&uuid, running(number));
        faults(api)?.inject(Fault::new(slow, Action::Delay(SLOW)).times(1));
        let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &[])?;
        kubelet::register(&api.client, &kubelet::node(&name, &uuid)).await?;
        sleep(SLOW / 2).await;
        let before = nodes(&api.client).get(&name).await?;
        ensure!(!is_initialized(&before), "the write was not slow");
        let mut taints = before.spec.clone().unwrap_or_default().taints.unwrap_or_default();
        taints.push(Taint {
            key: "example.com/others".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
        let theirs = json!({"metadata": {"labels": {"example.com/others": "1"}}, "spec": {"taints": taints}});
        nodes(&api.client).patch(&name, &PatchParams::default(), &Patch::Merge(theirs)).await?;
        let written = Instant::now();
        let node = node_becomes(&api.client, &name, SLOW * 3, "initialized", is_initialized).await?;
        ensure!(written.elapsed() < SLOW, "it was tried again only after {:?}", written.elapsed());
        ensure!(has_taint(&node, "example.com/others"), "{:?}", node.spec);
        ensure!(node.labels().contains_key("example.com/others"), "{:?}", node.metadata.labels);
        ensure!(provider_id(&node) == Some(format!("fake:///{uuid}")) && addresses(&node).len() == 3);
        daemon.stop().await?;
    }
    Ok(())
}

/// With a low `--kube-api-qps` a round of writes takes minutes. The health checks must pass meanwhile: if the
/// leader were restarted, the round would never end.
async fn slow_writes(api: &Api) -> anyhow::Result<()> {
    const MANY: usize = 300;
    let cloud = FakeCloud::new();
    for number in 0..MANY {
        cloud.put(&uuid(number), running(number));
        let mut node = kubelet::node(&name(number), &uuid(number));
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some(format!("fake:///{}", uuid(number)));
        spec.taints = Some(vec![Taint {
            key: SHUTDOWN.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }]);
        kubelet::register(&api.client, &node).await?;
        kubelet::heartbeat(&api.client, &name(number), true).await?;
    }
    let patches = Matcher::any().verb("patch").resource("nodes");
    faults(api)?.inject(Fault::new(patches, Action::Delay(Duration::from_secs(20))));
    let parts = Parts::new(api.daemon_client.clone(), cloud.provider())?;
    let health = parts.health.clone();
    let start = Instant::now();
    let daemon = InProcess::start_parts(parts, &["--controllers=cloud-node-lifecycle-controller"])?;
    loop {
        sleep(Duration::from_secs(5)).await;
        for (name, _, check) in health.all() {
            check().map_err(|why| anyhow::anyhow!("{name} after {:?}: {why}", start.elapsed()))?;
        }
        let all = nodes(&api.client).list(&kube::api::ListParams::default()).await?;
        if !all.iter().any(|node| has_taint(node, SHUTDOWN)) {
            break;
        }
    }
    ensure!(start.elapsed() > Duration::from_secs(300), "the writes were not slow: {:?}", start.elapsed());
    daemon.stop().await
}
