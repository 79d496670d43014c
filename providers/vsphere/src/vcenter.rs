//! One vCenter of the configuration: what is known of it, and whether that can be relied on.

mod absence;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, InstanceChange, InstanceRef};
use tokio::{
    sync::{Notify, broadcast, watch},
    time::Instant,
};
use uuid::Uuid;

use crate::{
    accounts::Accounts,
    http::Endpoint,
    inventory::{Changes, Inventory, MANY_CHANGES},
    moref::MoRef,
    session::{AccessSource, Session},
    vim::CallError,
    vm::VirtualMachine,
    zones::Tags,
};

/// How long what is known is still told of machines that are there, after the connection was lost: a session that ends, or
/// a vCenter that restarts one of its services, is back by then.
const BRIDGED: Duration = Duration::from_secs(15);

/// How long vCenter's word is believed that there is no machine with a UUID.
const PROBE_LASTS: Duration = Duration::from_secs(30);

/// What a vCenter is followed by.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) endpoint: Endpoint,
    /// The datacenters that count; all if empty.
    pub(crate) datacenters: Vec<String>,
    /// What to log in with.
    pub(crate) access: AccessSource,
    /// Whether it is asked who it is: the same one may stand in the configuration under several names.
    pub(crate) asks_who_it_is: bool,
    /// Whether tags are wanted, and how often they are read again: vCenter does not push them.
    pub(crate) tag_refresh: Option<Duration>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// A vCenter, followed by a task of its own ([`crate::follow`]).
#[derive(Debug)]
pub(crate) struct VCenter {
    pub(crate) settings: Settings,
    /// The categories whose tags are wanted.
    pub(crate) tag_categories: Vec<String>,
    /// Shared by all that are the same server.
    pub(crate) accounts: Arc<Accounts>,
    state: RwLock<State>,
    session: Mutex<Option<Arc<Session>>>,
    probes: Mutex<HashMap<Uuid, Instant>>,
    instance_changes: broadcast::Sender<InstanceChange>,
    status_changes: watch::Sender<u64>,
    /// Wakes who reads tags.
    pub(crate) retag: Notify,
    /// Wakes who waits to connect again.
    pub(crate) reconnect: Notify,
}

/// What is known of a vCenter.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// What it holds.
    pub(crate) inventory: Inventory,
    /// The tags of what it holds.
    pub(crate) tags: Tags,
    /// Why tags are not known, where they are wanted and never were.
    pub(crate) tag_trouble: Option<CallError>,
    /// Whether tags were read.
    pub(crate) has_tags: bool,
    /// Whether everything was listed once.
    pub(crate) is_listed: bool,
    /// Whether changes are followed without a gap: what is not here, is not there.
    pub(crate) is_live: bool,
    /// Whether machines changed of which nobody was told yet: their listing, or their page of changes, broke off.
    pub(crate) has_untold: bool,
    /// Its name among other vCenters, where it was asked.
    pub(crate) instance_uuid: Option<String>,
    /// What is wrong, and since when.
    pub(crate) trouble: Option<(CallError, Instant)>,
}

impl VCenter {
    /// A vCenter of which nothing is known.
    pub(crate) fn new(
        settings: Settings,
        instance_changes: broadcast::Sender<InstanceChange>,
        status_changes: watch::Sender<u64>,
    ) -> Self {
        Self {
            settings,
            tag_categories: Vec::new(),
            accounts: Arc::default(),
            state: RwLock::default(),
            session: Mutex::default(),
            probes: Mutex::default(),
            instance_changes,
            status_changes,
            retag: Notify::new(),
            reconnect: Notify::new(),
        }
    }

