//! Load balancers of Cattle: a load balancer service in a stack of the cluster, which sends to one external
//! service for each Node. The names are those of rancher-cloud-controller-manager, so that its load balancers are
//! taken over.
//!
//! No call waits for the server to finish: the answer is then `InProgress`, and the controller asks again.

mod calls;
mod demand;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{
    Error, ErrorKind, LoadBalancer, LoadBalancerService as Service, LoadBalancerStatus, NodeAddressType,
    NodeIdentity, Result, async_trait,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::{sync::Mutex, time::timeout};

use self::{
    demand::{Demand, external_service_name, load_balancer_name},
    plan::Backends,
};
use super::{
    client::Client,
    inventory::{Hosts, State},
    model::{ExternalService, LaunchConfig, LoadBalancerService},
};
use crate::{config::LoadBalancerConfig, provider_id::parse_provider_id};

/// How many external services are changed at the same time.
const CHANGES_AT_ONCE: usize = 8;

/// How long a call waits for the first listing of the hosts.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);

/// The load balancers of a cluster.
#[derive(Debug)]
pub(crate) struct CattleLoadBalancers {
    client: Client,
    hosts: Arc<Hosts>,
    settings: LoadBalancerConfig,
    /// Held while load balancers and external services are changed: all load balancers share the external
    /// services, and one must not delete what another has just chosen.
    changing: Mutex<()>,
}

impl CattleLoadBalancers {
    /// Load balancers that are made with this client.
    pub(crate) fn new(client: Client, hosts: Arc<Hosts>, settings: LoadBalancerConfig) -> Self {
        Self { client, hosts, settings, changing: Mutex::new(()) }
    }

    fn in_progress(&self, message: String) -> Error {
        Error::in_progress(self.settings.retry_interval, message)
    }

    /// The load balancer with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several. [`ErrorKind::Unavailable`] if the server shows none, and
    /// not one host either: a key of another project sees neither.
    async fn find(&self, name: &str) -> Result<Option<LoadBalancerService>> {
        let mut found = self.client.load_balancers_named(name).await?;
        if found.len() > 1 {
            let ids: Vec<_> = found.iter().map(|one| one.id.as_str()).collect();
            let words =
                format!("several load balancers are called {name}: {}; delete all but one", ids.join(", "));
            return Err(Error::new(ErrorKind::Ambiguous, words));
        }
        if found.is_empty() {
            self.check_hosts().await?;
        }
        Ok(found.pop())
    }

    /// Makes sure that this is the project of the cluster's hosts. Waits a little for the first listing.
    async fn check_hosts(&self) -> Result<()> {
        let mut versions = self.hosts.versions();
        let is_known = || {
            let state = self.hosts.state();
            state.listed.is_some() || state.trouble.is_some()
        };
        let known = async {
            loop {
                versions.mark_unchanged();
                if is_known() {
                    return;
                }
                // The sender is in `self.hosts`, so this cannot fail.
                let _ = versions.changed().await;
            }
        };
        // What is known then decides.
        let _ = timeout(LISTING_TIMEOUT, known).await;
        let state = self.hosts.state();
        let why = match &state.trouble {
            Some((error, _)) => error.report(),
            None if state.listed.is_none() => "the hosts have not been listed yet".to_owned(),
            None if state.inventory.len() == 0 => "no host exists".to_owned(),
            None => return Ok(()),
        };
        let words = format!("cannot tell whether there is a load balancer: {why}");
        let error = Error::new(ErrorKind::Unavailable, words);
        let after = state.trouble.as_ref().and_then(|(error, _)| error.retry_after());
        Err(after.into_iter().fold(error, Error::with_retry_after))
    }

    /// The load balancer with this name, made if there is none.
    async fn find_or_create(&self, name: &str, demand: &Demand) -> Result<LoadBalancerService> {
        if let Some(found) = self.find(name).await? {
            return Ok(found);
        }
        let stack = self.client.stack(&self.settings.stack_name, &self.settings.stack_external_id).await?;
        let image = self.client.setting(&self.settings.image_setting).await?;
        let launch_config = LaunchConfig {
            ports: plan::ports(demand),
            image_uuid: Some(format!("docker:{image}")),
            ..LaunchConfig::default()
        };
        tracing::info!(load_balancer = name, "creating the load balancer");
        self.client.create_load_balancer(name, &stack.id, &launch_config).await
    }

