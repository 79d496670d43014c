//! Clusters whose machines Rancher does not make: the mirrors of their Nodes on a real API server.

use std::time::Duration;

use cloudprovider::{CloudProvider as _, NodeIdentity};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    management_cluster::ManagementCluster,
    rancher::{Fault, TOKEN, VIEWER},
    support::{Warnings, addresses_of, id_of, node, node_with_id, start},
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

/// Only administrators may read the nodes below `/apis`, whatever roles grant.
#[tokio::test]
async fn a_token_of_no_administrator_lists_by_v3() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    cluster.allow("nodes", ("management.cattle.io", &["nodes"]), &["list", "watch"]).await;
    let id = cluster.mirror("machine-1", "node-1").await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let config = cluster.rancher.config(&cluster.id, "").replace(TOKEN, VIEWER);
    let running = start(&config).await;
    assert_eq!(id_of(&running.instance(&node("node-1")).await), id);
    // Nodes that join are listed, round by round.
    let joined = cluster.mirror("machine-2", "node-2").await;
    running.until(&node("node-2"), "present").await;
    assert!(cluster.listings() > 1);
    let limits = running.provider.limits();
    assert!(
        limits.len() == 1
            && limits[0].contains("listed every pollInterval instead")
            && limits[0].contains("the token of an administrator"),
        "{limits:?}"
    );
    assert_eq!(warnings.with("listed every pollInterval instead"), 1, "the log says so once");
    // The token expires, and another one of the same user takes its place.
    cluster.rancher.server().expired.insert(VIEWER);
    running.until(&node_with_id("node-2", &joined), "unknown unauthenticated").await;
    cluster.rancher.server().expired.clear();
    running.until(&node_with_id("node-2", &joined), "present").await;
    assert_eq!(warnings.with("listed every pollInterval instead"), 1);
    // The user becomes an administrator: the same nodes are watched from the next listing on.
    cluster.rancher.server().promoted.insert(VIEWER);
    while !cluster.rancher.server().calls.contains_key("watch nodes.management") {
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(id_of(&running.instance(&node("node-1")).await), id);
    assert_eq!(running.provider.limits(), Vec::<String>::new());
}

/// A token that is refused there may list all the same. A proxy that refuses says nothing about the token.
#[tokio::test]
async fn what_is_refused_below_apis_is_listed_by_v3() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    let known = node_with_id("node-1", &cluster.mirror("machine-1", "node-1").await);
    let running = cluster.provider("").await;
    for fault in [
        Fault::for_administrators(),
        Fault::unauthorized(),
        Fault { status: 401, ..Fault::for_administrators() },
    ] {
        running.until(&known, "present").await;
        let before = cluster.listings();
        // What was watched is refused from now on.
        cluster.rancher.set_fault(Some(("/apis/management.cattle.io", fault)));
        while cluster.listings() < before + 2 {
            sleep(Duration::from_millis(50)).await;
        }
        running.until(&known, "present").await;
        cluster.rancher.set_fault(None);
    }
    let before = cluster.listings();
    let proxy = Fault::refused_by_proxy();
    for fault in [proxy.clone(), Fault { body: String::new(), ..proxy }] {
        cluster.rancher.set_fault(Some(("/apis/management.cattle.io", fault)));
        let answer = running.until(&known, "unknown unavailable").await;
        assert!(answer.contains("perhaps by a proxy"), "{answer}");
    }
    assert_eq!(cluster.listings(), before, "not listed by /v3");
}

/// What is needed is said where neither way works.
#[tokio::test]
async fn a_token_that_sees_no_nodes_is_told_which_role_shows_them() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    let config = cluster.rancher.config(&cluster.id, "").replace(TOKEN, VIEWER);
    let running = start(&config).await;
    let answer = running.until(&node("node-1"), "unknown unavailable: the server lists no machine").await;
    assert!(answer.contains("nodes-view"), "{answer}");
    cluster.rancher.set_fault(Some(("/v3/nodes", Fault::error(403, "PermissionDenied"))));
    let answer = running.until(&node("node-1"), "unknown permission_denied").await;
    assert!(answer.contains("nodes-view"), "{answer}");
}

/// One that cannot be read as an object does not hide all others.
#[tokio::test]
async fn an_object_that_cannot_be_read_leads_to_the_listing() {
    let Some(cluster) = ManagementCluster::start_imported("imported").await else { return };
    cluster.mirror("machine-1", "node-1").await;
    let odd = json!({"spec": {"internalNodeSpec": {"providerID": 7}}});
    cluster.patch(GROUP, "nodes", "machine-1", &odd).await;
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
        Fault::refused_by_proxy(),
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
