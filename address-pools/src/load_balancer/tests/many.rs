//! Work that grows with the number of Services, and no faster.

use futures::{StreamExt as _, stream};

use cloudprovider::{AddressClaim, AddressHolder, Protocol, ServicePort};

use super::*;
use crate::testing::{looks, port};

#[tokio::test(start_paused = true)]
async fn ten_thousand_services_take_one_call_each() {
    const SERVICES: usize = 10_000;
    let cluster = FakeServiceAccess::new();
    let daemon = Daemon::start(&cluster, r#"{"pools": [{"name": "main", "addresses": ["10.0.0.0/16"]}]}"#);
    let all: Vec<_> = (0..SERVICES).map(|number| service(&format!("s{number}"))).collect();
    let ensured = stream::iter(&all).map(|service| daemon.ensure(service)).buffer_unordered(64);
    let ensured: Vec<_> = ensured.collect().await;
    assert!(ensured.iter().all(Result::is_ok));
    let calls = cluster.calls();
    assert_eq!(calls.iter().filter(|call| matches!(call, AccessCall::WriteClaim(_))).count(), SERVICES);
    assert_eq!(calls.len(), SERVICES + 1, "the claims are read once");
    let claims = cluster.stored_claims();
    // All of them are the lowest ones.
    assert_eq!((claims.len(), claims.keys().max().copied()), (SERVICES, Some(ip("10.0.39.15"))));
    cluster.forget_calls();
    for service in &all {
        daemon.ensure(service).await.expect("a status");
    }
    assert_eq!(cluster.calls(), []);
    for service in all.iter().rev() {
        daemon.delete(service).await.expect("deleted");
    }
    assert_eq!(cluster.calls().len(), SERVICES);
    assert!(cluster.stored_claims().is_empty());
}

/// The claims after this many Services got an address each, in a pool in which all share, and the looks that took.
async fn shared(services: impl Iterator<Item = LoadBalancerService>) -> (Vec<AddressClaim>, usize) {
    let cluster = FakeServiceAccess::new();
    let name =
        cloudprovider::ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    let data = [("cidr-global", "10.0.0.0/16"), ("allow-share-global", "true")];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_owned()));
    cluster.set_config_map(&name, Some(data.into()));
    let daemon = Daemon::start(&cluster, r#"{"kubeVipConfigMap": {}, "announcedBy": "none"}"#);
    looks();
    for service in services {
        daemon.addresses(&service).await;
    }
    (cluster.stored_claims().into_values().collect(), looks())
}

#[tokio::test(start_paused = true)]
async fn thousands_of_services_that_may_share_cost_a_few_looks_each() {
    const SERVICES: u16 = 4_000;
    // The addresses that end in 0 and 255 are left out, so there is a run of 254 addresses between them.
    let runs = usize::from(SERVICES) / 254 + 1;
    let most = (20 + 5 * runs) * usize::from(SERVICES);
    // All with the same port: none can share.
    let (claims, count) = shared((0..SERVICES).map(|number| service(&format!("s{number}")))).await;
    assert_eq!(claims.len(), usize::from(SERVICES));
    assert!(count < most, "{count}");
    // One of two ports each: two share an address.
    let of_two = |number: u16| LoadBalancerService {
        ports: vec![port(if number < SERVICES / 2 { 80 } else { 443 })],
        ..service(&format!("s{number}"))
    };
    let (claims, count) = shared((0..SERVICES).map(of_two)).await;
    assert!(claims.len() == usize::from(SERVICES / 2) && claims.iter().all(|claim| claim.holders.len() == 2));
    assert!(count < most, "{count}");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_shared_by_many_and_not_by_all() {
    let of_its_own = |number: u16| {
        let udp = ServicePort { protocol: Protocol::Udp, ..port(number + 1) };
        LoadBalancerService { ports: vec![udp], ..service(&format!("s{number}")) }
    };
    let (claims, count) = shared((0..1_000).map(of_its_own)).await;
    assert_eq!(claims.iter().map(|claim| claim.holders.len()).collect::<Vec<_>>(), [250; 4]);
    // All holders of an address, five times at most.
    assert!(count < 1_000 * 5 * 250, "{count}");
    let holder =
        |claim: &AddressClaim| claim.holders.first().map(|holder: &AddressHolder| holder.ports.clone());
    assert_eq!(claims.iter().find_map(holder), Some(vec!["1/UDP".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_services_with_addresses_are_taken_over_with_a_few_looks_each() {
    const SERVICES: usize = 4_000;
    let cluster = FakeServiceAccess::new();
    let name = |number: usize| format!("s{number}");
    let address = |number: usize| crate::range::address(Family::Ipv4, 0x0a00_0000 + number as u128);
    let assigned = (0..SERVICES).map(|number| (service_ref(&name(number)), address(number)));
    cluster.set_assigned(assigned.collect());
    let daemon = Daemon::start(&cluster, r#"{"pools": [{"name": "main", "addresses": ["10.0.0.0/16"]}]}"#);
    daemon.get(&service("none")).await;
    looks();
    for number in (0..SERVICES).rev() {
        let ingress =
            LoadBalancerIngress { ip: Some(address(number).to_string()), ..LoadBalancerIngress::default() };
        let known = LoadBalancerService {
            status: LoadBalancerStatus { ingress: vec![ingress] },
            ..service(&name(number))
        };
        assert_eq!(daemon.addresses(&known).await, [address(number)]);
    }
    let count = looks();
    assert!(count < 20 * SERVICES, "{count}");
}