    /// Makes a load balancer do what is demanded, as far as the server does it at once. The lock is held.
    ///
    /// # Errors
    /// [`ErrorKind::InProgress`] if the server has to finish something first.
    async fn change(
        &self,
        cluster: &str,
        found: LoadBalancerService,
        demand: &Demand,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerService> {
        if found.state.as_deref() == Some("removing") {
            return Err(self.in_progress(format!("load balancer {} is being removed", found.id)));
        }
        let stack = found.stack_id.clone().unwrap_or_default();
        let known = self.client.external_services_of(&stack).await?;
        let backends = self.external_services(cluster, &stack, &known, nodes).await?;
        let is_ready = backends.iter().all(|(_, is_ready)| *is_ready);
        let services = backends.into_iter().map(|(id, _)| id).collect();
        let ours = self.ours(cluster, &known, &found).await?;
        let changed = self.send_to(found, demand, &services).await?;
        self.delete_unused(&stack, None, ours.difference(&services).cloned().collect()).await?;
        if !is_ready {
            let words = format!("the external services of load balancer {} are not active yet", changed.id);
            return Err(self.in_progress(words));
        }
        Ok(changed)
    }

    /// Makes a load balancer send to these external services.
    async fn send_to(
        &self,
        found: LoadBalancerService,
        demand: &Demand,
        services: &BTreeSet<String>,
    ) -> Result<LoadBalancerService> {
        let Some(change) = plan::change(&found, demand, services) else { return Ok(found) };
        if let Some(links) = &change.links {
            let links: Vec<_> = links.iter().map(|id| json!({"serviceId": id})).collect();
            let input = json!({"type": "setServiceLinksInput", "serviceLinks": links});
            if !self.client.act(&found.actions, "setservicelinks", &input).await? {
                return Err(
                    self.in_progress(format!("load balancer {} is not ready for its services yet", found.id))
                );
            }
        }
        let changed = self
            .client
            .update_load_balancer(&found.id, &change.lb_config, change.launch_config.as_ref())
            .await?;
        if change.launch_config.is_some() && !plan::has_ports(&changed, demand) {
            tracing::warn!(
                load_balancer = found.id,
                "Rancher does not change the ports, so the load balancer is made anew"
            );
            self.client.delete_load_balancer(&found.id).await?;
            return Err(
                self.in_progress(format!("load balancer {} is made anew, with other ports", found.id))
            );
        }
        Ok(changed)
    }

    /// The external services that are ours: those with our description, and those that the load balancer sends
    /// to, which get it. So they are known as ours when no load balancer names them any more.
    async fn ours(
        &self,
        cluster: &str,
        known: &[ExternalService],
        found: &LoadBalancerService,
    ) -> Result<BTreeSet<String>> {
        let (description, named) = (plan::description(cluster), plan::services_of(found));
        let mut ours = BTreeSet::new();
        for service in known {
            let is_marked = service.description.as_deref() == Some(&*description);
            if !is_marked && named.contains(&service.id) {
                self.client.describe_external_service(service, &description).await?;
            }
            if is_marked || named.contains(&service.id) {
                ours.insert(service.id.clone());
            }
        }
        Ok(ours)
    }

    /// Makes the external services of these nodes right. Returns their IDs, each with whether it is active.
    async fn external_services(
        &self,
        cluster: &str,
        stack: &str,
        known: &[ExternalService],
        nodes: &[&NodeIdentity],
    ) -> Result<Vec<(String, bool)>> {
        let mut by_name: BTreeMap<&str, &ExternalService> = BTreeMap::new();
        for service in known {
            by_name.entry(service.name.as_deref().unwrap_or_default()).or_insert(service);
        }
        let description = &*plan::description(cluster);
        let wanted = self.backends(nodes);
        let pairs: Vec<_> = wanted
            .into_iter()
            .map(|(name, ips)| {
                let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
                (by_name.get(&*name).map(|found| (*found).clone()), name, ips)
            })
            .collect();
        stream::iter(pairs)
            .map(|(found, name, ips)| async move {
                self.external_service(found, &name, stack, description, &ips).await
            })
            .buffer_unordered(CHANGES_AT_ONCE)
            .try_collect()
            .await
    }

    /// Makes one external service right: it exists, has these addresses, and is active, if the server allows it now.
    async fn external_service(
        &self,
        found: Option<ExternalService>,
        name: &str,
        stack: &str,
        description: &str,
        ips: &[String],
    ) -> Result<(String, bool)> {
        let service = match found {
            None => self.client.create_external_service(name, stack, description, ips).await?,
            Some(found) => {
                let has: BTreeSet<_> = found.external_ip_addresses.iter().collect();
                if has == ips.iter().collect() {
                    found
                } else {
                    self.client.update_external_service(&found.id, ips).await?
                }
            }
        };
        // The action is not offered while the server still registers the service: then a later call does it.
        let is_ready = is_active(service.state.as_deref())
            || self.client.act(&service.actions, "activate", &json!({})).await?;
        Ok((service.id, is_ready))
    }

    /// The addresses of these nodes. A node without an address is left out.
    fn backends(&self, nodes: &[&NodeIdentity]) -> Backends {
        let mut backends = Backends::new();
        let state = self.hosts.state();
        for node in nodes {
            match address_of(node, &state) {
                Some(ip) => drop(backends.entry(external_service_name(&node.name)).or_default().insert(ip)),
                None => tracing::warn!(
                    node = node.name,
                    "the node has no IP address, so no load balancer sends to it"
                ),
            }
        }
        backends
    }

    /// Deletes those of these external services that no load balancer of the stack but `leaving` names.
    async fn delete_unused(
        &self,
        stack: &str,
        leaving: Option<&str>,
        mut unused: BTreeSet<String>,
    ) -> Result<()> {
        if unused.is_empty() {
            return Ok(());
        }
        let balancers = self.client.load_balancers_of(stack).await?;
        for other in balancers.iter().filter(|other| leaving != Some(&other.id)) {
            for used in plan::services_of(other) {
                unused.remove(&used);
            }
        }
        for id in &unused {
            self.client.delete_external_service(id).await?;
        }
        Ok(())
    }

    /// Deletes what is left of load balancers that are gone.
    async fn delete_leftovers(&self, cluster: &str) -> Result<()> {
        let LoadBalancerConfig { stack_name, stack_external_id, .. } = &self.settings;
        let Some(stack) = self.client.find_stack(stack_name, stack_external_id).await? else { return Ok(()) };
        let known = self.client.external_services_of(&stack.id).await?;
        let ours = self.ours(cluster, &known, &LoadBalancerService::default()).await?;
        self.delete_unused(&stack.id, None, ours).await
    }

    /// The status of a load balancer, once it is active and has addresses.
    async fn status_of(&self, found: &LoadBalancerService) -> Result<LoadBalancerStatus> {
        let state = found.state.as_deref();
        if !is_active(state) {
            let offered = self.client.act(&found.actions, "activate", &json!({})).await?;
            let words = if offered { "is being activated" } else { "is not ready yet" };
            return Err(self.in_progress(format!("load balancer {} {words}", found.id)));
        }
        let status = plan::status(found);
        if state == Some("activating") || status.ingress.is_empty() {
            return Err(self.in_progress(format!("load balancer {} has no address yet", found.id)));
        }
        Ok(status)
    }
}

/// Whether a service is active, or about to be.
fn is_active(state: Option<&str>) -> bool {
    matches!(state, Some("active" | "activating" | "updating-active"))
}

/// The address that a load balancer reaches a node at: that of its host, or else the Node's own.
fn address_of(node: &NodeIdentity, state: &State) -> Option<std::net::IpAddr> {
    let host = match node.provider_id.as_deref().map(parse_provider_id) {
        Some(Ok(uuid)) => state.inventory.with_uuid(&uuid),
        Some(Err(_)) => Ok(None),
        None => state.inventory.with_name(&node.name),
    };
    let of_host = host.ok().flatten().and_then(|known| known.ips.as_ref().ok()?.first().copied());
    let of_type = |wanted: NodeAddressType| {
        let mut addresses = node.addresses.iter();
        addresses.find(|one| one.address_type == wanted).and_then(|one| one.address.parse().ok())
    };
    of_host.or_else(|| of_type(NodeAddressType::InternalIp)).or_else(|| of_type(NodeAddressType::ExternalIp))
}

#[async_trait]
impl LoadBalancer for CattleLoadBalancers {
    fn name(&self, _: &str, service: &Service) -> String {
        load_balancer_name(service)
    }

