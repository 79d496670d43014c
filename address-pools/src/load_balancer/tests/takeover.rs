//! Services that another load balancer served before keep their addresses.

use cloudprovider::{ExternalTrafficPolicy, Protocol, ServicePort};

use super::*;

/// A Service that shows this address, with this port and `externalTrafficPolicy: Local`.
fn local(name: &str, address: &str, port: u16, protocol: Protocol) -> LoadBalancerService {
    LoadBalancerService {
        ports: vec![ServicePort { port, protocol, ..ServicePort::default() }],
        external_traffic_policy: ExternalTrafficPolicy::Local,
        status: LoadBalancerStatus {
            ingress: vec![LoadBalancerIngress { ip: Some(address.into()), ..LoadBalancerIngress::default() }],
        },
        ..service(name)
    }
}

fn shared(cluster: &FakeServiceAccess, names: &[&str]) {
    cluster.set_assigned(names.iter().map(|name| (service_ref(name), ip("10.0.0.2"))).collect());
}

#[tokio::test(start_paused = true)]
async fn services_that_share_an_address_stay_together() {
    let tcp = local("tcp", "10.0.0.2", 53, Protocol::Tcp);
    let udp = local("udp", "10.0.0.2", 53, Protocol::Udp);
    for services in [[&tcp, &udp], [&udp, &tcp]] {
        let cluster = cluster(&["tcp", "udp", "new"]);
        shared(&cluster, &["tcp", "udp"]);
        let daemon = Daemon::start(&cluster, SMALL);
        for service in services {
            assert_eq!(daemon.addresses(service).await, ips(&["10.0.0.2"]), "{}", service.name);
        }
        let reasons: Vec<_> =
            cluster.warnings().into_iter().map(|(of, reason, _)| (of.name, reason)).collect();
        let expected = services.map(|service| (service.name.clone(), "LoadBalancerAddressShared"));
        assert_eq!(reasons, expected);
        // Also in the next term, and nobody joins them.
        cluster.end_term().await.expect("ended");
        for service in services.iter().rev() {
            assert_eq!(daemon.addresses(service).await, ips(&["10.0.0.2"]));
        }
        let joining = annotated(local("new", "10.0.0.2", 80, Protocol::Tcp), &[(KUBE_VIP_IPS, "10.0.0.2")]);
        daemon.ensure(&joining).await.expect_err("refused");
        let holders = cluster.stored_claims()[&ip("10.0.0.2")].holders.clone();
        let mut names: Vec<_> =
            holders.into_iter().map(|holder| (holder.service.name, holder.ports)).collect();
        names.sort();
        assert_eq!(
            names,
            [("tcp".to_owned(), vec!["53/TCP".to_owned()]), ("udp".to_owned(), vec!["53/UDP".to_owned()])]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_two_does_not_tear_them_apart() {
    let cluster = cluster(&["tcp", "udp"]);
    shared(&cluster, &["tcp", "udp"]);
    let daemon = Daemon::start(&cluster, SMALL);
    daemon.addresses(&local("tcp", "10.0.0.2", 53, Protocol::Tcp)).await;
    daemon.end().await;
    let daemon = Daemon::start(&cluster, SMALL);
    let udp = local("udp", "10.0.0.2", 53, Protocol::Udp);
    assert_eq!(daemon.addresses(&udp).await, ips(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn the_same_port_twice_is_no_sharing() {
    let cluster = cluster(&["a", "b"]);
    shared(&cluster, &["a", "b"]);
    let daemon = Daemon::start(&cluster, SMALL);
    assert_eq!(daemon.addresses(&local("a", "10.0.0.2", 53, Protocol::Tcp)).await, ips(&["10.0.0.2"]));
    assert_eq!(daemon.addresses(&local("b", "10.0.0.2", 53, Protocol::Tcp)).await, ips(&["10.0.0.1"]));
}

#[tokio::test(start_paused = true)]
async fn one_of_them_that_is_gone_holds_nothing() {
    let cluster = cluster(&["a", "b"]);
    shared(&cluster, &["a", "b"]);
    let daemon = Daemon::start(&cluster, SMALL);
    daemon.addresses(&local("a", "10.0.0.2", 53, Protocol::Tcp)).await;
    cluster.remove_service("b");
    daemon.sweep().await;
    let holders = cluster.stored_claims()[&ip("10.0.0.2")].holders.clone();
    assert_eq!(holders.into_iter().map(|holder| holder.service.name).collect::<Vec<_>>(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn claims_of_services_that_vanished_are_given_up_when_a_term_begins() {
    let cluster = cluster(&["a"]);
    cluster.set_claims(vec![claim("10.0.0.1", "a"), claim("10.0.0.2", "gone")]);
    let daemon = Daemon::start(&cluster, SMALL);
    // Nobody asks for anything.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.stored_claims().into_keys().collect::<Vec<_>>(), ips(&["10.0.0.1"]));
    // Only a leader gives something up.
    cluster.end_term().await.expect("ended");
    cluster.set_alone_for(Duration::ZERO);
    cluster.set_claims(vec![claim("10.0.0.1", "a"), claim("10.0.0.2", "gone")]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.stored_claims().len(), 2);
    drop(daemon);
}
