//! What announces addresses from this host.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::IpAddr,
    sync::{Arc, Weak},
};

use cloudprovider::{Error, ErrorKind, Result, ServiceAccess, async_trait};
use futures::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::allocate::Held;

/// Holds addresses on the interfaces of this host and tells the neighbours. One for the process, shared by all providers
/// that follow each other.
#[async_trait]
pub trait Announce: fmt::Debug + Send + Sync {
    /// From now on, each address is off its interface before another daemon [can lead](ServiceAccess::alone_for), even if this
    /// one is killed.
    fn limit(&self, services: Arc<dyn ServiceAccess>);

    /// Holds an address until this holder releases it. Several may hold one address. Holding it again changes nothing.
    ///
    /// # Errors
    /// The address is not held then, unless it was before.
    async fn hold(&self, holder: &str, address: IpAddr, interface: Option<&str>) -> Result<()>;

    /// Asks the network whether another host has the address, before it is held for the first time.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict): a host has it.
    async fn probe(&self, _address: IpAddr, _interface: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// Releases an address. It leaves the interface if nobody else holds it. Succeeds if it is not held.
    async fn release(&self, holder: &str, address: IpAddr) -> Result<()>;

    /// The held addresses that no interface has at the moment, such as those of an interface that vanished. Each is set again
    /// when that is possible.
    fn faults(&self) -> Vec<Fault>;
}

/// A held address that no interface has at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub address: IpAddr,
    /// Why no interface has it, for people.
    pub why: String,
}

/// The addresses that one load balancer announces, by the UIDs of its Services.
///
/// Each holder is `address-pools/<number of the generation>/<UID>`. A load balancer that is replaced hands its
/// addresses over: the next generation holds them too before this one releases them.
#[derive(Debug)]
pub(crate) struct Holds {
    announcer: Arc<dyn Announce>,
    generation: u64,
    state: Mutex<State>,
    /// Told when an earlier generation has handed over.
    taken_over: Notify,
    /// Locked while everything is released, so that who comes second knows what came of it.
    releasing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Grows with the end of each term.
    term: u64,
    /// Whether it was started, and not stopped since. Only then it takes over what an earlier one holds.
    is_running: bool,
    /// Those that are held, or that somebody tries to hold now.
    addresses: HashMap<String, BTreeMap<IpAddr, Hold>>,
    /// Those that could not be held, and are to be, each with the interface that was asked for.
    failed: HashMap<String, BTreeMap<IpAddr, Option<String>>>,
    /// Those that were to be released with the end of a term, and are not yet, or could not be: they may still be on this host.
    leaving: BTreeSet<(String, IpAddr)>,
    /// How many tries to hold an address there were.
    tries: u64,
}

/// An address that is held, or that somebody tries to hold now.
#[derive(Clone, Debug)]
struct Hold {
    /// The interface that was asked for last.
    interface: Option<String>,
    /// The interface that was asked for when it could be held last.
    held: Option<Asked>,
    /// The number of the latest try. What comes of an earlier one does not matter any more.
    latest: u64,
}

/// The interface that was asked for. `None`: whoever announces decides.
#[derive(Clone, Debug)]
struct Asked(Option<String>);

impl State {
    /// Notes a try to hold an address. Returns its number.
    fn begin(&mut self, uid: &str, address: IpAddr, interface: Option<&str>) -> u64 {
        self.tries += 1;
        let interface = interface.map(str::to_owned);
        // From now on this is what is to be tried again.
        if let Some(failed) = self.failed.get_mut(uid).and_then(|failed| failed.get_mut(&address)) {
            failed.clone_from(&interface);
        }
        let addresses = self.addresses.entry(uid.to_owned()).or_default();
        let held = addresses.remove(&address).and_then(|hold| hold.held);
        addresses.insert(address, Hold { interface, held, latest: self.tries });
        self.tries
    }

