//! Upstream's behaviour as tables, and where ours differs.

use super::*;

const CLUSTER: &str = "10.120.0.0/16,fd00:120::/48";

fn node(name: &str, cidrs: &[&str]) -> Arc<Node> {
    let mut node = Node::default();
    node.identity.name = name.into();
    node.pod_cidrs = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
    Arc::new(node)
}

fn at(node: Arc<Node>, addresses: &[&str]) -> Arc<Node> {
    let mut node = Arc::unwrap_or_clone(node);
    node.identity.addresses = addresses.iter().map(|address| NodeAddress::internal_ip(*address)).collect();
    Arc::new(node)
}

fn route(target: &str, cidr: &str) -> Route {
    Route {
        name: format!("to-{target}-{cidr}"),
        target_node: target.into(),
        destination_cidr: cidr.into(),
        ..Route::default()
    }
}

fn blackhole(target: &str, cidr: &str) -> Route {
    Route { blackhole: true, ..route(target, cidr) }
}

/// A route of a cloud that stores addresses.
fn addressed(target: &str, cidr: &str, addresses: &[&str]) -> Route {
    let target_node_addresses = addresses.iter().map(|address| NodeAddress::internal_ip(*address)).collect();
    Route { node_addresses_enabled: true, target_node_addresses, ..route(target, cidr) }
}

/// A plan in words: `-` deletes, `+` creates, `+>` creates after the deletions, `=` means that nothing is to be made and
/// the Node has all its routes, `!` means that it can have none, or none for this CIDR.
fn said(nodes: &[Arc<Node>], routes: &[Route]) -> Vec<String> {
    let plan = plan(nodes, routes, &ClusterCidrs::parse(CLUSTER).expect("ranges"));
    let deletions =
        plan.deletions.iter().map(|route| format!("-{} {}", route.target_node, route.destination_cidr));
    let nodes = plan.nodes.iter().flat_map(|planned| {
        let name = planned.node.name();
        if planned.node.pod_cidrs.is_empty() {
            assert!(planned.creations.is_empty());
            return vec![format!("!{name}")];
        }
        if planned.creations.is_empty() && planned.refusals.is_empty() {
            return vec![format!("={name}")];
        }
        let creations = planned.creations.iter().map(|creation| {
            let waits = creation.after_all || !creation.after.is_empty();
            format!("{}{name} {}", if waits { "+>" } else { "+" }, creation.cidr)
        });
        creations.chain(planned.refusals.iter().map(|(cidr, _)| format!("!{name} {cidr}"))).collect()
    });
    deletions.chain(nodes).collect()
}

#[track_caller]
fn check(nodes: &[Arc<Node>], routes: &[Route], expected: &[&str]) {
    assert_eq!(said(nodes, routes), expected);
}

#[test]
fn a_node_gets_a_route_for_each_of_its_cidrs() {
    check(&[node("a", &["10.120.0.0/24"])], &[], &["+a 10.120.0.0/24"]);
    check(
        &[node("a", &["10.120.0.0/24", "fd00:120:0:1::/64"])],
        &[route("a", "10.120.0.0/24")],
        &["+a fd00:120:0:1::/64"],
    );
    check(
        &[node("a", &["10.120.0.0/24", "fd00:120:0:1::/64"])],
        &[route("a", "10.120.0.0/24"), route("a", "fd00:120:0:1::/64")],
        &["=a"],
    );
    check(
        &[node("a", &["10.120.0.0/24"]), node("b", &["10.120.1.0/24"])],
        &[route("a", "10.120.0.0/24"), route("b", "10.120.1.0/24")],
        &["=a", "=b"],
    );
    // The same CIDR twice is one route.
    check(&[node("a", &["10.120.0.0/24", "10.120.0.0/24"])], &[], &["+a 10.120.0.0/24"]);
}

#[test]
fn cidrs_are_compared_as_text() {
    check(
        &[node("a", &["fd00:120:0:1::/64"])],
        &[route("a", "fd00:0120:0:1::/64")],
        &["-a fd00:0120:0:1::/64", "+>a fd00:120:0:1::/64"],
    );
}

