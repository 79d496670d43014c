//! What the steps of machines work with: the vCenters, what was read of them, and what is known of each machine.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use cloudprovider::{Error, ErrorKind, Result, StartContext, Term, machines::Mark};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{
    allowed::Allowed,
    cached::Cached,
    drs::Drs,
    groups::{self, Boards, ClusterGroups},
    identities::ObjectKey,
    modules::{Board, Joining},
    open_sites::OpenSites,
    places::{Catalog, Finder, catalog_selection, switches, switches_selection},
    site::Site,
    storage::{StoragePolicy, read_policy},
    template::{self, Hands, TemplateFacts},
    work::{Known, Work},
    zones::Checked,
};
use crate::{
    cluster_modules::Known as KnownModules,
    config::MachineOptions,
    moref::MoRef,
    tasks::{TASK, Task},
    vim::{Call, CallError},
};

/// How long a step waits for the end of a call that an earlier step of the same machine has left behind.
const MAX_WAIT_FOR_CALL: Duration = Duration::from_secs(20);

/// How long networks, datastores, templates and clusters are known without being read again.
const FACTS_LAST: Duration = Duration::from_secs(60);

/// How long an answer about the recent tasks is good for. A step asks for a task five seconds after its begin at the earliest, so
/// the answer is younger than the task.
const TASKS_LAST: Duration = Duration::from_secs(4);

/// How often what nobody needs any more is looked for among all machines.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A machine. Its steps, and the calls that they leave behind, come one after the other.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    gate: Arc<tokio::sync::Mutex<()>>,
    known: Mutex<Known>,
}

impl Slot {
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

/// Those of all machines that something is known of.
#[derive(Debug)]
struct Slots {
    /// By namespace and UID: the objects of several namespaces may claim one UID.
    by_owner: HashMap<(String, Uuid), Arc<Slot>>,
    /// When it was last looked for what nobody needs any more.
    swept: Instant,
}

impl Slots {
    /// Forgets a machine after its step, unless something would be lost. Now and then, others too: a machine that is gone may have no
    /// further step.
    fn forget_unused(&mut self, owner: &(String, Uuid)) {
        // Whoever waits for its turn, or still makes a call, has a clone.
        let is_unused = |slot: &Arc<Slot>| Arc::strong_count(slot) == 1 && slot.known().is_empty();
        if self.by_owner.get(owner).is_some_and(is_unused) {
            self.by_owner.remove(owner);
        }
        if self.swept.elapsed() >= SWEEP_INTERVAL {
            self.by_owner.retain(|_, slot| !is_unused(slot));
            self.swept = Instant::now();
        }
    }
}

/// A step that has its machine for itself.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) uid: Uuid,
    pub(crate) mark: Arc<Mark>,
    pub(crate) slot: Arc<Slot>,
    /// Held by the step and by its calls.
    _gate: Arc<tokio::sync::OwnedMutexGuard<()>>,
}

