//! The load balancer over pools.

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use cloudprovider::{
    EndOfTerm, Error, ErrorKind, IpMode, LoadBalancer, LoadBalancerIngress, LoadBalancerService,
    LoadBalancerStatus, NodeIdentity, Result, ServiceAccessNeeds, ServiceRef, StartContext, async_trait,
    default_load_balancer_name,
};
use futures::{StreamExt as _, stream};
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::{
    allocate::{Held, Plan, Refusal, plan},
    announce::{Announce, Holds},
    config::Config,
    conventions::{Announcer, Outcome, PICKED, joined},
    current::CurrentPools,
    host::HostAnnouncer,
    ledger::{ATTEMPTS, Ledger, Written},
    local::{KubeProxy, LocalEndpoints, LocalServices},
    pool::Pools,
    range::Family,
    request::{DHCP, Request},
};

/// How many Services that are gone are given up at once.
const RELEASE_CONCURRENCY: usize = 8;

/// How often all claims are read anew, and those of Services that are gone are given up.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

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
    /// Set if the daemon itself announces.
    holds: Option<Arc<Holds>>,
    /// Announced Services with `externalTrafficPolicy: Local`.
    local: LocalServices,
    /// Set by the start.
    ledger: OnceLock<Ledger>,
    /// Warnings that were given in this term, so that none is repeated.
    warned: Mutex<HashSet<(String, String)>>,
}

impl PooledLoadBalancer {
    /// A load balancer with this configuration. If that says so, it announces addresses on the interfaces of this host.
    pub fn new(config: Config) -> Self {
        Self::with_parts(config, HostAnnouncer::of_process(), Box::new(KubeProxy))
    }

