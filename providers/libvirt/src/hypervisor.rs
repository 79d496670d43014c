//! What look-ups see of a hypervisor: its inventory and whether that is live.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
    time::{Duration, Instant},
};

use cloudprovider::{Error, ErrorKind, Result};
use jiff::Timestamp;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use uuid::Uuid;
use virt::connect::Connect;

use crate::{
    calls::{Counts, Failure},
    config::{Config, HypervisorConfig},
    inventory::Inventory,
    key::Key,
    lane::LaneCount,
    session::Probed,
};
use cloudprovider::InstanceChange;

/// How long a look-up waits for a hypervisor to confirm that a domain is gone.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// A confirmation that is younger than this is good enough.
pub(crate) const CONFIRMED_FOR: Duration = Duration::from_secs(2);

/// How much longer it may take for each domain that libvirt is asked for by name or UUID.
const PROBE_TIMEOUT: Duration = Duration::from_millis(5);

/// How a hypervisor is doing.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    /// Nobody has tried to reach it yet, or the first try is under way.
    Starting,
    /// Connected, listed after the connection was made, and following events.
    Live,
    /// Not connected.
    Down { since: Timestamp, failure: Failure },
}

/// What is known of a hypervisor, under one lock.
pub(crate) struct State {
    pub(crate) status: Status,
    pub(crate) inventory: Inventory,
    /// Whether the inventory was ever listed, on this connection or an earlier one.
    pub(crate) is_listed: bool,
    /// When the inventory was last compared with libvirt's own list.
    pub(crate) confirmed: Option<Instant>,
}

impl State {
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.status, Status::Live)
    }
}

/// What its actor is asked for.
pub(crate) enum Command {
    /// Compare the inventory with libvirt's list, unless that was done after this moment.
    Confirm(Instant, oneshot::Sender<Result<(), Failure>>),
    /// Ask libvirt for the domains of these nodes, whatever its list says.
    Probe(Vec<Vec<Key>>, oneshot::Sender<Result<Probed, Failure>>),
    /// Hand the connection, or another one to the same daemon, to somebody else, on a thread of its own.
    Borrow(Box<dyn FnOnce(&Connect) + Send>),
}

/// What all hypervisors of a provider have in common.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Arc<Config>,
    /// Moves whenever the status of any hypervisor changes.
    pub(crate) status_changes: watch::Sender<u64>,
    pub(crate) instance_changes: broadcast::Sender<InstanceChange>,
    last_removal: Arc<Mutex<Option<Instant>>>,
    /// Of the provider.
    pub(crate) lanes: LaneCount,
}

impl Shared {
    pub(crate) fn new(
        settings: Arc<Config>,
        status_changes: watch::Sender<u64>,
        instance_changes: broadcast::Sender<InstanceChange>,
    ) -> Self {
        let (last_removal, lanes) = (Arc::default(), LaneCount::default());
        Self { settings, status_changes, instance_changes, last_removal, lanes }
    }

    /// When anything was last dropped from any inventory, or a hypervisor became live. A domain that migrates is first
    /// on the target and then not on the source any more; so what the target had before the source dropped it
    /// does not count.
    fn last_removal(&self) -> Option<Instant> {
        *self.last_removal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_removal(&self) {
        *self.last_removal.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// One hypervisor, shared between its actor and look-ups.
pub(crate) struct Hypervisor {
    pub(crate) config: HypervisorConfig,
    pub(crate) settings: Arc<Config>,
    shared: Shared,
    state: RwLock<State>,
    /// When a question was last not answered in time, if nothing was since: nobody else needs to wait meanwhile.
    silent: Mutex<Option<Instant>>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
}

impl Hypervisor {
    pub(crate) fn new(
        config: HypervisorConfig,
        shared: Shared,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let state = State {
            status: Status::Starting,
            inventory: Inventory::default(),
            is_listed: false,
            confirmed: None,
        };
        let hypervisor = Self {
            config,
            settings: Arc::clone(&shared.settings),
            shared,
            state: RwLock::new(state),
            silent: Mutex::default(),
            counts: Arc::default(),
            commands,
        };
        (Arc::new(hypervisor), receiver)
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// The threads of the provider.
    pub(crate) fn lanes(&self) -> &LaneCount {
        &self.shared.lanes
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        // a panic while writing leaves data that is merely old; the next listing replaces it
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and tells the controllers what came of it.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State) -> Vec<cloudprovider::InstanceRef>) {
        let changed = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let removals = state.inventory.removals();
            let changed = change(&mut state);
            if state.inventory.removals() != removals {
                // under the lock: whoever sees that it is gone sees the time as well
                self.shared.note_removal();
            }
            changed
        };
        if !changed.is_empty() {
            // an error means that nobody listens
            let _ = self.shared.instance_changes.send(InstanceChange::Changed(changed));
        }
    }

    /// Changes the status, with the inventory where it changes too. The controllers look at everything again.
    pub(crate) fn set_status(&self, status: Status, change: impl FnOnce(&mut State)) {
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            state.status = status;
            self.shared.note_removal();
        }
        self.shared.status_changes.send_modify(|generation| *generation += 1);
        let _ = self.shared.instance_changes.send(InstanceChange::Resync);
    }

    /// The domains that run as far as is known.
    pub(crate) fn running(&self) -> HashSet<Uuid> {
        let state = self.state();
        state.inventory.domains().filter(|domain| domain.is_running()).map(|domain| domain.uuid).collect()
    }

    /// Notes why the hypervisor is still down.
    pub(crate) fn still_down(&self, newer: &Failure) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Status::Down { failure, .. } = &mut state.status {
            failure.clone_from(newer);
        }
    }

