//! Load balancers of Cattle: a load balancer service in a stack of the cluster, which sends to one external
//! service for each Node. The names are those of rancher-cloud-controller-manager, so that its load balancers are
//! taken over.
//!
//! No call waits for the server to finish: the answer is then `InProgress`, and the controller asks again.

mod calls;
mod demand;
mod external_services;
mod haproxy;
mod locks;
mod plan;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, LoadBalancer, LoadBalancerService as Service, LoadBalancerStatus, NodeIdentity, Result,
    async_trait,
};
use serde_json::json;
use tokio::sync::Mutex;

use self::{
    demand::{Demand, load_balancer_name},
    external_services::{ACTIVATE, ExternalServices},
    locks::NameLocks,
};
use super::{
    client::Client,
    inventory::Hosts,
    model::{LaunchConfig, LoadBalancerService, Stack},
};
use crate::config::CattleConfig;

/// The load balancers of a cluster.
#[derive(Debug)]
pub(crate) struct CattleLoadBalancers {
    client: Client,
    hosts: Arc<Hosts>,
    settings: CattleConfig,
    retry_interval: Duration,
    external_services: ExternalServices,
    /// Held while a load balancer is changed. Different ones are changed at the same time.
    changing: NameLocks,
    /// Held while the stack is made, so that it is made once.
    making_stack: Mutex<()>,
}

impl CattleLoadBalancers {
    /// Load balancers that are made with this client.
    pub(crate) fn new(
        client: Client,
        hosts: Arc<Hosts>,
        settings: CattleConfig,
        retry_interval: Duration,
    ) -> Self {
        let external_services = ExternalServices::new(client.clone(), Arc::clone(&hosts), retry_interval);
        let (changing, making_stack) = (NameLocks::default(), Mutex::default());
        Self { client, hosts, settings, retry_interval, external_services, changing, making_stack }
    }

    fn demand(&self, service: &Service) -> Result<Demand> {
        Demand::of(service, &self.settings.reserved_ports)
    }

    fn in_progress(&self, message: String) -> Error {
        Error::in_progress(self.retry_interval, message)
    }

    /// The load balancer with this name.
    ///
    /// # Errors
    /// [`ErrorKind::Ambiguous`] if there are several. [`ErrorKind::Unavailable`] if the server shows none, and
    /// not one host either: a key of another project sees neither.
    async fn find(&self, name: &str) -> Result<Option<LoadBalancerService>> {
        let mut found = self.client.load_balancers_named(name).await?;
        if found.len() > 1 {
            let ids: Vec<_> = found.iter().map(|one| one.common.id.as_str()).collect();
            let words =
                format!("several load balancers are called {name}: {}; delete all but one", ids.join(", "));
            return Err(Error::new(ErrorKind::Ambiguous, words));
        }
        if found.is_empty() {
            self.check_hosts().await?;
        }
        Ok(found.pop())
    }

    /// Makes sure that this is the project of the cluster's hosts.
    async fn check_hosts(&self) -> Result<()> {
        self.hosts.first_listing().await;
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
        let stack = self.stack().await?;
        let image = self.client.setting(&self.settings.image_setting).await?;
        let launch_config = LaunchConfig {
            ports: plan::ports(demand),
            image_uuid: Some(format!("docker:{image}")),
            ..LaunchConfig::default()
        };
        tracing::info!(load_balancer = name, "creating the load balancer");
        self.client.create_load_balancer(name, &stack.id, &launch_config).await
    }

    async fn find_stack(&self) -> Result<Option<Stack>> {
        self.client.find_stack(&self.settings.stack_name, &self.settings.stack_external_id).await
    }

    /// The stack of all load balancers, made if there is none.
    async fn stack(&self) -> Result<Stack> {
        let mut found = self.find_stack().await?;
        if found.is_none() {
            let _making = self.making_stack.lock().await;
            // Another load balancer may have made it.
            found = self.find_stack().await?;
            if found.is_none() {
                let CattleConfig { stack_name, stack_external_id, .. } = &self.settings;
                return self.client.create_stack(stack_name, stack_external_id).await;
            }
        }
        match found {
            Some(stack) if !stack.is_being_removed() => Ok(stack),
            _ => Err(self.in_progress(format!("stack {} is being removed", self.settings.stack_name))),
        }
    }

