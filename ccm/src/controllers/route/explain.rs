//! Explains what this controller would do for one Node now. Pure functions.

use std::sync::Arc;

use cloudprovider::{Error, Route};

use super::{
    cidr::ClusterCidrs,
    condition::RouteCondition,
    plan::{Plan, plan},
};
use crate::{conditions::NETWORK_UNAVAILABLE, nodes::Node};

/// The next actions: empty if there is nothing to do. `routes` are those that the cloud lists, or why it does not.
pub(super) fn explain(node: &Node, routes: &Result<Vec<Route>, Error>, cluster_cidr: &str) -> Vec<String> {
    let ranges = match ClusterCidrs::parse(cluster_cidr) {
        Ok(ranges) => ranges,
        Err(fault) => return vec![format!("not start at all: {fault}")],
    };
    let routes = match routes {
        Ok(routes) => routes,
        Err(error) => {
            return vec![format!(
                "leave the Node's routes alone: the cloud does not list them: {}",
                error.report()
            )];
        }
    };
    let nodes = [Arc::new(node.clone())];
    let Plan { deletions, nodes, .. } = plan(&nodes, routes, &ranges);
    let mut next = Vec::new();
    // The plan knows no other Node, so it would delete the routes of all of them.
    let concerns = |route: &&&Route| {
        route.target_node == node.name() || node.pod_cidrs.contains(&route.destination_cidr)
    };
    for route in deletions.iter().filter(concerns) {
        next.push(format!("delete the route {} to {:?}", route.destination_cidr, route.target_node));
    }
    let Some(planned) = nodes.first() else { return next };
    for creation in &planned.creations {
        let outside = if creation.is_outside { ", though it is not in --cluster-cidr" } else { "" };
        next.push(format!("create the route {}{outside}", creation.cidr));
    }
    let condition =
        if node.pod_cidrs.is_empty() { RouteCondition::NoRouteCreated } else { RouteCondition::RouteCreated };
    if !condition.is_on(node) {
        let after = if planned.creations.is_empty() { "" } else { ", once its routes are there" };
        next.push(format!("write the condition {NETWORK_UNAVAILABLE}={}{after}", condition.status()));
    }
    next
}

#[cfg(test)]
mod tests {
    use cloudprovider::ErrorKind;
    use serde_json::json;

    use super::*;

    fn node(cidrs: &[&str]) -> Node {
        Node::from_json(json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"podCIDRs": cidrs}}))
    }

    fn route(target: &str, cidr: &str) -> Route {
        Route { target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
    }

    #[test]
    fn only_what_concerns_this_node() {
        let routes =
            Ok(vec![route("a", "10.0.9.0/24"), route("b", "10.0.2.0/24"), route("c", "10.0.1.0/24")]);
        let next = explain(&node(&["10.0.1.0/24", "fd00::/64"]), &routes, "10.0.0.0/8");
        assert_eq!(
            next,
            [
                "delete the route 10.0.9.0/24 to \"a\"",
                "delete the route 10.0.1.0/24 to \"c\"",
                "create the route 10.0.1.0/24",
                "create the route fd00::/64, though it is not in --cluster-cidr",
                "write the condition NetworkUnavailable=False, once its routes are there",
            ]
        );
        assert!(explain(&node(&[]), &Ok(Vec::new()), "10.0.0.0/8").is_empty());
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        let away = Err(Error::new(ErrorKind::Unavailable, "away"));
        assert_eq!(
            explain(&node(&["10.0.1.0/24"]), &away, "10.0.0.0/8"),
            ["leave the Node's routes alone: the cloud does not list them: away"]
        );
        assert!(explain(&node(&[]), &away, "")[0].starts_with("not start at all: --cluster-cidr is empty"));
    }
}