#[test]
fn a_node_without_cidrs() {
    check(&[node("a", &[])], &[], &[]);
    // Some route leads to it: it is said to have none, and the route goes.
    check(&[node("a", &[])], &[route("a", "10.120.0.0/24")], &["-a 10.120.0.0/24", "!a"]);
    check(&[node("a", &[])], &[route("a", "192.168.0.0/24")], &["-a 192.168.0.0/24", "!a"]);
    check(&[node("a", &[])], &[blackhole("a", "10.120.0.0/24")], &["-a 10.120.0.0/24", "!a"]);
}

#[test]
fn what_no_node_may_have_is_deleted_inside_and_outside_of_the_ranges() {
    let nodes = [node("a", &["10.120.0.0/24"])];
    let wanted = || route("a", "10.120.0.0/24");
    for (route, is_deleted) in [
        // To a Node that does not exist.
        (route("gone", "10.120.1.0/24"), true),
        (route("gone", "fd00:120:0:7::/64"), true),
        (route("gone", "192.168.0.0/24"), true),
        (route("gone", "10.121.0.0/24"), true),
        // Begins in the range, ends in it, or has it inside.
        (route("gone", "10.120.0.0/15"), true),
        (route("gone", "10.112.0.0/12"), true),
        (route("gone", "0.0.0.0/0"), true),
        (route("gone", "::ffff:192.168.0.0/120"), true),
        // To a Node that does not want it.
        (route("a", "10.120.5.0/24"), true),
        (route("a", "192.168.0.0/24"), true),
        // To nobody.
        (route("", "10.120.6.0/24"), true),
        (route("", "192.168.0.0/24"), true),
        // Blackholes.
        (blackhole("gone", "10.120.7.0/24"), true),
        (blackhole("", "10.120.7.0/24"), true),
        (blackhole("gone", "192.168.0.0/24"), true),
        // Nobody can tell where it leads.
        (route("gone", "nonsense"), false),
        (route("gone", ""), false),
    ] {
        let mut expected = vec!["=a".to_owned()];
        if is_deleted {
            expected.insert(0, format!("-{} {}", route.target_node, route.destination_cidr));
        }
        assert_eq!(said(&nodes, &[wanted(), route]), expected);
    }
    let routes = [route("gone", "nonsense")];
    assert_eq!(plan(&[], &routes, &ClusterCidrs::parse(CLUSTER).expect("ranges")).unreadable.len(), 1);
}

#[test]
fn all_go_when_there_are_no_nodes() {
    check(
        &[],
        &[route("a", "10.120.0.0/24"), route("b", "10.120.1.0/24")],
        &["-a 10.120.0.0/24", "-b 10.120.1.0/24"],
    );
}

#[test]
fn routes_in_duplicate_stay() {
    let twice = [route("a", "10.120.0.0/24"), Route { name: "other".into(), ..route("a", "10.120.0.0/24") }];
    check(&[node("a", &["10.120.0.0/24"])], &twice, &["=a"]);
}

/// Upstream keeps such a Node's route in one pass, and makes the route anew in the next one. Here it takes one pass.
#[test]
fn a_blackhole_is_deleted_and_made_anew() {
    check(
        &[node("a", &["10.120.0.0/24"]), node("b", &["10.120.1.0/24"])],
        &[blackhole("a", "10.120.0.0/24")],
        &["-a 10.120.0.0/24", "+>a 10.120.0.0/24", "+b 10.120.1.0/24"],
    );
    check(
        &[node("a", &["192.168.0.0/24"])],
        &[blackhole("a", "192.168.0.0/24")],
        &["-a 192.168.0.0/24", "!a 192.168.0.0/24"],
    );
}

