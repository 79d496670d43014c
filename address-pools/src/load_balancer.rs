//! The load balancer over pools.

mod ensure;
mod upkeep;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock, Weak},
};

use announcing::LIFETIME;
use cloudprovider::{
    AddressUser, EndOfTerm, Error, ErrorKind, IpMode, LoadBalancer, LoadBalancerIngress, LoadBalancerService,
    LoadBalancerStatus, NodeIdentity, Result, ServiceAccessNeeds, ServiceRef, StartContext, UsedAddresses,
    async_trait, default_load_balancer_name,
};
use tokio_util::task::TaskTracker;

use crate::{
    announce::{Announce, Holds},
    config::Config,
    conventions::{Announcer, PICKED},
    current::CurrentPools,
    excess::LastExcess,
    host::HostAnnouncer,
    ledger::Ledger,
    local::{KubeProxy, LocalEndpoints, LocalServices},
    range::Family,
    request::DHCP,
    warnings::{Warnings, pools_in_use},
};

/// Load balancers that are addresses from pools.
///
/// Where kube-vip, MetalLB or Cilium announces the addresses, [`ensure`](LoadBalancer::ensure) ends with
/// [`ImplementedElsewhere`](ErrorKind::ImplementedElsewhere) when everything is done: the announcer writes the status, and
/// the controller leaves it alone.
#[derive(Debug)]
pub struct PooledLoadBalancer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    announcer: Announcer,
    pools: CurrentPools,
    /// Whether Services may ask for addresses that are in no pool.
    allows_outside_pools: bool,
    /// Addresses of the cloud itself.
    of_cloud: Arc<[IpAddr]>,
    excess: LastExcess,
    /// Set if the daemon itself announces.
    holds: Option<Arc<Holds>>,
    /// Announced Services with `externalTrafficPolicy: Local`.
    local: LocalServices,
    /// Set by the start.
    ledger: OnceLock<Ledger>,
    warnings: Warnings,
}

impl PooledLoadBalancer {
    /// A load balancer with this configuration. If that says so, it announces addresses on the interfaces of this host.
    pub fn new(config: Config) -> Self {
        Self::new_beside(config, Vec::new())
    }

    /// Like [`new`](Self::new), in a cloud that has these addresses itself, such as those of its hypervisors. No Service gets
    /// one of them.
    pub fn new_beside(config: Config, of_cloud: Vec<IpAddr>) -> Self {
        Self::of_parts(config, of_cloud, HostAnnouncer::of_process(), Box::new(KubeProxy))
    }

    /// Like [`new`](Self::new), with other parts than those of this host: what announces addresses, and what knows about
    /// local endpoints.
    pub fn with_parts(
        config: Config,
        announce: Arc<dyn Announce>,
        endpoints: Box<dyn LocalEndpoints>,
    ) -> Self {
        Self::of_parts(config, Vec::new(), announce, endpoints)
    }

    fn of_parts(
        config: Config,
        of_cloud: Vec<IpAddr>,
        announce: Arc<dyn Announce>,
        endpoints: Box<dyn LocalEndpoints>,
    ) -> Self {
        let holds = (config.announcer == Announcer::Itself).then(|| Holds::new(announce));
        let inner = Inner {
            announcer: config.announcer,
            allows_outside_pools: config.allows_outside_pools && config.announcer == Announcer::KubeVip,
            of_cloud: of_cloud.into(),
            excess: LastExcess::default(),
            pools: CurrentPools::new(config.source),
            holds,
            local: LocalServices::new(endpoints),
            ledger: OnceLock::new(),
            warnings: Warnings::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What it does with [`StartContext::services`].
    pub fn needs(&self) -> ServiceAccessNeeds {
        ServiceAccessNeeds {
            claims: true,
            changes: self.inner.announcer.writes_status(),
            config_maps: self.inner.pools.config_map().cloned().into_iter().collect(),
        }
    }

    /// Whether it announces addresses on the interfaces of this host.
    pub fn announces(&self) -> bool {
        self.inner.holds.is_some()
    }

    /// Begins the work in the background. It ends with [`StartContext::stop`], and so does the announcement of what this
    /// load balancer holds, unless there is a later one in this process, which takes it over.
    ///
    /// # Errors
    /// It was started already; or it is to announce addresses, and the Lease is so short that they would live too short to
    /// survive a failed renewal.
    pub fn start(&self, context: &StartContext, tasks: &TaskTracker) -> Result<()> {
        // The announcer of the host is another provider's, which has Services.
        if !context.has_services {
            return Ok(());
        }
        if let Some(after) = context.takeover_after.filter(|after| self.announces() && *after < LIFETIME) {
            let (life, after) = (LIFETIME.as_secs(), after.as_secs_f64());
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!(
                    "{}.announce: another daemon may lead {after} s after this one was killed, and addresses must be gone by \
                     then, so they would live too short to survive a failed renewal of the Lease; make \
                     --leader-elect-lease-duration at least {life}s longer than --leader-elect-retry-period",
                    Config::KEY
                ),
            ));
        }
        let services = Arc::clone(&context.services);
        if self.inner.ledger.set(Ledger::new(Arc::clone(&services))).is_err() {
            return Err(Error::new(ErrorKind::Conflict, "the load balancer was started already"));
        }
        let end: Weak<dyn EndOfTerm> = Arc::downgrade(&(Arc::clone(&self.inner) as Arc<dyn EndOfTerm>));
        services.at_end_of_term(end);
        if let Some(holds) = &self.inner.holds {
            holds.start(Arc::clone(&services));
        }
        let (inner, stop) = (Arc::clone(&self.inner), context.stop.clone());
        tasks.spawn(async move {
            let work = async {
                let endpoints = inner.local.check_regularly(&*services);
                let pools = inner.pools.follow(&*services);
                let upkeep = async {
                    let sweeps = async {
                        tokio::join!(
                            inner.sweep_at_begin(),
                            inner.sweep_regularly(),
                            inner.retry_when_freed()
                        )
                    };
                    tokio::join!(sweeps, inner.announce_claims_only(), inner.watch_faults())
                };
                tokio::join!(pools, upkeep, endpoints);
            };
            let _ = stop.run_until_cancelled(work).await;
            if let Some(holds) = &inner.holds {
                holds.stop().await;
            }
            // Each address that stays was logged, and nobody is to be told here.
            let _ = inner.give_up().await;
        });
        Ok(())
    }
}

