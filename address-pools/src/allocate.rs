//! Decides which addresses a Service holds. Pure: pools, claims and a request give a plan.

mod in_use;
mod refusal;

use std::{cell::RefCell, net::IpAddr};

use cloudprovider::{AddressClaim, AddressHolder, ServiceRef};

pub(crate) use self::refusal::{Refusal, in_the_way};
use self::refusal::{exhausted, worst};

use crate::{
    index::{Index, MAX_HOLDERS, is_same},
    pool::{Pool, Pools, Sharing},
    range::Family,
    request::{Need, Request},
};

/// The sharing key of all Services of a pool in which all share.
pub(crate) const EVERYBODY: &str = "*";

/// What has to be done so that a Service has what it asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The addresses, in the order of the Service's families.
    pub(crate) held: Vec<Held>,
    /// The claims to write, before anything else.
    pub(crate) claims: Vec<AddressClaim>,
    /// The addresses to give back, after everything else.
    pub(crate) release: Vec<IpAddr>,
    /// The addresses to give back when the status shows them no longer. Until then clients use them.
    pub(crate) release_later: Vec<IpAddr>,
    /// Whether the address comes from a DHCP server.
    pub(crate) dhcp: bool,
    /// The families that the Service prefers and does not get, and why.
    pub(crate) left_out: Vec<(Family, Refusal)>,
    /// Free addresses of pools that were not picked since the cluster shows them in use, and how. Some of them, if they are many.
    pub(crate) passed_over: Vec<(IpAddr, String)>,
}

impl Plan {
    /// The families that are left out because no address of them is free.
    pub(crate) fn lacking(&self) -> Vec<Family> {
        let full = self.left_out.iter().filter(|(_, why)| matches!(why, Refusal::Exhausted(_)));
        full.map(|(family, _)| *family).collect()
    }

    /// Gives back what the Service has beside these addresses. What its status shows is given back later: whoever writes the
    /// status, the controller asks again when it shows the address no longer.
    fn give_back_others(&mut self, index: &Index, request: &Request) {
        let had = index.of_service(&request.service).into_iter();
        let others = had.filter(|had| self.held.iter().all(|held| held.address != *had));
        (self.release_later, self.release) = others.partition(|address| request.in_status.contains(address));
    }
}

/// An address of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) address: IpAddr,
    /// The interface of its pool.
    pub(crate) interface: Option<String>,
    /// The key by which it is shared.
    pub(crate) sharing_key: Option<String>,
    /// Whether it is in no pool that the Service may use, and kept because the Service has it.
    pub(crate) is_outside: bool,
    /// The address in the Service's status that it replaces although nobody asked for that, and why.
    pub(crate) replaces: Option<(IpAddr, String)>,
    /// How else the cluster shows it in use. It is kept because the Service has it.
    pub(crate) in_use: Option<String>,
    /// Whether the Service shares it with others though nothing allows that: they had it in their status together.
    pub(crate) shared_before: bool,
}

impl Held {
    /// An address that a Service of this namespace has already.
    pub(crate) fn kept(pools: &Pools, namespace: &str, address: IpAddr) -> Self {
        let pool = pools.of_address(address, namespace);
        Self {
            address,
            interface: pool.and_then(|pool| pools.interface(pool, namespace)).map(str::to_owned),
            sharing_key: None,
            is_outside: !pool.is_some_and(|pool| pool.serves(namespace)),
            replaces: None,
            in_use: None,
            shared_before: false,
        }
    }
}

/// Decides for one Service.
pub(crate) fn plan(pools: &Pools, index: &Index, request: &Request) -> Result<Plan, Refusal> {
    let mut automatic = pools.automatic(&request.service.namespace);
    if let Some(name) = &request.pool {
        automatic = vec![wanted_pool(pools, request, name)?];
    }
    if request.asks_for_dhcp || (request.asked.is_empty() && automatic.first().is_some_and(|pool| pool.dhcp))
    {
        let mut plan = Plan { dhcp: true, ..Plan::default() };
        plan.give_back_others(index, request);
        return Ok(plan);
    }
    Planner { pools, index, request, automatic, passed_over: RefCell::default() }.plan()
}

fn wanted_pool<'a>(pools: &'a Pools, request: &Request, name: &str) -> Result<&'a Pool, Refusal> {
    let (namespace, key) = (&request.service.namespace, request.pool_key);
    if let Some(pool) = pools.named(name).filter(|pool| pool.serves(namespace)) {
        return Ok(pool);
    }
    // The same for a pool of other namespaces and for none.
    let known = pools.pools.iter().filter(|pool| pool.serves(namespace));
    let known: Vec<_> = known.map(|pool| pool.name.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Refusal::Invalid(format!(
        "the annotation {key} asks for the pool {name:?}, which is none of the namespace {namespace}; pools for it: {known}"
    )))
}

