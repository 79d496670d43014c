//! Pod routes as routes of this host's kernel, by netlink.
//!
//! Ours are recognized by their protocol number, [`ROUTE_PROTOCOL`], and the metric says to which cluster
//! they belong. Nothing else is ever listed or deleted. The kernel stores no names of Nodes, so the names of
//! the routes that this process made are remembered here; those of older ones come from the inventory.

mod kernel;
mod table;

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use cloudprovider::{Error, ErrorKind, NodeAddress, NodeAddressType, NodeIdentity, Result, Route};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use uuid::Uuid;

pub use self::table::ROUTE_PROTOCOL;
pub(crate) use self::table::{KernelRoute, metric_of};
use self::{
    kernel::Kernel,
    table::{Routing, Step, Wanted, next_step},
};

/// When to look again at a Node that has no address yet. A change of the Node is noticed anyway.
const ADDRESS_RETRY: Duration = Duration::from_secs(10);

/// How long a table that was read serves for changes.
const TABLE_AGE: Duration = Duration::from_secs(1);

/// The kernel's routing table, with the changes since it was read.
#[derive(Debug)]
struct Table {
    read: Instant,
    routing: Routing,
}

impl Table {
    fn is_young(&self) -> bool {
        self.read.elapsed() < TABLE_AGE
    }
}

/// What a Node was called when its route was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) target_node: String,
    pub(crate) target_node_addresses: Vec<NodeAddress>,
    /// The CIDR as the caller wrote it.
    pub(crate) cidr: String,
    gateway: IpAddr,
    /// The Node is this host, so there is no route in the kernel.
    is_this_host: bool,
}

/// The routes of the kernel, and what it cannot store.
#[derive(Debug, Default)]
pub(crate) struct KernelRoutes {
    kernel: Kernel,
    /// Only one route is changed at a time: the check for conflicts and the creation belong together. Holds
    /// the table as it was read for the last change, so that many changes at once do not read it as many
    /// times.
    changes: AsyncMutex<Option<Table>>,
    /// By metric and CIDR.
    made: Mutex<HashMap<(u32, IpNet), Made>>,
    /// Nodes by their domains, as look-ups showed them.
    nodes: Mutex<HashMap<Uuid, KnownNode>>,
}

/// A Node that a look-up was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownNode {
    pub(crate) name: String,
    pub(crate) addresses: Vec<NodeAddress>,
}

impl KernelRoutes {
    /// Our routes of this cluster, and those that this host needs none for because it is the Node itself.
    pub(crate) async fn list(&self, cluster: &str) -> Result<Vec<KernelRoute>> {
        let metric = metric_of(cluster);
        let Routing { routes, own_addresses } = self.kernel.routing().await?;
        let mut made = self.made.lock();
        // An address may have moved to a guest.
        made.retain(|_, made| !made.is_this_host || own_addresses.contains(&made.gateway));
        let of_this_host = made
            .iter()
            .filter(|((of, _), made)| *of == metric && made.is_this_host)
            .map(|((_, destination), made)| KernelRoute::of_this_host(*destination, made.gateway, metric));
        let ours = routes.into_iter().filter(|route| route.is_ours(metric));
        Ok(ours.chain(of_this_host).collect())
    }

    /// What is remembered of a route, if it still leads to the same gateway.
    pub(crate) fn made(&self, route: &KernelRoute) -> Option<Made> {
        let made = self.made.lock().get(&(route.metric, route.destination)).cloned();
        made.filter(|made| route.gateway == Some(made.gateway))
    }

    /// Remembers which Node a domain is.
    pub(crate) fn note_node(&self, domain: Uuid, node: &NodeIdentity) {
        let is_same = |known: &KnownNode| known.name == node.name && known.addresses == node.addresses;
        let mut nodes = self.nodes.lock();
        if !nodes.get(&domain).is_some_and(is_same) {
            nodes.insert(domain, KnownNode { name: node.name.clone(), addresses: node.addresses.clone() });
        }
    }

    /// The Nodes that look-ups showed, by their domains.
    pub(crate) fn nodes(&self) -> HashMap<Uuid, KnownNode> {
        self.nodes.lock().clone()
    }

    /// Forgets the Nodes of the other domains.
    pub(crate) fn keep_nodes(&self, is_there: impl Fn(Uuid) -> bool) {
        self.nodes.lock().retain(|domain, _| is_there(*domain));
    }

