use cloudprovider::{
    AddressUse, Error, ExternalTrafficPolicy, IpFamilyPolicy, LoadBalancerIngress, LoadBalancerService,
};

use super::*;
use crate::{
    conventions::{Announcer, KUBE_VIP_IPS, POOL, SHARING_KEY},
    testing::{annotated, claim, dual_stack, ip, ips, pools, port, service, service_ref, shared_claim},
};

const POOLS: &str = r#"{"pools": [
    {"name": "main", "addresses": ["10.0.0.1-10.0.0.3", "fd00::1-fd00::2"]},
    {"name": "fixed", "addresses": ["10.0.1.1-10.0.1.9"], "autoAssign": false, "interface": "eth1"},
    {"name": "shop", "addresses": ["10.0.2.1"], "namespaces": ["shop"]},
    {"name": "shared", "addresses": ["10.0.3.1-10.0.3.2"], "autoAssign": false, "allowSharing": true}]}"#;

fn decide(index: &Index, service: &LoadBalancerService) -> Result<Plan, Refusal> {
    let request = Request::of(service, Announcer::Itself).expect("a request");
    plan(&pools(POOLS), index, &request)
}

fn addresses(plan: &Plan) -> Vec<IpAddr> {
    plan.held.iter().map(|held| held.address).collect()
}

fn claimed(claims: Vec<AddressClaim>) -> Index {
    Index::new(claims, Vec::new())
}

fn with_status(service: LoadBalancerService, addresses: &[&str]) -> LoadBalancerService {
    let mut service = service;
    service.status.ingress = addresses
        .iter()
        .map(|address| LoadBalancerIngress {
            ip: Some((*address).to_owned()),
            ..LoadBalancerIngress::default()
        })
        .collect();
    service
}

fn asking(name: &str, address: &str) -> LoadBalancerService {
    annotated(service(name), &[(KUBE_VIP_IPS, address)])
}

#[test]
fn the_lowest_free_address_is_picked_and_claimed() {
    let index = claimed(vec![claim("10.0.0.1", "a")]);
    let plan = decide(&index, &service("b")).expect("a plan");
    assert_eq!(addresses(&plan), ips(&["10.0.0.2"]));
    assert_eq!(plan.claims, [AddressClaim { version: String::new(), ..claim("10.0.0.2", "b") }]);
    assert_eq!(plan.release, ips(&[]));
}

#[test]
fn an_address_is_kept_and_nothing_is_written() {
    let index = claimed(vec![claim("10.0.0.3", "a")]);
    for service in [service("a"), asking("a", "10.0.0.3"), with_status(service("a"), &["10.0.0.3"])] {
        let plan = decide(&index, &service).expect("a plan");
        assert_eq!((addresses(&plan), plan.claims, plan.release), (ips(&["10.0.0.3"]), vec![], vec![]));
    }
    // Also one that no pool has any more.
    let index = claimed(vec![claim("172.16.0.1", "a")]);
    let plan = decide(&index, &service("a")).expect("a plan");
    assert!(plan.claims.is_empty() && plan.held[0].is_outside);
}

#[test]
fn other_ports_change_the_claim() {
    let index = claimed(vec![claim("10.0.0.3", "a")]);
    let plan =
        decide(&index, &LoadBalancerService { ports: vec![port(443)], ..service("a") }).expect("a plan");
    assert_eq!(plan.claims, [shared_claim("10.0.0.3", &[("a", None, "443/TCP")])]);
}

#[test]
fn a_wish_is_claimed_before_the_old_address_is_given_back() {
    let index = claimed(vec![claim("10.0.0.1", "a")]);
    let plan = decide(&index, &asking("a", "10.0.1.5")).expect("a plan");
    assert_eq!(addresses(&plan), ips(&["10.0.1.5"]));
    assert_eq!((plan.claims.len(), plan.release), (1, ips(&["10.0.0.1"])));
    assert_eq!(plan.held[0].interface.as_deref(), Some("eth1"));
    let named = annotated(service("a"), &[(POOL, "fixed")]);
    let plan = decide(&index, &named).expect("a plan");
    assert_eq!((addresses(&plan), plan.release), (ips(&["10.0.1.1"]), ips(&["10.0.0.1"])));
}

