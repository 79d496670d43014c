//! Load balancers of Harvester, for clusters whose machines are its virtual machines: one `LoadBalancer`
//! object in Harvester for each Service. Harvester gives the address; kube-vip in the cluster announces it,
//! and kube-proxy does the rest. The names and annotations are those of harvester-cloud-provider.
//!
//! ```text
//!   Service ──> demand ─┐
//!   object in Harvester ─┴─> plan (pure) ──> api ──> Harvester's API server
//!                                   address ──> annotations of the Service, for kube-vip
//! ```
//!
//! - The name and the owner's label are fixed by the Service's UID, before the object is created. So a crash
//!   at any point leaves an object that is found again, and nothing without the label is changed or deleted.
//! - No call waits: while Harvester works, the answer is `InProgress`.

mod api;
mod demand;
mod object;
mod plan;
#[cfg(test)]
mod testing;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use address_pools::{Announcer, Outcome};
use cloudprovider::{
    Error, ErrorKind, IpMode, LoadBalancer, LoadBalancerIngress, LoadBalancerService, LoadBalancerStatus,
    NodeIdentity, Result, ServiceAccess, ServiceAccessNeeds, ServiceRef, StartContext, async_trait,
};

use self::{
    api::{Created, HarvesterApi},
    demand::Demand,
    plan::Step,
};
use crate::config::{HarvesterAnnouncer, HarvesterConfig};

/// How often an object is read again that was created after a read had not found it.
const ATTEMPTS: usize = 3;

/// The load balancers of a cluster in Harvester.
#[derive(Debug)]
pub(crate) struct HarvesterLoadBalancers {
    settings: HarvesterConfig,
    retry_interval: Duration,
    timeout: Duration,
    started: OnceLock<Started>,
}

#[derive(Debug)]
struct Started {
    api: HarvesterApi,
    services: Arc<dyn ServiceAccess>,
}

impl HarvesterLoadBalancers {
    /// Load balancers with these settings. `timeout` is for one call.
    pub(crate) fn new(settings: HarvesterConfig, retry_interval: Duration, timeout: Duration) -> Self {
        Self { settings, retry_interval, timeout, started: OnceLock::new() }
    }

    /// What it does with [`StartContext::services`].
    pub(crate) fn needs(&self) -> ServiceAccessNeeds {
        ServiceAccessNeeds {
            changes: self.announcer() == Announcer::KubeVip,
            ..ServiceAccessNeeds::default()
        }
    }

    /// Opens no connection yet.
    ///
    /// # Errors
    /// If there can be no client with these settings, or it was started already.
    pub(crate) fn start(&self, context: &StartContext) -> Result<()> {
        let namespace = &self.settings.namespace;
        let client = self.settings.access.client(namespace, self.timeout).map_err(|error| {
            Error::new(ErrorKind::InvalidConfiguration, "the kubeconfig of Harvester is of no use")
                .with_source(error)
        })?;
        let api = HarvesterApi::new(client, namespace, self.timeout);
        let started = Started { api, services: Arc::clone(&context.services) };
        let again = |_| Error::new(ErrorKind::Conflict, "the load balancer was started already");
        self.started.set(started).map_err(again)
    }

    fn started(&self) -> Result<&Started> {
        let not_started = || Error::new(ErrorKind::Unavailable, "the load balancer was not started");
        self.started.get().ok_or_else(not_started)
    }

    fn announcer(&self) -> Announcer {
        match self.settings.announcer {
            HarvesterAnnouncer::KubeVip => Announcer::KubeVip,
            HarvesterAnnouncer::None => Announcer::Nobody,
        }
    }

    fn in_progress(&self, message: impl Into<String>) -> Error {
        Error::in_progress(self.retry_interval, message.into())
    }

    /// The object as the Service wants it.
    async fn ensure_object(
        &self,
        api: &HarvesterApi,
        name: &str,
        demand: &Demand,
    ) -> Result<object::LoadBalancer> {
        for _ in 0..ATTEMPTS {
            let found = api.get(name).await?;
            match (plan::step(found.as_ref(), demand)?, found) {
                (Step::Keep, Some(found)) => return Ok(found),
                (Step::Change(patch), _) => {
                    return api.change(name, &patch).await.map_err(|error| self.soon_again(error));
                }
                (Step::Create, _) => {
                    tracing::info!(load_balancer = name, "creating the load balancer in Harvester");
                    for which in &demand.left_out {
                        tracing::info!(
                            load_balancer = name,
                            "the Service's annotation {which} is left out: loadBalancer.harvester.serviceAnnotations does not have it"
                        );
                    }
                    match api.create(name, &plan::object(name, api.namespace(), demand)).await? {
                        Created::New(made) => {
                            if let Some(what) = plan::overwritten(&made, demand) {
                                tracing::warn!(load_balancer = name, "Harvester decided otherwise: {what}");
                            }
                            return Ok(*made);
                        }
                        Created::Exists => {}
                    }
                }
                (Step::Wait | Step::Keep, _) => {
                    return Err(
                        self.in_progress(format!("load balancer {name} is being deleted in Harvester"))
                    );
                }
            }
        }
        Err(self.in_progress(format!("load balancer {name} comes and goes in Harvester")))
    }

