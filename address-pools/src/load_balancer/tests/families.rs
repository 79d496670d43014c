//! Services that prefer addresses of both families, and lack one.

use super::*;
use crate::load_balancer::upkeep::RETRY_INTERVAL;

#[tokio::test(start_paused = true)]
async fn a_preferred_family_that_is_left_out_is_told_once() {
    let cluster = cluster(&["a"]);
    let daemon = Daemon::start(&cluster, r#"{"pools": [{"name": "main", "addresses": ["10.0.0.1"]}]}"#);
    let both = dual_stack("a", cloudprovider::IpFamilyPolicy::PreferDualStack);
    for _ in 0..2 {
        assert_eq!(daemon.addresses(&both).await, ips(&["10.0.0.1"]));
    }
    let warnings = cluster.warnings();
    let [(_, reason, message)] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(*reason, "LoadBalancerFamilyLeftOut");
    assert!(message.contains("no pool gives IPv6 addresses to the namespace default"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_lacks_a_family_waits_for_it() {
    let cluster = cluster(&["a", "b"]);
    let name =
        cloudprovider::ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    let set = |addresses: &str| {
        cluster.set_config_map(&name, Some([("cidr-global".to_owned(), addresses.to_owned())].into()));
    };
    set("10.1.0.0/24");
    let daemon = Daemon::start(&cluster, r#"{"kubeVipConfigMap": {}, "announcedBy": "none"}"#);
    let both = dual_stack("a", cloudprovider::IpFamilyPolicy::PreferDualStack);
    daemon.addresses(&service("b")).await;
    assert_eq!(cluster.waiting_for_more(), [], "it has what it asks for");
    assert_eq!(daemon.addresses(&both).await, ips(&["10.1.0.2"]));
    assert_eq!(cluster.waiting_for_more(), [service_ref("a")]);
    let retries = cluster.retries();
    set("10.1.0.0/24,fd00::/120");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(cluster.retries(), retries + 1);
    assert_eq!(daemon.addresses(&both).await, ips(&["10.1.0.2", "fd00::"]));
    assert_eq!(cluster.waiting_for_more().len(), 1, "nothing is left to wait for");
}

/// A pool with one IPv6 address.
const ONE_IPV6: &str = r#"{"pools": [{"name": "main", "addresses": ["10.0.0.1-10.0.0.9", "fd00::1"]}]}"#;

#[tokio::test(start_paused = true)]
async fn a_service_that_lacks_a_family_is_tried_again_when_an_address_becomes_free() {
    let cluster = cluster(&["a", "b", "c"]);
    let daemon = Daemon::start(&cluster, ONE_IPV6);
    let both = |name| dual_stack(name, cloudprovider::IpFamilyPolicy::PreferDualStack);
    assert_eq!(daemon.addresses(&both("a")).await, ips(&["10.0.0.1", "fd00::1"]));
    daemon.addresses(&service("c")).await;
    assert_eq!(daemon.addresses(&both("b")).await, ips(&["10.0.0.3"]));
    daemon.delete(&service("c")).await.expect("deleted");
    sleep(RETRY_INTERVAL).await;
    assert_eq!(cluster.retries(), 0, "an IPv4 address is not what it lacks");
    daemon.delete(&both("a")).await.expect("deleted");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(cluster.retries(), 1);
    assert_eq!(daemon.addresses(&both("b")).await, ips(&["10.0.0.3", "fd00::1"]));
    // Nobody lacks anything now.
    daemon.delete(&both("b")).await.expect("deleted");
    sleep(RETRY_INTERVAL).await;
    assert_eq!(cluster.retries(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_addresses_that_become_free_cause_few_tries() {
    let cluster = cluster(&[]);
    let daemon = Daemon::start(&cluster, SMALL);
    let both = |name: &str| dual_stack(name, cloudprovider::IpFamilyPolicy::PreferDualStack);
    let of_ipv6 = |name: &str| LoadBalancerService { ip_families: vec!["IPv6".to_owned()], ..service(name) };
    for name in ["x", "y", "z"] {
        daemon.addresses(&of_ipv6(name)).await;
    }
    daemon.addresses(&both("a")).await;
    for name in ["x", "y", "z"] {
        daemon.delete(&of_ipv6(name)).await.expect("deleted");
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(cluster.retries(), 1);
    sleep(3 * RETRY_INTERVAL).await;
    assert_eq!(cluster.retries(), 2, "once more for all that became free meanwhile");
}

#[tokio::test(start_paused = true)]
async fn services_that_are_gone_make_room_for_a_family_that_is_lacking() {
    let cluster = cluster(&["a", "b"]);
    cluster.set_claims(vec![claim("fd00::1", "gone")]);
    let daemon = Daemon::start(&cluster, ONE_IPV6);
    let both = |name| dual_stack(name, cloudprovider::IpFamilyPolicy::PreferDualStack);
    assert_eq!(daemon.addresses(&both("a")).await, ips(&["10.0.0.1", "fd00::1"]));
    // A moment later that is not done again.
    cluster.forget_calls();
    assert_eq!(daemon.addresses(&both("b")).await, ips(&["10.0.0.2"]));
    assert!(matches!(&cluster.calls()[..], [AccessCall::WriteClaim(_)]), "{:?}", cluster.calls());
    // The sweep finds that the first one is gone too.
    sleep(2 * RETRY_INTERVAL).await;
    let retries = cluster.retries();
    cluster.remove_service("a");
    daemon.sweep().await;
    daemon.sweep().await;
    sleep(RETRY_INTERVAL).await;
    assert_eq!(cluster.retries(), retries + 1);
    assert_eq!(daemon.addresses(&both("b")).await, ips(&["10.0.0.2", "fd00::1"]));
}
