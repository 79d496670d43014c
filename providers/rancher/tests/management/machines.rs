//! Clusters that Rancher provisions: the Machines of a real API server.

use std::time::Duration;

use cloudprovider::{InstanceChange, Instances as _, NodeIdentity};
use futures::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    kinds::ClusterApi,
    management_cluster::ManagementCluster,
    rancher::{Fault, POWERLESS, TOKEN, VIEWER},
    support::{addresses_of, id_of, in_a_word, node, node_with_id, start},
};

/// A Node that Rancher's agent started a kubelet for: with the label, and nothing else yet.
fn labelled(name: &str, uid: &str) -> NodeIdentity {
    let labels = [("rke.cattle.io/machine".to_owned(), uid.to_owned())].into();
    NodeIdentity { labels, name: name.to_owned(), ..NodeIdentity::default() }
}

/// Rancher waits for the provider ID that the Node gets here. Nothing here waits for Rancher.
#[tokio::test]
async fn a_new_node_gets_everything_before_rancher_knows_it() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let uid = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1,fd00::1").await;
    let running = cluster.provider("").await;
    let instance = running.instance(&labelled("node-1", &uid)).await;
    let id = id_of(&instance);
    assert_eq!(id, format!("rancher://{}/{uid}", cluster.id));
    assert_eq!(
        addresses_of(&instance),
        ["InternalIP 10.0.0.1", "InternalIP fd00::1", "ExternalIP 203.0.113.1"]
    );
    let metadata = &instance.metadata;
    assert_eq!(metadata.instance_type.as_deref(), Some("CustomMachine"));
    assert_eq!((metadata.zone.as_deref(), metadata.region.as_deref()), (Some("rack-7"), Some("hall-1")));
    assert!(instance.incomplete.is_none() && !instance.power_state.is_shutdown());
    // Rancher copies the ID and knows the Node now. Everything stays.
    let node_ref = ClusterApi::V1Beta1.node("node-1");
    let change = json!({"spec": {"providerID": id}, "status": {"nodeRef": node_ref, "phase": "Running"}});
    cluster.patch("cluster.x-k8s.io/v1beta1", "machines", "custom-1", &change).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(id_of(&running.instance(&node_with_id("node-1", &id)).await), id);
    assert_eq!(id_of(&running.instance(&node("node-1")).await), id, "by its name");
    // A label that the kubelet made up.
    let answer = running.answer(&labelled("node-2", &uid)).await;
    assert!(answer.contains("is another node's"), "{answer}");
}

#[tokio::test]
async fn only_a_machine_that_is_gone_is_absent() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let uid = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    cluster.add_custom_machine("custom-2", "node-2", "10.0.0.2").await;
    let running = cluster.provider("").await;
    let known = node_with_id("node-1", &format!("rancher://{}/{uid}", cluster.id));
    running.until(&known, "present running").await;
    // Cluster API drains and deletes: the Machine is still there.
    let hold = json!({"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}});
    cluster.patch("cluster.x-k8s.io/v1beta1", "machines", "custom-1", &hold).await;
    let mut changes = running.provider.changes().expect("changes");
    cluster.delete("cluster.x-k8s.io/v1beta1", "machines", "custom-1").await;
    running.until(&known, "present shutting down").await;
    let told = timeout(test_env::PATIENCE, changes.next()).await.expect("in time").expect("a change");
    let InstanceChange::Changed(instances) = told else { panic!("{told:?}") };
    assert!(instances.iter().any(|instance| instance.provider_id == known.provider_id), "{instances:?}");
    // The Machine is gone, and its machine is not.
    let release = json!({"metadata": {"finalizers": null}});
    cluster.patch("cluster.x-k8s.io/v1beta1", "machines", "custom-1", &release).await;
    let answer = running.until(&known, "unknown").await;
    assert!(answer.contains("CustomMachine custom-1 is still there"), "{answer}");
    cluster.delete("rke.cattle.io/v1", "custommachines", "custom-1").await;
    running.until(&known, "absent").await;
    // That is remembered, so it costs no call.
    let calls = cluster.rancher.calls();
    for _ in 0..5 {
        assert_eq!(running.answer(&known).await, "absent");
    }
    assert_eq!(cluster.rancher.calls(), calls);
    // The last Machine: an empty list proves nothing.
    cluster.delete_custom_machine("custom-2").await;
    let answer = running.until(&known, "unknown unavailable").await;
    assert!(answer.contains("no machine at all"), "{answer}");
}

/// A machine that was never seen is confirmed by one listing, however many Nodes ask.
#[tokio::test]
async fn an_unknown_machine_is_confirmed_once() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let uid = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    let running = cluster.provider("").await;
    running.until(&node("node-1"), "present").await;
    let strangers: Vec<_> = (0..100)
        .map(|n| {
            node_with_id(
                &format!("old-{n}"),
                &format!("rancher://{}/{n:08}-7a54-4f6a-9c5c-0e9f6f3a5d11", cluster.id),
            )
        })
        .collect();
    let listings = || cluster.rancher.server().calls["machines"];
    let before = listings();
    for _ in 0..3 {
        let answers = running.look_up(&strangers).await;
        assert!(answers.iter().all(|answer| in_a_word(answer) == "absent"), "{answers:?}");
    }
    assert_eq!(listings(), before + 1);
    // Another machine took the name: which of the two the Node is, nobody knows.
    let reused = node_with_id("node-1", strangers[0].provider_id.as_deref().expect("an ID"));
    let answer = running.answer(&reused).await;
    assert!(answer.contains("is bound to this node"), "{answer}");
    let mine = node_with_id("node-1", &format!("rancher://{}/{uid}", cluster.id));
    assert_eq!(running.answer(&mine).await, "present running");
}

