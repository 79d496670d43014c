//! A cluster's Services in memory, for tests of load balancers that no cloud runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt as _, future::join_all, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{
    AddressClaim, AddressUse, ConfigMapName, ConfigMapStream, EndOfTerm, Error, ErrorKind, Result,
    ServiceAccess, ServiceChange, ServiceRef, UsedAddresses,
};

/// Who has the addresses that something else uses.
const OTHER_USER: &str = "services kube-system/other";

/// Decides what becomes of a call.
type Rule = Arc<dyn Fn(&AccessCall) -> AccessFault + Send + Sync>;

/// The Services, claims and `ConfigMap`s of a cluster in memory. A clone acts on the same cluster, as another daemon does.
///
/// Claims have versions, and a write with another version is a conflict, as with an API server. A test decides with
/// [`fault_with`](Self::fault_with) which calls fail, before or after they had their effect.
#[derive(Clone, Default)]
pub struct FakeServiceAccess {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    services: BTreeSet<ServiceRef>,
    assigned: Vec<(ServiceRef, IpAddr)>,
    in_use: Arc<UsedAddresses>,
    claims: BTreeMap<IpAddr, AddressClaim>,
    foreign: BTreeSet<IpAddr>,
    changes: Vec<(ServiceRef, ServiceChange)>,
    warnings: Vec<(ServiceRef, &'static str, String)>,
    config_maps: BTreeMap<ConfigMapName, watch::Sender<Option<BTreeMap<String, String>>>>,
    at_end: Vec<Weak<dyn EndOfTerm>>,
    /// `None`: there is no election.
    alone_for: Option<Duration>,
    retries: usize,
    waiting_for_more: Vec<ServiceRef>,
    version: u64,
    calls: Vec<AccessCall>,
    rule: Option<Rule>,
}

/// A call of [`ServiceAccess`] that can fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessCall {
    /// [`claims`](ServiceAccess::claims)
    Claims,
    /// [`use_of`](ServiceAccess::use_of)
    UseOf(IpAddr),
    /// [`write_claim`](ServiceAccess::write_claim)
    WriteClaim(AddressClaim),
    /// [`delete_claim`](ServiceAccess::delete_claim)
    DeleteClaim(AddressClaim),
    /// [`exists`](ServiceAccess::exists)
    Exists(ServiceRef),
    /// [`change_service`](ServiceAccess::change_service)
    ChangeService(ServiceRef, ServiceChange),
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessFault {
    /// It works.
    #[default]
    None,
    /// It fails and has no effect.
    Before,
    /// It has its effect, and its answer is lost.
    After,
    /// It never returns and has no effect.
    HangBefore,
    /// It has its effect and never returns.
    HangAfter,
}

impl FakeServiceAccess {
    /// A cluster with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Creates a Service.
    pub fn add_service(&self, service: ServiceRef) {
        self.state().services.insert(service);
    }

    /// Removes a Service, without anything else.
    pub fn remove_service(&self, uid: &str) {
        self.state().services.retain(|service| service.uid != uid);
    }

    /// Sets the addresses that Services have in their status.
    pub fn set_assigned(&self, assigned: Vec<(ServiceRef, IpAddr)>) {
        self.state().assigned = assigned;
    }

    /// Sets the addresses that the cluster shows in use beside claims.
    pub fn set_in_use(&self, used: UsedAddresses) {
        self.state().in_use = Arc::new(used);
    }

    /// Makes something else use an address.
    pub fn use_elsewhere(&self, address: IpAddr) {
        self.state().foreign.insert(address);
    }

    /// Nothing else uses the address any more.
    pub fn free_elsewhere(&self, address: IpAddr) {
        self.state().foreign.remove(&address);
    }

    /// Sets the `data` of a `ConfigMap`; `None` deletes it.
    pub fn set_config_map(&self, name: &ConfigMapName, data: Option<BTreeMap<String, String>>) {
        self.state().config_map(name).send_replace(data);
    }

    /// Decides for each call from now on what becomes of it.
    pub fn fault_with(&self, rule: impl Fn(&AccessCall) -> AccessFault + Send + Sync + 'static) {
        self.state().rule = Some(Arc::new(rule));
    }

    /// Lets all calls work again.
    pub fn heal(&self) {
        self.state().rule = None;
    }

    /// The stored claims, by address.
    pub fn stored_claims(&self) -> BTreeMap<IpAddr, AddressClaim> {
        self.state().claims.clone()
    }

    /// Replaces the stored claims, as somebody with `kubectl` may.
    pub fn set_claims(&self, claims: Vec<AddressClaim>) {
        let mut state = self.state();
        state.claims.clear();
        for claim in claims {
            state.store(claim);
        }
    }

    /// The calls so far, those that failed included.
    pub fn calls(&self) -> Vec<AccessCall> {
        self.state().calls.clone()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.state().calls.clear();
    }

    /// The changes of Services so far.
    pub fn changes(&self) -> Vec<(ServiceRef, ServiceChange)> {
        self.state().changes.clone()
    }

    /// Sets how long from now on no other daemon can lead. In the beginning that is for ever.
    pub fn set_alone_for(&self, time: Duration) {
        self.state().alone_for = Some(time);
    }

    /// How often the Services that wait were to be ensured again.
    pub fn retries(&self) -> usize {
        self.state().retries
    }

    /// The Services of which a call of `ensure` said that they wait for more, each time that it did.
    pub fn waiting_for_more(&self) -> Vec<ServiceRef> {
        self.state().waiting_for_more.clone()
    }

    /// The events so far, with reason and message.
    pub fn warnings(&self) -> Vec<(ServiceRef, &'static str, String)> {
        self.state().warnings.clone()
    }

