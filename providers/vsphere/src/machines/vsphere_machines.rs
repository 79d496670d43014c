//! What the steps of all machines share: the vCenters, what was read of them, and what is known of each machine.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result, StartContext, Term,
    machines::{Mark, ObjectLock, ObjectLocks},
};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{
    allowed::Allowed,
    cached::Cached,
    drs::Drs,
    groups::{self, AllGroupEdits, ClusterGroups},
    identities::ObjectKey,
    modules::{Joining, ModuleRequests},
    places::{Catalog, Finder, catalog_selection, switches, switches_selection},
    session_pool::SessionPool,
    state::MachineStates,
    storage::{StoragePolicy, read_policy},
    template::{self, Hands, TemplateFacts},
    vcenter_handle::VCenterHandle,
    zones::Checked,
};
use crate::{cluster_modules::Known as KnownModules, config::MachineOptions, moref::MoRef, tasks::Task};

/// How long networks, datastores, templates and clusters are known without being read again.
const FACTS_LAST: Duration = Duration::from_secs(60);

/// How long an answer about the recent tasks is good for. A step asks for a task five seconds after its begin at the earliest, so
/// the answer is younger than the task.
const TASKS_LAST: Duration = Duration::from_secs(4);

/// The machines of the vCenters of one configuration.
#[derive(Debug)]
pub(crate) struct VSphereMachines {
    /// The vCenters of the configuration.
    pub(super) configured: Vec<Arc<VCenterHandle>>,
    /// Those with credentials that clusters name.
    pub(super) pool: Arc<SessionPool>,
    pub(super) tasks: TaskTracker,
    pub(super) object_locks: ObjectLocks,
    pub(super) states: MachineStates,
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
    pub(super) group_edits: AllGroupEdits,
    /// What machines want of the cluster modules of their clusters.
    pub(super) module_requests: Arc<ModuleRequests>,
    pub(super) module_joining: Joining,
    /// The cluster modules of a vCenter, of anybody.
    pub(super) known_modules: Cached<String, Option<KnownModules>>,
    /// The machines in a module, by its vCenter and its ID.
    pub(super) module_members: Cached<(String, String), Vec<MoRef>>,
}

