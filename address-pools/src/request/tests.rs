use cloudprovider::{LoadBalancerIngress, LoadBalancerStatus, ServicePort};

use super::*;
use crate::testing::{annotated, dual_stack, ips, port, service};

fn fault(service: &LoadBalancerService, announcer: Announcer) -> String {
    let error = Request::of(service, announcer).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    error.to_string()
}

fn asked(service: &LoadBalancerService, announcer: Announcer) -> Vec<IpAddr> {
    Request::of(service, announcer).unwrap_or_else(|error| panic!("{error}")).asked
}

#[test]
fn families_follow_the_policy() {
    use Family::{Ipv4, Ipv6};
    for (names, policy, families, need) in [
        (&["IPv4"][..], Some(IpFamilyPolicy::SingleStack), &[Ipv4][..], Need::All),
        (&["IPv6"], None, &[Ipv6], Need::Some),
        (&["IPv6", "IPv4"], Some(IpFamilyPolicy::SingleStack), &[Ipv6], Need::All),
        (&["IPv6", "IPv4"], Some(IpFamilyPolicy::PreferDualStack), &[Ipv6, Ipv4], Need::Some),
        (&["IPv4", "IPv6"], Some(IpFamilyPolicy::RequireDualStack), &[Ipv4, Ipv6], Need::All),
        (&[], None, &[Ipv4, Ipv6], Need::One),
    ] {
        let ip_families = names.iter().map(|name| (*name).to_owned()).collect();
        let service = LoadBalancerService { ip_families, ip_family_policy: policy, ..service("a") };
        let request = Request::of(&service, Announcer::Itself).expect("a request");
        assert_eq!((request.families.as_slice(), request.need), (families, need), "{names:?} {policy:?}");
    }
    let strange = LoadBalancerService { ip_families: vec!["IPv5".to_owned()], ..service("a") };
    assert_eq!(fault(&strange, Announcer::Itself), "spec.ipFamilies has \"IPv5\"; known: IPv4, IPv6");
}

#[test]
fn addresses_are_asked_for_in_several_places() {
    let both = || dual_stack("a", IpFamilyPolicy::RequireDualStack);
    for (key, announcer) in [
        (KUBE_VIP_IPS, Announcer::Itself),
        (KUBE_VIP_IPS, Announcer::MetalLb),
        ("metallb.io/loadBalancerIPs", Announcer::MetalLb),
        ("metallb.universe.tf/loadBalancerIPs", Announcer::MetalLb),
        ("lbipam.cilium.io/ips", Announcer::Cilium),
        ("io.cilium/lb-ipam-ips", Announcer::Cilium),
    ] {
        let service = annotated(both(), &[(key, " 10.0.0.7 ,fd00::7")]);
        assert_eq!(asked(&service, announcer), ips(&["10.0.0.7", "fd00::7"]), "{key}");
    }
    // Those of another one stay when the announcer is replaced.
    let foreign = annotated(both(), &[("metallb.io/loadBalancerIPs", "10.0.0.7")]);
    assert_eq!(asked(&foreign, Announcer::Cilium), ips(&["10.0.0.7"]));
    let field = LoadBalancerService { load_balancer_ip: Some("10.0.0.8".to_owned()), ..both() };
    assert_eq!(asked(&field, Announcer::Itself), ips(&["10.0.0.8"]));
    let agreeing = annotated(field, &[(KUBE_VIP_IPS, "fd00::7,10.0.0.8")]);
    assert_eq!(asked(&agreeing, Announcer::Itself), ips(&["fd00::7", "10.0.0.8"]));
    let empty = LoadBalancerService {
        load_balancer_ip: Some(String::new()),
        ..annotated(both(), &[(KUBE_VIP_IPS, "")])
    };
    assert_eq!(asked(&empty, Announcer::Itself), ips(&[]));
}

#[test]
fn a_pool_of_metallb_is_a_wish_too() {
    let pool = |annotations: &[(&str, &str)]| {
        Request::of(&annotated(service("a"), annotations), Announcer::MetalLb)
            .map(|request| request.pool)
            .map_err(|error| error.to_string())
    };
    for key in ["metallb.io/address-pool", "metallb.universe.tf/address-pool"] {
        assert_eq!(pool(&[(key, "gold")]), Ok(Some("gold".to_owned())), "{key}");
        assert_eq!(pool(&[(key, "gold"), (POOL, "gold")]), Ok(Some("gold".to_owned())), "{key}");
        let words = format!("{POOL} asks for the pool \"tin\" and {key} for \"gold\"; give one of the two");
        assert_eq!(pool(&[(key, "gold"), (POOL, "tin")]), Err(words));
    }
}

