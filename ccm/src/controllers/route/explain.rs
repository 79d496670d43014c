//! Explains what this controller would do for one Node now. Pure functions.

use cloudprovider::Route;
use controller_kit::{conditions::NETWORK_UNAVAILABLE, nodes::Node};

use super::{
    cidr::{ClusterCidrs, InvalidClusterCidr},
    condition::RouteCondition,
    plan::{Plan, plan},
};
use crate::controllers::ClusterRoutes;

/// The next actions: empty if there is nothing to do.
pub(super) fn explain(
    node: &Node,
    routes: &ClusterRoutes,
    ranges: Result<ClusterCidrs, InvalidClusterCidr>,
) -> Vec<String> {
    let ranges = match ranges {
        Ok(ranges) => ranges,
        Err(fault) => return vec![format!("not start at all: {fault}")],
    };
    let listed = match &routes.listed {
        Ok(listed) => listed,
        Err(error) => {
            return vec![format!(
                "leave the Node's routes alone: the cloud does not list them: {}",
                error.report()
            )];
        }
    };
    let Plan { deletions, nodes, .. } = plan(&routes.nodes, listed, &ranges);
    let mut next = Vec::new();
    // The plan is about all Nodes.
    let concerns = |route: &&&Route| {
        route.target_node == node.name() || node.pod_cidrs.contains(&route.destination_cidr)
    };
    for route in deletions.iter().filter(concerns) {
        next.push(format!("delete the route {} to {:?}", route.destination_cidr, route.target_node));
    }
    let Some(planned) = nodes.iter().find(|planned| planned.node.name() == node.name()) else { return next };
    for creation in &planned.creations {
        next.push(format!("create the route {}", creation.cidr));
    }
    for (cidr, refusal) in &planned.refusals {
        next.push(format!("create no route {cidr}: {}", refusal.log_message(cidr)));
    }
    let condition = match planned.refused() {
        Some(why) => RouteCondition::Refused(why),
        None if node.pod_cidrs.is_empty() => RouteCondition::NoRouteCreated,
        None => RouteCondition::RouteCreated,
    };
    if !condition.is_on(node) {
        let is_at_once = planned.creations.is_empty() || !planned.refusals.is_empty();
        let after = if is_at_once { "" } else { ", once its routes are there" };
        next.push(format!("write the condition {NETWORK_UNAVAILABLE}={}{after}", condition.status()));
    }
    next
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cloudprovider::{Error, ErrorKind};
    use serde_json::json;

    use super::*;

    fn node(name: &str, cidrs: &[&str]) -> Node {
        Node::from_json(json!({"metadata": {"name": name, "uid": name}, "spec": {"podCIDRs": cidrs}}))
    }

    fn route(target: &str, cidr: &str) -> Route {
        Route { target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
    }

    /// What is explained of the first of these Nodes.
    fn explained(nodes: &[Node], listed: Result<Vec<Route>, Error>, range: &str) -> Vec<String> {
        let routes = ClusterRoutes { listed, nodes: nodes.iter().cloned().map(Arc::new).collect() };
        explain(&nodes[0], &routes, ClusterCidrs::parse(range))
    }

    #[test]
    fn only_what_concerns_this_node() {
        let routes =
            Ok(vec![route("a", "10.0.9.0/24"), route("b", "10.0.2.0/24"), route("c", "10.0.1.0/24")]);
        let next = explained(&[node("a", &["10.0.1.0/24", "fd00::/64"])], routes, "10.0.0.0/8");
        assert_eq!(
            next,
            [
                "delete the route 10.0.9.0/24 to \"a\"",
                "delete the route 10.0.1.0/24 to \"c\"",
                "create the route 10.0.1.0/24",
                "create no route fd00::/64: the pod CIDR fd00::/64 is not in --cluster-cidr",
                "write the condition NetworkUnavailable=True",
            ]
        );
        assert!(explained(&[node("a", &[])], Ok(Vec::new()), "10.0.0.0/8").is_empty());
    }

    #[test]
    fn of_two_nodes_with_one_cidr_the_younger_one_is_told_which_is_older() {
        let nodes = [node("b", &["10.0.1.0/24"]), node("a", &["10.0.1.0/24"])];
        let next = explained(&nodes, Ok(vec![route("b", "10.0.1.0/24")]), "10.0.0.0/8");
        assert_eq!(next[0], "delete the route 10.0.1.0/24 to \"b\"");
        assert!(next[1].ends_with("(10.0.1.0/24 of node a)"), "{next:?}");
        assert_eq!(next[2], "write the condition NetworkUnavailable=True");
        assert_eq!(next.len(), 3);
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        let away = || Err(Error::new(ErrorKind::Unavailable, "away"));
        assert_eq!(
            explained(&[node("a", &["10.0.1.0/24"])], away(), "10.0.0.0/8"),
            ["leave the Node's routes alone: the cloud does not list them: away"]
        );
        let next = explained(&[node("a", &[])], away(), "");
        assert!(next[0].starts_with("not start at all: --cluster-cidr is empty"));
    }
}