impl Turn {
    /// Keeps whether the vCenter is followed: a look for it has given this.
    pub(crate) fn note_vcenter<T>(&self, found: Result<T>) -> Result<T> {
        self.slot.known().vcenter = Some(found.as_ref().map(drop).map_err(Error::clone));
        found
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The vCenters of the configuration.
    pub(super) configured: Vec<Arc<Site>>,
    /// Those with credentials that clusters name.
    pub(super) open: Arc<OpenSites>,
    tasks: TaskTracker,
    slots: Mutex<Slots>,
    catalogs: Cached<(String, MoRef), Catalog>,
    templates: Cached<(String, MoRef), TemplateFacts>,
    /// By vCenter, name and resource pool.
    policies: Cached<(String, String, MoRef), StoragePolicy>,
    /// By vCenter.
    recent_tasks: Cached<String, HashMap<MoRef, Task>>,
    /// By vCenter and cluster of hosts.
    pub(super) clusters: Cached<(String, MoRef), Drs>,
    /// What was found out about zones, by vCenter and what the zone says.
    pub(super) zones: Cached<(String, String), Checked>,
    /// What is done with machines beside what their objects say.
    pub(super) options: MachineOptions,
    /// The VM groups of clusters.
    pub(super) boards: Boards,
    /// What machines want of the cluster modules of their clusters.
    pub(super) module_board: Arc<Board>,
    pub(super) module_joining: Joining,
    /// The cluster modules of a vCenter, of anybody.
    pub(super) known_modules: Cached<String, Option<KnownModules>>,
    /// The machines in a module, by its vCenter and its ID.
    pub(super) module_members: Cached<(String, String), Vec<MoRef>>,
}

impl Fleet {
    /// Nothing runs yet. `tasks` has its tasks.
    pub(crate) fn new(
        options: MachineOptions,
        sites: Vec<Site>,
        open: Arc<OpenSites>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            configured: sites.into_iter().map(Arc::new).collect(),
            open,
            tasks,
            slots: Mutex::new(Slots { by_owner: HashMap::new(), swept: Instant::now() }),
            catalogs: Cached::new(FACTS_LAST),
            templates: Cached::new(FACTS_LAST),
            policies: Cached::new(FACTS_LAST),
            recent_tasks: Cached::new(TASKS_LAST),
            clusters: Cached::new(FACTS_LAST),
            zones: Cached::new(FACTS_LAST),
            options,
            boards: Boards::default(),
            module_board: Arc::default(),
            module_joining: Joining::default(),
            known_modules: Cached::new(FACTS_LAST),
            module_members: Cached::new(FACTS_LAST),
        }
    }

    /// What a machine of this namespace may name on a vCenter. `has_identity`: its cluster names credentials.
    pub(super) fn allowed<'a>(&'a self, site: &Site, namespace: &'a str, has_identity: bool) -> Allowed<'a> {
        Allowed::new(&self.options.allow, namespace, site.vcenter.name(), has_identity)
    }

    /// From now on Secrets can be read.
    pub(crate) fn read_secrets_from(&self, context: &StartContext) {
        self.open.start(context);
    }

    /// The vCenters that may be looked at for an object: those of the configuration, and the one that it names
    /// credentials for. What others have opened with their credentials is theirs alone.
    pub(super) fn sites_of(&self, mark: &Mark) -> Vec<Arc<Site>> {
        self.configured.iter().cloned().chain(self.open.used_by(&ObjectKey::of(mark))).collect()
    }