    /// Like [`new`](Self::new), with other parts than those of this host: what announces addresses, and what knows about
    /// local endpoints.
    pub fn with_parts(
        config: Config,
        announce: Arc<dyn Announce>,
        endpoints: Box<dyn LocalEndpoints>,
    ) -> Self {
        let holds = (config.announcer == Announcer::Itself).then(|| Holds::new(announce));
        let inner = Inner {
            announcer: config.announcer,
            pools: CurrentPools::new(config.source),
            holds,
            local: LocalServices::new(endpoints),
            ledger: OnceLock::new(),
            warned: Mutex::default(),
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
    /// It was started already.
    pub fn start(&self, context: &StartContext, tasks: &TaskTracker) -> Result<()> {
        let services = Arc::clone(&context.services);
        if self.inner.ledger.set(Ledger::new(Arc::clone(&services))).is_err() {
            return Err(Error::new(ErrorKind::Conflict, "the load balancer was started already"));
        }
        let end: Weak<dyn EndOfTerm> = Arc::downgrade(&(Arc::clone(&self.inner) as Arc<dyn EndOfTerm>));
        services.at_end_of_term(end);
        if let Some(holds) = &self.inner.holds {
            holds.start();
        }
        let (inner, stop) = (Arc::clone(&self.inner), context.stop.clone());
        tasks.spawn(async move {
            let work = async {
                let endpoints = inner.local.check_regularly(&*services);
                let pools = inner.pools.follow(&*services);
                tokio::join!(pools, inner.sweep_regularly(), inner.announce_claims_only(), endpoints);
            };
            let _ = stop.run_until_cancelled(work).await;
            if let Some(holds) = &inner.holds {
                holds.stop().await;
            }
            inner.give_up().await;
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

    /// Does nothing: every Node forwards packets for the addresses, and the load balancer knows no Nodes.
    async fn update(
        &self,
        _cluster_name: &str,
        _service: &LoadBalancerService,
        _nodes: &[&NodeIdentity],
    ) -> Result<()> {
        Ok(())
    }

    async fn delete(&self, _cluster_name: &str, service: &LoadBalancerService) -> Result<()> {
        self.inner.delete(service).await
    }
}

impl Inner {
    fn ledger(&self) -> Result<&Ledger> {
        let not_started = || Error::new(ErrorKind::Unavailable, "the load balancer was not started");
        self.ledger.get().ok_or_else(not_started)
    }

    async fn ensure(&self, service: &LoadBalancerService) -> Result<LoadBalancerStatus> {
        let term = self.holds.as_ref().map(|holds| holds.term());
        let mut is_held = false;
        let ensured = self.ensure_in(term, service, &mut is_held).await;
        // A Service that asks in vain still has what it had, and this daemon may lead for the first time.
        if ensured.is_err()
            && !is_held
            && let Err(error) = self.keep(term, service).await
        {
            tracing::warn!(
                service = %service_ref(service),
                error = error.report(),
                "cannot announce the addresses that a Service has"
            );
        }
        ensured
    }

    /// `is_held` becomes true when the Service's addresses are announced.
    async fn ensure_in(
        &self,
        term: Option<u64>,
        service: &LoadBalancerService,
        is_held: &mut bool,
    ) -> Result<LoadBalancerStatus> {
        let mut request = Request::of(service, self.announcer)?;
        // As with kube-vip's own allocator. Where the daemon announces, it could be the address of a router.
        request.may_ask_outside = self.announcer == Announcer::KubeVip && self.pools.config_map().is_some();
        let pools = self.pools.get().await?;
        let ledger = self.ledger()?;
        let open = ledger.open().await?;
        ledger.see(&request.service.uid);
        let plan = match self.claim(ledger, &pools, &request).await? {
            Err(Refusal::Exhausted(words)) => {
                drop(open);
                let gone = ledger.make_room().await?;
                let Some(gone) = gone else { return Err(Refusal::Exhausted(words).into()) };
                self.release_gone(ledger, gone).await;
                let _open = ledger.open().await?;
                let plan = self.claim(ledger, &pools, &request).await??;
                return self.apply(ledger, service, &request, plan, term, is_held).await;
            }
            decided => decided?,
        };
        self.apply(ledger, service, &request, plan, term, is_held).await
    }

    /// Announces what a Service has. What is announced already stays as it is.
    async fn keep(&self, term: Option<u64>, service: &LoadBalancerService) -> Result<()> {
        let (Some(holds), Some(term)) = (&self.holds, term) else { return Ok(()) };
        let ledger = self.ledger()?;
        let _open = ledger.open().await?;
        ledger.see(&service.uid);
        let had = ledger.with(|index| index.of_service(&service_ref(service)))?;
        let pools = self.pools.known().unwrap_or_default();
        let held: Vec<Held> =
            had.into_iter().map(|address| Held::kept(&pools, &service.namespace, address)).collect();
        holds.keep(term, &service.uid, &held).await
    }

    /// Claims what the Service is to hold.
    async fn claim(
        &self,
        ledger: &Ledger,
        pools: &Pools,
        request: &Request,
    ) -> Result<std::result::Result<Plan, Refusal>> {
        let uid = &request.service.uid;
        ledger.settle(uid).await?;
        let may_share = request.sharing_key.is_some() || pools.all_share(&request.service.namespace);
        let _sharing = if may_share { Some(ledger.share().await) } else { None };
        for _ in 0..ATTEMPTS {
            let decided = ledger.with(|index| {
                let decided = plan(pools, index, request);
                for claim in decided.iter().flat_map(|plan| &plan.claims) {
                    index.begin(uid, claim.address);
                }
                decided
            })?;
            let plan = match decided {
                Ok(plan) => plan,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let mut lost = false;
            for claim in &plan.claims {
                if lost {
                    ledger.with(|index| index.end(uid, claim.address))?;
                } else {
                    lost = ledger.write(uid, claim).await? == Written::Lost;
                }
            }
            if !lost {
                return Ok(Ok(plan));
            }
        }
        Err(Error::new(ErrorKind::Conflict, "others claim the same addresses all the time"))
    }

    /// Does everything that follows the claims.
    async fn apply(
        &self,
        ledger: &Ledger,
        service: &LoadBalancerService,
        request: &Request,
        plan: Plan,
        term: Option<u64>,
        is_held: &mut bool,
    ) -> Result<LoadBalancerStatus> {
        let uid = &request.service.uid;
        if plan.dhcp && self.announcer != Announcer::KubeVip {
            return Err(Error::unsupported(
                "an address from a DHCP server (0.0.0.0) can only be had where kube-vip announces the addresses",
            ));
        }
        let addresses: Vec<IpAddr> = plan.held.iter().map(|held| held.address).collect();
        let outcome = Outcome {
            addresses: if plan.dhcp { &[DHCP] } else { &addresses },
            interface: plan.held.iter().find_map(|held| held.interface.as_deref()),
            sharing_key: plan.held.iter().find_map(|held| held.sharing_key.as_deref()),
        };
        let change = self.announcer.change(service, &outcome);
        if !change.is_empty() {
            ledger.services().change_service(&request.service, &change).await?;
        }
        if let (Some(holds), Some(term)) = (&self.holds, term) {
            holds.hold(term, uid, &plan.held).await?;
            *is_held = true;
            let port = service.health_check_node_port.filter(|port| request.is_local && *port != 0);
            self.local.watch(ledger.services(), &request.service, port).await;
        }
        for address in &plan.release {
            ledger.release(&request.service, *address).await?;
        }
        ledger.with(|index| index.end_reservations(uid))?;
        self.warn_about(ledger, request, &plan);
        if self.announcer.writes_status() {
            // The controller must not bring back a status that the announcer has changed since.
            let words = format!(
                "{} announces {} and writes the status",
                self.announcer.as_str(),
                joined(outcome.addresses)
            );
            return Err(Error::implemented_elsewhere(words));
        }
        Ok(self.status(service, addresses))
    }

    async fn delete(&self, service: &LoadBalancerService) -> Result<()> {
        let uid = &service.uid;
        self.local.forget(uid);
        if let Some(holds) = &self.holds {
            holds.release(uid).await?;
        }
        let (ledger, of) = (self.ledger()?, service_ref(service));
        let _open = ledger.open().await?;
        ledger.settle(uid).await?;
        let change = self.announcer.removal(service);
        if self.announcer.writes_status() && !change.is_empty() {
            match ledger.services().change_service(&of, &change).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        ledger.release_all(&of).await?;
        self.warned().retain(|(warned, _)| warned != uid);
        Ok(())
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

    fn warned(&self) -> std::sync::MutexGuard<'_, HashSet<(String, String)>> {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Warns once a term.
    fn warn(&self, ledger: &Ledger, service: &ServiceRef, reason: &'static str, message: String) {
        if self.warned().insert((service.uid.clone(), message.clone())) {
            ledger.services().warn(service, reason, message);
        }
    }

    fn warn_about(&self, ledger: &Ledger, request: &Request, plan: &Plan) {
        for (family, why) in &plan.left_out {
            let message =
                format!("the Service prefers to have an {family} address too, and gets none: {why}");
            self.warn(ledger, &request.service, "LoadBalancerFamilyLeftOut", message);
        }
        let namespace = &request.service.namespace;
        for one in &plan.held {
            let address = one.address;
            if let Some((old, why)) = &one.replaces {
                let message = format!("{old} is replaced by {address}: {why}");
                self.warn(ledger, &request.service, "LoadBalancerAddressChanged", message);
            }
            if one.is_outside {
                let message = if request.may_ask_outside {
                    format!(
                        "{address} is in no pool for the namespace {namespace}; see to it that nothing else uses it"
                    )
                } else {
                    format!(
                        "{address} is kept, and is in no pool for the namespace {namespace} any more; add it to one, or ask for another address"
                    )
                };
                self.warn(ledger, &request.service, "LoadBalancerAddressOutsidePools", message);
            }
        }
    }

    async fn sweep_regularly(&self) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let Ok(ledger) = self.ledger() else { return };
            self.sweep(ledger).await;
        }
    }

    async fn sweep(&self, ledger: &Ledger) {
        match ledger.sweep().await {
            Ok(gone) => self.release_gone(ledger, gone).await,
            Err(error) => {
                tracing::warn!(error = error.report(), "cannot look for addresses of Services that are gone");
            }
        }
    }

    /// Whenever all claims were read, gives up announced addresses without a claim: an earlier load balancer may have
    /// handed over more than is true by now, or somebody deleted claims.
    async fn announce_claims_only(&self) {
        let (Some(holds), Ok(ledger)) = (&self.holds, self.ledger()) else { return };
        loop {
            tokio::select! {
                () = ledger.was_read() => self.release_unclaimed(holds, ledger).await,
                () = holds.taken_over() => {
                    if let Err(error) = ledger.read_anew().await {
                        tracing::warn!(error = error.report(), "cannot read the claims of the addresses taken over");
                    }
                }
            }
        }
    }

    async fn release_unclaimed(&self, holds: &Holds, ledger: &Ledger) {
        let find = || {
            let unclaimed =
                ledger.with(|index| holds.unclaimed(|uid, address| index.is_of_service(uid, address)));
            unclaimed.unwrap_or_default()
        };
        if find().is_empty() {
            return;
        }
        // Nobody claims one of them meanwhile.
        let _closed = ledger.close().await;
        for (uid, address) in find() {
            tracing::info!(%address, "the address is not claimed any more, so it is announced no longer");
            if let Err(error) = holds.release_one(&uid, address).await {
                tracing::warn!(%address, error = error.report(), "cannot give up an announced address");
            }
        }
    }

    /// Gives up what Services have that are gone. What fails is tried in the next sweep.
    async fn release_gone(&self, ledger: &Ledger, gone: Vec<ServiceRef>) {
        let release = async |service: ServiceRef| {
            tracing::info!(service = %service, "gives up the addresses of a Service that is gone");
            self.local.forget(&service.uid);
            let released = async {
                // Another Service may get the address as soon as the claim is gone.
                if let Some(holds) = &self.holds {
                    holds.release(&service.uid).await?;
                }
                let _open = ledger.open().await?;
                ledger.release_all(&service).await
            };
            if let Err(error) = released.await {
                tracing::warn!(
                    service = %service,
                    error = error.report(),
                    "cannot give up the addresses of a Service that is gone"
                );
            }
        };
        stream::iter(gone).map(release).buffer_unordered(RELEASE_CONCURRENCY).collect::<()>().await;
    }

    /// Ends what only a leader does.
    async fn give_up(&self) {
        if let Some(ledger) = self.ledger.get() {
            ledger.forget();
        }
        self.local.clear();
        self.warned().clear();
        if let Some(holds) = &self.holds {
            holds.release_all().await;
        }
    }
}

#[async_trait]
impl EndOfTerm for Inner {
    async fn stand_down(&self) {
        self.give_up().await;
    }
}

fn service_ref(service: &LoadBalancerService) -> ServiceRef {
    ServiceRef { namespace: service.namespace.clone(), name: service.name.clone(), uid: service.uid.clone() }
}

#[cfg(test)]
mod tests;
