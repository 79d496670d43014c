//! The state of one vCenter of the configuration, and whether it can be relied on.

mod absence;
mod unshown;

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, InstanceChange, InstanceRef};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use tokio::{
    sync::{Notify, broadcast, watch},
    time::Instant,
};
use uuid::Uuid;

pub(crate) use self::unshown::Change;
use self::unshown::Unshown;
use crate::{
    accounts::Accounts,
    http::Endpoint,
    inventory::{Changes, Inventory, MANY_CHANGES},
    moref::MoRef,
    session::{AccessSource, Session},
    tags::TagClient,
    tasks::{Task, Tasks},
    vim::CallError,
    vm::VirtualMachine,
    zones::Tags,
};

/// How long existing machines are still reported after the connection was lost. Within this time, a session
/// that ended is opened again, and a restarted vCenter service is back.
const BRIDGED: Duration = Duration::from_secs(15);

/// How long vCenter's answer that no machine has a UUID is cached.
const PROBE_LASTS: Duration = Duration::from_secs(30);

/// The settings for following a vCenter.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Its address.
    pub(crate) endpoint: Endpoint,
    /// The datacenters whose machines are used; all if empty.
    pub(crate) datacenters: Vec<String>,
    /// The credentials to log in with.
    pub(crate) access: AccessSource,
    /// How often tags are read, if they are wanted. vCenter does not push them.
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
    /// The tag categories that are wanted.
    pub(crate) tag_categories: Vec<String>,
    /// Shared by all entries of the configuration with the same server.
    pub(crate) accounts: Arc<Accounts>,
    tag_refresh: OnceLock<Duration>,
    state: RwLock<State>,
    session: Mutex<Option<Arc<Session>>>,
    tag_client: Mutex<Option<Arc<TagClient>>>,
    probes: Mutex<HashMap<Uuid, Instant>>,
    instance_changes: broadcast::Sender<InstanceChange>,
    status_changes: watch::Sender<u64>,
    /// Wakes the task that reads tags.
    pub(crate) retag: Notify,
    /// Wakes the task that waits to connect again.
    pub(crate) reconnect: Notify,
    /// A change was noted that may not be shown yet.
    pub(crate) noted: Notify,
    /// Whether its tasks are to be followed.
    wants_tasks: watch::Sender<bool>,
}

/// What is known about a vCenter.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Its objects.
    pub(crate) inventory: Inventory,
    /// Its tasks, if steps of machines wait for some.
    pub(crate) tasks: Tasks,
    /// The tags of its objects.
    pub(crate) tags: Tags,
    /// What was done to machines and is not shown yet.
    pub(crate) unshown: Unshown,
    /// Why tags cannot be read.
    pub(crate) tag_trouble: Option<CallError>,
    /// Whether tags were read at least once.
    pub(crate) has_tags: bool,
    /// Whether everything was listed at least once.
    pub(crate) is_listed: bool,
    /// Whether changes are followed, or all objects are listed again and again, so that an object that is missing here does not exist.
    pub(crate) is_live: bool,
    /// Whether there are changes of machines that were not reported yet, since a listing or a page of changes
    /// was interrupted.
    pub(crate) has_untold: bool,
    /// Its instance UUID, once vCenter has told it. A host on its own has none.
    pub(crate) instance_uuid: Option<String>,
    /// Its version, such as `8.0.3`, as it comes with the objects.
    pub(crate) version: Option<String>,
    /// The current trouble, and since when.
    pub(crate) trouble: Option<(CallError, Instant)>,
}

impl VCenter {
    /// A vCenter that nothing is known about yet.
    pub(crate) fn new(
        settings: Settings,
        instance_changes: broadcast::Sender<InstanceChange>,
        status_changes: watch::Sender<u64>,
    ) -> Self {
        Self {
            settings,
            tag_categories: Vec::new(),
            accounts: Arc::default(),
            tag_refresh: OnceLock::new(),
            state: RwLock::default(),
            session: Mutex::default(),
            tag_client: Mutex::default(),
            probes: Mutex::default(),
            instance_changes,
            status_changes,
            retag: Notify::new(),
            reconnect: Notify::new(),
            noted: Notify::new(),
            wants_tasks: watch::channel(false).0,
        }
    }