    /// Its name in the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// What is known.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and tells those who watch.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State) -> Changes) {
        let changes = change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
        if changes.is_moved {
            self.retag.notify_one();
        }
        self.push(changes.instances);
        self.status_changes.send_modify(|count| *count += 1);
    }

    fn push(&self, instances: Vec<InstanceRef>) {
        let change = match instances.len() {
            0 => return,
            1..=MANY_CHANGES => InstanceChange::Changed(instances),
            _ => InstanceChange::Resync,
        };
        // nobody listens before the controllers start
        let _ = self.instance_changes.send(change);
    }

    /// Tells those who watch that anything may have changed.
    pub(crate) fn push_all(&self) {
        let _ = self.instance_changes.send(InstanceChange::Resync);
        self.status_changes.send_modify(|count| *count += 1);
    }

    /// The session in which it is followed.
    pub(crate) fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When vCenter denied having a machine, by UUID.
    fn probes(&self) -> MutexGuard<'_, HashMap<Uuid, Instant>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datacenters that the configuration lists, as far as there are such.
    pub(crate) fn datacenters(&self, state: &State) -> BTreeSet<MoRef> {
        self.settings.datacenters.iter().flat_map(|word| state.inventory.datacenters_called(word)).collect()
    }

    /// Whether a machine is in a datacenter that counts.
    pub(crate) fn counts(&self, state: &State, vm: &VirtualMachine) -> bool {
        if vm.is_template {
            return false;
        }
        if self.settings.datacenters.is_empty() {
            return true;
        }
        // A view of a datacenter that counts showed it. What is between the two may not be readable.
        let Some(datacenter) = state.inventory.datacenter_of(vm) else { return true };
        self.settings
            .datacenters
            .iter()
            .any(|word| state.inventory.datacenters_called(word).contains(&datacenter))
    }

    /// Whether both are the same server, under whatever names.
    pub(crate) fn is_same(&self, state: &State, other: &Self, other_state: &State) -> bool {
        let is_named_alike =
            state.instance_uuid.is_some() && state.instance_uuid == other_state.instance_uuid;
        std::ptr::eq(self, other)
            || self.settings.endpoint.authority() == other.settings.endpoint.authority()
            || is_named_alike
    }

    /// The words of the configuration that mean no datacenter.
    pub(crate) fn missing_datacenters<'a>(&'a self, state: &State) -> Vec<&'a str> {
        let is_missing = |word: &&String| state.inventory.datacenters_called(word).is_empty();
        self.settings.datacenters.iter().filter(is_missing).map(String::as_str).collect()
    }

    /// Why nothing can be said of its machines; `None` while it is connected, or was a moment ago.
    pub(crate) fn trouble(&self, state: &State) -> Option<Error> {
        match &state.trouble {
            Some((error, since)) if !state.is_listed || since.elapsed() >= BRIDGED => {
                Some(self.error_of(error))
            }
            _ if !state.is_listed => Some(self.error(ErrorKind::Unavailable, "its inventory is being read")),
            _ => None,
        }
    }

    /// Why it cannot be said that a machine is not there; `None` while changes are followed and everything that counts is
    /// seen.
    pub(crate) fn doubt(&self, state: &State) -> Option<Error> {
        if let Some(error) = self.trouble(state) {
            return Some(error);
        }
        if let Some((error, _)) = &state.trouble {
            return Some(self.error_of(error));
        }
        if !state.is_live {
            return Some(self.error(ErrorKind::Unavailable, "its inventory is being read"));
        }
        let missing = self.missing_datacenters(state);
        (!missing.is_empty()).then(|| {
            let words = format!("it shows no datacenter called {}", missing.join(", "));
            self.error(ErrorKind::Unavailable, &words)
        })
    }

    /// An error that names this vCenter.
    pub(crate) fn error(&self, kind: ErrorKind, words: &str) -> Error {
        Error::new(kind, format!("vCenter {:?}: {words}", self.name()))
    }

    /// What a call brought, with the name of this vCenter.
    pub(crate) fn error_of(&self, error: &CallError) -> Error {
        let kind = Error::from(error.clone()).kind();
        self.error(kind, &error.to_string())
    }

    /// What has tags that matter for a machine: machines and everything above them.
    pub(crate) fn taggable(&self) -> Vec<MoRef> {
        let state = self.state();
        let mut objects: Vec<MoRef> = state.inventory.entities().cloned().collect();
        let root = objects.first().and_then(|first| state.inventory.path_up(first).pop());
        objects.extend(root);
        objects.extend(state.inventory.machines().map(|vm| vm.moref.clone()));
        objects.sort_unstable();
        objects.dedup();
        objects
    }
}