#[async_trait]
impl LoadBalancer for PooledLoadBalancer {
    fn name(&self, _cluster_name: &str, service: &LoadBalancerService) -> String {
        default_load_balancer_name(&service.uid)
    }

    async fn get(
        &self,
        _cluster_name: &str,
        service: &LoadBalancerService,
    ) -> Result<Option<LoadBalancerStatus>> {
        let ledger = self.inner.ledger()?;
        let _open = ledger.open().await?;
        ledger.settle(&service.uid).await?;
        let addresses = ledger.with(|index| index.of_service(&service_ref(service)))?;
        let dhcp = DHCP.to_string();
        let has_dhcp = self.inner.announcer == Announcer::KubeVip
            && service.annotations.get(PICKED).is_some_and(|picked| *picked == dhcp);
        if addresses.is_empty() && !has_dhcp {
            return Ok(None);
        }
        ledger.see(&service.uid);
        Ok(Some(self.inner.status(service, addresses)))
    }

    async fn ensure(
        &self,
        _cluster_name: &str,
        service: &LoadBalancerService,
        _nodes: &[&NodeIdentity],
    ) -> Result<LoadBalancerStatus> {
        self.inner.ensure(service).await
    }

    /// Does nothing, and says so: every Node forwards packets for the addresses, and the load balancer knows no Nodes.
    async fn update(
        &self,
        _cluster_name: &str,
        _service: &LoadBalancerService,
        _nodes: &[&NodeIdentity],
    ) -> Result<()> {
        Err(Error::implemented_elsewhere("kube-proxy forwards packets for the addresses on every Node"))
    }

    async fn delete(&self, _cluster_name: &str, service: &LoadBalancerService) -> Result<()> {
        self.inner.delete(service).await
    }

    async fn warnings_about(&self, in_use: &UsedAddresses) -> Vec<String> {
        let Ok(pools) = self.inner.pools.get().await else { return Vec::new() };
        let mut in_use = in_use.clone();
        in_use.extend(self.inner.of_cloud.iter().map(|address| (*address, AddressUser::Cloud)));
        pools_in_use(&pools, &in_use)
    }
}

impl Inner {
    fn ledger(&self) -> Result<&Ledger> {
        let not_started = || Error::new(ErrorKind::Unavailable, "the load balancer was not started");
        self.ledger.get().ok_or_else(not_started)
    }

    /// The status of a Service with these addresses.
    fn status(&self, service: &LoadBalancerService, mut addresses: Vec<IpAddr>) -> LoadBalancerStatus {
        if self.announcer.writes_status() {
            return service.status.clone();
        }
        let place = |address: &IpAddr| {
            let family = Family::of(*address);
            let place = service.ip_families.iter().position(|name| name == family.as_str());
            (place.unwrap_or(usize::MAX), *address)
        };
        addresses.sort_by_key(place);
        let ingress = addresses.iter().map(|address| LoadBalancerIngress {
            ip: Some(address.to_string()),
            ip_mode: Some(IpMode::Vip),
            ..LoadBalancerIngress::default()
        });
        LoadBalancerStatus { ingress: ingress.collect() }
    }

    /// Ends what only a leader does.
    ///
    /// # Errors
    /// An address may still be on this host.
    async fn give_up(&self) -> Result<()> {
        if let Some(ledger) = self.ledger.get() {
            ledger.forget();
        }
        self.local.clear();
        self.warnings.clear();
        match &self.holds {
            Some(holds) => holds.release_all().await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl EndOfTerm for Inner {
    async fn stand_down(&self) -> Result<()> {
        self.give_up().await
    }
}

fn service_ref(service: &LoadBalancerService) -> ServiceRef {
    ServiceRef { namespace: service.namespace.clone(), name: service.name.clone(), uid: service.uid.clone() }
}

#[cfg(test)]
mod tests;