    /// Notes that a try succeeded. `false`: the address was given back meanwhile.
    fn succeed(&mut self, number: u64, uid: &str, address: IpAddr, interface: Option<&str>) -> bool {
        let Some(hold) = self.hold_mut(uid, address) else { return false };
        let is_latest = hold.latest == number;
        if is_latest || hold.held.is_none() {
            hold.held = Some(Asked(interface.map(str::to_owned)));
        }
        if is_latest {
            remove(&mut self.failed, uid, address);
        }
        true
    }

    /// Notes that a try failed, so that it is made again. Unless the address was given back meanwhile, or a later try decides.
    fn fail(&mut self, number: u64, uid: &str, address: IpAddr) {
        let Some(hold) = self.hold_mut(uid, address).filter(|hold| hold.latest == number) else { return };
        let wanted = hold.interface.clone();
        match &hold.held {
            Some(Asked(held)) => hold.interface.clone_from(held),
            None => remove(&mut self.addresses, uid, address),
        }
        self.failed.entry(uid.to_owned()).or_default().insert(address, wanted);
    }

    /// Leaves an address where it is held, whatever is tried now. `false`: it is not held.
    fn leave(&mut self, uid: &str, address: IpAddr) -> bool {
        self.tries += 1;
        let latest = self.tries;
        let Some(hold) = self.hold_mut(uid, address) else { return false };
        let Some(Asked(held)) = &hold.held else { return false };
        hold.interface.clone_from(held);
        hold.latest = latest;
        remove(&mut self.failed, uid, address);
        true
    }

    fn forget(&mut self, uid: &str, address: IpAddr) {
        remove(&mut self.addresses, uid, address);
        remove(&mut self.failed, uid, address);
    }

    fn hold_mut(&mut self, uid: &str, address: IpAddr) -> Option<&mut Hold> {
        self.addresses.get_mut(uid)?.get_mut(&address)
    }

    /// The addresses that a Service has, and those that it is to have.
    fn all_of(&self, uid: &str) -> Vec<IpAddr> {
        let has = self.addresses.get(uid).into_iter().flat_map(BTreeMap::keys);
        let lacks = self.failed.get(uid).into_iter().flat_map(BTreeMap::keys);
        let all: BTreeSet<IpAddr> = has.chain(lacks).copied().collect();
        all.into_iter().collect()
    }
}

fn remove<T>(known: &mut HashMap<String, BTreeMap<IpAddr, T>>, uid: &str, address: IpAddr) {
    if let Some(addresses) = known.get_mut(uid) {
        addresses.remove(&address);
        if addresses.is_empty() {
            known.remove(uid);
        }
    }
}

/// What the names of all holders begin with.
const HOLDER_PREFIX: &str = "address-pools";

/// The generations of this process that are there, the latest one last.
static GENERATIONS: Mutex<Generations> = Mutex::new(Generations { last: 0, alive: Vec::new() });

struct Generations {
    last: u64,
    alive: Vec<Weak<Holds>>,
}

fn generations() -> MutexGuard<'static, Generations> {
    GENERATIONS.lock()
}

