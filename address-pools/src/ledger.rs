//! The claims in the cluster, and their copy in memory.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use cloudprovider::{AddressClaim, AddressUse, Error, ErrorKind, Result, ServiceAccess, ServiceRef};
use futures::{StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{MutexGuard as AsyncGuard, Notify, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Instant,
};

use crate::{
    allocate::{Plan, Refusal},
    index::{Index, is_same},
    range::Family,
};

/// How often a claim that others change at the same time is tried.
pub(crate) const ATTEMPTS: usize = 16;

/// How long after a sweep no other one begins because a pool is full.
const SWEEP_MIN_INTERVAL: Duration = Duration::from_secs(30);

/// How many Services are asked for at once in a sweep.
const SWEEP_CONCURRENCY: usize = 8;

/// Reads and writes claims. All claims are read once in a term. From then on the copy in memory says what to try, and
/// the API server decides.
#[derive(Debug)]
pub(crate) struct Ledger {
    services: Arc<dyn ServiceAccess>,
    /// Open to all who work with the copy, closed while it is read anew.
    gate: RwLock<()>,
    known: Mutex<Known>,
    /// Services that look for an address to share do so one after the other, so that they find each other.
    sharing: tokio::sync::Mutex<()>,
    /// Told when the claims were read.
    was_read: Notify,
    /// Told when an address became free that a Service lacks.
    was_freed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Grows with the end of each term.
    term: u64,
    /// `None` until the claims were read in this term.
    index: Option<Index>,
    /// UIDs of Services that were there since the last sweep.
    seen: HashSet<String>,
    last_sweep: Option<Instant>,
    /// The families of which Services would like an address and found none free, by UID.
    lacking: HashMap<String, Vec<Family>>,
}

/// Whether a claim was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// Somebody else was faster. The copy in memory knows now.
    Lost,
    /// Something else in the cluster uses the address. The copy in memory knows now.
    Foreign,
}

impl Ledger {
    pub(crate) fn new(services: Arc<dyn ServiceAccess>) -> Self {
        Self {
            services,
            gate: RwLock::default(),
            known: Mutex::default(),
            sharing: tokio::sync::Mutex::default(),
            was_read: Notify::new(),
            was_freed: Notify::new(),
        }
    }

    pub(crate) fn services(&self) -> &dyn ServiceAccess {
        &*self.services
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// Works with the copy in memory.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Index) -> T) -> Result<T> {
        let mut known = self.known();
        let index = known.index.as_mut();
        index.map(work).ok_or_else(ended)
    }

    /// Plans for a Service. What it lacks is noted in the same moment, so that nothing becomes free unnoticed in between.
    pub(crate) fn plan(
        &self,
        uid: &str,
        work: impl FnOnce(&mut Index) -> std::result::Result<Plan, Refusal>,
    ) -> Result<std::result::Result<Plan, Refusal>> {
        let mut known = self.known();
        let decided = work(known.index.as_mut().ok_or_else(ended)?);
        let lacking = decided.as_ref().map(Plan::lacking).unwrap_or_default();
        if lacking.is_empty() {
            known.lacking.remove(uid);
        } else {
            known.lacking.insert(uid.to_owned(), lacking);
        }
        Ok(decided)
    }

    /// Waits until the claims are known, and keeps them from being read anew as long as the guard lives.
    pub(crate) async fn open(&self) -> Result<RwLockReadGuard<'_, ()>> {
        loop {
            let guard = self.gate.read().await;
            if self.is_known() {
                return Ok(guard);
            }
            drop(guard);
            let _closed = self.gate.write().await;
            if !self.is_known() {
                self.read_all().await?;
            }
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known().index.is_some()
    }

    /// Forgets the copy: another daemon may write from now on.
    pub(crate) fn forget(&self) {
        let mut known = self.known();
        *known = Known { term: known.term + 1, ..Known::default() };
    }

    /// Waits until the claims were read once more.
    pub(crate) async fn was_read(&self) {
        self.was_read.notified().await;
    }

    /// Waits until an address became free that a Service lacks.
    pub(crate) async fn was_freed(&self) {
        self.was_freed.notified().await;
    }

