//! Scenarios of the node-lifecycle controller.

mod breaker;
mod kubelets;

use std::time::Duration;

use anyhow::ensure;
use cloudprovider::{
    PowerState,
    testing::{Held, Operation},
};
use kube::api::DeleteParams;
use sandbox::kubelet;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    api::Api,
    daemon::InProcess,
    fake_cloud::{FakeCloud, Fault, Lookups, running, unavailable},
    scenarios::Trials,
    support::*,
};

const SOON: Duration = Duration::from_secs(20);

/// Short times, for tests that wait in real time.
const QUICK: [&str; 3] =
    ["--node-monitor-period=500ms", "--node-deletion-grace-period=1s", "--node-deletion-minimum-age=0s"];

/// The grace period of these.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) fn trials() -> Trials {
    Trials::new()
        .both("the_shutdown_taint_comes_and_goes", shutdown)
        .both("a_shutdown_taint_of_another_value_is_replaced", odd_shutdown_taint)
        .both("a_vanished_instance_takes_its_node_along", vanishes)
        .sandbox("an_unreachable_cloud_deletes_nothing", unreachable)
        .sandbox("the_label_keeps_a_node", label_keeps)
        .sandbox("a_node_that_recovers_while_the_cloud_is_asked_stays", recovers_meanwhile)
        .sandbox("a_young_node_stays", young)
        .sandbox("a_new_node_of_an_old_name_begins_anew", name_reused)
        .sandbox("what_a_new_daemon_has_never_seen_is_kept_longer", never_seen)
        .sandbox("what_nobody_pushes_is_found_in_a_period", vanishes_in_silence)
        .previous("the_shutdown_taint_comes_and_goes", shutdown)
        .previous("a_shutdown_taint_of_another_value_is_replaced", odd_shutdown_taint)
        .and(breaker::trials())
        .and(kubelets::trials())
}

/// A cluster of initialised Nodes `n0`, `n1`, ... whose kubelets have long been silent.
async fn silent_nodes(api: &Api, count: usize, flags: &[&str]) -> anyhow::Result<(FakeCloud, InProcess)> {
    let cloud = FakeCloud::new();
    for number in 0..count {
        cloud.put(&uuid(number), running(number));
        kubelet::register(&api.client, &kubelet::node(&format!("n{number}"), &uuid(number))).await?;
    }
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), flags)?;
    for number in 0..count {
        let name = format!("n{number}");
        node_becomes(&api.client, &name, SOON, "initialized", is_initialized).await?;
        set_ready_unknown(&api.client, &name).await?;
    }
    Ok((cloud, daemon))
}

async fn shutdown(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 1, &["--node-monitor-period=1h"]).await?;
    // The provider pushes changes, so the period does not matter.
    let tainted = |node: &_| has_taint(node, SHUTDOWN);
    cloud.change(&uuid(0), |machine| machine.power_state = PowerState::Off);
    let node = node_becomes(&api.client, "n0", SOON, "has the shutdown taint", tainted).await?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let ours = taints
        .iter()
        .find(|t| t.key == SHUTDOWN)
        .map(|t| (t.effect.as_str(), t.value.as_deref().unwrap_or("")));
    ensure!(ours == Some(("NoSchedule", "")), "{taints:?}");

    cloud.change(&uuid(0), |machine| machine.power_state = PowerState::Running);
    sleep(Duration::from_secs(2)).await;
    ensure!(tainted(&nodes(&api.client).get("n0").await?), "the taint waits for the kubelet");
    kubelet::heartbeat(&api.client, "n0", true).await?;
    node_becomes(&api.client, "n0", SOON, "has no shutdown taint", |node| !tainted(node)).await?;

    // A Ready Node is not tainted, whatever the power state.
    cloud.change(&uuid(0), |machine| machine.power_state = PowerState::Off);
    sleep(Duration::from_secs(2)).await;
    ensure!(!tainted(&nodes(&api.client).get("n0").await?));
    // Its kubelet reports NotReady, so it is tainted at once.
    kubelet::heartbeat(&api.client, "n0", false).await?;
    node_becomes(&api.client, "n0", SOON, "has the shutdown taint", tainted).await?;
    daemon.stop().await
}

