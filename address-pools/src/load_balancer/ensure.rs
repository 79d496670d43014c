//! One Service gets its addresses, or gives them back.

use std::net::IpAddr;

use cloudprovider::{Error, ErrorKind, LoadBalancerService, LoadBalancerStatus, Result};

use super::{Inner, service_ref};
use crate::{
    allocate::{Held, Plan, Refusal, plan},
    conventions::{Announcer, Outcome, joined},
    ledger::{ATTEMPTS, Ledger, Written},
    pool::Pools,
    request::{DHCP, Request},
    warnings::warnings_of,
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
        // As with kube-vip's own allocator. Where the daemon announces, it could be the address of a router.
        request.may_ask_outside = self.announcer == Announcer::KubeVip && self.pools.config_map().is_some();
        let pools = self.pools.get().await?;
        let ledger = self.ledger()?;
        let mut open = ledger.open().await?;
        ledger.see(&request.service.uid);
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
            decided = self.claim(ledger, &pools, &request).await?;
        }
        let _open = open;
        let claimed = Claimed { request: &request, pools: &pools, plan: decided? };
        self.apply(ledger, service, claimed, term, is_held).await
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
        ledger.look_again(&request.asked).await?;
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