/// Upstream makes the new route while it deletes the old one, which clouds may refuse.
#[test]
fn a_cidr_that_moved_is_made_after_the_deletion() {
    check(
        &[node("b", &["10.120.0.0/24"]), node("c", &["10.120.2.0/24"])],
        &[route("a", "10.120.0.0/24")],
        &["-a 10.120.0.0/24", "+>b 10.120.0.0/24", "+c 10.120.2.0/24"],
    );
}

#[test]
fn addresses_matter_where_the_cloud_stores_them() {
    let wants = |addresses: &[&str]| [at(node("a", &["10.120.0.0/24"]), addresses)];
    let cidr = "10.120.0.0/24";
    check(&wants(&["1.1.1.1", "2.2.2.2"]), &[addressed("a", cidr, &["2.2.2.2", "1.1.1.1"])], &["=a"]);
    for stored in [&["1.1.1.1"][..], &[], &["1.1.1.1", "3.3.3.3"], &["1.1.1.1", "2.2.2.2", "3.3.3.3"]] {
        check(
            &wants(&["1.1.1.1", "2.2.2.2"]),
            &[addressed("a", cidr, stored)],
            &["-a 10.120.0.0/24", "+>a 10.120.0.0/24"],
        );
    }
    // Of a cloud that does not store them they are not compared.
    check(&wants(&["1.1.1.1"]), &[route("a", cidr)], &["=a"]);
    // One that it may not have is not made anew.
    let node = [at(node("a", &["192.168.0.0/24"]), &["1.1.1.1"])];
    check(&node, &[addressed("a", "192.168.0.0/24", &[])], &["-a 192.168.0.0/24", "!a 192.168.0.0/24"]);
}

#[test]
fn all_deletions_come_first_where_the_first_route_has_addresses() {
    let nodes = [node("a", &["10.120.0.0/24"]), node("b", &["10.120.1.0/24"])];
    let (with, without) = (addressed("a", "10.120.0.0/24", &[]), route("gone", "10.120.9.0/24"));
    check(&nodes, &[with.clone(), without.clone()], &["-gone 10.120.9.0/24", "=a", "+>b 10.120.1.0/24"]);
    check(&nodes, &[without, with], &["-gone 10.120.9.0/24", "=a", "+b 10.120.1.0/24"]);
}

/// Upstream makes such a route, and never deletes it.
#[test]
fn a_cidr_outside_the_ranges_gets_no_route_and_loses_one() {
    check(&[node("a", &["10.7.0.0/24"])], &[], &["!a 10.7.0.0/24"]);
    check(
        &[node("a", &["10.7.0.0/24"])],
        &[route("a", "10.7.0.0/24")],
        &["-a 10.7.0.0/24", "!a 10.7.0.0/24"],
    );
    check(&[], &[route("a", "10.7.0.0/24")], &["-a 10.7.0.0/24"]);
    check(&[node("a", &["10.120.0.0/24", "10.7.0.0/24"])], &[], &["+a 10.120.0.0/24", "!a 10.7.0.0/24"]);
}

#[test]
fn the_route_of_a_younger_node_goes_before_the_older_one_gets_its_own() {
    // Without times, the first name counts as the older one.
    check(
        &[node("a", &["10.120.1.0/24"]), node("evil", &["10.120.0.0/22"])],
        &[route("evil", "10.120.0.0/22")],
        &["-evil 10.120.0.0/22", "+>a 10.120.1.0/24", "!evil 10.120.0.0/22"],
    );
    check(
        &[node("a", &["10.120.0.0/22"]), node("evil", &["10.120.1.0/24"])],
        &[route("evil", "10.120.1.0/24")],
        &["-evil 10.120.1.0/24", "+>a 10.120.0.0/22", "!evil 10.120.1.0/24"],
    );
    check(
        &[node("a", &["10.120.1.0/24"]), node("evil", &["10.120.0.0/16"])],
        &[route("evil", "10.120.0.0/16"), route("a", "10.120.1.0/24")],
        &["-evil 10.120.0.0/16", "=a", "!evil 10.120.0.0/16"],
    );
}
