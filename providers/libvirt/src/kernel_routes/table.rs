//! The kernel's routing table, and what a new route means for it. Pure.

use std::{collections::HashSet, fmt, net::IpAddr};

use cloudprovider::{Error, ErrorKind, Result};
use ipnet::IpNet;

/// The number that marks routes as ours (`rtm_protocol`; `ip route` prints `proto 204`). It has no meaning to
/// the kernel, and no routing daemon uses it.
pub const ROUTE_PROTOCOL: u8 = 204;

/// Routes that the kernel made for an address of an interface (`RTPROT_KERNEL`).
const KERNEL_PROTOCOL: u8 = 2;

/// A route of the kernel's main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelRoute {
    pub(crate) destination: IpNet,
    /// `None` if the destination is on the interface's own network, and for routes to several gateways.
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) interface: Option<u32>,
    pub(crate) interface_name: String,
    pub(crate) protocol: u8,
    pub(crate) metric: u32,
    /// Packets are forwarded, and not dropped or rejected.
    pub(crate) is_unicast: bool,
}

/// Where the kernel sends packets.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    /// The routes of its main table.
    pub(crate) routes: Vec<KernelRoute>,
    /// The addresses of this host itself.
    pub(crate) own_addresses: HashSet<IpAddr>,
}

impl KernelRoute {
    /// Stands for the route to a Node that is this host. The kernel has no such route.
    pub(crate) fn of_this_host(destination: IpNet, gateway: IpAddr, metric: u32) -> Self {
        Self {
            destination,
            gateway: Some(gateway),
            interface: None,
            interface_name: String::new(),
            protocol: ROUTE_PROTOCOL,
            metric,
            is_unicast: true,
        }
    }

    /// What tells it from a route to another gateway.
    pub(crate) fn name(&self) -> String {
        let gateway = self.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        format!("{}{gateway}", self.destination)
    }

    /// Whether this provider made the route, for the cluster with this metric.
    pub(crate) fn is_ours(&self, metric: u32) -> bool {
        self.protocol == ROUTE_PROTOCOL && self.metric == metric
    }

    /// Whether the addresses of the destination are neighbours on the interface.
    fn is_on_link(&self) -> bool {
        self.is_unicast
            && self.gateway.is_none()
            && self.interface.is_some()
            && self.protocol != ROUTE_PROTOCOL
    }

    fn overlaps(&self, network: IpNet) -> bool {
        self.destination.contains(&network) || network.contains(&self.destination)
    }
}

/// As `ip route` prints it.
impl fmt::Display for KernelRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_unicast {
            f.write_str("unreachable or blackhole ")?;
        }
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if !self.interface_name.is_empty() {
            write!(f, " dev {}", self.interface_name)?;
        }
        match self.protocol {
            KERNEL_PROTOCOL => f.write_str(" proto kernel"),
            3 => f.write_str(" proto boot"),
            4 => f.write_str(" proto static"),
            other => write!(f, " proto {other}"),
        }
    }
}

/// The metric of a cluster's routes. Clusters with different names have different ones, but for one chance in
/// a billion. It is large, so any other route to the same network comes first.
pub(crate) fn metric_of(cluster: &str) -> u32 {
    // FNV-1a, which stays the same from version to version
    let hash = cluster
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    0x4000_0000 | (hash & 0x3fff_ffff)
}

/// A route that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) destination: IpNet,
    pub(crate) gateway: IpAddr,
    pub(crate) metric: u32,
    /// For messages.
    pub(crate) target_node: &'a str,
}

impl Wanted<'_> {
    /// The route by way of this interface.
    pub(crate) fn route(&self, interface: u32) -> KernelRoute {
        KernelRoute {
            destination: self.destination,
            gateway: Some(self.gateway),
            interface: Some(interface),
            interface_name: String::new(),
            protocol: ROUTE_PROTOCOL,
            metric: self.metric,
            is_unicast: true,
        }
    }
}

/// What to do for a wanted route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is there, or this host is the Node and needs none.
    Nothing,
    /// Add it, by way of the interface with this index.
    Add(u32),
}

/// What to do for a wanted route. `target_of` tells the Node of one of our routes, where it is known.
pub(crate) fn next_step(
    wanted: &Wanted<'_>,
    routing: &Routing,
    target_of: &dyn Fn(&KernelRoute) -> Option<String>,
) -> Result<Step> {
    let Wanted { destination, gateway, metric, target_node } = *wanted;
    let is_this_host = routing.own_addresses.contains(&gateway);
    let mut is_there = is_this_host;
    // the default route overlaps everything, and any other one takes precedence over it
    let others = routing
        .routes
        .iter()
        .filter(|route| route.destination.prefix_len() > 0 && route.overlaps(destination))
        // what this host's own network plugin made is right
        .filter(|route| !is_this_host || route.protocol == ROUTE_PROTOCOL);
    for route in others {
        let is_ours = route.is_ours(metric);
        let is_same = is_ours && route.destination == destination && route.gateway == Some(gateway);
        if is_same && target_of(route).is_none_or(|target| target == target_node) {
            is_there = true;
            continue;
        }
        let whose = match (is_ours, route.protocol) {
            (true, _) => "of this cluster",
            (false, ROUTE_PROTOCOL) => "of another cluster",
            (false, KERNEL_PROTOCOL) => "of an interface of this host",
            (false, _) => "that this provider did not make",
        };
        let message = format!("the route to {destination} overlaps a route {whose}: {route}");
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    if is_there {
        return Ok(Step::Nothing);
    }
    // of all routes to the gateway the kernel takes the most specific one, and of these the one with the
    // smallest metric
    let nearest = routing
        .routes
        .iter()
        .filter(|route| route.destination.contains(&gateway))
        .max_by_key(|route| (route.destination.prefix_len(), u32::MAX - route.metric));
    match nearest.filter(|route| route.is_on_link()).and_then(|route| route.interface) {
        Some(interface) => Ok(Step::Add(interface)),
        None => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{gateway} of node {target_node:?} is on no network of this host, so this host cannot route to it; with \
                 routes.enabled the daemon must run on the hypervisor whose bridge is the guests' gateway, with hostNetwork"
            ),
        )),
    }
}

#[cfg(test)]
mod tests;