/// A taint with upstream's key and effect counts, whichever client added it. It is replaced by upstream's own
/// form.
async fn odd_shutdown_taint(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 1, &["--node-monitor-period=1h"]).await?;
    let value = |node: &k8s_openapi::api::core::v1::Node| {
        let taints = node.spec.as_ref()?.taints.as_ref()?;
        let ours = taints.iter().find(|t| t.key == SHUTDOWN && t.effect == "NoSchedule")?;
        Some(ours.value.clone().unwrap_or_default())
    };
    let taints = json!({"spec": {"taints": [
        {"key": "example.com/others", "effect": "NoExecute", "value": "x"},
        {"key": SHUTDOWN, "effect": "NoSchedule", "value": "by-hand"},
    ]}});
    merge(&api.client, "n0", taints.clone()).await?;
    sleep(Duration::from_secs(1)).await;
    let node = nodes(&api.client).get("n0").await?;
    ensure!(value(&node).as_deref() == Some("by-hand"), "its machine runs: {:?}", node.spec);
    cloud.change(&uuid(0), |machine| machine.power_state = PowerState::Off);
    let is_upstreams = |node: &_| value(node).as_deref() == Some("");
    let node = node_becomes(&api.client, "n0", SOON, "has upstream's taint", is_upstreams).await?;
    ensure!(has_taint(&node, "example.com/others"), "{:?}", node.spec);
    // On a Ready Node it is removed, whatever its value.
    merge(&api.client, "n0", taints).await?;
    kubelet::heartbeat(&api.client, "n0", true).await?;
    node_becomes(&api.client, "n0", SOON, "has no shutdown taint", |node| !has_taint(node, SHUTDOWN)).await?;
    daemon.stop().await
}

async fn vanishes(api: &Api) -> anyhow::Result<()> {
    // The default rules: two look-ups, 5 s apart.
    let (cloud, daemon) = silent_nodes(api, 2, &["--node-deletion-minimum-age=0s"]).await?;
    let start = Instant::now();
    cloud.remove(&uuid(0));
    node_vanishes(&api.client, "n0", SOON).await?;
    ensure!(start.elapsed() >= Duration::from_secs(5), "deleted after {:?}", start.elapsed());
    nodes(&api.client).get("n1").await?;
    let deleting = event(&api.client, "default", "n0", "DeletingNode").await?;
    ensure!(
        deleting.message.as_deref()
            == Some("Deleting node n0 because it does not exist in the cloud provider"),
        "{:?}",
        deleting.message
    );
    ensure!(deleting.type_.as_deref() == Some("Normal"));
    ensure!(deleting.source.and_then(|s| s.component).as_deref() == Some("cloud-node-lifecycle-controller"));
    ensure!(api.requests.of("DELETE nodes") == 1);
    daemon.stop().await
}

/// The change is noticed long before the pass over all Nodes, which is every twelfth one.
async fn vanishes_in_silence(api: &Api) -> anyhow::Result<()> {
    let flags =
        ["--node-monitor-period=3s", "--node-deletion-grace-period=1s", "--node-deletion-minimum-age=0s"];
    let (cloud, daemon) = silent_nodes(api, 1, &flags).await?;
    // Wait until the look-ups because of the Node's change are over.
    sleep(Duration::from_secs(1)).await;
    cloud.lose(&uuid(0));
    node_vanishes(&api.client, "n0", SOON).await?;
    daemon.stop().await
}

async fn unreachable(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 2, &QUICK).await?;
    cloud.fail_lookups(unavailable("kvm1 is unreachable: broken pipe"));
    let says_why = |node: &_| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(status, _, words)| status == "Unknown" && words.contains("broken pipe"))
    };
    for name in ["n0", "n1"] {
        node_becomes(&api.client, name, SOON, "says why nothing is decided", says_why).await?;
    }
    node_stays(&api.client, "n0", Duration::from_secs(10)).await?;
    cloud.fail_lookups(None);
    let recovered =
        |node: &_| condition_status(node, "CloudProviderInstanceExists").as_deref() == Some("True");
    node_becomes(&api.client, "n0", SOON, "recovers", recovered).await?;
    ensure!(api.requests.of("DELETE nodes") == 0);
    daemon.stop().await
}

async fn label_keeps(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 1, &QUICK).await?;
    let label = "node.kubernetes.io/exclude-from-lifecycle-management";
    merge(&api.client, "n0", json!({"metadata": {"labels": {label: ""}}})).await?;
    changes_are_known(api, &cloud, "fence").await?;
    cloud.remove(&uuid(0));
    node_stays(&api.client, "n0", Duration::from_secs(8)).await?;
    event(&api.client, "default", "n0", "DeletionHeldBack").await?;
    merge(&api.client, "n0", json!({"metadata": {"labels": {label: null}}})).await?;
    node_vanishes(&api.client, "n0", SOON).await?;
    daemon.stop().await
}

async fn recovers_meanwhile(api: &Api) -> anyhow::Result<()> {
    let (cloud, daemon) = silent_nodes(api, 2, &QUICK).await?;
    sleep(Duration::from_secs(1)).await;
    for (number, name) in ["n0", "n1"].into_iter().enumerate() {
        let held = second_look(&cloud, number).await?;
        if number == 0 {
            kubelet::heartbeat(&api.client, name, true).await?;
        } else {
            let keep = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-lifecycle-management": "true"}}});
            merge(&api.client, name, keep).await?;
        }
        changes_are_known(api, &cloud, &format!("after-{name}")).await?;
        drop(held);
        node_stays(&api.client, name, Duration::from_secs(10)).await?;
    }
    daemon.stop().await
}

