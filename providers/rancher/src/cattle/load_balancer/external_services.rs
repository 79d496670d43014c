//! The external services of a cluster: one for each Node, with its address. All load balancers share them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, NodeIdentity, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::sync::Mutex;

use super::{
    demand::external_service_name,
    locks::{NameLocks, Shared},
    plan,
};
use crate::cattle::{
    client::Client,
    inventory::{Hosts, Sought, State},
    model::{ExternalService, LoadBalancerService},
};

/// How many external services are changed at the same time for one load balancer.
const CHANGES_AT_ONCE: usize = 8;

/// The description of the external services that are made for this cluster. It marks them: others are not ours to delete.
fn description(cluster: &str) -> String {
    format!("made by cloud-controller-manager for a Node of cluster {cluster}")
}

/// The external services of a cluster, which is named in each call.
#[derive(Debug)]
pub(super) struct ExternalServices {
    client: Client,
    hosts: Arc<Hosts>,
    retry_interval: Duration,
    /// Held while an external service is made or changed, by its name.
    changing: NameLocks,
    /// Shared by all who choose an external service, until their load balancers name it. Held alone while it is
    /// deleted.
    choosing: NameLocks,
    /// Held while external services are deleted, so that the last of several who could do it does it.
    deleting: Mutex<()>,
}

/// The external services for a load balancer.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Their IDs.
    pub(super) ids: BTreeSet<String>,
    /// Whether all of them are active.
    pub(super) are_active: bool,
    /// Those of the cluster that this load balancer has no use for.
    pub(super) others: Named,
    /// As long as this is held, nobody deletes what was chosen.
    pub(super) held: Vec<Shared>,
}

/// External services: their names by their IDs.
pub(super) type Named = BTreeMap<String, String>;

/// The addresses that an external service is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    ips: BTreeSet<IpAddr>,
    /// Whether there may be more, which cannot be read now. What the service has stays meanwhile.
    is_uncertain: bool,
}

impl Wanted {
    /// As the server has them. Without any, there is to be no such service.
    fn texts(&self, found: Option<&ExternalService>) -> Vec<String> {
        let kept = found.filter(|_| self.is_uncertain).map(|found| found.external_ip_addresses.as_slice());
        let mut texts: BTreeSet<_> = kept.unwrap_or_default().iter().cloned().collect();
        texts.extend(self.ips.iter().map(ToString::to_string));
        texts.into_iter().collect()
    }
}

impl ExternalServices {
    /// External services that are made with this client.
    pub(super) fn new(client: Client, hosts: Arc<Hosts>, retry_interval: Duration) -> Self {
        Self {
            client,
            hosts,
            retry_interval,
            changing: NameLocks::default(),
            choosing: NameLocks::default(),
            deleting: Mutex::default(),
        }
    }