    /// The vCenter that a `server` names. Without one it is the only vCenter of the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the configuration has no such vCenter.
    pub(crate) fn site(&self, field: &str, server: Option<&str>) -> Result<Arc<Site>> {
        let known = || {
            let all: Vec<_> =
                self.configured.iter().map(|site| site.vcenter.settings.endpoint.authority()).collect();
            format!("the configuration has {}", all.join(", "))
        };
        let server = server.unwrap_or_default();
        if self.configured.is_empty() {
            let words = format!(
                "{field}: the configuration of the controller has no vCenter; name one, and a Secret for it in spec.identityRef of the \
                 VSphereCluster"
            );
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        if server.is_empty() {
            return match &self.configured[..] {
                [only] => Ok(Arc::clone(only)),
                _ => {
                    let words = format!(
                        "{field}: missing; name a vCenter of the controller's configuration, which has several, or a Secret in \
                         spec.identityRef of the VSphereCluster"
                    );
                    Err(Error::new(ErrorKind::InvalidInput, words).with_log_detail(known()))
                }
            };
        }
        self.configured.iter().find(|site| site.is_called(server)).cloned().ok_or_else(|| {
            let words = format!("{field}: the configuration of the controller has no vCenter {server:?}");
            Error::new(ErrorKind::NotFound, words).with_log_detail(known())
        })
    }

    /// Whether a machine that is worked on has this instance UUID.
    pub(super) fn has_machine(&self, instance_uuid: Option<Uuid>) -> bool {
        self.slots.lock().by_owner.keys().any(|(_, uid)| Some(*uid) == instance_uuid)
    }

    /// Runs a step of a machine, after the last call of an earlier one has ended. That can be one whose step was given
    /// up: a call that was sent cannot be taken back.
    ///
    /// # Errors
    /// Those of the step, [`ErrorKind::InvalidInput`] if the UID is none, and [`ErrorKind::Timeout`] if an earlier call does not end.
    pub(crate) async fn one_step<T, F>(&self, mark: &Mark, step: impl FnOnce(Turn) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let uid = uid_of(mark)?;
        let owner = (mark.namespace.clone(), uid);
        let slot = Arc::clone(self.slots.lock().by_owner.entry(owner.clone()).or_default());
        let gate = Arc::clone(&slot.gate).lock_owned();
        let Ok(gate) = tokio::time::timeout(MAX_WAIT_FOR_CALL, gate).await else {
            let words = "an earlier call of this machine to vCenter has not ended yet";
            return Err(Error::new(ErrorKind::Timeout, words));
        };
        let turn = Turn { uid, mark: Arc::new(mark.clone()), slot: Arc::clone(&slot), _gate: Arc::new(gate) };
        let answer = step(turn).await;
        drop(slot);
        self.slots.lock().forget_unused(&owner);
        answer
    }

    /// Begins work on a machine. The call is made to its end, also if the step is given up, so that its task is known
    /// to the next step. It is not sent after the term of the step.
    ///
    /// # Errors
    /// The error of the call, and an internal one if the answer names no task.
    pub(crate) async fn begin(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        work: Work,
        call: Call,
    ) -> Result<MoRef, CallError> {
        let (site, turn) = (Arc::clone(site), turn.clone());
        let (method, term) = (call.method, Term::current());
        let made = self.tasks.spawn(async move {
            // the whole of it: without its gate, the next step would not wait for this call
            let turn = turn;
            let sent = term.pass(site.call(&call)).await;
            let sent = sent.unwrap_or_else(|error| {
                Err(CallError::Unreachable { method, reason: error.report().into() })
            });
            let answer = sent.and_then(|answer| {
                let reason = "the answer has no task".into();
                answer.moref().ok_or(CallError::Malformed { method, reason })
            });
            let mut known = turn.slot.known();
            known.site = Some(site.vcenter.name().to_owned());
            match &answer {
                Ok(task) => {
                    known.task = Some((work, task.clone(), Instant::now()));
                    known.target = Some(call.this);
                    known.done = None;
                }
                // Any other fault says that nothing was begun.
                Err(error) if work == Work::Clone && !matches!(error, CallError::Fault { .. }) => {
                    known.uncertain = Some(Instant::now());
                }
                Err(_) => {}
            }
            answer
        });
        made.await.unwrap_or_else(|error| {
            Err(CallError::Malformed { method, reason: format!("the call did not end: {error}").into() })
        })
    }

    /// The networks, datastores and datastore clusters of a datacenter.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn catalog(&self, site: &Site, datacenter: &MoRef) -> Result<Arc<Catalog>> {
        let read = async {
            let places = || {
                let state = site.vcenter.state();
                Catalog::new(Finder::new(site.vcenter.name(), &state.inventory, &[]), datacenter)
                    .discreet(site.is_configured)
            };
            let mut catalog = places();
            let found =
                site.try_read(catalog_selection(datacenter, true), |updates| catalog.add(updates)).await;
            match found {
                Err(error) if error.is_fault("InvalidProperty") => {
                    catalog = places();
                    site.read(catalog_selection(datacenter, false), |updates| catalog.add(updates)).await?;
                }
                found => found.map_err(|error| site.vcenter.error_of(&error))?,
            }
            let unread = catalog.switches();
            if !unread.is_empty() {
                let mut uuids = HashMap::new();
                site.read(switches_selection(&unread), |updates| uuids.extend(switches(updates))).await?;
                catalog.add_switches(&uuids);
            }
            Ok(catalog)
        };
        self.catalogs.get((site.vcenter.name().to_owned(), datacenter.clone()), read).await
    }