    /// Makes a route, unless it is there.
    pub(crate) async fn create(&self, cluster: &str, route: &Route) -> Result<()> {
        let destination = parse_cidr(&route.destination_cidr)?;
        let gateway = gateway_of(route, destination)?;
        let wanted =
            Wanted { destination, gateway, metric: metric_of(cluster), target_node: &route.target_node };
        kernel::check_forwarding(destination)?;
        let mut changes = self.changes.lock().await;
        // Out of its place until the end: after a change that failed or was given up, the table is read anew.
        let made_with = match changes.take().filter(Table::is_young) {
            Some(mut table) => {
                self.make(&wanted, &mut table).await.is_ok_and(|is_new| is_new).then_some(table)
            }
            None => None,
        };
        let table = match made_with {
            Some(table) => table,
            // Any answer but "made" may come from a table that is out of date.
            None => {
                let mut table = self.read().await?;
                self.make(&wanted, &mut table).await?;
                table
            }
        };
        let made = Made {
            target_node: route.target_node.clone(),
            target_node_addresses: route.target_node_addresses.clone(),
            cidr: route.destination_cidr.clone(),
            gateway,
            is_this_host: table.routing.own_addresses.contains(&gateway),
        };
        *changes = Some(table);
        self.made.lock().insert((wanted.metric, destination), made);
        Ok(())
    }

    async fn read(&self) -> Result<Table> {
        Ok(Table { read: Instant::now(), routing: self.kernel.routing().await? })
    }

    /// Makes a route, unless it is in the table. Returns whether it was made.
    async fn make(&self, wanted: &Wanted<'_>, table: &mut Table) -> Result<bool> {
        let known_target = |route: &KernelRoute| self.made(route).map(|made| made.target_node);
        match next_step(wanted, &table.routing, &known_target)? {
            Step::Nothing => Ok(false),
            Step::Add(interface) => {
                let route = wanted.route(interface);
                self.kernel.add(&route).await?;
                table.routing.routes.push(route);
                Ok(true)
            }
        }
    }

    /// Deletes a route that was listed. One to another gateway, made since then, stays.
    pub(crate) async fn delete(&self, cluster: &str, route: &Route) -> Result<()> {
        let destination = parse_cidr(&route.destination_cidr)?;
        let metric = metric_of(cluster);
        let is_meant = |found: &&KernelRoute| {
            let is_same = route.name.is_empty() || found.name() == route.name;
            found.is_ours(metric) && found.destination == destination && is_same
        };
        let mut changes = self.changes.lock().await;
        let forget = |gateway: Option<IpAddr>| {
            let mut made = self.made.lock();
            if made.get(&(metric, destination)).is_some_and(|made| Some(made.gateway) == gateway) {
                made.remove(&(metric, destination));
            }
        };
        if let Some(of_this_host) = self.of_this_host(metric, destination).filter(|found| is_meant(&found)) {
            forget(of_this_host.gateway);
            return Ok(());
        }
        let young = changes.take().filter(Table::is_young);
        let mut table = match young.filter(|table| table.routing.routes.iter().any(|found| is_meant(&found)))
        {
            Some(table) => table,
            None => self.read().await?,
        };
        let meant: Vec<_> = table.routing.routes.iter().filter(is_meant).cloned().collect();
        for found in meant {
            self.kernel.delete(&found).await?;
            table.routing.routes.retain(|other| *other != found);
            forget(found.gateway);
        }
        *changes = Some(table);
        Ok(())
    }

    /// What stands for the route to this CIDR if its Node is this host.
    fn of_this_host(&self, metric: u32, destination: IpNet) -> Option<KernelRoute> {
        let made = self.made.lock();
        let made = made.get(&(metric, destination)).filter(|made| made.is_this_host)?;
        Some(KernelRoute::of_this_host(destination, made.gateway, metric))
    }
}

fn parse_cidr(text: &str) -> Result<IpNet> {
    let invalid =
        |why: &str| Err(Error::new(ErrorKind::InvalidInput, format!("the pod CIDR {text:?} {why}")));
    match text.parse::<IpNet>() {
        Ok(cidr) if cidr.trunc() != cidr => {
            invalid(&format!("has bits after its prefix; {} has none", cidr.trunc()))
        }
        Ok(cidr) if cidr.prefix_len() == 0 => invalid("is the default route"),
        Ok(cidr) => Ok(cidr),
        Err(_) => invalid("is no network in CIDR notation, such as 10.244.3.0/24"),
    }
}

/// The first internal address of the Node in the CIDR's family.
///
/// # Errors
/// [`ErrorKind::InProgress`] if the Node has no internal address at all: it is new, and will get some.
fn gateway_of(route: &Route, destination: IpNet) -> Result<IpAddr> {
    let is_ipv4 = matches!(destination, IpNet::V4(_));
    let internal =
        route.target_node_addresses.iter().filter(|one| one.address_type == NodeAddressType::InternalIp);
    let addresses: Vec<_> = internal.filter_map(|one| one.address.parse::<IpAddr>().ok()).collect();
    addresses.iter().copied().find(|address| address.is_ipv4() == is_ipv4).ok_or_else(|| {
        if addresses.is_empty() {
            let words = format!("node {:?} has no InternalIP yet", route.target_node);
            return Error::in_progress(ADDRESS_RETRY, words);
        }
        let family = if is_ipv4 { "IPv4" } else { "IPv6" };
        Error::new(
            ErrorKind::InvalidInput,
            format!(
                "node {:?} has no InternalIP of {family}, which the route to {destination} would lead to",
                route.target_node
            ),
        )
    })
}

#[cfg(test)]
mod tests;