/// The machine of this Node is gone, and the look-up is under way whose answer would confirm the first one.
async fn second_look(cloud: &FakeCloud, number: usize) -> anyhow::Result<Held> {
    let name = format!("n{number}");
    let asked = async |calls: usize| {
        eventually(SOON, "the Node is looked up", || async {
            let since = cloud.calls().split_off(calls);
            Ok(since.iter().any(|call| call.nodes.contains(&name)).then_some(()))
        })
        .await
    };
    let held = cloud.hold(Operation::Lookup);
    let mut calls = cloud.calls().len();
    cloud.remove(&uuid(number));
    asked(calls).await?;
    let answered = Instant::now();
    loop {
        // What begins within the grace period confirms nothing.
        calls = cloud.calls().len();
        held.let_go();
        asked(calls).await?;
        if answered.elapsed() >= GRACE {
            return Ok(held);
        }
    }
}

/// Waits until the daemon knows all changes of Nodes so far: it asks for one with this name, which is registered after them.
async fn changes_are_known(api: &Api, cloud: &FakeCloud, name: &str) -> anyhow::Result<()> {
    kubelet::register(&api.client, &kubelet::node(name, &uuid(999))).await?;
    eventually(SOON, "the daemon asks for a later Node", || async {
        Ok(cloud.calls().iter().any(|call| call.nodes.iter().any(|one| one == name)).then_some(()))
    })
    .await
}

async fn young(api: &Api) -> anyhow::Result<()> {
    let flags =
        ["--node-monitor-period=500ms", "--node-deletion-grace-period=1s", "--node-deletion-minimum-age=8s"];
    let start = Instant::now();
    let (cloud, daemon) = silent_nodes(api, 1, &flags).await?;
    cloud.remove(&uuid(0));
    node_vanishes(&api.client, "n0", SOON).await?;
    // The time of its creation is in whole seconds.
    ensure!(start.elapsed() >= Duration::from_secs(7), "deleted after {:?}", start.elapsed());
    daemon.stop().await
}

async fn name_reused(api: &Api) -> anyhow::Result<()> {
    let flags = [
        "--node-monitor-period=500ms",
        "--node-deletion-grace-period=4s",
        "--node-deletion-unseen-grace-period=4s",
        "--node-deletion-minimum-age=0s",
    ];
    let (cloud, daemon) = silent_nodes(api, 1, &flags).await?;
    // Its machine has been gone for longer than the grace period, and it stays.
    let keep =
        json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-lifecycle-management": "true"}}});
    merge(&api.client, "n0", keep).await?;
    changes_are_known(api, &cloud, "fence").await?;
    cloud.remove(&uuid(0));
    sleep(Duration::from_secs(6)).await;
    // Replaced by a Node with the same name, whose machine is gone as well.
    let start = Instant::now();
    nodes(&api.client).delete("n0", &DeleteParams::default()).await?;
    let mut again = kubelet::node("n0", &uuid(7));
    again.spec.get_or_insert_default().provider_id = Some(format!("fake:///{}", uuid(7)));
    kubelet::register(&api.client, &again).await?;
    node_vanishes(&api.client, "n0", SOON).await?;
    ensure!(start.elapsed() >= Duration::from_secs(4), "deleted after {:?}", start.elapsed());
    daemon.stop().await
}

/// New credentials see less than the old ones, with a restart in between: a machine that the new daemon has
/// never seen may exist.
async fn never_seen(api: &Api) -> anyhow::Result<()> {
    let (cloud, before) = silent_nodes(api, 2, &QUICK).await?;
    before.stop().await?;
    cloud.lose(&uuid(0));
    let flags = [&QUICK[..], &["--node-deletion-unseen-grace-period=24h"]].concat();
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &flags)?;
    let kept = |node: &_| {
        condition(node, "CloudProviderInstanceExists")
            .is_some_and(|(status, reason, _)| status == "False" && reason == "InstanceNeverSeen")
    };
    node_becomes(&api.client, "n0", Duration::from_secs(10), "says why it is kept", kept).await?;
    event(&api.client, "default", "n0", "DeletionHeldBack").await?;
    // The Node of a machine that it has seen goes as soon as usual.
    cloud.remove(&uuid(1));
    node_vanishes(&api.client, "n1", Duration::from_secs(10)).await?;
    ensure!(nodes(&api.client).get("n0").await.is_ok(), "not yet");
    daemon.stop().await?;
    // Where it is not kept as long, it goes.
    let flags = [&QUICK[..], &["--node-deletion-unseen-grace-period=8s"]].concat();
    let start = Instant::now();
    let daemon = InProcess::start(&api.daemon_client, cloud.provider(), &flags)?;
    node_vanishes(&api.client, "n0", SOON).await?;
    ensure!(start.elapsed() >= Duration::from_secs(8), "deleted after {:?}", start.elapsed());
    daemon.stop().await
}