#[test]
fn what_the_status_shows_is_given_back_later() {
    let index = claimed(vec![claim("10.0.0.1", "a"), claim("10.0.0.2", "a")]);
    let shown = with_status(asking("a", "10.0.1.5"), &["10.0.0.1"]);
    let plan = decide(&index, &shown).expect("a plan");
    assert_eq!((plan.release, plan.release_later), (ips(&["10.0.0.2"]), ips(&["10.0.0.1"])));
    // Whoever writes the status.
    let request = Request::of(&shown, Announcer::Cilium).expect("a request");
    let plan = super::plan(&pools(POOLS), &index, &request).expect("a plan");
    assert_eq!((plan.release, plan.release_later), (ips(&["10.0.0.2"]), ips(&["10.0.0.1"])));
    // Also with an address of a DHCP server instead.
    let dhcp = with_status(annotated(service("a"), &[(KUBE_VIP_IPS, "0.0.0.0")]), &["10.0.0.1"]);
    let plan = decide(&index, &dhcp).expect("a plan");
    assert!(plan.dhcp);
    assert_eq!((plan.release, plan.release_later), (ips(&["10.0.0.2"]), ips(&["10.0.0.1"])));
}

#[test]
fn wishes_that_cannot_be_met_are_told_with_the_reason() {
    let claims = vec![claim("10.0.0.1", "a"), shared_claim("10.0.3.1", &[("s", Some("web"), "80/TCP")])];
    let mut index = Index::new(claims, vec![(service_ref("r"), ip("10.0.1.2"))]);
    index.learn(ip("10.0.1.3"), AddressUse::Elsewhere("services kube-system/dns".to_owned()));
    index.begin("p", ip("10.0.1.4"));
    let keyed = |service, key: &str| annotated(service, &[(SHARING_KEY, key)]);
    let local =
        |service| LoadBalancerService { external_traffic_policy: ExternalTrafficPolicy::Local, ..service };
    for (service, expected) in [
        (
            asking("b", "172.16.0.1"),
            "172.16.0.1 is asked for, and is in no pool of addressPools.pools for the namespace default; ask for an address of one, or have it added to one",
        ),
        // Nobody learns what others have.
        (
            asking("b", "10.0.2.1"),
            "10.0.2.1 is asked for, and is in no pool of addressPools.pools for the namespace default; ask for an address of one, or have it added to one",
        ),
        (asking("b", "10.0.0.1"), "10.0.0.1 is asked for, and the Service default/a holds it"),
        (asking("b", "10.0.1.2"), "10.0.1.2 is asked for, and the Service default/r has it in its status"),
        (asking("b", "10.0.1.3"), "10.0.1.3 is asked for, and something else in the cluster uses it"),
        (asking("b", "10.0.1.4"), "10.0.1.4 is asked for, and another Service is just getting it"),
        (
            annotated(asking("b", "10.0.0.2"), &[(POOL, "fixed")]),
            "10.0.0.2 is asked for, and is in the pool \"main\"; the annotation service.cloudprovider.kubernetes.io/address-pool asks for another one",
        ),
        (
            annotated(service("b"), &[(POOL, "shop")]),
            "the annotation service.cloudprovider.kubernetes.io/address-pool asks for the pool \"shop\", which is none of the namespace default; pools for it: main, fixed, shared",
        ),
        (
            annotated(service("b"), &[(POOL, "none")]),
            "the annotation service.cloudprovider.kubernetes.io/address-pool asks for the pool \"none\", which is none of the namespace default; pools for it: main, fixed, shared",
        ),
        (
            keyed(asking("b", "10.0.0.1"), "web"),
            "10.0.0.1 is asked for, and the Service default/a holds it; the pool does not allow sharing",
        ),
        (asking("b", "10.0.3.1"), "10.0.3.1 is asked for, and the Service default/s holds it"),
        (
            keyed(asking("b", "10.0.3.1"), "x"),
            "10.0.3.1 is asked for, and the Service default/s holds it with another sharing key",
        ),
        (
            keyed(asking("b", "10.0.3.1"), "web"),
            "10.0.3.1 is asked for, and the Service default/s holds it with the same port 80/TCP",
        ),
        (
            local(keyed(asking("b", "10.0.3.1"), "web")),
            "10.0.3.1 is asked for, and the Service default/s holds it; with externalTrafficPolicy Local an address cannot be shared",
        ),
    ] {
        assert_eq!(decide(&index, &service).expect_err("refused").to_string(), expected);
    }
}