    /// Makes the external services of these nodes right, as far as the server does it at once.
    pub(super) async fn choose(
        &self,
        cluster: &str,
        found: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> Result<Chosen> {
        let stack = found.common.stack_id.as_deref().unwrap_or_default();
        self.hosts.first_listing().await;
        let addresses = self.addresses(nodes)?;
        // All in the order of their names, so that nobody waits for one who waits for him.
        let mut held = Vec::new();
        for name in addresses.keys() {
            held.push(self.choosing.share(name).await);
        }
        let known = self.client.external_services_of(stack).await?;
        let mut by_name: BTreeMap<&str, &ExternalService> = BTreeMap::new();
        for service in &known {
            by_name.entry(name_of(service)).or_insert(service);
        }
        let description = &*description(cluster);
        let pairs: Vec<_> = addresses
            .into_iter()
            .map(|(name, wanted)| {
                let found = by_name.get(&*name).map(|found| (*found).clone());
                let ips = wanted.texts(found.as_ref());
                (found, name, ips)
            })
            .filter(|(.., ips)| !ips.is_empty())
            .collect();
        let made: Vec<(String, bool)> =
            stream::iter(pairs)
                .map(|(found, name, ips)| async move {
                    self.make_right(found, &name, stack, description, &ips).await
                })
                .buffer_unordered(CHANGES_AT_ONCE)
                .try_collect()
                .await?;
        let are_active = made.iter().all(|(_, is_active)| *is_active);
        let ids: BTreeSet<_> = made.into_iter().map(|(id, _)| id).collect();
        let mut others = self.ours(description, &known, found).await?;
        others.retain(|id, _| !ids.contains(id));
        Ok(Chosen { ids, are_active, others, held })
    }

    /// The external services of the cluster in the stack of this load balancer, which is about to be deleted.
    pub(super) async fn all(&self, cluster: &str, leaving: &LoadBalancerService) -> Result<Named> {
        let stack = leaving.common.stack_id.as_deref().unwrap_or_default();
        let known = self.client.external_services_of(stack).await?;
        self.ours(&description(cluster), &known, leaving).await
    }

    /// Those that are ours: with our description, or named by the load balancer. The latter get the description, so
    /// they are known as ours when no load balancer names them any more.
    async fn ours(
        &self,
        description: &str,
        known: &[ExternalService],
        found: &LoadBalancerService,
    ) -> Result<Named> {
        let named = plan::services_of(found);
        let mut ours = Named::new();
        for service in known {
            let is_marked = service.description.as_deref() == Some(description);
            let is_named = named.contains(&service.common.id);
            if !is_marked && is_named {
                self.client.describe_external_service(service, description).await?;
            }
            if is_marked || is_named {
                ours.insert(service.common.id.clone(), name_of(service).to_owned());
            }
        }
        Ok(ours)
    }

    /// Makes one external service right: it exists, has these addresses, and is active, if the server allows it now.
    /// Returns its ID and whether it is active.
    async fn make_right(
        &self,
        found: Option<ExternalService>,
        name: &str,
        stack: &str,
        description: &str,
        ips: &[String],
    ) -> Result<(String, bool)> {
        if let Some(found) = found.as_ref().filter(|found| has_addresses(found, ips)) {
            let is_active = found.common.is_active();
            // The action is not offered while the server still registers the service: then a later call does it.
            if is_active || !found.common.actions.contains_key(ACTIVATE) {
                return Ok((found.common.id.clone(), is_active));
            }
        }
        let _changing = self.changing.lock(name).await;
        // Another load balancer may have changed it since the listing.
        let service = match self.client.external_service_named(name, stack).await? {
            None => self.client.create_external_service(name, stack, description, ips).await?,
            Some(found) if found.common.is_being_removed() => {
                let words = format!("external service {name} is being removed");
                return Err(Error::in_progress(self.retry_interval, words));
            }
            Some(found) if has_addresses(&found, ips) => found,
            Some(found) => self.client.update_external_service(&found.common.id, ips).await?,
        };
        let is_active = service.common.is_active()
            || self.client.act(&service.common.actions, ACTIVATE, &json!({})).await?;
        Ok((service.common.id, is_active))
    }

    /// The addresses of these nodes by the names of their external services. Nodes whose names become one share it. A
    /// node whose host has no address, or that has no host, is left out.
    ///
    /// # Errors
    /// If the hosts have not been listed: a load balancer must not lose its Nodes for that.
    fn addresses(&self, nodes: &[&NodeIdentity]) -> Result<BTreeMap<String, Wanted>> {
        let mut by_name: BTreeMap<String, Wanted> = BTreeMap::new();
        let state = self.hosts.state();
        state.check_listed()?;
        for node in nodes {
            let name = external_service_name(&node.name);
            match address_of(node, &state) {
                Ok(Some(ip)) => drop(by_name.entry(name).or_default().ips.insert(ip)),
                Ok(None) => tracing::warn!(
                    node = node.name,
                    "Rancher has no host with an IP address for the node, so no load balancer sends to it"
                ),
                Err(error) => {
                    tracing::warn!(
                        node = node.name,
                        error = error.report(),
                        "the address of the node's host is not known now, so load balancers keep what they have of it"
                    );
                    by_name.entry(name).or_default().is_uncertain = true;
                }
            }
        }
        Ok(by_name)
    }

    /// Deletes those of these external services that no load balancer of the stack but `leaving` names, and that nobody
    /// is choosing.
    pub(super) async fn delete_unused(
        &self,
        stack: &str,
        leaving: Option<&str>,
        unused: Named,
    ) -> Result<()> {
        // Usually others use them: then nobody has to wait.
        let mut unused = self.not_named(stack, leaving, unused).await?;
        if unused.is_empty() {
            return Ok(());
        }
        let _deleting = self.deleting.lock().await;
        let mut held = Vec::new();
        // Whoever is choosing one either names it soon, or deletes it with its own load balancer.
        unused.retain(|_, name| {
            let lock = self.choosing.try_lock(name);
            let is_free = lock.is_some();
            held.extend(lock);
            is_free
        });
        for id in self.not_named(stack, leaving, unused).await?.keys() {
            self.client.delete_external_service(id).await?;
        }
        Ok(())
    }

    async fn not_named(&self, stack: &str, leaving: Option<&str>, mut services: Named) -> Result<Named> {
        if services.is_empty() {
            return Ok(services);
        }
        let balancers = self.client.load_balancers_of(stack).await?;
        for other in balancers.iter().filter(|other| leaving != Some(&other.common.id)) {
            for named in plan::services_of(other) {
                services.remove(&named);
            }
        }
        Ok(services)
    }

    /// Deletes what is left in this stack of load balancers that are gone.
    pub(super) async fn delete_leftovers(&self, cluster: &str, stack: &str) -> Result<()> {
        let known = self.client.external_services_of(stack).await?;
        let ours = self.ours(&description(cluster), &known, &LoadBalancerService::default()).await?;
        self.delete_unused(stack, None, ours).await
    }
}

/// The action that makes a service work.
pub(super) const ACTIVATE: &str = "activate";

fn name_of(service: &ExternalService) -> &str {
    service.common.name.as_deref().unwrap_or_default()
}

fn has_addresses(service: &ExternalService, ips: &[String]) -> bool {
    service.external_ip_addresses.iter().collect::<BTreeSet<_>>() == ips.iter().collect()
}

/// The address that a load balancer reaches a node at: that of its host in Rancher. The addresses of the Node itself are its
/// kubelet's words, which may be anybody's. `None` if there is no such host, or if it has no address.
///
/// # Errors
/// If that cannot be said now.
fn address_of(node: &NodeIdentity, state: &State) -> Result<Option<IpAddr>> {
    let Ok(sought) = Sought::of(node) else { return Ok(None) };
    match (state.inventory.find(&sought)?, &state.trouble) {
        (Some(host), _) => Ok(host.ips.as_ref().map_err(Clone::clone)?.first().copied()),
        (None, Some((trouble, _))) => Err(trouble.clone()),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests;
