//! Which Nodes are behind a load balancer, and which changes of Nodes reach the cloud.

use std::time::Duration;

use anyhow::{Context, ensure};
use sandbox::kubelet;
use serde_json::json;
use tokio::time::sleep;

use super::world::*;
use crate::{api::Api, fake_cloud::unavailable, scenarios::Trials, support::set_ready_unknown};
use cloudprovider::{Error, testing::Operation};

pub(super) fn trials() -> Trials {
    Trials::new()
        .sandbox("services::which_nodes_are_back_ends", predicates)
        .sandbox("services::nodes_that_come_and_go", come_and_go)
        .both("services::a_node_that_drains_leaves_at_once", drains)
        .sandbox("services::changes_of_nodes_that_do_not_matter_cost_nothing", irrelevant)
        .sandbox("services::without_nodes_a_service_is_warned", no_nodes)
        .sandbox("services::a_failed_update_of_nodes_is_tried_again", failed)
        .sandbox("services::an_update_that_another_component_does_is_quiet", elsewhere)
}

/// The label's values and whether a Node with it is a back end. Control-plane Nodes are nothing special.
const LABELS: [(&str, &str, bool); 12] = [
    ("l-empty", "", false),
    ("l-true", "true", false),
    ("l-upper-true", "TRUE", false),
    ("l-one", "1", false),
    ("l-yes", "yes", false),
    ("l-odd", "fALSE", false),
    ("l-false", "false", true),
    ("l-title-false", "False", true),
    ("l-upper-false", "FALSE", true),
    ("l-f", "f", true),
    ("l-upper-f", "F", true),
    ("l-zero", "0", true),
];

async fn predicates(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["plain", "unready", "cordoned", "no-id", "control-plane"]).await?;
    for (name, value, _) in LABELS {
        world.add_node(name).await?;
        world.change_node(name, json!({"metadata": {"labels": {EXCLUDED: value}}})).await?;
    }
    set_ready_unknown(&api.client, "unready").await?;
    world.change_node("cordoned", json!({"spec": {"unschedulable": true}})).await?;
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    world.change_node("control-plane", role).await?;
    // A Node that nobody has initialised: no provider ID, with taints
    kubelet::register(&api.client, &kubelet::node("uninitialized", "5a3c0de0-0000-4000-8000-00000000ffff"))
        .await?;
    for effect in ["NoSchedule", "NoExecute", "PreferNoSchedule"] {
        let name = format!("drained-{}", effect.to_lowercase());
        world.add_node(&name).await?;
        world
            .change_node(&name, json!({"spec": {"taints": [{"key": TO_BE_DELETED, "effect": effect}]}}))
            .await?;
    }
    world.add_node("leaving").await?;
    world.change_node("leaving", json!({"metadata": {"finalizers": ["example.com/wait"]}})).await?;
    world.delete_node("leaving").await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    let mut wanted = vec!["plain", "unready", "cordoned", "no-id", "control-plane", "uninitialized"];
    wanted.extend(LABELS.iter().filter(|(_, _, is_in)| *is_in).map(|(name, ..)| *name));
    world.has_backends(&service, &wanted, SOON).await?;
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    world.change_node("leaving", json!({"metadata": {"finalizers": null}})).await?;
    daemon.stop().await
}