    /// Makes a load balancer do what is demanded, as far as the server does it at once. Its lock is held.
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
        if found.common.is_being_removed() {
            return Err(self.in_progress(format!("load balancer {} is being removed", found.common.id)));
        }
        let stack = found.common.stack_id.clone().unwrap_or_default();
        let chosen = self.external_services.choose(cluster, &found, nodes).await?;
        let changed = self.send_to(found, demand, &chosen.ids).await?;
        drop(chosen.held);
        self.external_services.delete_unused(&stack, None, chosen.others).await?;
        if !chosen.are_active {
            let id = &changed.common.id;
            return Err(
                self.in_progress(format!("the external services of load balancer {id} are not active yet"))
            );
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
        let id = &found.common.id;
        let not_yet = || self.in_progress(format!("load balancer {id} does not have its ports yet"));
        if change.launch_config.is_some() && found.common.is_updating() {
            return Err(not_yet());
        }
        if let Some(links) = &change.links {
            let links: Vec<_> = links.iter().map(|id| json!({"serviceId": id})).collect();
            let input = json!({"type": "setServiceLinksInput", "serviceLinks": links});
            if !self.client.act(&found.common.actions, "setservicelinks", &input).await? {
                return Err(self.in_progress(format!("load balancer {id} is not ready for its services yet")));
            }
        }
        let changed =
            self.client.update_load_balancer(id, &change.lb_config, change.launch_config.as_ref()).await?;
        if change.launch_config.is_none() {
            return Ok(changed);
        }
        // The answer to a change may show what was asked for, or what was there before.
        let changed = self.client.load_balancer(id).await?;
        if plan::has_ports(&changed, demand) {
            return Ok(changed);
        }
        if changed.common.is_updating() {
            return Err(not_yet());
        }
        tracing::warn!(
            load_balancer = id,
            "Rancher does not change the ports, so the load balancer is made anew"
        );
        self.client.delete_load_balancer(id).await?;
        Err(self.in_progress(format!("load balancer {id} is made anew, with other ports")))
    }

    /// The status of a load balancer, once it is active and has addresses.
    async fn status_of(&self, found: &LoadBalancerService) -> Result<LoadBalancerStatus> {
        let fields = &found.common;
        if !fields.is_active() {
            let offered = self.client.act(&fields.actions, ACTIVATE, &json!({})).await?;
            let words = if offered { "is being activated" } else { "is not ready yet" };
            return Err(self.in_progress(format!("load balancer {} {words}", fields.id)));
        }
        let status = plan::status(found);
        if fields.state.as_deref() == Some("activating") || status.ingress.is_empty() {
            return Err(self.in_progress(format!("load balancer {} has no address yet", fields.id)));
        }
        Ok(status)
    }

    /// Deletes what is left of load balancers that are gone.
    async fn delete_leftovers(&self, cluster: &str) -> Result<()> {
        match self.find_stack().await? {
            // Everything in it goes with it.
            Some(stack) if stack.is_being_removed() => Ok(()),
            Some(stack) => self.external_services.delete_leftovers(cluster, &stack.id).await,
            None => Ok(()),
        }
    }
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
        let (demand, name) = (self.demand(service)?, load_balancer_name(service));
        let _changing = self.changing.lock(&name).await;
        let found = self.find_or_create(&name, &demand).await?;
        let changed = self.change(cluster, found, &demand, nodes).await?;
        self.status_of(&changed).await
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[&NodeIdentity]) -> Result<()> {
        let (demand, name) = (self.demand(service)?, load_balancer_name(service));
        let _changing = self.changing.lock(&name).await;
        let Some(found) = self.find(&name).await? else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no load balancer {name}")));
        };
        self.change(cluster, found, &demand, nodes).await.map(drop)
    }

    async fn delete(&self, cluster: &str, service: &Service) -> Result<()> {
        let name = load_balancer_name(service);
        let _changing = self.changing.lock(&name).await;
        let Some(found) = self.find(&name).await? else { return self.delete_leftovers(cluster).await };
        let id = &found.common.id;
        if !found.common.is_being_removed() {
            // While its rules say which ones it adopted.
            let all = self.external_services.all(cluster, &found).await?;
            tracing::info!(load_balancer = name, "deleting the load balancer");
            self.client.delete_load_balancer(id).await?;
            // Afterwards, so that the last one of several that are deleted at once leaves nothing.
            let stack = found.common.stack_id.as_deref().unwrap_or_default();
            self.external_services.delete_unused(stack, Some(id), all).await?;
            if self.find(&name).await?.is_none() {
                return Ok(());
            }
        }
        Err(self.in_progress(format!("load balancer {id} is being removed")))
    }
}