#[test]
fn what_was_picked_is_no_wish() {
    let picked = annotated(service("a"), &[(KUBE_VIP_IPS, "10.0.0.7"), (PICKED, "10.0.0.7")]);
    let picked = LoadBalancerService { load_balancer_ip: Some("10.0.0.7".to_owned()), ..picked };
    let request = Request::of(&picked, Announcer::KubeVip).expect("a request");
    assert_eq!((request.asked, request.preferred), (ips(&[]), ips(&["10.0.0.7"])));
    // A person then writes another one, in either place.
    let changed = annotated(picked.clone(), &[(KUBE_VIP_IPS, "10.0.0.9")]);
    assert_eq!(asked(&changed, Announcer::KubeVip), ips(&["10.0.0.9"]));
    let changed = LoadBalancerService { load_balancer_ip: Some("10.0.0.9".to_owned()), ..picked };
    assert_eq!(asked(&changed, Announcer::KubeVip), ips(&["10.0.0.9"]));
}

#[test]
fn wishes_that_contradict_each_other_are_refused() {
    let with = |text: &str| annotated(service("a"), &[(KUBE_VIP_IPS, text)]);
    for (text, expected) in [
        (
            "10.0.0",
            "kube-vip.io/loadbalancerIPs: \"10.0.0\" is not an IP address; write one address, or one of each family joined by a comma",
        ),
        (
            "10.0.0.1,10.0.0.2",
            "kube-vip.io/loadbalancerIPs asks for 10.0.0.1 and 10.0.0.2; give one address of each family",
        ),
        (
            "fd00::1",
            "fd00::1 is asked for, and is no IPv4 address; spec.ipFamilies says which families the Service has",
        ),
        (
            "0.0.0.0,fd00::1",
            "kube-vip.io/loadbalancerIPs asks for DHCP (0.0.0.0) and for addresses; give one of the two",
        ),
    ] {
        assert_eq!(fault(&with(text), Announcer::Itself), expected);
    }
    let two = LoadBalancerService { load_balancer_ip: Some("10.0.0.2".to_owned()), ..with("10.0.0.1") };
    assert_eq!(
        fault(&two, Announcer::Itself),
        "kube-vip.io/loadbalancerIPs asks for 10.0.0.1 and spec.loadBalancerIP for 10.0.0.2; give one of the two"
    );
    let list = LoadBalancerService { load_balancer_ip: Some("10.0.0.2,10.0.0.3".to_owned()), ..service("a") };
    assert_eq!(
        fault(&list, Announcer::Itself),
        "spec.loadBalancerIP has 2 addresses; give one, and several in kube-vip.io/loadbalancerIPs"
    );
}

#[test]
fn everything_else_is_read() {
    let ports = vec![port(443), ServicePort { protocol: Protocol::Udp, ..port(53) }, port(443), port(53)];
    let status = LoadBalancerStatus {
        ingress: ["10.0.0.1", "x"]
            .map(|text| LoadBalancerIngress { ip: Some(text.to_owned()), ..LoadBalancerIngress::default() })
            .to_vec(),
    };
    let service = LoadBalancerService {
        ports,
        status,
        external_traffic_policy: ExternalTrafficPolicy::Local,
        ..annotated(service("a"), &[(POOL, " public "), ("metallb.io/allow-shared-ip", "web")])
    };
    let request = Request::of(&service, Announcer::MetalLb).expect("a request");
    assert_eq!(request.ports, ["443/TCP", "53/TCP", "53/UDP"]);
    assert_eq!((request.in_status, request.is_local), (ips(&["10.0.0.1"]), true));
    assert_eq!((request.pool.as_deref(), request.sharing_key.as_deref()), (Some("public"), Some("web")));
    let key = |service, announcer| Request::of(&service, announcer).expect("a request").sharing_key;
    assert_eq!(key(service.clone(), Announcer::Itself).as_deref(), Some("web"));
    let both = annotated(service, &[("service.cloudprovider.kubernetes.io/sharing-key", "mine")]);
    assert_eq!(key(both, Announcer::MetalLb).as_deref(), Some("mine"));
    let dhcp =
        LoadBalancerService { load_balancer_ip: Some("0.0.0.0".to_owned()), ..crate::testing::service("a") };
    let request = Request::of(&dhcp, Announcer::KubeVip).expect("a request");
    assert!(request.asks_for_dhcp && request.asked.is_empty());
}