    async fn get(&self, _: &str, service: &Service) -> Result<Option<LoadBalancerStatus>> {
        Ok(self.find(&load_balancer_name(service)).await?.as_ref().map(plan::status))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        let demand = Demand::of(service)?;
        let changed = {
            let _changing = self.changing.lock().await;
            let found = self.find_or_create(&load_balancer_name(service), &demand).await?;
            self.change(cluster, found, &demand, nodes).await?
        };
        self.status_of(&changed).await
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[&NodeIdentity]) -> Result<()> {
        let demand = Demand::of(service)?;
        let name = load_balancer_name(service);
        let _changing = self.changing.lock().await;
        let Some(found) = self.find(&name).await? else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no load balancer {name}")));
        };
        self.change(cluster, found, &demand, nodes).await.map(drop)
    }

    async fn delete(&self, cluster: &str, service: &Service) -> Result<()> {
        let name = load_balancer_name(service);
        let _changing = self.changing.lock().await;
        let Some(found) = self.find(&name).await? else { return self.delete_leftovers(cluster).await };
        if found.state.as_deref() != Some("removing") {
            // First, while its rules say which ones it adopted.
            let stack = found.stack_id.clone().unwrap_or_default();
            let known = self.client.external_services_of(&stack).await?;
            let ours = self.ours(cluster, &known, &found).await?;
            self.delete_unused(&stack, Some(&found.id), ours).await?;
            tracing::info!(load_balancer = name, "deleting the load balancer");
            self.client.delete_load_balancer(&found.id).await?;
            if self.find(&name).await?.is_none() {
                return Ok(());
            }
        }
        Err(self.in_progress(format!("load balancer {} is being removed", found.id)))
    }
}