struct Planner<'a> {
    pools: &'a Pools,
    index: &'a Index,
    request: &'a Request,
    /// The pools to pick from.
    automatic: Vec<&'a Pool>,
    /// What was not picked since the cluster shows it in use.
    passed_over: RefCell<Vec<(IpAddr, String)>>,
}

impl Planner<'_> {
    fn plan(&self) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let mut refusals = Vec::new();
        for family in &self.request.families {
            let is_left_out = self.request.need != Need::All
                && !self.request.asked.is_empty()
                && self.request.asked_of(*family).is_none();
            if is_left_out {
                continue;
            }
            match self.of_family(*family) {
                Ok(held) => plan.held.push(held),
                Err(refusal)
                    if self.request.need == Need::All
                        || matches!(refusal, Refusal::Invalid(_) | Refusal::Held(_)) =>
                {
                    return Err(refusal.because(self.request.needs_more_since));
                }
                Err(refusal) => refusals.push((*family, refusal)),
            }
            if self.request.need == Need::One && !plan.held.is_empty() {
                break;
            }
        }
        plan.passed_over = self.passed_over.take();
        if plan.held.is_empty() {
            return Err(worst(refusals.into_iter().map(|(_, refusal)| refusal).collect()));
        }
        if self.request.need == Need::Some {
            plan.left_out = refusals;
        }
        plan.give_back_others(self.index, self.request);
        plan.claims = plan.held.iter().filter_map(|held| self.claim(held)).collect();
        Ok(plan)
    }

    fn of_family(&self, family: Family) -> Result<Held, Refusal> {
        let namespace = &self.request.service.namespace;
        if let Some(address) = self.request.asked_of(family) {
            return self.asked(address);
        }
        let had = self.index.of_service(&self.request.service);
        let mut had: Vec<_> = had.into_iter().filter(|address| Family::of(*address) == family).collect();
        // Of several the one that clients know.
        had.sort_by_key(|address| !self.request.in_status.contains(address));
        let preferred = self.request.preferred.iter().filter(|address| Family::of(**address) == family);
        let is_mine = had.len();
        let mut replaces = None;
        for (at, address) in had.iter().chain(preferred).copied().enumerate() {
            let pool = self.pools.of_address(address, namespace);
            let refused = match pool.filter(|pool| pool.serves(namespace)) {
                // An address that it only claims to have must be one that it could get.
                None if at >= is_mine || self.request.pool.is_some() => {
                    Err(format!("it is in {}", self.no_pool()))
                }
                Some(pool) if self.request.pool.as_ref().is_some_and(|wanted| *wanted != pool.name) => {
                    Err(format!("it is in the pool {:?}, and another one is asked for", pool.name))
                }
                _ => self.may_hold(pool, address),
            };
            match refused {
                Ok(()) => return Ok(Held { replaces, ..self.held(pool, address) }),
                Err(why) if replaces.is_none() && self.request.in_status.contains(&address) => {
                    replaces = Some((address, why));
                }
                Err(_) => {}
            }
        }
        self.picked(family).map(|held| Held { replaces, ..held })
    }

    /// Where an address is that the namespace may not have. The words are the same for one of other namespaces' pools.
    fn no_pool(&self) -> String {
        format!("no pool of {} for the namespace {}", self.pools.origin, self.request.service.namespace)
    }

    /// An address that a person asked for.
    fn asked(&self, address: IpAddr) -> Result<Held, Refusal> {
        let service = &self.request.service;
        let pool = self.pools.of_address(address, &service.namespace);
        let has_it = self.index.has(service, address);
        match pool {
            _ if has_it => {}
            None if self.request.may_ask_outside => {}
            _ if !pool.is_some_and(|pool| pool.serves(&service.namespace)) => {
                return Err(Refusal::Invalid(format!(
                    "{address} is asked for, and is in {}; ask for an address of one, or have it added to one",
                    self.no_pool()
                )));
            }
            Some(pool) if self.request.pool.as_ref().is_some_and(|wanted| *wanted != pool.name) => {
                return Err(Refusal::Invalid(format!(
                    "{address} is asked for, and is in the pool {:?}; the annotation {} asks for another one",
                    pool.name, self.request.pool_key
                )));
            }
            _ => {}
        }
        self.may_hold(pool, address)
            .map_err(|why| Refusal::Held(format!("{address} is asked for, and {why}")))?;
        Ok(self.held(pool, address))
    }

    /// Any address of a family.
    fn picked(&self, family: Family) -> Result<Held, Refusal> {
        let namespace = &self.request.service.namespace;
        if let Some(fault) = self.automatic.first().and_then(|pool| pool.fault.as_ref()) {
            return Err(Refusal::NoPool(fault.clone()));
        }
        let pools: Vec<_> =
            self.automatic.iter().copied().filter(|pool| pool.addresses.has(family)).collect();
        if pools.is_empty() {
            let of = match &self.request.pool {
                Some(name) => format!("the pool {name:?} has no {family} addresses"),
                None => format!("no pool gives {family} addresses to the namespace {namespace}"),
            };
            return Err(Refusal::NoPool(format!("{of}; see {}", self.pools.origin)));
        }
        let shared = pools.iter().find_map(|pool| self.shared(pool, family));
        if let Some(held) = shared {
            return Ok(held);
        }
        for pool in &pools {
            let skips = |address| pool.skips(address) || self.passes_over(pool, address);
            let free = pool.first(family, |range| self.index.free_in(range, pool.order, skips));
            if let Some(address) = free {
                return Ok(self.held(Some(pool), address));
            }
        }
        Err(Refusal::Exhausted(exhausted(self.index, &pools, family, namespace)))
    }

    /// An address of a pool that others share already.
    fn shared(&self, pool: &Pool, family: Family) -> Option<Held> {
        let key = self.key_in(pool)?;
        let address =
            pool.first(family, |range| self.index.shared_in(range, pool.order, &key, &self.request.ports))?;
        let is_used = self.used_within_limit(Some(pool), address).is_some();
        // Others refuse it only where a claim was changed by hand.
        let may_hold = !is_used && self.others_let_it_hold(Some(pool), address).is_ok();
        may_hold.then(|| self.held(Some(pool), address))
    }

    /// The key by which the Service shares this address, of this pool.
    fn sharing_key(&self, pool: Option<&Pool>, address: IpAddr) -> Option<String> {
        pool.map_or_else(|| self.kept_key(address), |pool| self.key_in(pool))
    }

    /// The key by which the Service shares addresses of this pool.
    fn key_in(&self, pool: &Pool) -> Option<String> {
        if !self.can_share() {
            return None;
        }
        match self.pools.sharing(pool, &self.request.service.namespace) {
            Sharing::Never => None,
            Sharing::ByKey => self.request.sharing_key.clone(),
            Sharing::Always => Some(EVERYBODY.to_owned()),
        }
    }

    /// The key by which the Service shares an address that no pool has any more. Those that share one stay together.
    fn kept_key(&self, address: IpAddr) -> Option<String> {
        let holders = self.index.claim(address)?.holders.iter();
        let mut mine = holders.filter(|holder| is_same(&holder.service, &self.request.service));
        let key = mine.find_map(|holder| holder.sharing_key.clone())?;
        let is_wanted = key == EVERYBODY || self.request.sharing_key.as_ref() == Some(&key);
        (self.can_share() && is_wanted).then_some(key)
    }

    /// Whether the Service is such that it can share an address at all.
    fn can_share(&self) -> bool {
        !self.request.is_local && !self.request.ports.is_empty()
    }

    /// Why the Service may not hold the address, as far as others use it.
    fn may_hold(&self, pool: Option<&Pool>, address: IpAddr) -> Result<(), String> {
        match self.used(pool, address).filter(|_| !self.keeps(pool, address)) {
            Some(used) => Err(used),
            None => self.others_let_it_hold(pool, address),
        }
    }

    /// Why the Service may not hold the address, as far as claims and statuses say.
    fn others_let_it_hold(&self, pool: Option<&Pool>, address: IpAddr) -> Result<(), String> {
        let uid = &self.request.service.uid;
        if let Some(user) = self.index.foreign_user(address) {
            return Err(user.words().to_owned());
        }
        if let Some(other) = self.index.reserved_for_others(address, uid) {
            return Err(format!("{} has it in its status", self.other(other)));
        }
        let others = self.index.claim(address).map(|claim| claim.holders.iter()).into_iter().flatten();
        let mut others = others.filter(|holder| !is_same(&holder.service, &self.request.service)).peekable();
        if others.peek().is_none() {
            return if self.index.is_pending_elsewhere(address, uid) {
                Err("another Service is just getting it".to_owned())
            } else {
                Ok(())
            };
        }
        let key = self.sharing_key(pool, address);
        let claim = self.index.claim(address);
        let has_room = claim.is_none_or(|claim| claim.holders.len() < MAX_HOLDERS);
        if !has_room && !self.index.of_service(&self.request.service).contains(&address) {
            return Err(format!("{MAX_HOLDERS} Services share it, which is the most"));
        }
        for other in others {
            #[cfg(test)]
            crate::testing::count_look();
            let service = self.other(&other.service);
            if self.shared_before(other) {
                if let Some(port) = self.same_port(other) {
                    return Err(format!("{service} holds it with the same port {port}"));
                }
                continue;
            }
            if key.is_none() || other.sharing_key.is_none() {
                return Err(format!("{service} holds it{}", self.hint(pool)));
            }
            if key != other.sharing_key {
                return Err(format!("{service} holds it with another sharing key"));
            }
            if let Some(port) = self.same_port(other) {
                return Err(format!("{service} holds it with the same port {port}"));
            }
        }
        Ok(())
    }

    fn same_port(&self, other: &AddressHolder) -> Option<&String> {
        self.request.ports.iter().find(|port| other.ports.contains(*port))
    }

    /// Whether the Service has shared its address with this other holder since before claims were written: both had it in their
    /// status. Then one of the two has no key; nobody else comes to share an address without one.
    fn shared_before(&self, other: &AddressHolder) -> bool {
        let claims = self.index.of_service(&self.request.service).into_iter();
        let mut claims = claims.filter_map(|address| self.index.claim(address));
        let Some(claim) = claims.find(|claim| claim.holders.contains(other)) else { return false };
        let mut mine = claim.holders.iter().filter(|one| is_same(&one.service, &self.request.service));
        mine.any(|mine| mine.sharing_key.is_none() || other.sharing_key.is_none())
    }

    /// How a message names another Service: a tenant learns nothing of other namespaces.
    fn other(&self, service: &ServiceRef) -> String {
        if service.namespace == self.request.service.namespace {
            format!("the Service {service}")
        } else {
            "a Service of another namespace".to_owned()
        }
    }

    /// What keeps the Service from sharing, where it seems to want to.
    fn hint(&self, pool: Option<&Pool>) -> &'static str {
        let Some(pool) = pool else { return "" };
        match (self.pools.sharing(pool, &self.request.service.namespace), self.request.is_local) {
            (Sharing::Never, _) if self.request.sharing_key.is_some() => "; the pool does not allow sharing",
            (Sharing::ByKey, true) if self.request.sharing_key.is_some() => {
                "; with externalTrafficPolicy Local an address cannot be shared"
            }
            (Sharing::Always, true) => "; with externalTrafficPolicy Local an address cannot be shared",
            _ => "",
        }
    }

    fn held(&self, pool: Option<&Pool>, address: IpAddr) -> Held {
        let kept = Held::kept(self.pools, &self.request.service.namespace, address);
        let sharing_key = self.sharing_key(pool, address);
        let holders = self.index.claim(address).map(|claim| claim.holders.as_slice()).unwrap_or_default();
        let reserved = self.index.reserved_for(address).iter();
        let others = reserved.filter(|other| other.uid != self.request.service.uid).count();
        let shared_before = others > 0
            || holders
                .iter()
                .any(|other| !is_same(&other.service, &self.request.service) && self.shared_before(other));
        Held { sharing_key, shared_before, in_use: self.used_within_limit(pool, address), ..kept }
    }

    /// The claim to write for an address. `None`: it is stored already.
    fn claim(&self, held: &Held) -> Option<AddressClaim> {
        let mine = AddressHolder {
            service: self.request.service.clone(),
            sharing_key: held.sharing_key.clone(),
            ports: self.request.ports.clone(),
        };
        let Some(stored) = self.index.claim(held.address) else {
            // Others that had it in their status keep it too, from the same moment on. Each fills in its ports itself.
            let sharing = self.index.reserved_for(held.address).iter();
            let sharing = sharing.filter(|other| other.uid != mine.service.uid).take(MAX_HOLDERS - 1);
            let others =
                sharing.map(|other| AddressHolder { service: other.clone(), ..AddressHolder::default() });
            let holders = others.chain([mine.clone()]).collect();
            return Some(AddressClaim { address: held.address, holders, version: String::new() });
        };
        if stored.holders.contains(&mine) {
            return None;
        }
        let others = stored.holders.iter().filter(|holder| !is_same(&holder.service, &mine.service));
        let mut holders: Vec<_> = others.cloned().collect();
        holders.push(mine);
        Some(AddressClaim { holders, ..stored.clone() })
    }
}

#[cfg(test)]
mod tests;