async fn come_and_go(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1", "n2"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    world.has_backends(&service, &["n1", "n2"], SOON).await?;
    world.add_node("n3").await?;
    world.has_backends(&service, &["n1", "n2", "n3"], SOON).await?;
    world.delete_node("n1").await?;
    world.has_backends(&service, &["n2", "n3"], SOON).await?;
    for (value, wanted) in [("true", &["n3"][..]), ("false", &["n2", "n3"]), ("", &["n3"])] {
        world.change_node("n2", json!({"metadata": {"labels": {EXCLUDED: value}}})).await?;
        world.has_backends(&service, wanted, SOON).await.with_context(|| format!("label {value:?}"))?;
    }
    world.change_node("n2", json!({"metadata": {"labels": {EXCLUDED: null}}})).await?;
    world.has_backends(&service, &["n2", "n3"], SOON).await?;
    // Updates, and never a whole ensure
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    ensure!(world.tape.count("web", "update") == 6, "{:?}", world.tape.of("web"));
    let told = world.event("web", "UpdatedLoadBalancer").await?;
    ensure!(
        (told.kind.as_str(), told.message.as_str()) == ("Normal", "Updated load balancer with new hosts")
    );
    // Another machine under the same name has another provider ID
    world.add_node("n4").await?;
    world.has_backends(&service, &["n2", "n3", "n4"], SOON).await?;
    let updates = world.tape.count("web", "update");
    let mut other = kubelet::node("n5", "5a3c0de0-0000-4000-8000-000000000005");
    other.spec.get_or_insert_default().taints = None;
    crate::support::nodes(&api.client).create(&kube::api::PostParams::default(), &other).await?;
    world.has_backends(&service, &["n2", "n3", "n4", "n5"], SOON).await?;
    world.change_node("n5", json!({"spec": {"providerID": "fake:///n5"}})).await?;
    world.steps("web", "update", updates + 2).await?;
    world.pause().await;
    ensure!(world.tape.count("web", "update") == updates + 2, "{:?}", world.tape.of("web"));
    daemon.stop().await
}

/// Upstream waits for another reason to look at its Nodes again.
async fn drains(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1", "n2", "n3"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    let taint = json!({"spec": {"taints": [{"key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule"}]}});
    world.change_node("n1", taint).await?;
    let at_once = Duration::from_secs(3);
    world.has_backends(&service, &["n2", "n3"], at_once).await?;
    world.change_node("n1", json!({"spec": {"taints": null}})).await?;
    world.has_backends(&service, &["n1", "n2", "n3"], at_once).await?;
    world.change_node("n2", json!({"metadata": {"finalizers": ["example.com/wait"]}})).await?;
    world.delete_node("n2").await?;
    world.has_backends(&service, &["n1", "n3"], at_once).await?;
    let updates = world.tape.count("web", "update");
    world.change_node("n2", json!({"metadata": {"finalizers": null}})).await?;
    world.pause().await;
    ensure!(world.tape.count("web", "update") == updates, "{:?}", world.tape.of("web"));
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    daemon.stop().await
}

async fn irrelevant(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1", "n2"]).await?;
    let daemon = world.start(&[NO_VERIFICATION])?;
    world.with_load_balancer("web").await?;
    world.pause().await;
    world.tape.clear();
    for ready in [false, true, false] {
        kubelet::heartbeat(&api.client, "n1", ready).await?;
    }
    set_ready_unknown(&api.client, "n2").await?;
    for patch in [
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "example.com/t", "effect": "NoExecute"}]}}),
        json!({"metadata": {"labels": {"example.com/l": "1"}, "annotations": {"example.com/a": "1"}}}),
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"metadata": {"labels": {EXCLUDED: "false"}}}),
        json!({"metadata": {"labels": {EXCLUDED: "0"}}}),
    ] {
        world.change_node("n1", patch).await?;
    }
    // A Node that is no back end comes and goes
    let mut excluded = kubelet::node("n9", "5a3c0de0-0000-4000-8000-000000000009");
    excluded.metadata.labels.get_or_insert_default().insert(EXCLUDED.into(), String::new());
    kubelet::register(&api.client, &excluded).await?;
    world.delete_node("n9").await?;
    world.pause().await;
    ensure!(world.tape.of("web").is_empty(), "{:?}", world.tape.of("web"));
    daemon.stop().await
}

