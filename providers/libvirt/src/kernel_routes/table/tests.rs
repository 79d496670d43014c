use super::*;

const METRIC: u32 = 0x4000_0001;

/// A route, such as `10.244.1.0/24 via 10.0.0.5 dev 3 proto 204`.
fn route(text: &str) -> KernelRoute {
    let words: Vec<_> = text.split(' ').collect();
    let after = |key: &str| words.windows(2).find(|pair| pair[0] == key).map(|pair| pair[1]);
    let number = |key: &str| after(key).map(|number| number.parse().expect("a number"));
    KernelRoute {
        destination: words[0].parse().expect("a network"),
        gateway: after("via").map(|gateway| gateway.parse().expect("an address")),
        interface: number("dev"),
        interface_name: number("dev").map(|index| format!("eth{index}")).unwrap_or_default(),
        protocol: u8::try_from(number("proto").unwrap_or(4)).expect("a protocol"),
        metric: number("metric").unwrap_or_default(),
        is_unicast: !words.contains(&"blackhole"),
    }
}

/// The step for a route to `destination` by way of `gateway`, on a host with two networks.
fn step(destination: &str, gateway: &str, more: &[&str]) -> Result<Step> {
    let wanted = Wanted {
        destination: destination.parse().expect("a network"),
        gateway: gateway.parse().expect("an address"),
        metric: METRIC,
        target_node: "node-1",
    };
    let networks = [
        "0.0.0.0/0 via 192.0.2.1 dev 2",
        "192.0.2.0/24 dev 2 proto 2",
        "10.0.0.0/24 dev 3 proto 2",
        "fd00::/64 dev 3 proto 2 metric 256",
        "fe80::/64 dev 2 proto 2 metric 256",
        "fe80::/64 dev 3 proto 2 metric 256",
    ];
    let routing = Routing {
        routes: networks.iter().chain(more).map(|text| route(text)).collect(),
        own_addresses: ["10.0.0.1", "fd00::1"].map(|text| text.parse().expect("an address")).into(),
    };
    next_step(&wanted, &routing, &|_| Some("node-1".to_owned()))
}

fn ours(text: &str) -> String {
    format!("{text} proto {ROUTE_PROTOCOL} metric {METRIC}")
}

#[test]
fn a_route_goes_out_of_the_interface_of_its_gateway() {
    assert_eq!(step("10.244.1.0/24", "10.0.0.5", &[]).expect("a step"), Step::Add(3));
    assert_eq!(step("10.244.1.0/24", "192.0.2.5", &[]).expect("a step"), Step::Add(2));
    assert_eq!(step("fd10:1::/64", "fd00::5", &[]).expect("a step"), Step::Add(3));
}

#[test]
fn a_route_that_is_there() {
    let there = ours("10.244.1.0/24 via 10.0.0.5 dev 3");
    assert_eq!(step("10.244.1.0/24", "10.0.0.5", &[&there]).expect("a step"), Step::Nothing);
}

#[test]
fn routes_beside_it_do_not_matter() {
    let (other, neighbour) = (ours("10.244.2.0/24 via 10.0.0.6 dev 3"), "10.243.0.0/16 via 10.0.0.7 dev 3");
    assert_eq!(step("10.244.1.0/24", "10.0.0.5", &[&other, neighbour]).expect("a step"), Step::Add(3));
}