#[test]
fn a_tenant_learns_nothing_of_other_namespaces() {
    let of =
        |namespace: &str, name: &str| ServiceRef { namespace: namespace.to_owned(), ..service_ref(name) };
    let holder = |service: ServiceRef| AddressHolder { service, ..AddressHolder::default() };
    let foreign = |address: &str, name: &str| AddressClaim {
        holders: vec![holder(of("secret", name))],
        ..claim(address, name)
    };
    let claims = vec![foreign("10.0.0.1", "x"), foreign("10.0.0.2", "y"), claim("10.0.0.3", "a")];
    let index = Index::new(claims, vec![(of("secret", "r"), ip("10.0.1.2"))]);
    for (service, expected) in [
        (asking("b", "10.0.0.1"), "10.0.0.1 is asked for, and a Service of another namespace holds it"),
        (
            asking("b", "10.0.1.2"),
            "10.0.1.2 is asked for, and a Service of another namespace has it in its status",
        ),
        (
            service("b"),
            "the pool \"main\" (3 addresses) has no free IPv4 address; held by default/a and others; \
             delete a Service or add addresses",
        ),
    ] {
        assert_eq!(decide(&index, &service).expect_err("refused").to_string(), expected);
        let request = Request::of(&service, Announcer::Nobody).expect("a request");
        let told = in_the_way(&index, &request);
        assert_eq!(told.is_some_and(|told| told.contains("secret/")), !request.asked.is_empty());
    }
}

#[test]
fn a_full_pool_is_told_with_its_size_and_its_holders() {
    let mut claims = vec![claim("10.0.0.1", "a"), claim("10.0.0.2", "b")];
    claims.push(shared_claim("10.0.0.3", &[("c", None, "1/TCP"), ("d", None, "2/TCP")]));
    let refusal = decide(&claimed(claims), &service("e")).expect_err("refused");
    assert_eq!(
        refusal,
        Refusal::Exhausted(
            "the pool \"main\" (3 addresses) has no free IPv4 address; held by default/a, default/b, default/c and others; \
             delete a Service or add addresses"
                .to_owned()
        )
    );
    assert!(Error::from(refusal).is_retryable());
    let shop = LoadBalancerService { namespace: "shop".to_owned(), ..service("e") };
    assert_eq!(addresses(&decide(&claimed(vec![]), &shop).expect("a plan")), ips(&["10.0.2.1"]));
    let next = claimed(vec![claim("10.0.2.1", "x")]);
    assert_eq!(addresses(&decide(&next, &shop).expect("a plan")), ips(&["10.0.0.1"]));
}