async fn no_nodes(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api);
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    let warned = world.event("web", "UnAvailableLoadBalancer").await?;
    ensure!(warned.kind == "Warning" && warned.message == "There are no available nodes for LoadBalancer");
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    world.add_node("n1").await?;
    world.has_backends(&service, &["n1"], SOON).await?;
    world.event("web", "UpdatedLoadBalancer").await?;
    world.delete_node("n1").await?;
    world.has_backends(&service, &[], SOON).await?;
    crate::support::eventually(SOON, "it is warned again", || async {
        let events = world.events("web").await?;
        let warnings = events.iter().filter(|event| event.reason == "UnAvailableLoadBalancer");
        Ok((warnings.map(|event| event.count).sum::<i32>() == 2).then_some(()))
    })
    .await?;
    daemon.stop().await
}

/// Upstream records the Nodes before the call, and relies on a whole ensure.
async fn failed(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    let service = world.with_load_balancer("web").await?;
    // No new reason comes: what failed is tried again by itself.
    for operation in [Operation::UpdateLoadBalancer, Operation::EnsureLoadBalancer] {
        world.cloud.fail(operation, unavailable("the cloud is away"));
    }
    for number in 2..25 {
        world.add_node(&format!("n{number}")).await?;
    }
    let told = world.event("web", "UpdateLoadBalancerFailed").await?;
    ensure!(told.kind == "Warning", "{told:?}");
    ensure!(
        told.message.starts_with("Error updating load balancer with new hosts [n1")
            && told.message.contains("[node names limited, total number of nodes: ")
            && told.message.ends_with("], error: the cloud is away"),
        "{told:?}"
    );
    sleep(Duration::from_secs(60)).await;
    world.cloud.mend();
    let all: Vec<String> = (1..25).map(|number| format!("n{number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    // The longest pause is five minutes
    world.has_backends(&service, &all, Duration::from_secs(310)).await?;
    // There is nothing left to do
    world.tape.clear();
    sleep(Duration::from_secs(500)).await;
    ensure!(
        world.tape.count("web", "update") + world.tape.count("web", "ensure") == 0,
        "{:?}",
        world.tape.of("web")
    );
    // The names are limited to twenty
    world.cloud.fail(Operation::UpdateLoadBalancer, unavailable("away again"));
    world.cloud.fail(Operation::EnsureLoadBalancer, unavailable("away again"));
    world.delete_node("n24").await?;
    sleep(Duration::from_secs(30)).await;
    let events = world.events("web").await?;
    let told =
        events.iter().find(|event| event.message.ends_with("error: away again")).context("no event")?;
    let mut names: Vec<&str> = all[..23].to_vec();
    names.sort_unstable();
    let shown = format!(
        "Error updating load balancer with new hosts [{} <3 more>] [node names limited, total number of nodes: 23], \
         error: away again",
        names[..20].join(" ")
    );
    // There may have been many such events by now
    let message = told.message.trim_start_matches("(combined from similar events): ");
    ensure!(message == shown, "{message} instead of {shown}");
    daemon.stop().await
}

async fn elsewhere(api: &Api) -> anyhow::Result<()> {
    let world = World::with_nodes(api, &["n1"]).await?;
    let daemon = world.start(&[])?;
    world.with_load_balancer("web").await?;
    let elsewhere = Error::implemented_elsewhere("another component does this").wrap("update");
    world.cloud.fail(Operation::UpdateLoadBalancer, cloudprovider::testing::Fault::Error(elsewhere));
    world.add_node("n2").await?;
    world.steps("web", "update", 1).await?;
    sleep(Duration::from_secs(300)).await;
    ensure!(world.tape.count("web", "update") == 1, "{:?}", world.tape.of("web"));
    ensure!(world.tape.count("web", "ensure") == 1, "{:?}", world.tape.of("web"));
    for reason in ["UpdatedLoadBalancer", "UpdateLoadBalancerFailed", "SyncLoadBalancerFailed"] {
        world.no_event("web", reason).await?;
    }
    daemon.stop().await
}
