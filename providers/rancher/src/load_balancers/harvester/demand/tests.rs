use cloudprovider::ServicePort;

use super::*;
use crate::load_balancers::harvester::testing::{UID, service, settings};

fn demand(service: &LoadBalancerService) -> Result<Demand> {
    Demand::of("guest", service, &settings())
}

fn annotated(pairs: &[(&str, &str)]) -> LoadBalancerService {
    let mut service = service();
    service.annotations.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    service
}

#[test]
fn names_are_those_of_harvester_cloud_provider() {
    let named = |cluster: &str, namespace: &str, name: &str, uid: &str| {
        let service = LoadBalancerService {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..LoadBalancerService::default()
        };
        super::name(cluster, &service)
    };
    let digest = |text: &str| format!("{:08x}", crc32fast::hash(text.as_bytes()));
    assert_eq!(
        named("guest", "shop", "web", "u1"),
        format!("guest-shop-web-{}", digest("guest-shop-web-u1"))
    );
    assert_eq!(
        named("1guest", "shop", "web", "u1"),
        format!("a1guest-shop-web-{}", digest("a1guest-shop-web-u1"))
    );
    // Of a long name the front is cut, so that the digest still tells Services apart.
    let long = "x".repeat(63);
    let (one, two) = (named("guest", "shop", &long, "u1"), named("guest", "shop", &long, "u2"));
    assert_eq!((one.len(), two.len()), (63, 63));
    assert_ne!(one, two);
    assert_eq!(named(&"ä".repeat(70), "shop", "web", "u1").chars().count(), 63);
}

#[test]
fn a_service_becomes_an_object() {
    let found = demand(&service()).expect("possible");
    assert_eq!(found.labels[OWNER], UID);
    assert_eq!(found.labels["cloudprovider.harvesterhci.io/cluster"], "guest");
    assert_eq!(found.labels["cloudprovider.harvesterhci.io/serviceNamespace"], "shop");
    assert_eq!(found.labels["cloudprovider.harvesterhci.io/serviceName"], "web");
    assert_eq!(
        found.annotations,
        [("loadbalancer.harvesterhci.io/cluster".to_owned(), "guest".to_owned())].into()
    );
    assert_eq!(found.spec.workload_type.as_deref(), Some("cluster"));
    assert_eq!((found.spec.ipam.as_deref(), found.spec.ip_pool.as_deref()), (Some("pool"), None));
    let listener = |name: &str, port, protocol: &str, backend_port| Listener {
        name: name.to_owned(),
        port,
        protocol: protocol.to_owned(),
        backend_port,
    };
    assert_eq!(found.spec.listeners, [listener("http", 80, "TCP", 30080), listener("dns", 53, "UDP", 53)]);
    assert_eq!((found.spec.health_check, found.asked_address), (None, None));
}

/// Tenants of a cluster share its pools.
#[test]
fn where_an_address_comes_from_is_the_operators_choice() {
    let mut settings = settings();
    settings.network = Some("default/vlan1".to_owned());
    for (name, value) in [("ipam", "dhcp"), ("network", "default/vlan7")] {
        let asked = annotated(&[(&format!("{PREFIX}{name}"), value)]);
        let error = Demand::of("guest", &asked, &settings).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let words = error.to_string();
        assert!(
            words.contains(&format!("{PREFIX}{name}")) && words.contains("serviceAnnotations"),
            "{words}"
        );
    }
    let plain = Demand::of("guest", &service(), &settings).expect("possible");
    let asked =
        annotated(&[(&format!("{PREFIX}project"), "c-9/p-9"), (&format!("{PREFIX}namespace"), "theirs")]);
    let found = Demand::of("guest", &asked, &settings).expect("possible");
    assert_eq!((&found.annotations, &found.spec), (&plain.annotations, &plain.spec));
    assert_eq!(found.left_out, [PoolAnnotation::Project, PoolAnnotation::Namespace]);
    // What the configuration has anyway is no choice.
    let same =
        annotated(&[(&format!("{PREFIX}ipam"), "pool"), (&format!("{PREFIX}network"), " default/vlan1")]);
    let found = Demand::of("guest", &same, &settings).expect("possible");
    assert_eq!((&found.annotations, &found.spec), (&plain.annotations, &plain.spec));
    // One that is permitted permits no other one.
    settings.service_annotations = vec![PoolAnnotation::Ipam];
    let asked = annotated(&[(&format!("{PREFIX}network"), "default/vlan7")]);
    assert_eq!(Demand::of("guest", &asked, &settings).expect_err("refused").kind(), ErrorKind::Unsupported);
}

#[test]
fn annotations_that_are_permitted_decide_about_the_pool() {
    let asked = annotated(&[
        ("cloudprovider.harvesterhci.io/ipam", "dhcp"),
        ("cloudprovider.harvesterhci.io/network", "default/vlan7"),
        ("cloudprovider.harvesterhci.io/project", "p-1"),
        ("cloudprovider.harvesterhci.io/namespace", "vms"),
    ]);
    let mut settings = settings();
    settings.ip_pool = Some("public".to_owned());
    settings.network = Some("default/vlan1".to_owned());
    settings.service_annotations = PoolAnnotation::ALL.to_vec();
    let found = Demand::of("guest", &asked, &settings).expect("possible");
    assert_eq!((found.spec.ipam.as_deref(), found.spec.ip_pool.as_deref()), (Some("dhcp"), None));
    assert_eq!(found.asked_ipam, Some(Ipam::Dhcp));
    let annotations: Vec<_> = found.annotations.values().map(String::as_str).collect();
    assert_eq!(annotations, ["guest", "vms", "default/vlan7", "p-1"]);
    assert!(found.left_out.is_empty());
    let found = Demand::of("guest", &service(), &settings).expect("possible");
    assert_eq!(found.spec.ip_pool.as_deref(), Some("public"));
    assert_eq!(found.annotations["loadbalancer.harvesterhci.io/network"], "default/vlan1");
    assert_eq!(found.asked_ipam, None);
}