impl VSphereMachines {
    /// Nothing runs yet. `tasks` has its tasks.
    pub(crate) fn new(
        options: MachineOptions,
        vcenters: Vec<VCenterHandle>,
        pool: Arc<SessionPool>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            configured: vcenters.into_iter().map(Arc::new).collect(),
            pool,
            tasks,
            object_locks: ObjectLocks::default(),
            states: MachineStates::new(),
            catalogs: Cached::new(FACTS_LAST),
            templates: Cached::new(FACTS_LAST),
            policies: Cached::new(FACTS_LAST),
            recent_tasks: Cached::new(TASKS_LAST),
            clusters: Cached::new(FACTS_LAST),
            zones: Cached::new(FACTS_LAST),
            options,
            group_edits: AllGroupEdits::default(),
            module_requests: Arc::default(),
            module_joining: Joining::default(),
            known_modules: Cached::new(FACTS_LAST),
            module_members: Cached::new(FACTS_LAST),
        }
    }

    /// What a machine of this namespace may name on a vCenter. `has_identity`: its cluster names credentials.
    pub(super) fn allowed<'a>(
        &'a self,
        vcenter: &VCenterHandle,
        namespace: &'a str,
        has_identity: bool,
    ) -> Allowed<'a> {
        Allowed::new(&self.options.allow, namespace, vcenter.name(), has_identity)
    }

    /// From now on Secrets can be read.
    pub(crate) fn read_secrets_from(&self, context: &StartContext) {
        self.pool.start(context);
    }

    /// The vCenters that may be looked at for an object: those of the configuration, and the one that it names
    /// credentials for. What others have opened with their credentials is theirs alone.
    pub(super) fn vcenters_of(&self, mark: &Mark) -> Vec<Arc<VCenterHandle>> {
        self.configured.iter().cloned().chain(self.pool.used_by(&ObjectKey::of(mark))).collect()
    }

    /// The vCenter that a `server` names. Without one it is the only vCenter of the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the configuration has no such vCenter.
    pub(crate) fn configured_vcenter(&self, field: &str, server: Option<&str>) -> Result<Arc<VCenterHandle>> {
        let known = || {
            let all: Vec<_> =
                self.configured.iter().map(|vcenter| vcenter.settings.endpoint.authority()).collect();
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
        self.configured.iter().find(|vcenter| vcenter.is_called(server)).cloned().ok_or_else(|| {
            let words = format!("{field}: the configuration of the controller has no vCenter {server:?}");
            Error::new(ErrorKind::NotFound, words).with_log_detail(known())
        })
    }

    /// Whether a machine that is worked on has this instance UUID.
    pub(super) fn has_machine(&self, instance_uuid: Option<Uuid>) -> bool {
        self.states.has(instance_uuid)
    }

    /// The networks, datastores and datastore clusters of a datacenter.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn catalog(&self, vcenter: &VCenterHandle, datacenter: &MoRef) -> Result<Arc<Catalog>> {
        let read = async {
            let places = || {
                let state = vcenter.state();
                Catalog::new(Finder::new(vcenter.name(), &state.inventory, &[]), datacenter)
                    .discreet(vcenter.is_configured)
            };
            let mut catalog = places();
            let found =
                vcenter.try_read(catalog_selection(datacenter, true), |updates| catalog.add(updates)).await;
            match found {
                Err(error) if error.is_fault("InvalidProperty") => {
                    catalog = places();
                    vcenter
                        .read(catalog_selection(datacenter, false), |updates| catalog.add(updates))
                        .await?;
                }
                found => found.map_err(|error| vcenter.error_of(&error))?,
            }
            let unread = catalog.switches();
            if !unread.is_empty() {
                let mut uuids = HashMap::new();
                vcenter.read(switches_selection(&unread), |updates| uuids.extend(switches(updates))).await?;
                catalog.add_switches(&uuids);
            }
            Ok(catalog)
        };
        self.catalogs.get((vcenter.name().to_owned(), datacenter.clone()), read).await
    }

    /// The devices and snapshots of a template.
    ///
    /// # Errors
    /// Those of the call, and [`ErrorKind::Unavailable`] while vCenter does not tell whose it is.
    pub(crate) async fn template(
        &self,
        vcenter: &VCenterHandle,
        template: &MoRef,
    ) -> Result<Arc<TemplateFacts>> {
        let key = (vcenter.name().to_owned(), template.clone());
        let read = async {
            let facts = self.devices(vcenter, template).await?;
            if facts.hands == Hands::Unknown {
                let words = format!("it does not tell the configuration of {}", template.id());
                return Err(vcenter.error(ErrorKind::Unavailable, &words));
            }
            Ok(facts)
        };
        self.templates.get(key, read).await
    }

    /// What a storage policy allows to machines of a resource pool.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such policy; those of the calls.
    pub(crate) async fn policy(
        &self,
        vcenter: &VCenterHandle,
        name: &str,
        pool: &MoRef,
    ) -> Result<Arc<StoragePolicy>> {
        let key = (vcenter.name().to_owned(), name.to_owned(), pool.clone());
        self.policies.get(key, read_policy(vcenter, name, pool)).await
    }

    /// A task, as vCenter says when it is asked. All machines whose tasks are not told share one answer about the recent tasks.
    /// `None` if vCenter knows no such task: it has ended long ago, or vCenter was started again.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn task(&self, vcenter: &VCenterHandle, task: &MoRef) -> Result<Option<Task>> {
        let recent = self.recent_tasks.get(vcenter.name().to_owned(), vcenter.recent_tasks()).await?;
        match recent.get(task) {
            Some(task) => Ok(Some(task.clone())),
            None => vcenter.task(task).await,
        }
    }

    /// The devices of a machine, as they are now.
    ///
    /// # Errors
    /// Those of the call, and [`ErrorKind::Unavailable`] if vCenter does not tell the configuration, as of a machine that is
    /// inaccessible: what nobody knows of is not destroyed with it.
    pub(crate) async fn devices(&self, vcenter: &VCenterHandle, machine: &MoRef) -> Result<TemplateFacts> {
        let mut facts = None;
        let take = |updates: &[crate::vim::property_collector::ObjectUpdate<'_>]| {
            facts = updates.first().and_then(template::read).or(facts.take());
        };
        vcenter.read(template::selection(machine), take).await?;
        facts.ok_or_else(|| {
            let words = format!("it does not tell the devices of {}", machine.id());
            vcenter.error(ErrorKind::Unavailable, &words)
        })
    }

    /// The groups and rules of a cluster of hosts, as they are now.
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) async fn cluster_groups(
        &self,
        vcenter: &VCenterHandle,
        cluster: &MoRef,
    ) -> Result<ClusterGroups> {
        let mut found = None;
        vcenter
            .read(groups::selection(cluster), |updates| found = groups::read(updates).or(found.take()))
            .await?;
        found.ok_or_else(|| {
            let words = format!("it does not tell the groups of {}", cluster.id());
            vcenter.error(ErrorKind::Unavailable, &words)
        })
    }

    /// Runs something to its end, also if the step that waits for it is given up, but not after the term of the step. The next step of the
    /// object waits for it.
    ///
    /// # Errors
    /// An internal one if it panics, and [`ErrorKind::Unavailable`] after the term.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let (term, lock) = (Term::current(), ObjectLock::current());
        let made = self.tasks.spawn(async move {
            let _lock = lock;
            term.pass(work).await
        });
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
