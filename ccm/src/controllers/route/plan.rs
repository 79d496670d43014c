//! What to do about the routes, from the Nodes and what the cloud lists. Pure functions.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cloudprovider::{NodeAddress, Route};
use controller_kit::nodes::Node;
use ipnet::IpNet;

use super::{
    cidr::{ClusterCidrs, overlapping, parse_cidr},
    claims::{Claims, Refusal},
};

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
    /// Routes to be made. The Node has all its routes if it has pod CIDRs, each of these is made, and none is refused.
    pub(super) creations: Vec<Creation<'a>>,
    /// The pod CIDRs that get no route.
    pub(super) refusals: Vec<(&'a str, Refusal<'a>)>,
}

impl NodePlan<'_> {
    /// Why it may not have all its routes, in the words of its condition.
    pub(super) fn refused(&self) -> Option<String> {
        let all = self.refusals.iter().map(|(cidr, refusal)| refusal.message(cidr));
        all.reduce(|all, next| format!("{all}; {next}"))
    }
}

/// A route to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Creation<'a> {
    pub(super) cidr: &'a str,
    /// The CIDRs of deleted routes that overlap it. The deletions must have ended before.
    pub(super) after: Vec<&'a str>,
    /// Whether it waits for the other deletions too.
    pub(super) after_all: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Add,
    Keep,
    /// Delete and make again, because the Node's addresses changed.
    Update,
}

/// Compares the Nodes with the routes that the cloud has. All that are listed are this cluster's, so those that no Node may have go,
/// wherever they lead.
pub(super) fn plan<'a>(nodes: &'a [Arc<Node>], routes: &'a [Route], ranges: &ClusterCidrs) -> Plan<'a> {
    let mut plan = Plan::default();
    let mut by_target: HashMap<&str, Vec<&Route>> = HashMap::new();
    let mut readable = Vec::new();
    for route in routes {
        let network = parse_cidr(&route.destination_cidr);
        match network {
            Some(network) => readable.push((route, network)),
            None => plan.unreadable.push(route),
        }
        if route.target_node.is_empty() {
            continue;
        }
        let of_target = by_target.entry(&route.target_node).or_default();
        // A blackhole that is deleted does not count as a route that is there. It is made anew at once.
        if !(route.blackhole && network.is_some()) {
            of_target.push(route);
        }
    }

    let claims = Claims::of(nodes, ranges);
    let mut actions: HashMap<(&str, &str), Action> = HashMap::new();
    for node in nodes {
        let has = by_target.get(node.name()).map_or(&[][..], Vec::as_slice);
        for cidr in node.pod_cidrs.iter().filter(|cidr| claims.refusal(node, cidr).is_none()) {
            actions.insert((node.name(), cidr), action(has, cidr, &node.identity.addresses));
        }
    }

    // The cloud may refuse a second route to the same addresses, so the old ones have to go before.
    let mut freed: BTreeMap<IpNet, Vec<&str>> = BTreeMap::new();
    for (route, network) in readable {
        let action = actions.get(&(route.target_node.as_str(), route.destination_cidr.as_str()));
        if route.blackhole || action.is_none_or(|action| *action == Action::Update) {
            plan.deletions.push(route);
            freed.entry(network).or_default().push(&route.destination_cidr);
        }
    }

    let after_all = routes.first().is_some_and(|route| route.node_addresses_enabled);
    for node in nodes {
        if node.pod_cidrs.is_empty() && !by_target.contains_key(node.name()) {
            continue;
        }
        let mut creations: Vec<Creation<'a>> = Vec::new();
        let mut refusals = Vec::new();
        for (index, cidr) in node.pod_cidrs.iter().enumerate() {
            if node.pod_cidrs[..index].contains(cidr) {
                continue;
            }
            if let Some(refusal) = claims.refusal(node, cidr) {
                refusals.push((cidr.as_str(), refusal));
                continue;
            }
            if actions.get(&(node.name(), cidr)).is_some_and(|action| *action != Action::Keep) {
                let overlapped =
                    parse_cidr(cidr).into_iter().flat_map(|network| overlapping(&freed, network));
                let after = overlapped.flat_map(|(_, cidrs)| cidrs).copied().collect();
                creations.push(Creation { cidr, after, after_all });
            }
        }
        plan.nodes.push(NodePlan { node, creations, refusals });
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