    /// The devices and snapshots of a template.
    ///
    /// # Errors
    /// Those of the call, and [`ErrorKind::Unavailable`] while vCenter does not tell whose it is.
    pub(crate) async fn template(&self, site: &Site, template: &MoRef) -> Result<Arc<TemplateFacts>> {
        let key = (site.vcenter.name().to_owned(), template.clone());
        let read = async {
            let facts = self.devices(site, template).await?;
            if facts.hands == Hands::Unknown {
                let words = format!("it does not tell the configuration of {}", template.id());
                return Err(super::site::unavailable(site, &words));
            }
            Ok(facts)
        };
        self.templates.get(key, read).await
    }

    /// What a storage policy allows to machines of a resource pool.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such policy; those of the calls.
    pub(crate) async fn policy(&self, site: &Site, name: &str, pool: &MoRef) -> Result<Arc<StoragePolicy>> {
        let key = (site.vcenter.name().to_owned(), name.to_owned(), pool.clone());
        self.policies.get(key, read_policy(site, name, pool)).await
    }

    /// A task, as vCenter says when it is asked. All machines whose tasks are not told share one answer about the recent tasks.
    /// `None` if vCenter knows no such task: it has ended long ago, or vCenter was started again.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn task(&self, site: &Site, task: &MoRef) -> Result<Option<Task>> {
        let recent = self.recent_tasks.get(site.vcenter.name().to_owned(), site.recent_tasks()).await?;
        match recent.get(task) {
            Some(task) => Ok(Some(task.clone())),
            None => site.task(task).await,
        }
    }

    /// The devices of a machine, as they are now.
    ///
    /// # Errors
    /// Those of the call, and [`ErrorKind::Unavailable`] if vCenter does not tell the configuration, as of a machine that is
    /// inaccessible: what nobody knows of is not destroyed with it.
    pub(crate) async fn devices(&self, site: &Site, machine: &MoRef) -> Result<TemplateFacts> {
        let mut facts = None;
        let take = |updates: &[crate::vim::property_collector::ObjectUpdate<'_>]| {
            facts = updates.first().and_then(template::read).or(facts.take());
        };
        site.read(template::selection(machine), take).await?;
        facts.ok_or_else(|| {
            super::site::unavailable(site, &format!("it does not tell the devices of {}", machine.id()))
        })
    }

    /// The groups and rules of a cluster of hosts, as they are now.
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) async fn cluster_groups(&self, site: &Site, cluster: &MoRef) -> Result<ClusterGroups> {
        let mut found = None;
        site.read(groups::selection(cluster), |updates| found = groups::read(updates).or(found.take()))
            .await?;
        found.ok_or_else(|| {
            super::site::unavailable(site, &format!("it does not tell the groups of {}", cluster.id()))
        })
    }

    /// Runs something to its end, also if the step that waits for it is given up, but not after the term of the step.
    ///
    /// # Errors
    /// An internal one if it panics, and [`ErrorKind::Unavailable`] after the term.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let term = Term::current();
        let made = self.tasks.spawn(async move { term.pass(work).await });
        made.await
            .map_err(|error| Error::new(ErrorKind::Internal, format!("the call did not end: {error}")))?
    }

    /// Forgets what was read of templates, networks and datastores: vCenter refused what was made from it.
    pub(crate) fn forget_facts(&self) {
        self.catalogs.clear();
        self.templates.clear();
        self.policies.clear();
    }
}

/// The UID, which is the instance UUID.
pub(crate) fn uid_of(mark: &Mark) -> Result<Uuid> {
    Uuid::parse_str(&mark.uid).map_err(|_| {
        let words = format!("the UID of the object, {:?}, is not a UUID", mark.uid);
        Error::new(ErrorKind::InvalidInput, words)
    })
}

/// The task that a status names.
pub(crate) fn task_of(id: &str) -> MoRef {
    MoRef::new(TASK, id)
}