#[test]
fn families_are_required_or_preferred() {
    let full = || claimed(vec![claim("fd00::1", "x"), claim("fd00::2", "y")]);
    for (index, policy, expected) in [
        (claimed(vec![]), IpFamilyPolicy::RequireDualStack, Ok(ips(&["10.0.0.1", "fd00::1"]))),
        (claimed(vec![]), IpFamilyPolicy::PreferDualStack, Ok(ips(&["10.0.0.1", "fd00::1"]))),
        (full(), IpFamilyPolicy::PreferDualStack, Ok(ips(&["10.0.0.1"]))),
        (full(), IpFamilyPolicy::RequireDualStack, Err(())),
    ] {
        let decided = decide(&index, &dual_stack("a", policy)).map(|plan| addresses(&plan));
        assert_eq!(decided.map_err(|_| ()), expected, "{policy:?}");
    }
    // IPv6 first.
    let mut service = dual_stack("a", IpFamilyPolicy::RequireDualStack);
    service.ip_families.reverse();
    let plan = decide(&claimed(vec![]), &service).expect("a plan");
    assert_eq!(addresses(&plan), ips(&["fd00::1", "10.0.0.1"]));
    // A family that is dropped is given back.
    let both = claimed(vec![claim("10.0.0.1", "a"), claim("fd00::1", "a")]);
    let plan = decide(&both, &self::service("a")).expect("a plan");
    assert_eq!((addresses(&plan), plan.release), (ips(&["10.0.0.1"]), ips(&["fd00::1"])));
    // Asked for one of two that are preferred: it gets that one.
    let one = annotated(dual_stack("a", IpFamilyPolicy::PreferDualStack), &[(KUBE_VIP_IPS, "fd00::2")]);
    assert_eq!(addresses(&decide(&claimed(vec![]), &one).expect("a plan")), ips(&["fd00::2"]));
    let no_pool = annotated(dual_stack("a", IpFamilyPolicy::RequireDualStack), &[(POOL, "fixed")]);
    assert_eq!(
        decide(&claimed(vec![]), &no_pool).expect_err("refused").to_string(),
        "the pool \"fixed\" has no IPv6 addresses; see addressPools.pools"
    );
    let any = LoadBalancerService {
        ip_families: vec![],
        ip_family_policy: None,
        ..annotated(self::service("a"), &[(KUBE_VIP_IPS, "fd00::2")])
    };
    assert_eq!(addresses(&decide(&claimed(vec![]), &any).expect("a plan")), ips(&["fd00::2"]));
}

#[test]
fn services_with_one_key_share_as_long_as_their_ports_differ() {
    let sharer = |name: &str, number: u16, key: &str| {
        let service = LoadBalancerService { ports: vec![port(number)], ..service(name) };
        annotated(service, &[(SHARING_KEY, key), (POOL, "shared")])
    };
    let mut index = claimed(vec![]);
    for (name, number, key, expected) in [
        ("a", 80, "web", "10.0.3.1"),
        ("b", 443, "web", "10.0.3.1"),
        ("c", 80, "web", "10.0.3.2"),
        ("d", 53, "dns", "full"),
        ("e", 8080, "web", "10.0.3.1"),
    ] {
        match decide(&index, &sharer(name, number, key)) {
            Ok(plan) => {
                assert_eq!(addresses(&plan), ips(&[expected]), "{name}");
                plan.claims.into_iter().for_each(|claim| index.set(claim));
            }
            Err(refusal) => {
                assert!(matches!(refusal, Refusal::Exhausted(_)) && expected == "full", "{name} {refusal}");
            }
        }
    }
    // A Service that must not share any longer gets an address of its own.
    let moved = LoadBalancerService {
        external_traffic_policy: ExternalTrafficPolicy::Local,
        ..annotated(with_status(service("b"), &["10.0.3.1"]), &[(SHARING_KEY, "web")])
    };
    let plan = decide(&index, &moved).expect("a plan");
    assert_eq!((addresses(&plan), &plan.release_later), (ips(&["10.0.0.1"]), &ips(&["10.0.3.1"])));
    let (old, why) = plan.held[0].replaces.clone().expect("a reason");
    assert_eq!(old, ip("10.0.3.1"));
    assert!(why.starts_with("the Service default/a holds it"), "{why}");
}