#[test]
fn what_overlaps_is_named() {
    let elsewhere = ours("10.244.1.0/24 via 10.0.0.6 dev 3");
    let of_another_cluster =
        format!("10.244.1.0/24 via 10.0.0.5 dev 3 proto {ROUTE_PROTOCOL} metric 1073741999");
    for (other, words) in [
        (elsewhere.as_str(), "a route of this cluster: 10.244.1.0/24 via 10.0.0.6 dev eth3 proto 204"),
        (&of_another_cluster, "a route of another cluster: 10.244.1.0/24 via 10.0.0.5 dev eth3 proto 204"),
        (
            "10.244.1.0/24 dev 4 proto 2",
            "a route of an interface of this host: 10.244.1.0/24 dev eth4 proto kernel",
        ),
        (
            "10.244.1.0/24 via 10.0.0.5 dev 3",
            "that this provider did not make: 10.244.1.0/24 via 10.0.0.5 dev eth3 proto static",
        ),
        ("10.0.0.0/8 via 192.0.2.1 dev 2 proto 186", ": 10.0.0.0/8 via 192.0.2.1 dev eth2 proto 186"),
        (
            "10.244.1.128/25 via 192.0.2.1 dev 2 proto 3",
            ": 10.244.1.128/25 via 192.0.2.1 dev eth2 proto boot",
        ),
        ("10.244.0.0/16 blackhole", ": unreachable or blackhole 10.244.0.0/16 proto static"),
    ] {
        let error = step("10.244.1.0/24", "10.0.0.5", &[other]).expect_err("an overlap");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{other}");
        let message = error.to_string();
        assert!(
            message.starts_with("the route to 10.244.1.0/24 overlaps ") && message.ends_with(words),
            "{message}"
        );
    }
}

#[test]
fn a_gateway_of_another_node_is_a_conflict() {
    let there = route(&ours("10.244.1.0/24 via 10.0.0.5 dev 3"));
    let wanted = Wanted {
        destination: there.destination,
        gateway: there.gateway.expect("a gateway"),
        metric: METRIC,
        target_node: "node-1",
    };
    let step = |target: Option<&str>| {
        let routing = Routing { routes: vec![there.clone()], ..Routing::default() };
        next_step(&wanted, &routing, &|_| target.map(str::to_owned))
    };
    assert_eq!(step(Some("node-1")).expect("a step"), Step::Nothing);
    // made before a restart: the same gateway is enough
    assert_eq!(step(None).expect("a step"), Step::Nothing);
    assert_eq!(step(Some("node-2")).expect_err("another node").kind(), ErrorKind::Conflict);
}

#[test]
fn a_node_that_is_this_host_needs_no_route() {
    let of_its_plugin = "10.244.1.0/24 dev 9 proto 2";
    assert_eq!(step("10.244.1.0/24", "10.0.0.1", &[]).expect("a step"), Step::Nothing);
    assert_eq!(step("10.244.1.0/24", "10.0.0.1", &[of_its_plugin]).expect("a step"), Step::Nothing);
    assert_eq!(step("fd10:1::/64", "fd00::1", &[]).expect("a step"), Step::Nothing);
    // its packets would leave the host
    let elsewhere = ours("10.244.1.0/24 via 10.0.0.6 dev 3");
    let error = step("10.244.1.0/24", "10.0.0.1", &[&elsewhere]).expect_err("an overlap");
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[test]
fn a_gateway_that_is_no_neighbour() {
    for (gateway, more) in [
        // behind the default route
        ("203.0.113.5", None),
        // behind another router
        ("10.1.0.5", Some("10.1.0.0/24 via 10.0.0.9 dev 3")),
        // a more specific route leads elsewhere
        ("10.0.0.5", Some("10.0.0.4/30 via 192.0.2.9 dev 2")),
        // in a pod network
        ("10.245.1.1", Some("10.245.1.0/24 via 10.0.0.7 dev 3 proto 204")),
    ] {
        let error = step("10.244.1.0/24", gateway, more.as_slice()).expect_err("no neighbour");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{gateway}");
        let words = format!("{gateway} of node \"node-1\" is on no network of this host");
        assert!(error.to_string().starts_with(&words), "{error}");
    }
}

#[test]
fn metrics_tell_clusters_apart_and_do_not_change_with_versions() {
    assert_eq!(metric_of("kubernetes"), 0x74af_b95d);
    assert_ne!(metric_of("prod"), metric_of("test"));
    assert!(metric_of("") >= 0x4000_0000);
}
