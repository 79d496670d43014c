//! The state of a hypervisor for look-ups: its inventory, and whether that is live.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use cloudprovider::{Error, ErrorKind, Result};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use uuid::Uuid;
use virt::{connect::Connect, network::Network};

use crate::{
    allow::BridgedNetwork,
    calls::{Counts, Failure},
    config::{Config, HypervisorConfig},
    inventory::Inventory,
    provider_id::DomainId,
    session::Probed,
    size::Size,
    worker::WorkerCount,
};
use cloudprovider::InstanceChange;

/// How long a look-up waits for a hypervisor to confirm that a domain is gone.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// A confirmation that is younger than this is still used.
pub(crate) const CONFIRMED_FOR: Duration = Duration::from_secs(2);

/// The additional timeout for each domain that libvirt is asked for by name or UUID.
const PROBE_TIMEOUT: Duration = Duration::from_millis(5);

/// The state of the connection to a hypervisor.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    /// No connection was tried yet, or the first try is in progress.
    Starting,
    /// Connected, listed since the connection was made, and following events.
    Live,
    /// Not connected.
    Disconnected { since: Timestamp, failure: Failure },
}

/// The state of a hypervisor, protected by one lock.
pub(crate) struct State {
    pub(crate) status: Status,
    pub(crate) inventory: Inventory,
    /// Whether the inventory was ever listed, on this connection or an earlier one.
    pub(crate) is_listed: bool,
    /// When the inventory was last compared with libvirt's own list.
    pub(crate) confirmed: Option<Instant>,
    /// Its CPUs and memory, as read once for each connection, or why they are not known.
    pub(crate) size: std::result::Result<Size, String>,
}

impl State {
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.status, Status::Live)
    }
}

/// A request to the hypervisor's actor.
pub(crate) enum Command {
    /// Compare the inventory with libvirt's list, unless that was done after this time.
    Confirm(Instant, oneshot::Sender<Result<(), Failure>>),
    /// Ask libvirt for the domains of these nodes, even if its list lacks them.
    Probe(Vec<Vec<DomainId>>, oneshot::Sender<Result<Probed, Failure>>),
    /// Read this domain again, as after an event about it.
    Reread(Uuid),
    /// Read the leases of this domain, also if it has an address.
    ReadLeases(Uuid),
    /// Run a function on its own thread, with the connection or another one to the same daemon.
    Borrow(Box<dyn FnOnce(&Connect) + Send>),
}

/// What all hypervisors of a provider share.
#[derive(Clone, Debug)]
pub(crate) struct ProviderState {
    pub(crate) settings: Arc<Config>,
    /// Changes whenever the status of any hypervisor changes.
    pub(crate) status_changes: watch::Sender<u64>,
    pub(crate) instance_changes: broadcast::Sender<InstanceChange>,
    last_removal: Arc<Mutex<Option<Instant>>>,
    /// The provider's thread count.
    pub(crate) workers: WorkerCount,
}

impl ProviderState {
    pub(crate) fn new(
        settings: Arc<Config>,
        status_changes: watch::Sender<u64>,
        instance_changes: broadcast::Sender<InstanceChange>,
    ) -> Self {
        let (last_removal, workers) = (Arc::default(), WorkerCount::default());
        Self { settings, status_changes, instance_changes, last_removal, workers }
    }

    /// When a domain was last dropped from any inventory, or a hypervisor became live. During a migration, a
    /// domain appears on the target before it vanishes from the source. So a list of the target from before
    /// the removal at the source proves nothing.
    fn last_removal(&self) -> Option<Instant> {
        *self.last_removal.lock()
    }

    fn note_removal(&self) {
        *self.last_removal.lock() = Some(Instant::now());
    }
}

/// One hypervisor, shared between its actor and look-ups.
pub(crate) struct Hypervisor {
    pub(crate) config: HypervisorConfig,
    pub(crate) settings: Arc<Config>,
    provider: ProviderState,
    state: RwLock<State>,
    /// When a request last timed out, unless libvirt answered since. Meanwhile other requests fail at once.
    timed_out: Mutex<Option<Instant>>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
}

