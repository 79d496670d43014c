//! Pod routes, where the daemon runs on the hypervisor: see [`kernel_routes`](crate::kernel_routes).

use std::{collections::HashMap, net::IpAddr, time::Duration};

use cloudprovider::{Error, ErrorKind, NodeAddress, Result, Route, Routes, async_trait};
use jiff::Timestamp;

use crate::{kernel_routes::KernelRoute, provider::LibvirtProvider};

/// How long after the start the addresses of domains may still be unknown, since guest agents answer late.
const ADDRESS_GRACE: Duration = Duration::from_secs(30);

/// When to list again while addresses are unknown.
const ADDRESS_RETRY: Duration = Duration::from_secs(2);

#[async_trait]
impl Routes for LibvirtProvider {
    async fn list(&self, cluster_name: &str) -> Result<Vec<Route>> {
        let operation = "list routes";
        self.forget_nodes();
        let found =
            self.kernel_routes().list(cluster_name).await.map_err(|error| error.with_operation(operation))?;
        let is_older = |route: &KernelRoute| self.kernel_routes().made(route).is_none();
        let nodes = if found.iter().any(is_older) { self.nodes_by_address()? } else { HashMap::new() };
        let listed: Vec<Route> = found.iter().map(|route| self.described(route, &nodes)).collect();
        let is_settling = self.time_since_start().is_none_or(|time| time < ADDRESS_GRACE);
        match listed.iter().find(|route| route.blackhole && is_settling) {
            Some(unknown) => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "which node the route {} leads to is not known yet, soon after the start",
                    unknown.name
                ),
            )
            .with_operation(operation)
            .with_retry_after(ADDRESS_RETRY)),
            None => Ok(listed),
        }
    }

    async fn create(&self, cluster_name: &str, _name_hint: &str, route: &Route) -> Result<()> {
        let created = self.kernel_routes().create(cluster_name, route).await;
        created.map_err(|error| error.with_operation("create a route"))
    }

    async fn delete(&self, cluster_name: &str, route: &Route) -> Result<()> {
        let deleted = self.kernel_routes().delete(cluster_name, route).await;
        deleted.map_err(|error| error.with_operation("delete a route"))
    }
}

impl LibvirtProvider {
    /// Forgets the Nodes whose domains are gone. Nothing is forgotten while not all domains are known.
    fn forget_nodes(&self) {
        let view = self.view();
        if view.staleness().is_some() {
            return;
        }
        let is_there =
            |domain| view.hosts().iter().any(|host| host.state.inventory.by_uuid(domain).is_some());
        self.kernel_routes().keep_nodes(is_there);
    }

    /// The names of Nodes by their addresses: those of their running domains, and those that the Nodes
    /// themselves report. A domain that no look-up was about yet counts as a Node of its own name. Of two
    /// with one address neither counts.
    fn nodes_by_address(&self) -> Result<HashMap<IpAddr, String>> {
        let view = self.view();
        if let Some(staleness) = view.staleness() {
            return Err(staleness.with_operation("list routes"));
        }
        let now = Timestamp::now().as_second();
        let known = self.kernel_routes().nodes();
        let mut nodes: HashMap<IpAddr, String> = HashMap::new();
        let mut note = |addresses: &[NodeAddress], name: &str| {
            for address in addresses.iter().filter_map(|one| one.address.parse::<IpAddr>().ok()) {
                let noted = nodes.entry(address).or_insert_with(|| name.to_owned());
                if noted != name {
                    noted.clear();
                }
            }
        };
        for host in view.hosts() {
            let inventory = &host.state.inventory;
            for domain in inventory.domains() {
                let node = known.get(&domain.uuid);
                let name = node.map_or(domain.node_name(), |node| &node.name);
                note(&inventory.addresses(domain, &self.config().addresses, now), name);
                if let Some(node) = node {
                    note(&node.addresses, name);
                }
            }
        }
        Ok(nodes)
    }

    /// A route of the kernel as the controller sees it.
    ///
    /// Of a route that this process made, the Node's addresses are known, so a change of them makes a new
    /// one. An older route is kept as long as its gateway is an address of a domain. Without such a domain it
    /// leads nowhere.
    fn described(&self, route: &KernelRoute, nodes: &HashMap<IpAddr, String>) -> Route {
        let name = route.name();
        if let Some(made) = self.kernel_routes().made(route) {
            return Route {
                name,
                target_node: made.target_node,
                node_addresses_enabled: true,
                target_node_addresses: made.target_node_addresses,
                destination_cidr: made.cidr,
                blackhole: false,
            };
        }
        let target_node = route.gateway.and_then(|gateway| nodes.get(&gateway)).cloned().unwrap_or_default();
        Route {
            name,
            blackhole: target_node.is_empty(),
            target_node,
            destination_cidr: route.destination.to_string(),
            ..Route::default()
        }
    }
}