    /// What attaches tags, unless no connection was made yet.
    pub(crate) fn tag_client(&self) -> MutexGuard<'_, Option<Arc<TagClient>>> {
        self.tag_client.lock()
    }

    /// Its name in the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// How often tags are read, if they are wanted.
    pub(crate) fn tag_refresh(&self) -> Option<Duration> {
        self.settings.tag_refresh.map(|usual| self.tag_refresh.get().copied().unwrap_or(usual))
    }

    /// Sets how often tags are read, if they are wanted. Only the first time counts.
    pub(crate) fn set_tag_refresh(&self, refresh: Duration) {
        let _ = self.tag_refresh.set(refresh);
    }

    /// The current state.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Changes the state, and notifies the listeners.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State) -> Changes) {
        let changes = change(&mut self.state.write());
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
        // there are no listeners before the controllers start
        let _ = self.instance_changes.send(change);
    }

    /// Notifies the listeners that the object with this UID is to be looked at.
    pub(crate) fn wake(&self, uid: &str) {
        self.push(vec![InstanceRef { machine: Some(uid.to_owned()), ..InstanceRef::default() }]);
    }

    /// Notifies the listeners that anything may have changed.
    pub(crate) fn push_all(&self) {
        let _ = self.instance_changes.send(InstanceChange::Resync);
        self.status_changes.send_modify(|count| *count += 1);
    }

    /// The session that is used for following it.
    pub(crate) fn session(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock()
    }

    /// Has its tasks followed from now on. That takes one call in each session.
    pub(crate) fn follow_tasks(&self) {
        self.wants_tasks.send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }

    /// Waits until its tasks are to be followed.
    pub(crate) async fn tasks_wanted(&self) {
        // the sender lives as long as this does
        let _ = self.wants_tasks.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// What is known of a task. Unless it has ended, the object with this UID is woken when it does.
    pub(crate) fn wait_for_task(&self, task: &MoRef, uid: &str) -> Option<Task> {
        let mut state = self.state.write();
        state.tasks.wait(task, uid);
        state.tasks.get(task).cloned()
    }

    /// Has nobody wait for a task any more: its end is known.
    pub(crate) fn stop_waiting_for_task(&self, task: &MoRef) {
        self.state.write().tasks.stop_waiting(task);
    }

    /// Notes what a task that has ended did to the machine with this instance UUID.
    pub(crate) fn note_change(&self, instance_uuid: Uuid, change: Change) {
        let mut state = self.state.write();
        state.unshown.note(instance_uuid, change, Instant::now());
        drop(state);
        self.noted.notify_one();
    }

    /// For how long a change is known that the inventory does not show.
    pub(crate) fn lag(&self) -> Option<Duration> {
        if self.state().unshown.is_empty() {
            return None;
        }
        let state = &mut *self.state.write();
        state.unshown.oldest(&state.inventory).map(|since| since.elapsed())
    }

    /// When vCenter denied having a machine with a UUID.
    fn probes(&self) -> MutexGuard<'_, HashMap<Uuid, Instant>> {
        self.probes.lock()
    }

    /// The configured datacenters that exist.
    pub(crate) fn datacenters(&self, state: &State) -> BTreeSet<MoRef> {
        self.settings.datacenters.iter().flat_map(|word| state.inventory.datacenters_called(word)).collect()
    }

    /// Whether a machine is in a datacenter that is used.
    pub(crate) fn counts(&self, state: &State, vm: &VirtualMachine) -> bool {
        if vm.is_template {
            return false;
        }
        if self.settings.datacenters.is_empty() {
            return true;
        }
        // The machine is in the view of a configured datacenter. Objects between the two may not be readable.
        let Some(datacenter) = state.inventory.datacenter_of(vm) else { return true };
        self.settings
            .datacenters
            .iter()
            .any(|word| state.inventory.datacenters_called(word).contains(&datacenter))
    }

    /// Whether both are the same server, possibly under different names.
    pub(crate) fn is_same(&self, state: &State, other: &Self, other_state: &State) -> bool {
        let is_named_alike =
            state.instance_uuid.is_some() && state.instance_uuid == other_state.instance_uuid;
        std::ptr::eq(self, other)
            || self.settings.endpoint.authority() == other.settings.endpoint.authority()
            || is_named_alike
    }

    /// Configured datacenters that do not exist.
    pub(crate) fn missing_datacenters<'a>(&'a self, state: &State) -> Vec<&'a str> {
        let is_missing = |word: &&String| state.inventory.datacenters_called(word).is_empty();
        self.settings.datacenters.iter().filter(is_missing).map(String::as_str).collect()
    }

    /// Why the state of its machines is not known; `None` while it is connected, or was until a moment ago.
    pub(crate) fn trouble(&self, state: &State) -> Option<Error> {
        match &state.trouble {
            Some((error, since)) if !state.is_listed || since.elapsed() >= BRIDGED => {
                Some(self.error_of(error))
            }
            _ if !state.is_listed => Some(self.error(ErrorKind::Unavailable, "its inventory is being read")),
            _ => None,
        }
    }

    /// Why a missing machine may exist after all; `None` while changes are followed and all configured
    /// datacenters are seen.
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

    /// The error of a call, with the name of this vCenter.
    pub(crate) fn error_of(&self, error: &CallError) -> Error {
        let kind = Error::from(error.clone()).kind();
        self.error(kind, &error.to_string())
    }

    /// All objects whose tags matter for a machine: machines and everything above them.
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