/// A management cluster that was restored has new UIDs, and Rancher has the old provider IDs.
#[tokio::test]
async fn a_restored_management_cluster_keeps_its_nodes() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let old = format!("rancher://{}/0b5f0c4e-7a54-4f6a-9c5c-0e9f6f3a5d11", cluster.id);
    cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    let change = json!({"spec": {"providerID": old}});
    cluster.patch("cluster.x-k8s.io/v1beta1", "machines", "custom-1", &change).await;
    let running = cluster.provider("").await;
    let instance = running.instance(&node_with_id("node-1", &old)).await;
    assert_eq!(id_of(&instance), old);
    // A Node that registers again gets the ID that Rancher has.
    assert_eq!(id_of(&running.instance(&node("node-1")).await), old);
    let foreign = json!({"spec": {"providerID": "rke2://node-1"}});
    cluster.patch("cluster.x-k8s.io/v1beta1", "machines", "custom-1", &foreign).await;
    let answer = running.until(&node("node-1"), "unknown conflict").await;
    assert!(answer.contains("rke2://node-1"), "{answer}");
}

/// The management cluster is made anew from a backup that is older than a Machine.
#[tokio::test]
async fn a_machine_that_a_restore_loses_is_not_absent() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let lost = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    let deleted = cluster.add_custom_machine("custom-2", "node-2", "10.0.0.2").await;
    cluster.add_custom_machine("custom-3", "node-3", "10.0.0.3").await;
    let known = |name: &str, uid: &str| node_with_id(name, &format!("rancher://{}/{uid}", cluster.id));
    let (lost, deleted) = (known("node-1", &lost), known("node-2", &deleted));
    let running = cluster.provider("").await;
    running.until(&lost, "present").await;
    cluster.rancher.go_away();
    running.until(&lost, "unknown").await;
    cluster.delete_custom_machine("custom-1").await;
    cluster.delete("provisioning.cattle.io/v1", "clusters", "prod").await;
    sleep(Duration::from_secs(1)).await;
    cluster.provision("prod").await;
    cluster.rancher.come_back();
    running.until(&deleted, "present").await;
    let answer = running.answer(&lost).await;
    assert!(answer.contains("was restored from a backup"), "{answer}");
    // What is deleted from then on is gone.
    cluster.delete_custom_machine("custom-2").await;
    running.until(&deleted, "absent").await;
    // A daemon that starts later did not see the restore. It sees that everything is younger than the Node.
    let running = cluster.provider("").await;
    running.until(&node("node-3"), "present").await;
    let answer = running.answer(&lost).await;
    assert!(answer.contains("younger than this node"), "{answer}");
}