    /// Harvester's controller writes too, so a conflict is no fault.
    fn soon_again(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Conflict => self.in_progress(error.report()),
            _ => error,
        }
    }

    /// The address that Harvester gave.
    fn address(&self, found: &object::LoadBalancer, demand: &Demand) -> Result<IpAddr> {
        match (plan::allocated(found), plan::trouble(found), &demand.asked_address) {
            (Some(address), _, Some(asked)) if !asked.is(address) => Err(asked.refusal()),
            (Some(address), ..) => Ok(address),
            (None, Some(trouble), _) => {
                Err(Error::new(ErrorKind::Unavailable, format!("Harvester gives no address: {trouble}")))
            }
            (None, None, _) => Err(self.in_progress("Harvester has not given an address yet")),
        }
    }

    /// Tells kube-vip to announce the address.
    async fn announce(
        &self,
        services: &dyn ServiceAccess,
        service: &LoadBalancerService,
        address: IpAddr,
    ) -> Result<()> {
        let outcome = Outcome {
            addresses: &[address],
            interface: self.settings.interface.as_deref(),
            sharing_key: None,
        };
        let change = self.announcer().change(service, &outcome);
        if change.is_empty() {
            return Ok(());
        }
        services.change_service(&service_ref(service), &change).await
    }

    /// Shows people in Harvester the address in use. With DHCP that is what kube-vip wrote into the status.
    async fn show(
        &self,
        api: &HarvesterApi,
        name: &str,
        found: &object::LoadBalancer,
        (service, address): (&LoadBalancerService, IpAddr),
    ) {
        let in_use = if address == object::DHCP {
            let ip = service.status.ingress.first().and_then(|ingress| ingress.ip.as_deref());
            ip.and_then(|ip| ip.parse().ok())
        } else {
            Some(address)
        };
        let Some(patch) = in_use.and_then(|in_use| plan::shown(found, in_use)) else { return };
        // Traffic does not depend on it, and the next call tries again.
        if let Err(error) = api.change(name, &patch).await {
            tracing::debug!(
                load_balancer = name,
                error = error.report(),
                "Harvester does not show the address"
            );
        }
    }

    fn status(&self, service: &LoadBalancerService, found: &object::LoadBalancer) -> LoadBalancerStatus {
        if self.announcer() == Announcer::KubeVip {
            return service.status.clone();
        }
        let ingress = plan::allocated(found).map(|address| LoadBalancerIngress {
            ip: Some(address.to_string()),
            ip_mode: Some(IpMode::Vip),
            ..LoadBalancerIngress::default()
        });
        LoadBalancerStatus { ingress: ingress.into_iter().collect() }
    }
}

fn service_ref(service: &LoadBalancerService) -> ServiceRef {
    ServiceRef { namespace: service.namespace.clone(), name: service.name.clone(), uid: service.uid.clone() }
}

#[async_trait]
impl LoadBalancer for HarvesterLoadBalancers {
    fn name(&self, cluster: &str, service: &LoadBalancerService) -> String {
        demand::name(cluster, service)
    }

    async fn get(&self, cluster: &str, service: &LoadBalancerService) -> Result<Option<LoadBalancerStatus>> {
        let found = self.started()?.api.get(&demand::name(cluster, service)).await?;
        let ours = found.filter(|found| plan::is_of(found, &service.uid));
        Ok(ours.map(|found| self.status(service, &found)))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &LoadBalancerService,
        _: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        let Started { api, services } = self.started()?;
        let demand = Demand::of(cluster, service, &self.settings)?;
        let name = demand::name(cluster, service);
        let found = self.ensure_object(api, &name, &demand).await?;
        let address = self.address(&found, &demand)?;
        self.announce(&**services, service, address).await?;
        self.show(api, &name, &found, (service, address)).await;
        if self.announcer() == Announcer::KubeVip {
            // The controller must not bring back a status that kube-vip has changed since.
            let words = format!("kube-vip announces {address} and writes the status");
            return Err(Error::implemented_elsewhere(words));
        }
        Ok(self.status(service, &found))
    }

    /// Harvester gives the address only, and does not know the Nodes behind it.
    async fn update(&self, _: &str, _: &LoadBalancerService, _: &[&NodeIdentity]) -> Result<()> {
        let words = "kube-proxy on the Nodes finds the pods behind an address of Harvester";
        Err(Error::implemented_elsewhere(words))
    }

    async fn delete(&self, cluster: &str, service: &LoadBalancerService) -> Result<()> {
        let Started { api, services } = self.started()?;
        let name = demand::name(cluster, service);
        // First, so that kube-vip does not announce an address that Harvester gives to the next Service.
        let removal = self.announcer().removal(service);
        if self.announcer() == Announcer::KubeVip && !removal.is_empty() {
            match services.change_service(&service_ref(service), &removal).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let ours = |found: &object::LoadBalancer| plan::is_of(found, &service.uid);
        let Some(found) = api.get(&name).await?.filter(ours) else { return Ok(()) };
        if found.metadata.deletion_timestamp.is_none() {
            tracing::info!(load_balancer = name, "deleting the load balancer in Harvester");
            api.delete(&name, found.metadata.uid.as_deref().unwrap_or_default()).await?;
            if !api.get(&name).await?.is_some_and(|found| ours(&found)) {
                return Ok(());
            }
        }
        Err(self.in_progress(format!("load balancer {name} is being deleted in Harvester")))
    }
}
