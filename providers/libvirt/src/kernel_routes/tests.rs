use super::*;

fn route(cidr: &str, addresses: Vec<NodeAddress>) -> Route {
    Route {
        target_node: "node-1".to_owned(),
        target_node_addresses: addresses,
        destination_cidr: cidr.to_owned(),
        ..Route::default()
    }
}

#[test]
fn the_gateway_is_the_first_internal_address_of_the_family() {
    let addresses = vec![
        NodeAddress::hostname("node-1"),
        NodeAddress::external_ip("192.0.2.1"),
        NodeAddress::internal_ip("fd00::5"),
        NodeAddress::internal_ip("10.0.0.5"),
        NodeAddress::internal_ip("10.0.0.6"),
    ];
    let gateway = |cidr: &str| {
        let network = parse_cidr(cidr).expect("a CIDR");
        gateway_of(&route(cidr, addresses.clone()), network).map(|gateway| gateway.to_string())
    };
    assert_eq!(gateway("10.244.1.0/24").expect("a gateway"), "10.0.0.5");
    assert_eq!(gateway("fd10::/64").expect("a gateway"), "fd00::5");
}

#[test]
fn a_node_without_an_internal_address_of_the_family() {
    let without = route("fd10::/64", vec![NodeAddress::internal_ip("10.0.0.5")]);
    let error = gateway_of(&without, parse_cidr("fd10::/64").expect("a CIDR")).expect_err("no gateway");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        error.to_string(),
        "node \"node-1\" has no InternalIP of IPv6, which the route to fd10::/64 would lead to"
    );
}

#[test]
fn a_node_that_has_no_address_yet() {
    for addresses in [vec![], vec![NodeAddress::hostname("node-1")]] {
        let network = parse_cidr("10.244.1.0/24").expect("a CIDR");
        let error = gateway_of(&route("10.244.1.0/24", addresses), network).expect_err("no gateway");
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::InProgress, Some(ADDRESS_RETRY)));
    }
}

#[test]
fn cidrs_that_are_none() {
    for (cidr, why) in [
        ("10.244.1.1/24", "10.244.1.0/24 has none"),
        ("10.244.1.0", "no network in CIDR notation"),
        ("0.0.0.0/0", "default route"),
        ("", "no network"),
    ] {
        let error = parse_cidr(cidr).expect_err("no CIDR").to_string();
        assert!(error.contains(why), "{cidr:?}: {error}");
    }
}

#[test]
fn only_nodes_of_domains_that_exist_are_remembered() {
    let routes = KernelRoutes::default();
    let [first, second] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    for domain in [first, second] {
        routes.note_node(domain, &NodeIdentity { name: domain.to_string(), ..NodeIdentity::default() });
    }
    routes.keep_nodes(|domain| domain == second);
    assert_eq!(routes.nodes().into_keys().collect::<Vec<_>>(), [second]);
}
