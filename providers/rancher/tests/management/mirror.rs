//! Clusters whose machines Rancher does not make: the mirrors of their Nodes on a real API server.

use cloudprovider::NodeIdentity;
use serde_json::json;

use crate::{
    management_cluster::ManagementCluster,
    rancher::{Fault, TOKEN, VIEWER},
    support::{addresses_of, id_of, node, node_with_id, start},
};

const GROUP: &str = "management.cattle.io/v3";

impl ManagementCluster {
    /// How often the nodes were listed by `/v3`.
    fn listings(&self) -> usize {
        self.rancher.server().calls.get("nodes").copied().unwrap_or_default()
    }
}

#[tokio::test]
async fn nodes_of_an_imported_cluster_are_watched() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    let mut ids = Vec::new();
    for n in 1..=5 {
        ids.push(cluster.mirror(&format!("machine-{n}"), &format!("node-{n}")).await);
    }
    let running = cluster.provider("pollInterval: 1h\npageSize: 2\n").await;
    for (n, id) in (1..=5).zip(&ids) {
        let instance = running.instance(&node(&format!("node-{n}"))).await;
        assert_eq!(id_of(&instance), *id);
        // What the mirror shows is the Node's own, so nothing of it goes back.
        assert_eq!(addresses_of(&instance), ["InternalIP 10.9.9.9"]);
    }
    // No listing is due for a long time: this is the watch.
    let id = cluster.mirror("machine-6", "node-6").await;
    let joined = node_with_id("node-6", &id);
    running.until(&joined, "present").await;
    cluster.patch(GROUP, "nodes", "machine-6", &json!({"metadata": {"finalizers": ["example.org/a"]}})).await;
    cluster.delete(GROUP, "nodes", "machine-6").await;
    running.until(&joined, "present shutting").await;
    cluster.patch(GROUP, "nodes", "machine-6", &json!({"metadata": {"finalizers": null}})).await;
    let answer = running.until(&joined, "unknown unavailable").await;
    assert!(answer.contains("proves nothing"), "{answer}");
    assert_eq!(running.answer(&node("node-7")).await, "absent", "no Node without an ID is ever deleted");
    // The server is away, and a Node joins meanwhile.
    cluster.rancher.go_away();
    let known = node_with_id("node-1", &ids[0]);
    running.until(&known, "unknown unavailable").await;
    cluster.mirror("machine-8", "node-8").await;
    cluster.rancher.come_back();
    running.until(&node("node-8"), "present").await;
    running.until(&known, "present").await;
    assert_eq!(cluster.listings(), 0, "no listing by /v3");
}

#[tokio::test]
async fn a_token_without_the_right_to_watch_lists() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    let id = cluster.rancher.add_node(&cluster.id, "node-1");
    let id = format!("rancher://{}", id.replace(':', "/"));
    let config = cluster.rancher.config(&cluster.id, "").replace(TOKEN, VIEWER);
    let running = start(&config).await;
    assert_eq!(id_of(&running.instance(&node("node-1")).await), id);
    assert!(cluster.listings() > 0);
    // The right is given later: the same node is watched from the next listing on.
    let name = id.rsplit('/').next().unwrap_or_default();
    cluster.mirror(name, "node-1").await;
    cluster.mirror("machine-new", "node-2").await;
    cluster.allow("nodes", ("management.cattle.io", &["nodes"]), &["list", "watch"]).await;
    running.until(&node("node-2"), "present").await;
    assert_eq!(id_of(&running.instance(&node("node-1")).await), id);
}

/// One that cannot be read as an object does not hide all others.
#[tokio::test]
async fn an_object_that_cannot_be_read_leads_to_the_listing() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    cluster.mirror("machine-1", "node-1").await;
    let odd = json!({"spec": {"internalNodeSpec": {"providerID": 7}}});
    cluster.patch(GROUP, "nodes", "machine-1", &odd).await;
    cluster.rancher.add_node(&cluster.id, "node-1");
    let running = cluster.provider("").await;
    running.until(&node("node-1"), "present").await;
    assert!(cluster.listings() > 0);
}

#[tokio::test]
async fn a_machine_that_registers_before_kubernetes_brings_its_addresses() {
    let Some(cluster) = ManagementCluster::start_imported("custom").await else { return };
    let custom = json!({"address": "203.0.113.7", "internalAddress": "10.0.0.7", "sshKey": "a-key"});
    let object = json!({
        "apiVersion": GROUP, "kind": "Node", "metadata": {"name": "m-0123456789ab"},
        "spec": {"requestedHostname": "node-7", "customConfig": custom},
    });
    cluster.create(GROUP, "nodes", &object).await;
    let running = cluster.provider("").await;
    let node = NodeIdentity { name: "node-7".to_owned(), ..NodeIdentity::default() };
    let instance = running.instance(&node).await;
    assert_eq!(addresses_of(&instance), ["InternalIP 10.0.0.7", "ExternalIP 203.0.113.7"]);
}

/// Whatever the API server answers in place of the nodes, nobody is absent.
#[tokio::test]
async fn while_the_watch_fails_nobody_is_absent() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    let known = node_with_id("node-1", &cluster.mirror("machine-1", "node-1").await);
    let gone = node_with_id("node-9", &format!("rancher://{}/machine-9", cluster.id));
    let running = cluster.provider("").await;
    for fault in [
        Fault::error(500, "ServerError"),
        Fault::error(503, "ClusterUnavailable"),
        Fault::unauthorized(),
        Fault::login_page(),
        Fault::redirect(),
    ] {
        running.until(&known, "present").await;
        cluster.rancher.set_fault(Some(("/apis/management.cattle.io", fault)));
        for node in [&known, &gone, &node("node-9")] {
            let answer = running.until(node, "unknown").await;
            assert!(!answer.contains("battery") && !answer.contains("<!doctype"), "{answer}");
        }
        cluster.rancher.set_fault(None);
    }
}
