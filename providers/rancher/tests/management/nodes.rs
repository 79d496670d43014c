//! Clusters whose machines Rancher does not make: `/v3/nodes` mirrors their Nodes.

use cloudprovider::{CloudProvider as _, Instances as _};
use serde_json::json;

use crate::{
    rancher::{FakeRancher, POWERLESS, TOKEN, VIEWER},
    support::{addresses_of, id_of, node, node_with_id, start},
};

#[tokio::test]
async fn a_node_gets_its_id_and_keeps_what_it_says_of_itself() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    let id = rancher.add_node("c-abcde", "node-1");
    rancher.add_node("local", "node-1");
    let running = start(&rancher.config("c-abcde", "")).await;
    let instance = running.instance(&node("node-1")).await;
    let provider_id = id_of(&instance);
    assert_eq!(provider_id, format!("rancher://{}", id.replace(':', "/")));
    // What the mirror shows is the Node's own, so nothing of it goes back.
    assert_eq!(addresses_of(&instance), ["InternalIP 10.9.9.9"]);
    assert_eq!((instance.metadata.zone, instance.metadata.instance_type), (None, None));
    assert!(running.provider.owns(&provider_id));
    assert_eq!(running.answer(&node_with_id("node-1", &provider_id)).await, "present running");
    assert_eq!(running.answer(&node("NODE-1")).await, "present running");
    let similar = running.answer(&node("node-1.example.org")).await;
    assert!(similar.starts_with("unknown ambiguous"), "{similar}");
    assert_eq!(running.answer(&node("node-2")).await, "absent", "no Node without an ID is ever deleted");
    for foreign in ["k3s://node-1", "rke2://node-1", "harvester://0", "rancher://0"] {
        assert!(!running.provider.owns(foreign), "{foreign}");
    }
}

#[tokio::test]
async fn a_node_without_a_machine_costs_one_listing() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    rancher.add_node("c-abcde", "node-1");
    let running = start(&rancher.config("c-abcde", "pollInterval: 1h\n")).await;
    running.until(&node("node-1"), "present").await;
    let listings = || rancher.server().calls["nodes"];
    let before = listings();
    for _ in 0..5 {
        assert_eq!(running.answer(&node("node-2")).await, "absent");
    }
    assert_eq!(listings(), before + 1);
}

/// Only clusters that Rancher provisions have names of Kubernetes.
#[tokio::test]
async fn an_imported_cluster_may_have_any_name() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "Our first / Cluster?", "");
    rancher.add_node("c-abcde", "node-1");
    let running = start(&rancher.config("c-abcde", "")).await;
    running.until(&node("node-1"), "present").await;
}

/// A node that registers before Kubernetes says its addresses itself.
#[tokio::test]
async fn a_machine_that_registers_before_kubernetes_brings_its_addresses() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "custom", "fleet-default");
    let id = rancher.add_node("c-abcde", "node-1");
    let custom = json!({"address": "203.0.113.7", "internalAddress": "10.0.0.7"});
    rancher.change_node(
        &id,
        &json!({"nodeName": null, "state": "registering", "transitioning": "yes", "customConfig": custom}),
    );
    let running = start(&rancher.config("c-abcde", "")).await;
    let mut node = node("node-1");
    node.annotations.clear();
    let instance = running.instance(&node).await;
    assert_eq!(addresses_of(&instance), ["InternalIP 10.0.0.7", "ExternalIP 203.0.113.7"]);
}

/// The mirror follows the Node, so it says nothing of the machine.
#[tokio::test]
async fn a_node_that_the_mirror_loses_is_never_absent() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    let id = rancher.add_node("c-abcde", "node-1");
    rancher.add_node("c-abcde", "node-2");
    let running = start(&rancher.config("c-abcde", "")).await;
    let known = node_with_id("node-1", &id_of(&running.instance(&node("node-1")).await));
    rancher.remove_node(&id);
    let answer = running.until(&known, "unknown unavailable").await;
    assert!(answer.contains("proves nothing"), "{answer}");
    let stranger = node_with_id("node-1", "rancher://c-abcde/0b5f0c4e-7a54-4f6a-9c5c-0e9f6f3a5d11");
    assert!(running.answer(&stranger).await.starts_with("unknown"));
    let other = running.answer(&node_with_id("node-1", "rancher://c-other/machine-00000")).await;
    assert!(other.contains("this daemon serves c-abcde"), "{other}");
}

#[tokio::test]
async fn stale_nodes_of_a_cluster_whose_agent_is_away_stay() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    rancher.add_node("c-abcde", "node-1");
    rancher.set_state("c-abcde", "unavailable");
    let running = start(&rancher.config("c-abcde", "")).await;
    running.until(&node("node-1"), "present").await;
    let answer = running.answer(&node("node-2")).await;
    assert!(answer.contains("does not reach the cluster"), "{answer}");
}

#[tokio::test]
async fn empty_lists_of_a_user_without_rights_prove_nothing() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    let id = rancher.add_node("c-abcde", "node-1");
    let known = node_with_id("node-1", &format!("rancher://{}", id.replace(':', "/")));
    let by_name = format!("url: {}\ntoken: {POWERLESS}\nclusterName: imported\n", rancher.url());
    let by_id = rancher.config("c-abcde", "").replace(TOKEN, POWERLESS);
    for config in [by_name, by_id] {
        let running = start(&config).await;
        for node in [&known, &node("node-1")] {
            let answer = running.until(node, "unknown unavailable").await;
            assert!(!answer.contains("listed yet"), "{answer}");
        }
    }
}

#[tokio::test]
async fn five_thousand_nodes_cost_a_few_calls() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    let nodes: Vec<_> = (0..5000).map(|n| format!("node-{n}")).collect();
    for name in &nodes {
        rancher.add_node("c-abcde", name);
        rancher.add_node("c-other", name);
    }
    let running = start(&rancher.config("c-abcde", "pollInterval: 1h\n")).await;
    running.until(&node("node-0"), "present").await;
    let before = rancher.calls();
    let all: Vec<_> = nodes.iter().map(|name| node(name)).collect();
    let answers = running.look_up(&all).await;
    assert!(answers.iter().all(|answer| crate::support::in_a_word(answer) == "present running"));
    let calls = rancher.server().calls.clone();
    assert_eq!((rancher.calls(), calls["nodes"]), (before, 5), "{calls:?}");
    assert!(before <= 8, "the cluster, what makes it, and five pages: {calls:?}");
}

/// `/apis/management.cattle.io` is for administrators.
#[tokio::test]
async fn a_user_who_is_no_administrator_lists_by_v3() {
    let rancher = FakeRancher::start().await;
    rancher.add_cluster("c-abcde", "imported", "fleet-default");
    let id = rancher.add_node("c-abcde", "node-1");
    let running = start(&rancher.config("c-abcde", "").replace(TOKEN, VIEWER)).await;
    let instance = running.instance(&node("node-1")).await;
    assert_eq!(id_of(&instance), format!("rancher://{}", id.replace(':', "/")));
    assert!(running.provider.limits()[0].contains("the token of an administrator"));
}