impl Holds {
    /// The next generation.
    pub(crate) fn new(announcer: Arc<dyn Announce>) -> Arc<Self> {
        let mut generations = generations();
        generations.last += 1;
        let holds = Arc::new(Self {
            announcer,
            generation: generations.last,
            state: Mutex::default(),
            taken_over: Notify::new(),
            releasing: tokio::sync::Mutex::default(),
        });
        generations.alive.retain(|one| one.strong_count() > 0);
        generations.alive.push(Arc::downgrade(&holds));
        holds
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn holder(&self, uid: &str) -> String {
        format!("{HOLDER_PREFIX}/{}/{uid}", self.generation)
    }

    /// The number of the present term.
    pub(crate) fn term(&self) -> u64 {
        self.state().term
    }

    /// The latest generation behind this one that runs.
    fn successor(&self) -> Option<Arc<Self>> {
        let alive: Vec<_> = generations().alive.iter().filter_map(Weak::upgrade).collect();
        let mut later = alive.into_iter().filter(|other| other.generation > self.generation);
        later.rfind(|other| Arc::ptr_eq(&other.announcer, &self.announcer) && other.state().is_running)
    }

    /// From now on it takes over what an earlier generation holds when that one stops. `services` says how long no other
    /// daemon can lead.
    pub(crate) fn start(&self, services: Arc<dyn ServiceAccess>) {
        self.announcer.limit(services);
        self.state().is_running = true;
    }

    /// Ends this generation. The next one holds everything before this one releases it. Where there is none, it is
    /// released.
    pub(crate) async fn stop(&self) {
        // Before the addresses are looked at: if a term of leadership ends from here on, nothing is held after it.
        let successor = self.successor().map(|successor| (successor.term(), successor));
        let addresses = {
            let mut state = self.state();
            state.is_running = false;
            // From now on nothing is added.
            state.term += 1;
            state.addresses.clone()
        };
        if !addresses.is_empty()
            && let Some((term, successor)) = successor
        {
            successor.take_over(term, &addresses).await;
        }
        // Each address that stays was logged. At the end of the term it is known.
        let _ = self.release_all().await;
    }

    /// Holds also what an earlier generation holds.
    async fn take_over(&self, term: u64, addresses: &HashMap<String, BTreeMap<IpAddr, Hold>>) {
        for (uid, addresses) in addresses {
            for (address, hold) in addresses.iter().filter(|(address, _)| !self.is_held(uid, **address)) {
                if let Err(error) = self.hold_one(term, uid, *address, hold.interface.as_deref()).await {
                    tracing::warn!(%address, error = error.report(), "cannot take over an announced address");
                }
            }
        }
        self.taken_over.notify_one();
    }

    /// Waits until an earlier generation has handed over.
    pub(crate) async fn taken_over(&self) {
        self.taken_over.notified().await;
    }

    /// What is held although `is_claimed` says that the Service has no claim to it.
    pub(crate) fn unclaimed(&self, is_claimed: impl Fn(&str, IpAddr) -> bool) -> Vec<(String, IpAddr)> {
        let state = self.state();
        let all = state.addresses.iter().flat_map(|(uid, held)| held.keys().map(move |one| (uid, *one)));
        all.filter(|(uid, address)| !is_claimed(uid, *address))
            .map(|(uid, address)| (uid.clone(), address))
            .collect()
    }

    /// Holds exactly these addresses for a Service.
    ///
    /// # Errors
    /// An address cannot be held, or the term has ended since.
    pub(crate) async fn hold(&self, term: u64, uid: &str, wanted: &[Held]) -> Result<()> {
        for held in wanted {
            // Where its interface is no longer known, an address stays where it is.
            if !(held.is_outside && self.state().leave(uid, held.address)) {
                self.hold_one(term, uid, held.address, held.interface.as_deref()).await?;
            }
        }
        let had = self.state().all_of(uid);
        for address in had.into_iter().filter(|had| wanted.iter().all(|held| held.address != *had)) {
            self.release_one(uid, address).await?;
        }
        Ok(())
    }

    /// Tries again to hold what could not be held. Tells whether something could.
    pub(crate) async fn retry(&self) -> bool {
        let (term, failed) = {
            let state = self.state();
            (state.term, state.failed.clone())
        };
        let all = failed.iter().flat_map(|(uid, addresses)| addresses.iter().map(move |one| (uid, one)));
        let tried = join_all(all.map(|(uid, (address, interface))| async move {
            let number = {
                let mut state = self.state();
                let failed = state.failed.get(uid).and_then(|failed| failed.get(address));
                // Somebody else may hold it by now, on another interface, or have given it back.
                if state.term != term || failed != Some(interface) {
                    return false;
                }
                state.begin(uid, *address, interface.as_deref())
            };
            self.try_to_hold(term, number, uid, *address, interface.as_deref()).await.is_ok()
        }));
        tried.await.contains(&true)
    }

    /// The addresses of Services that no interface has at the moment.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let faults = self.announcer.faults();
        if faults.is_empty() {
            return faults;
        }
        let held: BTreeSet<IpAddr> =
            self.state().addresses.values().flat_map(BTreeMap::keys).copied().collect();
        faults.into_iter().filter(|fault| held.contains(&fault.address)).collect()
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

    /// Holds an address that the Service has never had. Where `probes`, the network is asked before.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict): a host has it.
    pub(crate) async fn take(&self, term: u64, uid: &str, held: &Held, probes: bool) -> Result<()> {
        let interface = held.interface.as_deref();
        if probes {
            self.announcer.probe(held.address, interface).await?;
        }
        self.hold_one(term, uid, held.address, interface).await
    }

    pub(crate) fn is_held(&self, uid: &str, address: IpAddr) -> bool {
        self.state().hold_mut(uid, address).is_some_and(|hold| hold.held.is_some())
    }

    async fn hold_one(&self, term: u64, uid: &str, address: IpAddr, interface: Option<&str>) -> Result<()> {
        let number = {
            let mut state = self.state();
            if state.term != term {
                return Err(ended());
            }
            // Before the call: if the term ends meanwhile, the address is released.
            state.begin(uid, address, interface)
        };
        self.try_to_hold(term, number, uid, address, interface).await
    }

    /// Makes the try with this number.
    async fn try_to_hold(
        &self,
        term: u64,
        number: u64,
        uid: &str,
        address: IpAddr,
        interface: Option<&str>,
    ) -> Result<()> {
        let outcome = self.announcer.hold(&self.holder(uid), address, interface).await;
        let refusal = {
            let mut state = self.state();
            match outcome {
                Err(error) => {
                    if state.term == term {
                        state.fail(number, uid, address);
                    }
                    return Err(error);
                }
                Ok(()) if state.term != term => ended(),
                Ok(()) if state.succeed(number, uid, address, interface) => return Ok(()),
                Ok(()) => Error::new(ErrorKind::Unavailable, format!("{address} was given back meanwhile")),
            }
        };
        self.announcer.release(&self.holder(uid), address).await?;
        Err(refusal)
    }

    /// Releases one address of a Service.
    pub(crate) async fn release_one(&self, uid: &str, address: IpAddr) -> Result<()> {
        // First, so that it is not tried again meanwhile.
        remove(&mut self.state().failed, uid, address);
        self.announcer.release(&self.holder(uid), address).await?;
        // Also what failed: a try may have ended meanwhile. One that ends later finds nothing.
        self.state().forget(uid, address);
        Ok(())
    }

    /// Releases all addresses of a Service.
    pub(crate) async fn release(&self, uid: &str) -> Result<()> {
        let had = self.state().all_of(uid);
        for address in had {
            self.release_one(uid, address).await?;
        }
        Ok(())
    }

    /// Releases everything: the term has ended.
    ///
    /// # Errors
    /// An address may still be on this host.
    pub(crate) async fn release_all(&self) -> Result<()> {
        let held: Vec<(String, IpAddr)> = {
            let mut state = self.state();
            state.term += 1;
            state.failed.clear();
            let addresses = std::mem::take(&mut state.addresses).into_iter();
            let held = addresses.flat_map(|(uid, held)| held.into_keys().map(move |one| (uid.clone(), one)));
            let held: Vec<_> = held.collect();
            state.leaving.extend(held.iter().cloned());
            held
        };
        let _releasing = self.releasing.lock().await;
        join_all(held.into_iter().map(|one| async move {
            let (uid, address) = &one;
            match self.announcer.release(&self.holder(uid), *address).await {
                Ok(()) => {
                    self.state().leaving.remove(&one);
                }
                Err(error) => {
                    tracing::warn!(%address, error = error.report(), "cannot give up an announced address");
                }
            }
        }))
        .await;
        let leaving: BTreeSet<String> =
            self.state().leaving.iter().map(|(_, address)| address.to_string()).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let addresses = leaving.into_iter().collect::<Vec<_>>().join(", ");
        Err(Error::new(ErrorKind::Unavailable, format!("this host may still answer for {addresses}")))
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the term of leadership has ended")
}

#[cfg(test)]
mod tests;