impl Hypervisor {
    pub(crate) fn new(
        config: HypervisorConfig,
        provider: ProviderState,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let state = State {
            status: Status::Starting,
            inventory: Inventory::default(),
            is_listed: false,
            confirmed: None,
            size: Err("it was not asked yet".to_owned()),
        };
        let hypervisor = Self {
            config,
            settings: Arc::clone(&provider.settings),
            provider,
            state: RwLock::new(state),
            timed_out: Mutex::default(),
            counts: Arc::default(),
            commands,
        };
        (Arc::new(hypervisor), receiver)
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// The provider's thread count.
    pub(crate) fn workers(&self) -> &WorkerCount {
        &self.provider.workers
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Changes the state and reports the changes to the controllers.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State) -> Vec<cloudprovider::InstanceRef>) {
        let changed = {
            let mut state = self.state.write();
            let removals = state.inventory.removals();
            let changed = change(&mut state);
            if state.inventory.removals() != removals {
                // Still under the lock, so that a reader that sees the removal also sees its time.
                self.provider.note_removal();
            }
            changed
        };
        if !changed.is_empty() {
            // an error means that there are no listeners
            let _ = self.provider.instance_changes.send(InstanceChange::Changed(changed));
        }
    }

    /// Changes the status, and the inventory if necessary. The controllers then look at all Nodes again.
    pub(crate) fn set_status(&self, status: Status, change: impl FnOnce(&mut State)) {
        {
            let mut state = self.state.write();
            change(&mut state);
            state.status = status;
            self.provider.note_removal();
        }
        self.provider.status_changes.send_modify(|generation| *generation += 1);
        let _ = self.provider.instance_changes.send(InstanceChange::Resync);
    }

    /// The domains that are known to be running.
    pub(crate) fn running(&self) -> HashSet<Uuid> {
        let state = self.state();
        state.inventory.domains().filter(|domain| domain.is_running()).map(|domain| domain.uuid).collect()
    }

    /// Stores the latest reason why the hypervisor is still down.
    pub(crate) fn still_disconnected(&self, newer: &Failure) {
        let mut state = self.state.write();
        if let Status::Disconnected { failure, .. } = &mut state.status {
            failure.clone_from(newer);
        }
    }

    /// Makes sure that the inventory is what libvirt has now. Concurrent callers share one call.
    ///
    /// An earlier confirmation is enough if it is young, and newer than the last removal at any hypervisor.
    pub(crate) async fn confirm(&self) -> Result<(), Failure> {
        let now = Instant::now();
        let last_removal = self.provider.last_removal();
        let is_fresh = |at: Instant| {
            now.duration_since(at) < CONFIRMED_FOR && last_removal.is_none_or(|removal| at > removal)
        };
        if self.state().confirmed.is_some_and(is_fresh) {
            return Ok(());
        }
        self.ask(CONFIRM_TIMEOUT, |answer| Command::Confirm(now, answer)).await
    }

    /// Asks libvirt for the domains of these nodes, even if its list lacks them. One job for all nodes.
    pub(crate) async fn probe(&self, nodes: Vec<Vec<DomainId>>) -> Result<Probed, Failure> {
        let calls = u32::try_from(nodes.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX);
        let timeout = CONFIRM_TIMEOUT.saturating_add(PROBE_TIMEOUT.saturating_mul(calls));
        self.ask(timeout, |answer| Command::Probe(nodes, answer)).await
    }

    /// Asks the actor to read a domain again, since a call showed another state of it than the inventory: an
    /// event may have been lost. Does not wait for it.
    pub(crate) fn reread_soon(&self, uuid: Uuid) {
        // Without a connection there is a listing before anything else.
        drop(self.commands.send(Command::Reread(uuid)));
    }

    /// Asks the actor to read the leases of a domain, also if it has an address: a second lease brings no
    /// event. Does not wait for it.
    pub(crate) fn read_leases_soon(&self, uuid: Uuid) {
        // Without a connection there is a listing before anything else.
        drop(self.commands.send(Command::ReadLeases(uuid)));
    }

