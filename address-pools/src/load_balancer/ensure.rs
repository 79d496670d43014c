//! One Service gets its addresses, or gives them back.

use std::{net::IpAddr, sync::Arc};

use cloudprovider::{Error, ErrorKind, LoadBalancerService, LoadBalancerStatus, Result, ServiceAccess};

use super::{Inner, service_ref};
use crate::{
    allocate::{Held, Plan, Refusal, in_the_way, plan},
    conventions::{Announcer, Outcome, POOL, joined},
    index::HOST_HAS_IT,
    ledger::{ATTEMPTS, Ledger, Written},
    pool::{Pool, Pools},
    request::{DHCP, Request},
    warnings::{IN_USE, Warning, warnings_of},
};

/// What was claimed for a request.
struct Claimed<'a> {
    request: &'a Request,
    pools: &'a Pools,
    plan: Plan,
}

impl Inner {
    pub(super) async fn ensure(&self, service: &LoadBalancerService) -> Result<LoadBalancerStatus> {
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
        request.may_ask_outside = self.allows_outside_pools;
        let pools = self.pools.get().await?;
        let ledger = self.ledger()?;
        self.warn_of_annotations(ledger.services(), &pools, service, &mut request);
        request.in_use = ledger.services().in_use().await?;
        request.of_cloud = Arc::clone(&self.of_cloud);
        let mut open = ledger.open().await?;
        request.excess = ledger.with(|index| self.excess.of(&pools, &request.in_use, index))?;
        ledger.see(&request.service.uid);
        ledger.settle(&request.service.uid).await?;
        ledger.look_again(&request.asked).await?;
        let mut decided = self.claim(ledger, &pools, &request).await?;
        let needs_room = match &decided {
            Ok(plan) => !plan.lacking().is_empty(),
            Err(refusal) => matches!(refusal, Refusal::Exhausted(_)),
        };
        if needs_room && !ledger.is_swept() {
            drop(open);
            if let Some(gone) = ledger.make_room().await? {
                self.release_gone(ledger, gone).await;
            }
            open = ledger.open().await?;
            ledger.settle(&request.service.uid).await?;
            ledger.look_again(&request.asked).await?;
            decided = self.claim(ledger, &pools, &request).await?;
        }
        let _open = open;
        for _ in 0..ATTEMPTS {
            let plan = match decided {
                Ok(plan) => plan,
                Err(refusal) => {
                    if let Some(others) = ledger.with(|index| in_the_way(index, &request))? {
                        tracing::info!(service = %request.service, others, "a Service asks for an address in vain");
                    }
                    return Err(refusal.into());
                }
            };
            if self.try_new(ledger, &pools, &request, &plan, term).await? {
                let claimed = Claimed { request: &request, pools: &pools, plan };
                return self.apply(ledger, service, claimed, term, is_held).await;
            }
            decided = self.claim(ledger, &pools, &request).await?;
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "hosts have all addresses that were tried; more are tried later",
        ))
    }

    /// Says which annotations have no effect. A pool of MetalLB's that is none of ours for the namespace is no wish where MetalLB does
    /// not announce; where it does, it would refuse any address of another pool.
    fn warn_of_annotations(
        &self,
        services: &dyn ServiceAccess,
        pools: &Pools,
        service: &LoadBalancerService,
        request: &mut Request,
    ) {
        let mut ignored = self.announcer.unsupported(service);
        let serves = |pool: &Pool| pool.serves(&service.namespace);
        let is_known = request.pool.as_ref().is_none_or(|name| pools.named(name).is_some_and(serves));
        if !is_known && request.pool_key != POOL && self.announcer != Announcer::MetalLb {
            request.pool = None;
            ignored.push(request.pool_key);
        }
        if !ignored.is_empty() {
            let message = format!(
                "annotations without an effect, since {} announces the addresses: {}",
                match self.announcer {
                    Announcer::Itself => "the daemon itself",
                    Announcer::Nobody => "none of those who read them",
                    other => other.as_str(),
                },
                ignored.join(", ")
            );
            let warning = Warning { reason: "LoadBalancerAnnotationIgnored", message };
            self.warnings.give(services, &request.service, warning);
        }
    }

    /// Announces addresses that the Service has never shown, and asks the network for each before. One that a host has is given
    /// back, and noted so that it is passed over. `false`: there was such a one.
    async fn try_new(
        &self,
        ledger: &Ledger,
        pools: &Pools,
        request: &Request,
        plan: &Plan,
        term: Option<u64>,
    ) -> Result<bool> {
        let (Some(holds), Some(term)) = (&self.holds, term) else { return Ok(true) };
        let (service, uid) = (&request.service, &request.service.uid);
        for held in plan.held.iter().filter(|held| !request.in_status.contains(&held.address)) {
            let address = held.address;
            if holds.is_held(uid, address) || ledger.with(|index| index.holders(address).len() > 1)? {
                continue;
            }
            let pool = pools.of_address(address, &service.namespace);
            let probes = pool.is_none_or(|pool| pool.probe);
            let Err(error) = holds.take(term, uid, held, probes).await else { continue };
            if error.kind() != ErrorKind::Conflict {
                return Err(error);
            }
            holds.release_one(uid, address).await?;
            ledger.release(service, address).await?;
            tracing::warn!(%address, error = error.report(), "an address of a pool is passed over, since a host has it");
            let details = error.report();
            ledger.with(|index| index.note_host(address, details))?;
            let message = format!("{address} is passed over: {HOST_HAS_IT}; take it out of the pool");
            let warning = Warning { reason: IN_USE, message };
            self.warnings.give(ledger.services(), service, warning);
            return Ok(false);
        }
        Ok(true)
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
        let may_share = request.sharing_key.is_some() || pools.all_share(&request.service.namespace);
        let _sharing = if may_share { Some(ledger.share().await) } else { None };
        let mut races = 0;
        while races < ATTEMPTS {
            let decided = ledger.plan(uid, |index| {
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
                    let written = ledger.write(uid, claim).await?;
                    lost = written != Written::Yes;
                    // An address of something else is met once only, so such a try is progress, and no lost race.
                    races += usize::from(written == Written::Lost);
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
        claimed: Claimed<'_>,
        term: Option<u64>,
        is_held: &mut bool,
    ) -> Result<LoadBalancerStatus> {
        let Claimed { request, pools, plan } = claimed;
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
            let still = plan.release_later.iter();
            let still = still.map(|address| Held::kept(pools, &service.namespace, *address));
            let wanted: Vec<Held> = plan.held.iter().cloned().chain(still).collect();
            holds.hold(term, uid, &wanted).await?;
            *is_held = true;
            let port = service.health_check_node_port.filter(|port| request.is_local && *port != 0);
            self.local.watch(ledger.services(), &request.service, port).await;
        }
        for address in &plan.release {
            ledger.release(&request.service, *address).await?;
        }
        // What the status shows stays reserved, also where it was never claimed, until it shows something else and the controller
        // asks again.
        if request.in_status.iter().all(|address| addresses.contains(address)) {
            ledger.with(|index| index.end_reservations(uid))?;
        }
        if !plan.left_out.is_empty() {
            ledger.services().waits_for_more(&request.service);
        }
        for warning in warnings_of(request, &plan) {
            self.warnings.give(ledger.services(), &request.service, warning);
        }
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

    pub(super) async fn delete(&self, service: &LoadBalancerService) -> Result<()> {
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
        self.warnings.forget(uid);
        Ok(())
    }
}