#[test]
fn addresses_of_a_cluster_that_another_one_served_are_adopted() {
    let index =
        Index::new(vec![], vec![(service_ref("a"), ip("10.0.0.1")), (service_ref("b"), ip("10.0.0.2"))]);
    // One without an address comes first, and gets neither.
    assert_eq!(addresses(&decide(&index, &service("new")).expect("a plan")), ips(&["10.0.0.3"]));
    let plan = decide(&index, &with_status(service("b"), &["10.0.0.2"])).expect("a plan");
    assert_eq!((addresses(&plan), plan.claims.len()), (ips(&["10.0.0.2"]), 1));
    // An address that is in no pool is kept only if it is asked for.
    let foreign = with_status(service("c"), &["192.0.2.1"]);
    // The second one is in a pool of another namespace, of which it is not told.
    for address in ["192.0.2.1", "10.0.2.1"] {
        let plan = decide(&index, &with_status(service("c"), &[address])).expect("a plan");
        assert_eq!(addresses(&plan), ips(&["10.0.0.3"]));
        let why = "it is in no pool of addressPools.pools for the namespace default";
        assert_eq!(plan.held[0].replaces, Some((ip(address), why.to_owned())));
        // Nor where it holds the address and asks for a pool.
        let asking = annotated(with_status(service("c"), &[address]), &[(POOL, "fixed")]);
        let plan = decide(&claimed(vec![claim(address, "c")]), &asking).expect("a plan");
        assert_eq!(plan.held[0].replaces, Some((ip(address), why.to_owned())));
    }
    let asked = annotated(foreign, &[(KUBE_VIP_IPS, "192.0.2.1")]);
    // And only if it was there when the term began.
    decide(&index, &asked).expect_err("somebody wrote the status later");
    let index = Index::new(vec![], vec![(service_ref("c"), ip("192.0.2.1"))]);
    let plan = decide(&index, &asked).expect("a plan");
    assert!(plan.held[0].is_outside && plan.held[0].address == ip("192.0.2.1"));
}