    /// Makes sure that the inventory is what libvirt has now: one call at most, shared by all who ask meanwhile.
    ///
    /// An earlier confirmation is good enough if it is young and began after the last removal anywhere.
    pub(crate) async fn confirm(&self) -> Result<(), Failure> {
        let now = Instant::now();
        let last_removal = self.shared.last_removal();
        let is_fresh = |at: Instant| {
            now.duration_since(at) < CONFIRMED_FOR && last_removal.is_none_or(|removal| at > removal)
        };
        if self.state().confirmed.is_some_and(is_fresh) {
            return Ok(());
        }
        self.ask(CONFIRM_TIMEOUT, |answer| Command::Confirm(now, answer)).await
    }

    /// Asks libvirt for the domains of these nodes, whatever its list says. One job for all of them.
    pub(crate) async fn probe(&self, nodes: Vec<Vec<Key>>) -> Result<Probed, Failure> {
        let calls = u32::try_from(nodes.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX);
        let timeout = CONFIRM_TIMEOUT.saturating_add(PROBE_TIMEOUT.saturating_mul(calls));
        self.ask(timeout, |answer| Command::Probe(nodes, answer)).await
    }

    async fn ask<T>(
        &self,
        timeout: Duration,
        command: impl FnOnce(oneshot::Sender<Result<T, Failure>>) -> Command,
    ) -> Result<T, Failure> {
        let timeout = timeout.min(self.settings.call_timeout);
        let silence = || {
            Failure::lost(
                ErrorKind::Timeout,
                format!("libvirt has not answered within {} s", timeout.as_secs()),
            )
        };
        let since = *self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_some_and(|since| since.elapsed() < self.settings.call_timeout) {
            return Err(silence());
        }
        let (answer, receiver) = oneshot::channel();
        let ended = || Failure::lost(ErrorKind::Unavailable, "the connection has ended");
        self.commands.send(command(answer)).map_err(|_| ended())?;
        match tokio::time::timeout(timeout, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                Err(silence())
            }
        }
    }

    /// Notes that libvirt has answered something.
    pub(crate) fn heard(&self) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Why nothing can be said about domains of this hypervisor, `None` while it is live.
    pub(crate) fn trouble(&self, status: &Status) -> Option<Error> {
        match status {
            Status::Live => None,
            Status::Starting => Some(Error::new(
                ErrorKind::Unavailable,
                format!("hypervisor {:?} has not answered yet", self.name()),
            )),
            Status::Down { since, failure } => {
                let message = format!(
                    "hypervisor {:?} has been unreachable since {since:.0}: {}",
                    self.name(),
                    failure.message
                );
                let error = failure.to_error();
                let wrapped = Error::new(error.kind(), message);
                Some(match error.retry_after() {
                    Some(after) => wrapped.with_retry_after(after),
                    None => wrapped,
                })
            }
        }
    }
}

impl fmt::Debug for Hypervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Hypervisor")
            .field("name", &self.config.name)
            .field("status", &state.status)
            .field("domains", &state.inventory.len())
            .finish_non_exhaustive()
    }
}

/// A way to a hypervisor's own connection.
///
/// libvirt's `test:///file` driver gives each connection domains of its own, so whoever wants to act on the domains
/// that the provider sees, such as a demo or a test, needs the provider's connection.
#[derive(Clone, Debug)]
pub struct HypervisorHandle(pub(crate) Arc<Hypervisor>);

impl HypervisorHandle {
    /// The hypervisor's name in the configuration.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether it is connected and its inventory is up to date.
    pub fn is_live(&self) -> bool {
        self.0.state().is_live()
    }

    /// Names of the domains that are known, sorted.
    pub fn domain_names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.0.state().inventory.domains().map(|domain| domain.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Runs `work` with the connection, on a thread of its own, and waits for it. The connection stays the
    /// provider's: it is not to be closed or kept. Where there is a daemon behind it, it is another connection to the same
    /// daemon, since libvirt's client is not safe for two threads.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] while there is no connection.
    pub async fn with_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connect) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, receiver) = oneshot::channel();
        let work = Box::new(move |connect: &Connect| {
            // whoever asked may have gone
            let _ = answer.send(work(connect));
        });
        // where it cannot be sent the work is dropped, and with it the answer's sender
        let _ = self.0.commands.send(Command::Borrow(work));
        receiver.await.map_err(|_| {
            self.0.trouble(&self.0.state().status).unwrap_or_else(|| {
                Error::new(
                    ErrorKind::Unavailable,
                    format!("the connection to hypervisor {:?} has ended", self.name()),
                )
            })
        })
    }
}
