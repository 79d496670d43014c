//! What to do about the routes, from the Nodes and what the cloud lists. Pure functions.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cloudprovider::{NodeAddress, Route};

use super::cidr::{ClusterCidrs, parse_cidr};
use crate::nodes::Node;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// Routes to be deleted, in the order in which they were listed.
    pub(super) deletions: Vec<&'a Route>,
    /// The Nodes about whose routes there is something to say.
    pub(super) nodes: Vec<NodePlan<'a>>,
    /// Routes whose CIDR cannot be read. They are left alone.
    pub(super) unreadable: Vec<&'a Route>,
}

/// What is to be done for one Node.
#[derive(Debug)]
pub(super) struct NodePlan<'a> {
    pub(super) node: &'a Arc<Node>,
    /// Routes to be made. The Node has all its routes if it has pod CIDRs and each of these is made.
    pub(super) creations: Vec<Creation<'a>>,
}

/// A route to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Creation<'a> {
    pub(super) cidr: &'a str,
    /// Whether the deletions must have ended before.
    pub(super) after_deletions: bool,
    /// Whether the CIDR is outside the cluster's ranges. The route is made, as upstream does, and is never deleted.
    pub(super) is_outside: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Add,
    Keep,
    /// Delete and make again, because the Node's addresses changed.
    Update,
}

/// Compares the Nodes with the routes that the cloud has.
pub(super) fn plan<'a>(nodes: &'a [Arc<Node>], routes: &'a [Route], ranges: &ClusterCidrs) -> Plan<'a> {
    let mut plan = Plan::default();
    let mut by_target: HashMap<&str, Vec<&Route>> = HashMap::new();
    let mut ours = Vec::new();
    for route in routes {
        let is_ours = match parse_cidr(&route.destination_cidr) {
            Some(cidr) => ranges.meets(&cidr),
            None => {
                plan.unreadable.push(route);
                false
            }
        };
        if is_ours {
            ours.push(route);
        }
        if route.target_node.is_empty() {
            continue;
        }
        let of_target = by_target.entry(&route.target_node).or_default();
        // A blackhole that is deleted does not count as a route that is there. It is made anew at once.
        if !(route.blackhole && is_ours) {
            of_target.push(route);
        }
    }

    let mut actions: HashMap<(&str, &str), Action> = HashMap::new();
    for node in nodes {
        let has = by_target.get(node.name()).map_or(&[][..], Vec::as_slice);
        for cidr in &node.pod_cidrs {
            actions.insert((node.name(), cidr), action(has, cidr, &node.identity.addresses));
        }
    }

    let is_deleted = |route: &&Route| {
        let action = actions.get(&(route.target_node.as_str(), route.destination_cidr.as_str()));
        route.blackhole || action.is_none_or(|action| *action == Action::Update)
    };
    plan.deletions = ours.into_iter().filter(is_deleted).collect();

    // The cloud refuses a second route of one CIDR, so the old one has to go before.
    let freed: HashSet<&str> = plan.deletions.iter().map(|route| route.destination_cidr.as_str()).collect();
    let all_wait = routes.first().is_some_and(|route| route.node_addresses_enabled);
    for node in nodes {
        if node.pod_cidrs.is_empty() && !by_target.contains_key(node.name()) {
            continue;
        }
        let mut creations: Vec<Creation<'a>> = Vec::new();
        for cidr in &node.pod_cidrs {
            let is_missing = actions.get(&(node.name(), cidr)).is_some_and(|action| *action != Action::Keep);
            if !is_missing || creations.iter().any(|creation| creation.cidr == cidr) {
                continue;
            }
            creations.push(Creation {
                cidr,
                after_deletions: all_wait || freed.contains(cidr.as_str()),
                is_outside: parse_cidr(cidr).is_none_or(|cidr| !ranges.meets(&cidr)),
            });
        }
        plan.nodes.push(NodePlan { node, creations });
    }
    plan
}

/// `has` are the routes to the Node. CIDRs are compared as text.
fn action(has: &[&Route], cidr: &str, addresses: &[NodeAddress]) -> Action {
    match has.iter().find(|route| route.destination_cidr == cidr) {
        None => Action::Add,
        Some(route)
            if !route.node_addresses_enabled || same_addresses(addresses, &route.target_node_addresses) =>
        {
            Action::Keep
        }
        Some(_) => Action::Update,
    }
}

/// Whether the lists are the same in another order.
fn same_addresses(a: &[NodeAddress], b: &[NodeAddress]) -> bool {
    a.len() == b.len() && a.iter().all(|address| b.contains(address))
}

#[cfg(test)]
mod tests;