/// The API server itself refuses, and the error names what the token may not see.
#[tokio::test]
async fn the_api_server_decides_what_a_token_may_see() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let uid = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    let known = node_with_id("node-1", &format!("rancher://{}/{uid}", cluster.id));
    cluster.rancher.add_node(&cluster.id, "node-1");
    let config = cluster.rancher.config(&cluster.id, "");
    // A token that sees no clusters is of no use at all.
    let running = start(&config.replace(TOKEN, POWERLESS)).await;
    running.until(&node("node-1"), "unknown unavailable").await;
    // A token that sees `/v3` and not what makes the cluster. An ID of a mirrored node would stay for ever.
    let config = config.replace(TOKEN, VIEWER);
    let running = start(&config).await;
    for node in [&known, &node("node-1")] {
        let answer = running.until(node, "unknown permission_denied").await;
        assert!(answer.contains("the right get on clusters (provisioning.cattle.io)"), "{answer}");
    }
    drop(running);
    // A token that sees that Rancher makes the cluster, and not its Machines: nothing is guessed.
    let read = ["list", "watch"];
    cluster.allow("clusters", ("provisioning.cattle.io", &["clusters"]), &["get"]).await;
    let running = start(&config).await;
    for node in [&known, &node("node-1")] {
        let answer = running.until(node, "unknown permission_denied").await.to_lowercase();
        assert!(answer.contains("machine") || answer.contains("rkebootstraps"), "{answer}");
    }
    drop(running);
    cluster.allow("machines", ("cluster.x-k8s.io", &["machines"]), &read).await;
    cluster.allow("bootstraps", ("rke.cattle.io", &["rkebootstraps"]), &read).await;
    let running = start(&config).await;
    let answer = running.until(&known, "unknown permission_denied").await.to_lowercase();
    assert!(answer.contains("custommachines"), "{answer}");
    cluster.allow("infrastructure", ("rke.cattle.io", &["custommachines"]), &read).await;
    running.until(&known, "present").await;
}

/// Later versions of Rancher have Cluster API's `v1beta2` only.
#[tokio::test]
async fn machines_of_another_version_are_read_too() {
    let Some(cluster) = ManagementCluster::start_with("prod", ClusterApi::V1Beta2).await else { return };
    let uid = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    // Infrastructure that is not Rancher's own: the Machine has the addresses.
    let mut foreign = cluster.machine("vm-2", "");
    let group = ("infrastructure.cluster.x-k8s.io", "v1");
    foreign["metadata"]["labels"] = json!({});
    foreign["spec"]["infrastructureRef"] = ClusterApi::V1Beta2.reference(group, "VSphereMachine", "vm-2");
    foreign["status"] = json!({
        "nodeRef": ClusterApi::V1Beta2.node("node-2"), "failureDomain": "rack-8",
        "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
    });
    cluster.create(ClusterApi::V1Beta2.group(), "machines", &foreign).await;
    let running = cluster.provider("").await;
    let instance = running.instance(&labelled("node-1", &uid)).await;
    assert_eq!(id_of(&instance), format!("rancher://{}/{uid}", cluster.id));
    assert_eq!(addresses_of(&instance), ["InternalIP 10.0.0.1", "ExternalIP 203.0.113.1"]);
    assert_eq!(instance.metadata.instance_type.as_deref(), Some("CustomMachine"));
    let other = NodeIdentity { annotations: [].into(), ..node("node-2") };
    let instance = running.instance(&other).await;
    assert_eq!(addresses_of(&instance), ["InternalIP 10.0.0.2"]);
    let metadata = &instance.metadata;
    assert_eq!(metadata.instance_type.as_deref(), Some("VSphereMachine"));
    assert_eq!(metadata.zone.as_deref(), Some("rack-8"));
    // What Rancher copies from the Node to its own machines does not go back.
    let copied = json!({"status": {
        "nodeRef": ClusterApi::V1Beta2.node("node-1"), "addresses": [{"type": "InternalIP", "address": "10.9.9.8"}],
    }});
    cluster.patch(ClusterApi::V1Beta2.group(), "machines", "custom-1", &copied).await;
    cluster.delete("rke.cattle.io/v1", "rkebootstraps", "custom-1").await;
    let known = node_with_id("node-1", &format!("rancher://{}/{uid}", cluster.id));
    let known = NodeIdentity { annotations: [].into(), ..known };
    let mut addresses = addresses_of(&running.instance(&known).await);
    while addresses.contains(&"InternalIP 10.0.0.1".to_owned()) {
        sleep(Duration::from_millis(20)).await;
        addresses = addresses_of(&running.instance(&known).await);
    }
    assert!(!addresses.contains(&"InternalIP 10.9.9.8".to_owned()), "{addresses:?}");
    cluster.delete(ClusterApi::V1Beta2.group(), "machines", "custom-1").await;
    cluster.delete("rke.cattle.io/v1", "custommachines", "custom-1").await;
    running.until(&known, "absent").await;
}