#[test]
fn kube_vips_pools_are_used_as_kube_vip_uses_them() {
    let name =
        cloudprovider::ConfigMapName { namespace: "kube-system".to_owned(), name: "kubevip".to_owned() };
    let data = [
        ("cidr-default", "10.0.0.0/30"),
        ("range-default", "10.0.5.1-10.0.5.9"),
        ("cidr-dhcp", "0.0.0.0/32"),
        ("cidr-broken", "x"),
        ("allow-share-global", "true"),
        ("search-order", "desc"),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let (pools, _) = crate::kube_vip::read(&name, &data);
    let decide = |index: &Index, service: &LoadBalancerService| {
        plan(&pools, index, &Request::of(service, Announcer::KubeVip).expect("a request"))
    };
    let full = claimed(vec![
        shared_claim("10.0.0.1", &[("a", Some(EVERYBODY), "80/TCP")]),
        shared_claim("10.0.0.2", &[("b", Some(EVERYBODY), "80/TCP")]),
        shared_claim("10.0.0.3", &[("c", Some(EVERYBODY), "80/TCP")]),
    ]);
    // All Services share if their ports allow it; 10.0.0.0 is never picked; the next key is no reserve.
    let other_port = LoadBalancerService { ports: vec![port(443)], ..service("d") };
    assert_eq!(addresses(&decide(&full, &other_port).expect("a plan")), ips(&["10.0.0.3"]));
    assert_eq!(addresses(&decide(&claimed(vec![]), &service("d")).expect("a plan")), ips(&["10.0.0.3"]));
    assert!(matches!(decide(&full, &service("d")), Err(Refusal::Exhausted(_))));
    // It can be asked for, as an address that the other key has.
    for address in ["10.0.0.0", "10.0.5.5"] {
        assert_eq!(addresses(&decide(&full, &asking("d", address)).expect("a plan")), ips(&[address]));
    }
    let of = |namespace: &str| LoadBalancerService { namespace: namespace.to_owned(), ..service("d") };
    assert!(decide(&full, &of("dhcp")).expect("a plan").dhcp);
    assert_eq!(
        decide(&full, &of("broken")).expect_err("refused").to_string(),
        "ConfigMap kube-system/kubevip, key cidr-broken: \"x\" is not a network, range or address; \
         write 10.0.0.0/24, 10.0.0.10-10.0.0.20 or 10.0.0.7"
    );
    assert_eq!(
        decide(&full, &of("other")).expect_err("refused").to_string(),
        "no pool gives IPv4 addresses to the namespace other; see ConfigMap kube-system/kubevip"
    );
}

#[test]
fn those_that_share_an_address_stay_together_when_no_pool_has_it_any_more() {
    let sharing = |name: &str, number: u16, key: &str| {
        annotated(
            with_status(LoadBalancerService { ports: vec![port(number)], ..service(name) }, &["172.16.0.1"]),
            &[(SHARING_KEY, key)],
        )
    };
    let holders = [("a", Some("web"), "80/TCP"), ("b", Some("web"), "443/TCP")];
    let index = claimed(vec![shared_claim("172.16.0.1", &holders)]);
    for service in [sharing("a", 80, "web"), sharing("b", 443, "web")] {
        let plan = decide(&index, &service).expect("a plan");
        assert_eq!((addresses(&plan), plan.claims.len(), plan.release), (ips(&["172.16.0.1"]), 0, vec![]));
        assert!(plan.held[0].is_outside);
        assert_eq!(plan.held[0].sharing_key.as_deref(), Some("web"));
    }
    // Also those of a pool in which all share.
    let holders = [("a", Some(EVERYBODY), "80/TCP"), ("b", Some(EVERYBODY), "443/TCP")];
    let together = claimed(vec![shared_claim("172.16.0.1", &holders)]);
    let plan = decide(&together, &with_status(service("a"), &["172.16.0.1"])).expect("a plan");
    assert_eq!((addresses(&plan), plan.claims.len()), (ips(&["172.16.0.1"]), 0));
    // One that does not want to share any longer, or takes a port of the other, has to leave.
    for leaving in
        [with_status(service("a"), &["172.16.0.1"]), sharing("a", 80, "mail"), sharing("a", 443, "web")]
    {
        let plan = decide(&index, &leaving).expect("a plan");
        assert_eq!((addresses(&plan), &plan.release_later), (ips(&["10.0.0.1"]), &ips(&["172.16.0.1"])));
    }
}

#[test]
fn with_metallb_a_service_of_two_families_gets_both_or_none() {
    let prefers = dual_stack("a", IpFamilyPolicy::PreferDualStack);
    let for_metallb = |service: &LoadBalancerService| {
        let request = Request::of(service, Announcer::MetalLb).expect("a request");
        super::plan(&pools(POOLS), &Index::default(), &request)
    };
    let asked = annotated(prefers.clone(), &[(KUBE_VIP_IPS, "10.0.0.3")]);
    assert_eq!(addresses(&for_metallb(&asked).expect("a plan")), ips(&["10.0.0.3", "fd00::1"]));
    let one_family = annotated(prefers, &[(POOL, "fixed")]);
    assert_eq!(
        for_metallb(&one_family).expect_err("refused").to_string(),
        "the pool \"fixed\" has no IPv6 addresses; see addressPools.pools; MetalLB gives a Service of two families an address \
         of each, or none; see spec.ipFamilyPolicy"
    );
    // What it has already, it keeps.
    let kept = with_status(one_family, &["10.0.1.5"]);
    assert_eq!(addresses(&for_metallb(&kept).expect("a plan")), ips(&["10.0.1.5"]));
}