#[test]
fn a_health_check_goes_to_the_node_port() {
    let found = demand(&annotated(&[
        ("cloudprovider.harvesterhci.io/healthcheck-port", "80"),
        ("cloudprovider.harvesterhci.io/healthcheck-periodseconds", "10"),
    ]));
    let expected = HealthCheck {
        port: 30080,
        success_threshold: 1,
        failure_threshold: 3,
        period_seconds: 10,
        timeout_seconds: 3,
    };
    assert_eq!(found.expect("possible").spec.health_check, Some(expected));
    for (name, value) in [
        ("healthcheck-port", "81"),
        ("healthcheck-port", "53"),
        ("healthcheck-port", "http"),
        ("healthcheck-port", "0"),
        ("healthcheck-failure-threshold", "0"),
        ("healthcheck-timeoutseconds", "3s"),
    ] {
        let key = format!("cloudprovider.harvesterhci.io/{name}");
        let with = annotated(&[("cloudprovider.harvesterhci.io/healthcheck-port", "80"), (&key, value)]);
        let error = demand(&with).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&key), "{error}");
    }
    let mut without = annotated(&[("cloudprovider.harvesterhci.io/healthcheck-port", "80")]);
    without.ports = vec![ServicePort { port: 80, node_port: None, ..ServicePort::default() }];
    assert!(demand(&without).expect_err("refused").to_string().contains("allocateLoadBalancerNodePorts"));
}

#[test]
fn what_harvester_cannot_do_is_refused() {
    let changed = |change: fn(&mut LoadBalancerService)| {
        let mut service = service();
        change(&mut service);
        demand(&service).expect_err("refused")
    };
    for (error, part) in [
        (changed(|s| s.ip_families = vec!["IPv6".to_owned()]), "spec.ipFamilies"),
        (changed(|s| s.ip_family_policy = Some(IpFamilyPolicy::RequireDualStack)), "spec.ipFamilyPolicy"),
        (
            changed(|s| {
                s.annotations
                    .insert("cloudprovider.harvesterhci.io/primary-service".to_owned(), "shop/a".to_owned());
            }),
            "primary-service",
        ),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(part), "{error}");
    }
    let ipam = annotated(&[("cloudprovider.harvesterhci.io/ipam", "static")]);
    assert_eq!(demand(&ipam).expect_err("refused").kind(), ErrorKind::InvalidInput);
    let mut settings = settings();
    settings.announcer = HarvesterAnnouncer::None;
    settings.service_annotations = vec![PoolAnnotation::Ipam];
    let dhcp = annotated(&[("cloudprovider.harvesterhci.io/ipam", "dhcp")]);
    let error = Demand::of("guest", &dhcp, &settings).expect_err("refused");
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("kube-vip"), "{error}");
    for cluster in ["", "Guest", "guest.example", &"x".repeat(64)] {
        let error = Demand::of(cluster, &service(), &settings).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
        assert!(error.to_string().contains("--cluster-name"), "{error}");
    }
    let prefer = LoadBalancerService {
        ip_families: vec!["IPv6".to_owned(), "IPv4".to_owned()],
        ip_family_policy: Some(IpFamilyPolicy::PreferDualStack),
        ..service()
    };
    demand(&prefer).expect("one of the two is possible");
}

#[test]
fn only_people_ask_for_addresses() {
    let asked = |pairs: &[(&str, &str)], field: Option<&str>| {
        let service = LoadBalancerService { load_balancer_ip: field.map(str::to_owned), ..annotated(pairs) };
        demand(&service).expect("possible").asked_address.map(|asked| (asked.place, asked.text))
    };
    let by = |place, text: &str| Some((place, text.to_owned()));
    assert_eq!(asked(&[(KUBE_VIP_IPS, "192.0.2.1")], None), by(KUBE_VIP_IPS, "192.0.2.1"));
    assert_eq!(asked(&[], Some("192.0.2.1")), by("spec.loadBalancerIP", "192.0.2.1"));
    let picked = [(KUBE_VIP_IPS, "192.0.2.1"), (PICKED, "192.0.2.1")];
    assert_eq!(asked(&picked, Some("192.0.2.1")), None, "what was written here is no wish");
    assert_eq!(asked(&picked, Some("192.0.2.2")), by("spec.loadBalancerIP", "192.0.2.2"));
    assert_eq!(asked(&[(KUBE_VIP_IPS, "0.0.0.0")], None), None, "the word for DHCP");
    let asked = AskedAddress { text: " 192.0.2.1".to_owned(), place: "x" };
    assert!(asked.is("192.0.2.1".parse().expect("an IP")) && !asked.is(DHCP));
}
