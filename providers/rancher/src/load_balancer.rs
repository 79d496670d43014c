//! Load balancers of Cattle: a load balancer service in a stack of the cluster, which sends to one external
//! service for each Node. The names are those of rancher-cloud-controller-manager, so that its load balancers are
//! taken over.
//!
//! No call waits for the server to finish: the answer is then `InProgress`, and the controller asks again.

mod demand;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cloudprovider::{
    Error, ErrorKind, LoadBalancer, LoadBalancerService as Service, LoadBalancerStatus, NodeAddressType,
    NodeIdentity, Result, async_trait,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::sync::Mutex;

use self::{
    demand::{Demand, external_service_name, load_balancer_name},
    plan::Backends,
};
use crate::{
    cattle::{
        client::Client,
        inventory::{Hosts, State},
        model::{ExternalService, LaunchConfig, LoadBalancerService},
    },
    config::LoadBalancerConfig,
    provider_id::parse_provider_id,
};

/// How many external services are changed at the same time.
const CHANGES_AT_ONCE: usize = 8;

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
    /// [`ErrorKind::Ambiguous`] if there are several.
    async fn find(&self, name: &str) -> Result<Option<LoadBalancerService>> {
        let mut found = self.client.load_balancers_named(name).await?;
        if found.len() > 1 {
            let ids: Vec<_> = found.iter().map(|one| one.id.as_str()).collect();
            let words =
                format!("several load balancers are called {name}: {}; delete all but one", ids.join(", "));
            return Err(Error::new(ErrorKind::Ambiguous, words));
        }
        Ok(found.pop())
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
        found: LoadBalancerService,
        demand: &Demand,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerService> {
        if found.state.as_deref() == Some("removing") {
            return Err(self.in_progress(format!("load balancer {} is being removed", found.id)));
        }
        let stack = found.stack_id.clone().unwrap_or_default();
        let backends = self.external_services(&stack, nodes).await?;
        let is_ready = backends.iter().all(|(_, is_ready)| *is_ready);
        let services = backends.into_iter().map(|(id, _)| id).collect();
        let changed = self.send_to(found, demand, &stack, &services).await?;
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
        stack: &str,
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
        let unused: BTreeSet<_> = plan::services_of(&found).difference(services).cloned().collect();
        self.delete_unused(stack, &found.id, unused).await?;
        Ok(changed)
    }

    /// Makes the external services of these nodes right. Returns their IDs, each with whether it is active.
    async fn external_services(&self, stack: &str, nodes: &[&NodeIdentity]) -> Result<Vec<(String, bool)>> {
        let wanted = self.backends(nodes);
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut known: BTreeMap<String, ExternalService> = BTreeMap::new();
        for service in self.client.external_services_of(stack).await? {
            known.entry(service.name.clone().unwrap_or_default()).or_insert(service);
        }
        let pairs: Vec<_> = wanted
            .into_iter()
            .map(|(name, ips)| {
                let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
                (known.remove(&name), name, ips)
            })
            .collect();
        stream::iter(pairs)
            .map(|(found, name, ips)| async move { self.external_service(found, &name, stack, &ips).await })
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
        ips: &[String],
    ) -> Result<(String, bool)> {
        let service = match found {
            None => self.client.create_external_service(name, stack, ips).await?,
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

    /// Deletes those of the external services that no load balancer but this one uses.
    async fn delete_unused(
        &self,
        stack: &str,
        load_balancer: &str,
        mut unused: BTreeSet<String>,
    ) -> Result<()> {
        if unused.is_empty() {
            return Ok(());
        }
        for other in
            self.client.load_balancers_of(stack).await?.iter().filter(|other| other.id != load_balancer)
        {
            for used in plan::services_of(other) {
                unused.remove(&used);
            }
        }
        // Only what stands in our stack is ours.
        let ours: BTreeSet<_> =
            self.client.external_services_of(stack).await?.into_iter().map(|one| one.id).collect();
        for id in unused.intersection(&ours) {
            self.client.delete_external_service(id).await?;
        }
        Ok(())
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
        _: &str,
        service: &Service,
        nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        let demand = Demand::of(service)?;
        let changed = {
            let _changing = self.changing.lock().await;
            let found = self.find_or_create(&load_balancer_name(service), &demand).await?;
            self.change(found, &demand, nodes).await?
        };
        self.status_of(&changed).await
    }

    async fn update(&self, _: &str, service: &Service, nodes: &[&NodeIdentity]) -> Result<()> {
        let demand = Demand::of(service)?;
        let name = load_balancer_name(service);
        let _changing = self.changing.lock().await;
        let Some(found) = self.find(&name).await? else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no load balancer {name}")));
        };
        self.change(found, &demand, nodes).await.map(drop)
    }

    async fn delete(&self, _: &str, service: &Service) -> Result<()> {
        let name = load_balancer_name(service);
        let _changing = self.changing.lock().await;
        let Some(found) = self.find(&name).await? else { return Ok(()) };
        if found.state.as_deref() != Some("removing") {
            // First, since nobody would find them without the load balancer.
            let stack = found.stack_id.clone().unwrap_or_default();
            self.delete_unused(&stack, &found.id, plan::services_of(&found)).await?;
            tracing::info!(load_balancer = name, "deleting the load balancer");
            self.client.delete_load_balancer(&found.id).await?;
            if self.find(&name).await?.is_none() {
                return Ok(());
            }
        }
        Err(self.in_progress(format!("load balancer {} is being removed", found.id)))
    }
}