    async fn ask<T>(
        &self,
        timeout: Duration,
        command: impl FnOnce(oneshot::Sender<Result<T, Failure>>) -> Command,
    ) -> Result<T, Failure> {
        let timeout = timeout.min(self.settings.call_timeout);
        let no_answer = || {
            Failure::lost(
                ErrorKind::Timeout,
                format!("libvirt has not answered within {} s", timeout.as_secs()),
            )
        };
        let since = *self.timed_out.lock();
        if since.is_some_and(|since| since.elapsed() < self.settings.call_timeout) {
            return Err(no_answer());
        }
        let (answer, receiver) = oneshot::channel();
        let ended = || Failure::lost(ErrorKind::Unavailable, "the connection has ended");
        self.commands.send(command(answer)).map_err(|_| ended())?;
        match tokio::time::timeout(timeout, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                *self.timed_out.lock() = Some(Instant::now());
                Err(no_answer())
            }
        }
    }

    /// Notes that libvirt has answered a request.
    pub(crate) fn note_answer(&self) {
        *self.timed_out.lock() = None;
    }

    /// Why its inventory is not known while it has not finished its first listing.
    pub(crate) fn starting(&self) -> Option<Error> {
        let status = self.state().status.clone();
        matches!(status, Status::Starting).then(|| self.staleness(&status)).flatten()
    }

    /// Why the inventory is stale with this status; `None` while the hypervisor is live.
    pub(crate) fn staleness(&self, status: &Status) -> Option<Error> {
        match status {
            Status::Live => None,
            Status::Starting => Some(Error::new(
                ErrorKind::Unavailable,
                format!("hypervisor {:?} has not answered yet", self.name()),
            )),
            Status::Disconnected { since, failure } => {
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

/// Access to a hypervisor's own connection.
///
/// libvirt's `test:///file` driver gives each connection domains of its own. So a demo or a test that acts on
/// the provider's domains needs the provider's connection.
#[derive(Clone, Debug)]
pub struct HypervisorHandle(pub(crate) Arc<Hypervisor>);

impl HypervisorHandle {
    /// The hypervisor's name in the configuration.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The number of calls to its libvirt since the start, by operation. Calls through
    /// [`with_connection`](Self::with_connection) are not counted.
    pub fn call_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        self.0.counts.add_to(&mut counts);
        counts
    }

    /// Whether it is connected and its inventory is up to date.
    pub fn is_live(&self) -> bool {
        self.0.state().is_live()
    }

    /// Names of the known domains, sorted.
    pub fn domain_names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.0.state().inventory.domains().map(|domain| domain.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The networks that run and have a bridge.
    ///
    /// # Errors
    /// As for [`with_connection`](Self::with_connection). Without libvirt's driver for networks there are
    /// none.
    pub(crate) async fn bridged_networks(&self) -> Result<Vec<BridgedNetwork>> {
        let name = self.name().to_owned();
        self.with_connection(move |connect| {
            let running = connect.list_all_networks(virt_sys::VIR_CONNECT_LIST_NETWORKS_ACTIVE);
            let one = |network: Network| {
                let (bridge, network) = (network.bridge_name().ok()?, network.name().ok()?);
                Some(BridgedNetwork { hypervisor: name.clone(), network, bridge })
            };
            running.unwrap_or_default().into_iter().filter_map(one).collect()
        })
        .await
    }

    /// Runs `work` with the connection on a separate thread, and waits for it. `work` must neither close nor
    /// keep the connection. With a daemon it is another connection to the same daemon, since libvirt's client
    /// is not safe for two threads.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] while there is no connection.
    pub async fn with_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connect) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, receiver) = oneshot::channel();
        let work = Box::new(move |connect: &Connect| {
            // the caller may have stopped waiting
            let _ = answer.send(work(connect));
        });
        // if it cannot be sent, the work is dropped, and the answer's sender with it
        let _ = self.0.commands.send(Command::Borrow(work));
        receiver.await.map_err(|_| {
            self.0.staleness(&self.0.state().status).unwrap_or_else(|| {
                Error::new(
                    ErrorKind::Unavailable,
                    format!("the connection to hypervisor {:?} has ended", self.name()),
                )
            })
        })
    }
}