#[tokio::test]
async fn while_the_management_cluster_fails_nobody_is_absent() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let uid = cluster.add_custom_machine("custom-1", "node-1", "10.0.0.1").await;
    let running = cluster.provider("").await;
    let known = node_with_id("node-1", &format!("rancher://{}/{uid}", cluster.id));
    let gone = node_with_id("old", &format!("rancher://{}/0b5f0c4e-7a54-4f6a-9c5c-0e9f6f3a5d11", cluster.id));
    running.until(&known, "present").await;
    for (path, fault, expected) in [
        ("/", Fault::unauthorized(), "unknown unauthenticated"),
        ("/apis/cluster.x-k8s.io", Fault::error(503, "ClusterUnavailable"), "unknown unavailable"),
        ("/apis/rke.cattle.io", Fault::error(403, "PermissionDenied"), "unknown permission_denied"),
        ("/apis", Fault::login_page(), "unknown unavailable"),
        ("/apis", Fault::no_such_page(), "unknown unavailable"),
        ("/apis/provisioning.cattle.io", Fault::error(403, "Forbidden"), "unknown permission_denied"),
        (
            "/apis/cluster.x-k8s.io",
            Fault::error(429, "TooManyRequests").with_header("retry-after", "1"),
            "unknown rate_limited",
        ),
    ] {
        cluster.rancher.set_fault(Some((path, fault)));
        // The one that is gone first: what it asks for meets every fault, also if no watch had begun that
        // could break.
        for node in [&gone, &known, &node("node-1")] {
            running.until(node, expected).await;
        }
        cluster.rancher.set_fault(None);
        running.until(&known, "present").await;
    }
    cluster.rancher.go_away();
    running.until(&known, "unknown unavailable").await;
    // What happens meanwhile is seen later.
    let second = cluster.add_custom_machine("custom-2", "node-2", "10.0.0.2").await;
    cluster.delete_custom_machine("custom-1").await;
    assert!(running.answer(&known).await.starts_with("unknown"));
    cluster.rancher.come_back();
    running.until(&known, "absent").await;
    running.until(&node_with_id("node-2", &format!("rancher://{}/{second}", cluster.id)), "present").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_machines_cost_a_few_calls() {
    let Some(cluster) = ManagementCluster::start("prod").await else { return };
    let machines =
        stream::iter(0..5000).map(|n| {
            let cluster = &cluster;
            async move {
                cluster.add_custom_machine(&format!("custom-{n}"), &format!("node-{n}"), "10.0.0.1").await
            }
        });
    let uids: Vec<String> = machines.buffered(32).collect().await;
    let running = cluster.provider("refreshInterval: 1h\n").await;
    running.until(&node("node-0"), "present").await;
    let before = cluster.rancher.server().calls.clone();
    let nodes: Vec<_> = (0..)
        .zip(&uids)
        .map(|(n, uid)| node_with_id(&format!("node-{n}"), &format!("rancher://{}/{uid}", cluster.id)))
        .chain((0..5000).map(|n| node(&format!("node-{n}"))))
        .collect();
    let answers = running.look_up(&nodes).await;
    assert!(answers.iter().all(|answer| in_a_word(answer) == "present running"));
    let after = cluster.rancher.server().calls.clone();
    for kind in ["machines", "rkebootstraps", "custommachines"] {
        assert_eq!(before[kind], 5, "five pages: {before:?}");
        assert_eq!(after[kind], before[kind], "and no call for a Node");
    }
    // A change arrives by the watch.
    let change = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "rack-8"}}});
    cluster.patch("cluster.x-k8s.io/v1beta1", "machines", "custom-77", &change).await;
    for _ in 0..200 {
        if running.instance(&nodes[77]).await.metadata.zone.as_deref() == Some("rack-8") {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(running.instance(&nodes[77]).await.metadata.zone.as_deref(), Some("rack-8"));
    assert_eq!(cluster.rancher.server().calls["machines"], 5);
}
