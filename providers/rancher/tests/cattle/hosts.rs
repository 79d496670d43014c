//! Hosts: listing, events, and how many calls they cost.

use cloudprovider::{InstanceChange, Instances, NodeAddress};
use futures::StreamExt as _;
use serde_json::json;

use crate::{
    support::{in_a_word, node, present, start},
    testing::FakeCattle,
};

#[tokio::test]
async fn a_host_is_found_with_everything_and_its_changes_arrive() {
    let server = FakeCattle::start().await;
    let id = server.add_host("node-1.example.org", "10.0.0.1");
    server.add_host("another", "10.0.0.9");
    server.change_host(&id, json!({"labels": {"topology.kubernetes.io/zone": "rack-1"}}));
    let running = start(&server, "").await;
    let instance = present(running.look_up(&[node("node-1")]).await.remove(0));
    let provider_id = instance.provider_id.expect("an ID");
    assert_eq!(provider_id.as_str(), "rancher://7f3a1c52-9e0b-4d6a-8a53-000000000002");
    assert_eq!(instance.metadata.zone.as_deref(), Some("rack-1"));
    assert_eq!(
        instance.metadata.addresses,
        [NodeAddress::internal_ip("10.0.0.1"), NodeAddress::hostname("node-1.example.org")]
    );
    let mut changes = running.provider.changes().expect("changes");
    for (state, expected) in [("inactive", "present off"), ("active", "present running")] {
        server.change_host(&id, json!({"state": state}));
        let Some(InstanceChange::Changed(references)) = changes.next().await else { panic!("a change") };
        assert!(references.iter().any(|one| one.provider_id.as_deref() == Some(provider_id.as_str())));
        assert_eq!(running.answer(&node("node-1")).await, expected);
    }
    server.change_host(&id, json!({"agentState": "disconnected"}));
    running.until(&node("node-1"), "present off").await;
    server.remove_host(&id);
    running.until(&node("node-1"), "absent").await;
    server.add_host("node-2", "10.0.0.2");
    running.until(&node("node-2"), "present running").await;
}

#[tokio::test]
async fn five_thousand_hosts_cost_a_call_for_each_page() {
    let server = FakeCattle::start().await;
    for n in 0..5000 {
        server.cloud().add_host(&format!("node-{n}"), &format!("10.{}.{}.1", n / 250, n % 250));
    }
    let running = start(&server, "").await;
    let nodes: Vec<_> = (0..5000).map(|n| node(&format!("node-{n}"))).collect();
    for _ in 0..10 {
        let answers = running.look_up(&nodes).await;
        assert!(answers.iter().all(|answer| in_a_word(answer) == "present running"));
    }
    let calls = server.cloud().calls.clone();
    assert_eq!(calls.get("hosts"), Some(&5), "{calls:?}");
    assert_eq!(server.calls(), 6, "and one for the events: {calls:?}");
    // All absences of a batch are confirmed by one more listing.
    let missing: Vec<_> = (0..1000).map(|n| node(&format!("other-{n}"))).collect();
    let answers = running.look_up(&missing).await;
    assert!(answers.iter().all(|answer| in_a_word(answer) == "absent"));
    assert_eq!(server.cloud().calls.get("hosts"), Some(&10));
}

#[tokio::test]
async fn a_node_without_a_host_costs_one_listing() {
    let server = FakeCattle::start().await;
    server.add_host("node-1", "10.0.0.1");
    let running = start(&server, "").await;
    running.until(&node("node-1"), "present").await;
    let listings = || *server.cloud().calls.get("hosts").unwrap_or(&0);
    for name in ["node-2", "node-3"] {
        let before = listings();
        for _ in 0..50 {
            assert_eq!(running.answer(&node(name)).await, "absent");
            // Others that have none either do not make it forgotten.
            assert_eq!(running.answer(&node("node-2")).await, "absent");
        }
        assert_eq!(listings(), before + 1, "{name}");
    }
    // An event brings its host, and takes it away. Then it is asked for again.
    let id = server.add_host("node-2", "10.0.0.2");
    running.until(&node("node-2"), "present running").await;
    let before = listings();
    server.remove_host(&id);
    running.until(&node("node-2"), "absent").await;
    assert_eq!(listings(), before + 1);
    assert_eq!(running.answer(&node("node-3")).await, "absent");
    assert_eq!(listings(), before + 1, "the other one is still known");
}

#[tokio::test]
async fn without_events_the_hosts_are_still_found() {
    let server = FakeCattle::start().await;
    server.cloud().no_events = true;
    server.add_host("node-1", "10.0.0.1");
    let running = start(&server, "").await;
    assert_eq!(running.answer(&node("node-1")).await, "present running");
    assert_eq!(running.answer(&node("node-2")).await, "absent");
}

#[tokio::test]
async fn a_host_without_an_agents_address_is_asked_for_its_own() {
    let server = FakeCattle::start().await;
    let id = server.add_host("node-1", "10.0.0.1");
    server.change_host(&id, json!({"agentIpAddress": null, "ips_of_test": ["10.0.0.7", "10.0.0.8"]}));
    // They come on two pages.
    let running = start(&server, "pageSize: 1\naddresses: {types: both}\nzones: {legacyZones: true}\n").await;
    // They are read after the listing.
    let mut metadata = present(running.look_up(&[node("node-1")]).await.remove(0)).metadata;
    for _ in 0..100 {
        if metadata.addresses.len() > 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        metadata = present(running.look_up(&[node("node-1")]).await.remove(0)).metadata;
    }
    let shown: Vec<_> =
        metadata.addresses.iter().map(|one| format!("{} {}", one.address_type, one.address)).collect();
    assert_eq!(
        shown,
        [
            "ExternalIP 10.0.0.7",
            "InternalIP 10.0.0.7",
            "ExternalIP 10.0.0.8",
            "InternalIP 10.0.0.8",
            "Hostname node-1"
        ]
    );
    assert_eq!(metadata.zone.as_deref(), Some("FailureDomain1"));
}
