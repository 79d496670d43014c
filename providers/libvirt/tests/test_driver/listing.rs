//! The answers about instances, and the calls that they cost.

use std::time::{Duration, Instant};

use cloudprovider::{
    CloudProvider, ErrorKind, InstanceLookup, Instances, NodeAddress, NodeIdentity, PowerState,
};

use crate::support::{
    CRASHED, Cloud, OFF, PAUSED, RUNNING, domain, domain_with, new_node, node, provider_id,
};

/// For how long a hypervisor's list is good after it was confirmed: as long as the provider has it.
const CONFIRMED_FOR: Duration = Duration::from_secs(2);

#[tokio::test]
async fn an_instance_has_everything_a_node_wants() {
    let cloud = Cloud::start(&[vec![domain(1, "a", RUNNING)]]).await;
    let instance = cloud.present(&node(1)).await;
    assert_eq!(instance.provider_id.as_ref().expect("an ID").as_str(), provider_id(1));
    assert_eq!(instance.power_state, PowerState::Running);
    assert_eq!(instance.metadata.instance_type.as_deref(), Some("2c-2048m"));
    assert_eq!(instance.metadata.zone.as_deref(), Some("rack-0"));
    assert_eq!(instance.metadata.region.as_deref(), Some("north"));
    let [ip, hostname] = &instance.metadata.addresses[..] else { panic!("{:?}", instance.metadata) };
    assert!(ip.address.starts_with("192.168.122."), "{ip:?}");
    assert_eq!(*hostname, NodeAddress::hostname("node-1"));
    assert!(instance.incomplete.is_none());
}

#[tokio::test]
async fn states() {
    let cloud = Cloud::start(&[vec![
        domain(1, "running", RUNNING),
        domain(3, "paused", PAUSED),
        domain(5, "off", OFF),
        domain(6, "crashed", CRASHED),
    ]])
    .await;
    for (n, power) in
        [(1, PowerState::Running), (3, PowerState::Paused), (5, PowerState::Off), (6, PowerState::Crashed)]
    {
        let instance = cloud.present(&node(n)).await;
        assert_eq!(instance.power_state, power);
        let is_up = matches!(power, PowerState::Running | PowerState::Paused);
        assert_eq!(!instance.metadata.addresses.is_empty(), is_up && power == PowerState::Running, "{power}");
    }
}

#[tokio::test]
async fn a_domain_without_address_is_incomplete_until_its_node_has_one() {
    let nowhere = domain_with(1, "a", RUNNING, "", "<source network='elsewhere'/>");
    let cloud = Cloud::start(&[vec![nowhere]]).await;
    let instance = cloud.present(&node(1)).await;
    let why = instance.incomplete.expect("incomplete");
    assert_eq!(why.kind(), ErrorKind::InProgress);
    assert!(why.retry_after().is_some());
    assert_eq!(
        why.to_string(),
        "domain \"a\" on hypervisor \"kvm0\" has no address yet: no DHCP lease for 52:54:00:00:00:01, \
         no channel for a guest agent"
    );
    assert!(instance.metadata.addresses.is_empty());
    let with_address = NodeIdentity { addresses: vec![NodeAddress::internal_ip("10.0.0.1")], ..node(1) };
    assert!(cloud.present(&with_address).await.incomplete.is_none());
}

#[tokio::test]
async fn metadata_of_the_domain() {
    let metadata = "<ccm:instance xmlns:ccm='urn:cloud-controller-manager:libvirt:1' type='m.large' \
                    cluster='prod' role='control-plane'><ccm:label key='example.org/rack'>r1</ccm:label>\
                    <ccm:label key='not a key'>x</ccm:label></ccm:instance>";
    let source = "<source network='default'/>";
    let cloud = Cloud::start(&[vec![
        domain_with(1, "a", RUNNING, metadata, source),
        domain_with(2, "b", OFF, &metadata.replace("prod", "test"), source),
    ]])
    .await;
    let instance = cloud.present(&node(1)).await;
    assert_eq!(instance.metadata.instance_type.as_deref(), Some("m.large"));
    assert_eq!(instance.metadata.additional_labels.len(), 1);
    assert_eq!(instance.metadata.additional_labels["example.org/rack"], "r1");

    let clusters = cloud.provider.clusters().expect("there");
    assert_eq!(clusters.list().await.expect("live"), ["prod", "test"]);
    let endpoint = clusters.control_plane_endpoint("prod").await.expect("live").expect("running");
    assert_eq!(endpoint.port, 6443);
    assert_eq!(endpoint.host, instance.metadata.addresses[0].address);
    assert_eq!(clusters.control_plane_endpoint("test").await.expect("live"), None);
    let error = clusters.control_plane_endpoint("moon").await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn zones_follow_the_hypervisor() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF)], vec![domain(2, "b", OFF)]]).await;
    let (a, b, c) = (node(1), node(2), node(3));
    let answers = cloud.provider.lookup(&[&b, &a, &c]).await;
    let zones: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            InstanceLookup::Present(instance) => instance.metadata.zone.as_deref(),
            InstanceLookup::Absent | InstanceLookup::Unknown(_) => None,
        })
        .collect();
    assert_eq!(zones, [Some("rack-1"), Some("rack-0"), None]);
    assert!(matches!(answers[2], InstanceLookup::Absent));
    assert!(cloud.provider.zones().is_none(), "a second look-up would say the same");
}

#[tokio::test]
async fn a_thousand_nodes_cost_one_listing_per_hypervisor() {
    let hosts = [0, 500].map(|from| (from..from + 500).map(|n| domain(n, &format!("n{n}"), OFF)).collect());
    let cloud = Cloud::start(&hosts).await;
    let nodes: Vec<_> = (0..1000).map(|n| new_node(&format!("n{n}"), "")).collect();
    let nodes: Vec<_> = nodes.iter().collect();
    for _ in 0..3 {
        let answers = cloud.provider.lookup(&nodes).await;
        assert!(answers.iter().all(|answer| matches!(answer, InstanceLookup::Present(_))));
    }
    let calls = cloud.calls();
    assert_eq!(calls["connect"], 2);
    assert_eq!(calls["list_domains"], 2);
    assert_eq!(calls["domain_xml"], 1000);
    assert_eq!(calls.get("lookup_domain"), None);
    // all states come in one call or, from this driver, in one call for each domain
    let total = cloud.total_calls();
    assert!(total <= 2 * (6 + 2 * 500), "{calls:?}");
}

#[tokio::test]
async fn absent_takes_a_confirmed_list_and_a_question_for_each_node() {
    let cloud = Cloud::start(&[vec![domain(1, "a", OFF)], vec![domain(2, "b", OFF)]]).await;
    tokio::time::sleep(CONFIRMED_FOR + Duration::from_millis(100)).await;
    let (before, began) = (cloud.total_calls(), Instant::now());
    let gone: Vec<_> = (10..60).map(node).collect();
    let gone: Vec<_> = gone.iter().collect();
    let answers = cloud.provider.lookup(&gone).await;
    assert!(answers.iter().all(|answer| matches!(answer, InstanceLookup::Absent)));
    let questions = 2 * 50;
    assert_eq!(cloud.total_calls() - before, 2 + questions);
    assert_eq!(cloud.calls()["lookup_domain"], questions);
    cloud.provider.lookup(&gone).await;
    // Each of the two lists is one call.
    let lists = if began.elapsed() < CONFIRMED_FOR { 2..=2 } else { 2..=4 };
    let calls = cloud.total_calls() - before - 2 * questions;
    assert!(lists.contains(&calls), "{calls} calls for lists that were confirmed a moment ago");
}