    /// Keeps all others from working with the copy as long as the guard lives.
    pub(crate) async fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().await
    }

    /// Reads all claims anew, if they were read in this term.
    pub(crate) async fn read_anew(&self) -> Result<()> {
        let _closed = self.close().await;
        if self.is_known() { self.read_all().await } else { Ok(()) }
    }

    async fn read_all(&self) -> Result<()> {
        let term = self.known().term;
        // What a status shows counts when it is read first in a term. Later it is no more than what somebody may have written
        // there.
        let kept = self.known().index.as_ref().map(Index::reservations);
        // In this order: a Service that claims its address in between is found among the claims.
        let assigned = match kept {
            Some(kept) => kept,
            None => self.services.assigned().await?,
        };
        let claims = self.services.claims().await?;
        tracing::debug!(claims = claims.len(), assigned = assigned.len(), "claims of addresses read");
        let index = Index::new(claims, assigned);
        let mut known = self.known();
        // Another daemon may have written since.
        if known.term != term {
            return Err(ended());
        }
        known.index = Some(index);
        drop(known);
        self.was_read.notify_one();
        Ok(())
    }

    /// Makes others that look for an address to share wait.
    pub(crate) async fn share(&self) -> AsyncGuard<'_, ()> {
        self.sharing.lock().await
    }

    /// Notes that a Service is there.
    pub(crate) fn see(&self, uid: &str) {
        self.known().seen.insert(uid.to_owned());
    }

    /// Finds out what became of writes for a Service that were given up or failed.
    pub(crate) async fn settle(&self, uid: &str) -> Result<()> {
        for address in self.with(|index| index.pending_of(uid))? {
            let found = self.services.use_of(address).await?;
            self.with(|index| {
                index.learn(address, found);
                index.end(uid, address);
            })?;
        }
        Ok(())
    }

    /// Looks again at those of these addresses that something else used: it may have gone since, which nobody tells.
    pub(crate) async fn look_again(&self, addresses: &[IpAddr]) -> Result<()> {
        for address in addresses {
            if self.with(|index| index.foreign_user(*address).is_some())? {
                let found = self.services.use_of(*address).await?;
                self.with(|index| index.learn(*address, found))?;
            }
        }
        Ok(())
    }

    /// Writes a claim for a Service. [`Index::begin`] was called for it. If this fails or is given up, the outcome is
    /// unknown until [`settle`](Self::settle).
    pub(crate) async fn write(&self, uid: &str, claim: &AddressClaim) -> Result<Written> {
        let address = claim.address;
        match self.services.write_claim(claim).await {
            Ok(stored) => self.with(|index| {
                index.set(stored);
                index.end(uid, address);
                Written::Yes
            }),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let found = self.services.use_of(address).await?;
                self.with(|index| {
                    let is_foreign = matches!(found, AddressUse::Elsewhere(_));
                    index.learn(address, found);
                    index.end(uid, address);
                    if is_foreign { Written::Foreign } else { Written::Lost }
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up what a Service holds of an address.
    pub(crate) async fn release(&self, service: &ServiceRef, address: IpAddr) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let held = self.with(|index| {
                let claim = index.claim(address)?;
                claim.holders.iter().any(|holder| is_same(&holder.service, service)).then(|| claim.clone())
            })?;
            let Some(claim) = held else { return Ok(()) };
            let done = match Index::without(&claim, service) {
                Some(others) => self.services.write_claim(&others).await.map(AddressUse::Claimed),
                None => self.services.delete_claim(&claim).await.map(|()| AddressUse::Free),
            };
            match done {
                Ok(left) => {
                    self.with(|index| index.learn(address, left))?;
                    let family = Family::of(address);
                    if self.known().lacking.values().any(|lacking| lacking.contains(&family)) {
                        self.was_freed.notify_one();
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    let found = self.services.use_of(address).await?;
                    self.with(|index| index.learn(address, found))?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("the claim of {address} is changed by others all the time"),
        ))
    }

    /// Gives up everything that a Service holds.
    pub(crate) async fn release_all(&self, service: &ServiceRef) -> Result<()> {
        for address in self.with(|index| index.of_service(service))? {
            self.release(service, address).await?;
        }
        self.with(|index| index.end_reservations(&service.uid))?;
        let mut known = self.known();
        known.seen.remove(&service.uid);
        known.lacking.remove(&service.uid);
        Ok(())
    }

    /// Looks for Services that are gone because a pool is full, unless that was done a moment ago.
    pub(crate) async fn make_room(&self) -> Result<Option<Vec<ServiceRef>>> {
        if self.is_swept() {
            return Ok(None);
        }
        {
            let _closed = self.close().await;
            // Another one may have swept while this one waited. Its result is as good.
            if self.is_swept() {
                return Ok(Some(Vec::new()));
            }
            self.read_again().await?;
        }
        self.gone(false).await.map(Some)
    }

    /// Whether services that are gone were looked for a moment ago.
    pub(crate) fn is_swept(&self) -> bool {
        self.known().last_sweep.is_some_and(|last| last.elapsed() < SWEEP_MIN_INTERVAL)
    }

    /// Reads all claims anew, and looks for each Service that was not used since the last time. Returns those that are gone.
    pub(crate) async fn sweep(&self) -> Result<Vec<ServiceRef>> {
        {
            let _closed = self.close().await;
            if !self.is_known() {
                return Ok(Vec::new());
            }
            self.read_again().await?;
        }
        self.gone(true).await
    }

    /// The number of the present term.
    pub(crate) fn term(&self) -> u64 {
        self.known().term
    }

    /// Reads all claims, unless they were read in this term, and looks for each Service with claims that nobody has used since.
    /// Returns those that are gone.
    pub(crate) async fn gone_at_begin(&self) -> Result<Vec<ServiceRef>> {
        self.gone(false).await
    }

    async fn read_again(&self) -> Result<()> {
        self.known().last_sweep = Some(Instant::now());
        self.read_all().await
    }

    /// The Services with claims that are gone. Those that were used are not asked for; with `all` they have to be used
    /// again until the next time. One that cannot be asked for counts as there.
    async fn gone(&self, all: bool) -> Result<Vec<ServiceRef>> {
        let _open = self.open().await?;
        let unseen = {
            let mut known = self.known();
            let holders = known.index.iter().flat_map(Index::claims).flat_map(|claim| &claim.holders);
            let having = known.index.iter().flat_map(Index::having_reservations);
            let there = holders.map(|holder| &holder.service).chain(having);
            let unseen = there.filter(|service| !known.seen.contains(&service.uid));
            let unseen: HashSet<ServiceRef> = unseen.cloned().collect();
            if all {
                known.seen.clear();
            }
            unseen
        };
        let asked = stream::iter(unseen).map(|service| async {
            match self.services.exists(&service).await {
                Ok(exists) => (!exists).then_some(service),
                Err(error) => {
                    tracing::warn!(
                        service = %service,
                        error = error.report(),
                        "cannot look whether a Service with addresses is still there"
                    );
                    None
                }
            }
        });
        Ok(asked.buffer_unordered(SWEEP_CONCURRENCY).filter_map(std::future::ready).collect().await)
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the term of leadership has ended")
}
