//! What announces addresses from this host.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use cloudprovider::{Error, ErrorKind, Result, async_trait};
use futures::future::join_all;

use crate::allocate::Held;

/// Holds addresses on the interfaces of this host and tells the neighbours. One for the process, shared by all providers
/// that follow each other.
#[async_trait]
pub trait Announce: fmt::Debug + Send + Sync {
    /// Holds an address until this holder releases it. Several may hold one address. Holding it again changes nothing.
    ///
    /// # Errors
    /// The address is not held then, unless it was before.
    async fn hold(&self, holder: &str, address: IpAddr, interface: Option<&str>) -> Result<()>;

    /// Releases an address. It leaves the interface if nobody else holds it. Succeeds if it is not held.
    async fn release(&self, holder: &str, address: IpAddr) -> Result<()>;

    /// The addresses that are held, with their interface and all holders.
    fn held(&self) -> Vec<Announced>;
}

/// An address on an interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The address.
    pub address: IpAddr,
    /// The interface that has it.
    pub interface: String,
    /// Who holds it.
    pub holders: Vec<String>,
}

/// The addresses that one load balancer announces, by the UIDs of its Services.
///
/// Each holder is `<family of holders>/<number of the generation>/<UID>`. So the provider of a new configuration finds what
/// the one before it holds, and holds it as well before that one releases it.
#[derive(Debug)]
pub(crate) struct Holds {
    announcer: Arc<dyn Announce>,
    generation: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Grows with the end of each term.
    term: u64,
    addresses: HashMap<String, BTreeSet<IpAddr>>,
}

const FAMILY: &str = "address-pools";

impl Holds {
    pub(crate) fn new(announcer: Arc<dyn Announce>) -> Self {
        static GENERATIONS: AtomicU64 = AtomicU64::new(1);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { announcer, generation, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holder(&self, uid: &str) -> String {
        format!("{FAMILY}/{}/{uid}", self.generation)
    }

    /// The number of the present term.
    pub(crate) fn term(&self) -> u64 {
        self.state().term
    }

    /// Holds also what an earlier load balancer of this process holds. Called when this one starts.
    pub(crate) async fn take_over(&self) {
        let term = self.term();
        for Announced { address, interface, holders } in self.announcer.held() {
            for uid in holders.iter().filter_map(|holder| uid_of(holder)).collect::<BTreeSet<_>>() {
                if let Err(error) = self.hold_one(term, uid, address, Some(&interface)).await {
                    tracing::warn!(%address, error = error.report(), "cannot take over an announced address");
                }
            }
        }
    }

    /// Holds exactly these addresses for a Service.
    ///
    /// # Errors
    /// An address cannot be held, or the term has ended since.
    pub(crate) async fn hold(&self, term: u64, uid: &str, wanted: &[Held]) -> Result<()> {
        for held in wanted {
            // Where its interface is no longer known, an address stays where it is.
            if !(held.is_outside && self.is_held(uid, held.address)) {
                self.hold_one(term, uid, held.address, held.interface.as_deref()).await?;
            }
        }
        let had = self.state().addresses.get(uid).cloned().unwrap_or_default();
        for address in had.into_iter().filter(|had| wanted.iter().all(|held| held.address != *had)) {
            self.release_one(uid, address).await?;
        }
        Ok(())
    }

    /// Holds also these addresses for a Service. One that cannot be held does not keep it from holding the others.
    ///
    /// # Errors
    /// An address cannot be held, or the term has ended since.
    pub(crate) async fn keep(&self, term: u64, uid: &str, had: &[Held]) -> Result<()> {
        let mut outcome = Ok(());
        for held in had {
            if !self.is_held(uid, held.address) {
                outcome =
                    outcome.and(self.hold_one(term, uid, held.address, held.interface.as_deref()).await);
            }
        }
        outcome
    }

    fn is_held(&self, uid: &str, address: IpAddr) -> bool {
        self.state().addresses.get(uid).is_some_and(|addresses| addresses.contains(&address))
    }

    async fn hold_one(&self, term: u64, uid: &str, address: IpAddr, interface: Option<&str>) -> Result<()> {
        {
            let mut state = self.state();
            if state.term != term {
                return Err(ended());
            }
            // Before the call: if the term ends meanwhile, the address is released.
            state.addresses.entry(uid.to_owned()).or_default().insert(address);
        }
        self.announcer.hold(&self.holder(uid), address, interface).await?;
        if self.term() != term {
            self.announcer.release(&self.holder(uid), address).await?;
            return Err(ended());
        }
        Ok(())
    }

    async fn release_one(&self, uid: &str, address: IpAddr) -> Result<()> {
        self.announcer.release(&self.holder(uid), address).await?;
        let mut state = self.state();
        if let Some(addresses) = state.addresses.get_mut(uid) {
            addresses.remove(&address);
            if addresses.is_empty() {
                state.addresses.remove(uid);
            }
        }
        Ok(())
    }

    /// Releases all addresses of a Service.
    pub(crate) async fn release(&self, uid: &str) -> Result<()> {
        let had = self.state().addresses.get(uid).cloned().unwrap_or_default();
        for address in had {
            self.release_one(uid, address).await?;
        }
        Ok(())
    }

    /// Releases everything: the term has ended, or this load balancer has been replaced.
    pub(crate) async fn release_all(&self) {
        let addresses = {
            let mut state = self.state();
            state.term += 1;
            std::mem::take(&mut state.addresses)
        };
        let held = addresses.iter().flat_map(|(uid, held)| held.iter().map(move |address| (uid, *address)));
        join_all(held.map(|(uid, address)| async move {
            if let Err(error) = self.announcer.release(&self.holder(uid), address).await {
                tracing::warn!(%address, error = error.report(), "cannot give up an announced address");
            }
        }))
        .await;
    }
}

fn uid_of(holder: &str) -> Option<&str> {
    let (_, uid) = holder.strip_prefix(FAMILY)?.strip_prefix('/')?.split_once('/')?;
    Some(uid)
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the term of leadership has ended")
}

#[cfg(test)]
mod tests;