    /// Ends the term of leadership of all who asked to be told.
    ///
    /// # Errors
    /// One of them could not stand down.
    pub async fn end_term(&self) -> Result<()> {
        let all: Vec<_> = self.state().at_end.iter().filter_map(Weak::upgrade).collect();
        join_all(all.iter().map(|one| one.stand_down())).await.into_iter().collect()
    }

    /// Makes a call: it may fail, and otherwise has an effect.
    async fn call<T>(
        &self,
        call: AccessCall,
        effect: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> Result<T> {
        // Other tasks may run before and after, as with a real API server.
        tokio::task::yield_now().await;
        let fault = {
            let mut state = self.state();
            state.calls.push(call.clone());
            state.rule.clone().map_or(AccessFault::None, |rule| rule(&call))
        };
        let answer = match fault {
            AccessFault::Before => Err(lost()),
            AccessFault::HangBefore => std::future::pending().await,
            AccessFault::None => effect(&mut self.state()),
            AccessFault::After => effect(&mut self.state()).and_then(|_| Err(lost())),
            AccessFault::HangAfter => {
                let _ = effect(&mut self.state());
                std::future::pending().await
            }
        };
        tokio::task::yield_now().await;
        answer
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Timeout, "the fake cluster loses this call on purpose")
}

impl State {
    fn config_map(&mut self, name: &ConfigMapName) -> &watch::Sender<Option<BTreeMap<String, String>>> {
        self.config_maps.entry(name.clone()).or_insert_with(|| watch::Sender::new(None))
    }

    fn store(&mut self, claim: AddressClaim) -> AddressClaim {
        self.version += 1;
        let claim = AddressClaim { version: self.version.to_string(), ..claim };
        self.claims.insert(claim.address, claim.clone());
        claim
    }

    fn check_version(&self, claim: &AddressClaim) -> Result<()> {
        let stored =
            self.claims.get(&claim.address).map(|stored| stored.version.as_str()).unwrap_or_default();
        if stored != claim.version {
            let message =
                format!("the claim of {} has version {stored:?}, not {:?}", claim.address, claim.version);
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(())
    }
}

impl fmt::Debug for FakeServiceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeServiceAccess")
            .field("claims", &self.state().claims.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ServiceAccess for FakeServiceAccess {
    async fn claims(&self) -> Result<Vec<AddressClaim>> {
        self.call(AccessCall::Claims, |state| Ok(state.claims.values().cloned().collect())).await
    }

    async fn assigned(&self) -> Result<Vec<(ServiceRef, IpAddr)>> {
        Ok(self.state().assigned.clone())
    }

    async fn in_use(&self) -> Result<Arc<UsedAddresses>> {
        Ok(Arc::clone(&self.state().in_use))
    }

    async fn use_of(&self, address: IpAddr) -> Result<AddressUse> {
        self.call(AccessCall::UseOf(address), |state| {
            Ok(match state.claims.get(&address) {
                Some(claim) => AddressUse::Claimed(claim.clone()),
                None if state.foreign.contains(&address) => AddressUse::Elsewhere(OTHER_USER.to_owned()),
                None => AddressUse::Free,
            })
        })
        .await
    }

    async fn write_claim(&self, claim: &AddressClaim) -> Result<AddressClaim> {
        self.call(AccessCall::WriteClaim(claim.clone()), |state| {
            if claim.holders.is_empty() {
                return Err(Error::new(ErrorKind::InvalidInput, "a claim without holders"));
            }
            if state.foreign.contains(&claim.address) {
                return Err(Error::new(ErrorKind::Conflict, format!("{} is in use", claim.address)));
            }
            state.check_version(claim)?;
            Ok(state.store(claim.clone()))
        })
        .await
    }

    async fn delete_claim(&self, claim: &AddressClaim) -> Result<()> {
        self.call(AccessCall::DeleteClaim(claim.clone()), |state| {
            if state.claims.contains_key(&claim.address) {
                state.check_version(claim)?;
                state.claims.remove(&claim.address);
            }
            Ok(())
        })
        .await
    }

    async fn exists(&self, service: &ServiceRef) -> Result<bool> {
        self.call(AccessCall::Exists(service.clone()), |state| Ok(state.services.contains(service))).await
    }

    async fn change_service(&self, service: &ServiceRef, change: &ServiceChange) -> Result<()> {
        if change.is_empty() {
            return Ok(());
        }
        self.call(AccessCall::ChangeService(service.clone(), change.clone()), |state| {
            if !state.services.contains(service) {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no Service {service}")));
            }
            state.changes.push((service.clone(), change.clone()));
            Ok(())
        })
        .await
    }

    fn alone_for(&self) -> Duration {
        self.state().alone_for.unwrap_or(Duration::MAX)
    }

    fn retry_waiting(&self) {
        self.state().retries += 1;
    }

    fn waits_for_more(&self, service: &ServiceRef) {
        self.state().waiting_for_more.push(service.clone());
    }

    fn warn(&self, service: &ServiceRef, reason: &'static str, message: String) {
        self.state().warnings.push((service.clone(), reason, message));
    }

    fn follow_config_map(&self, name: &ConfigMapName) -> ConfigMapStream {
        let versions = self.state().config_map(name).subscribe();
        stream::unfold((versions, true), |(mut versions, is_first)| async move {
            if !is_first && versions.changed().await.is_err() {
                return std::future::pending().await;
            }
            let data = versions.borrow_and_update().clone();
            Some((Ok(data), (versions, false)))
        })
        .boxed()
    }

    fn at_end_of_term(&self, what: Weak<dyn EndOfTerm>) {
        self.state().at_end.push(what);
    }
}

#[cfg(test)]
mod tests;
