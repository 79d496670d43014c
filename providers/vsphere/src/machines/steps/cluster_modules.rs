//! Keeps machines on different hosts by cluster modules, if the configuration asks for it.
//!
//! ```text
//!   a machine that is to start ── its module is recorded ──> it is put into it ──> it starts
//!        └─ there is none: the requests ──> the step of its cluster makes it and records it in spec.clusterModules
//! ```
//!
//! A module is used only once it is recorded. A module whose making was answered by nobody, or whose maker ended before it was recorded,
//! stays in vCenter without machines: nothing tells it from one that somebody else makes at that moment.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{ClusterRequest, Condition, ConditionStatus, MachineReport, Mark, Objects, Wait},
    uuids::parse_uuid,
};
use uuid::Uuid;

use super::{
    cluster::ClusterStep,
    login::Login,
    step::{DeletionStep, Flow, Step},
    vsphere_vm::existing,
};
use crate::{
    cluster_modules::{ClusterModules, Known},
    machines::{
        kinds::VM_KIND,
        modules::{Claim, Group, Joined, is_for, plan},
        spec::{ClusterModule, VSphereClusterSpec},
        vcenter_handle::VCenterHandle,
        vsphere_machines::VSphereMachines,
    },
    moref::MoRef,
    tags::TagClient,
    vm::VirtualMachine,
};

/// When a machine looks again for its module. The object of its cluster tells it before.
const RETRY: Duration = Duration::from_secs(30);

/// The condition of a cluster about its modules, as Cluster API Provider vSphere has it.
const CLUSTER_MODULES_READY: &str = "ClusterModulesReady";

/// The condition of a machine that is in no module, though it should be.
const CLUSTER_MODULE_JOINED: &str = "ClusterModuleJoined";

impl Step<'_> {
    /// Puts a machine into the module of its group, before it starts.
    pub(super) async fn join_module(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        let wait = self.join(vm).await?;
        self.report_wait(vm, wait)
    }

    /// `None` once it is in its module, or needs none.
    ///
    /// # Errors
    /// Those of the calls, and [`ErrorKind::Unavailable`] if vCenter does not put it into the module.
    async fn join(&mut self, vm: &VirtualMachine) -> Result<Option<Wait>> {
        self.record.remove(CLUSTER_MODULE_JOINED);
        let spec = &self.request.cluster.spec;
        if !self.machines.options.node_anti_affinity || spec.disable_cluster_module == Some(true) {
            return Ok(None);
        }
        let Some(group) = self.group_of(vm) else { return Ok(None) };
        self.machines.module_requests.note_recorded(&self.request.mark, &spec.cluster_modules);
        let all = self.machines.all_modules(&self.vcenter).await?;
        let module = all.as_ref().as_ref().and_then(|known| group.module(&spec.cluster_modules, known));
        if module.is_some() && module == self.record.status.module_uuid.as_deref() {
            return Ok(None);
        }
        let known = self
            .machines
            .own_modules(&self.vcenter, &self.request.mark, &spec.cluster_modules, &self.request.objects)
            .await?;
        let module = known.as_ref().and_then(|known| group.module(&spec.cluster_modules, known));
        let Some(module) = module else {
            if !self.request.cluster.is_reconciled {
                let words = format!(
                    "spec.clusterModules of the VSphereCluster has no module for {:?}, and none is made: another program manages the \
                     VSphereCluster, --watch-filter leaves it out, or it is being deleted",
                    group.name
                );
                let condition =
                    Condition::new(CLUSTER_MODULE_JOINED, ConditionStatus::False, "NoClusterModule");
                self.record.set(condition.with_message(words));
                return Ok(None);
            }
            let words =
                format!("virtual machine {:?} waits for a cluster module for {:?}", vm.name, group.name);
            if let Some(cluster) = self.machines.module_requests.want(&self.request.mark, group) {
                self.vcenter.wake(&cluster);
            }
            if known.is_none() {
                // the cluster says that its vCenter has no modules
                return Ok(None);
            }
            // It holds no move: nothing is under way in vCenter.
            let wait = Wait::address(words).with_reason("WaitingForClusterModule");
            return Ok(Some(wait.look_again_after(RETRY)));
        };
        let client = client(&self.vcenter)?;
        let is_there = |one: &MoRef| self.vcenter.state().inventory.machine(one).is_some();
        let (name, calls) = (self.vcenter.name(), ClusterModules::new(client.rest()));
        let joined = self.machines.module_joining.join(calls, (name, module), &vm.moref, is_there).await;
        match joined.map_err(|error| self.vcenter.error_of(&error))? {
            Joined::In => {
                self.record.status.module_uuid = Some(module.to_owned());
                Ok(None)
            }
            Joined::NoModule => {
                self.machines.known_modules.clear();
                let words = format!("it has the cluster module {module} not any more");
                Err(self.vcenter.error(ErrorKind::Unavailable, &words))
            }
            Joined::Refused => {
                let words = format!("it does not put {:?} into the cluster module {module}", vm.name);
                Err(self.vcenter.error(ErrorKind::Unavailable, &words))
            }
        }
    }

    /// The group of a machine. `None` if it belongs to nothing that makes several, or is on no cluster of hosts. The modules of a cluster are
    /// on its vCenter, so a machine on another one has none.
    fn group_of(&self, vm: &VirtualMachine) -> Option<Group> {
        let name = self.request.group.clone()?;
        let given = |server: &Option<String>| server.clone().filter(|server| !server.is_empty());
        let own = given(&self.request.spec.clone.server);
        if own.is_some() && own != given(&self.request.cluster.spec.server) {
            return None;
        }
        let state = self.vcenter.state();
        let up = state.inventory.path_up(vm.resource_pool.as_ref()?);
        let cluster = up.into_iter().find(|one| one.kind() == "ClusterComputeResource")?;
        Some(Group { is_control_plane: self.request.is_control_plane, name, cluster })
    }
}

impl DeletionStep<'_> {
    /// Takes a machine that is to be destroyed out of its module.
    ///
    /// # Errors
    /// Those of the calls.
    pub(super) async fn leave_module(&mut self, vm: &VirtualMachine) -> Result<()> {
        if !self.machines.options.node_anti_affinity {
            return Ok(());
        }
        let modules = self.modules();
        if modules.is_empty() {
            return Ok(());
        }
        let client = client(&self.vcenter)?;
        for module in modules {
            // It may be in it no more, and the module may be gone.
            let left =
                ClusterModules::new(client.rest()).remove(&module, std::slice::from_ref(&vm.moref)).await;
            let Err(error) = left.map_err(|error| self.vcenter.error_of(&error)) else { continue };
            // Somebody has to mend that, and a machine that is gone is in no module.
            if !matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::PermissionDenied) {
                return Err(error);
            }
            tracing::warn!(machine = %self.request.mark, %module, error = error.report(), "it is not taken out of its cluster module");
        }
        self.record.status.module_uuid = None;
        Ok(())
    }

    /// The modules in which a machine may be: the one that was seen last, or else all that are for machines like it.
    fn modules(&self) -> Vec<String> {
        let of_vm = || {
            let vm = existing(self.request)?;
            vm.status["moduleUUID"].as_str().filter(|id| !id.is_empty()).map(str::to_owned)
        };
        if let Some(id) = self.record.status.module_uuid.clone().or_else(of_vm) {
            return vec![id];
        }
        let (Some(name), Some(cluster)) = (&self.request.group, &self.request.cluster.spec) else {
            return Vec::new();
        };
        let of_group =
            cluster.cluster_modules.iter().filter(|one| is_for(one, self.request.is_control_plane, name));
        of_group.map(|module| module.module_uuid.clone()).collect()
    }
}

impl ClusterStep<'_> {
    /// Makes the modules that machines of a cluster wait for. Returns what `spec.clusterModules` is to say, if that is something else than
    /// it says. What fails is told in the condition, and is no failure of the step: machines that wait ask again.
    pub(super) async fn ensure_modules(&mut self) -> Option<Vec<ClusterModule>> {
        if !self.machines.options.node_anti_affinity || self.request.spec.disable_cluster_module == Some(true)
        {
            self.record.remove(CLUSTER_MODULES_READY);
            return None;
        }
        let mut failed = None;
        let made = self.make_modules(&mut failed).await;
        let made = made.inspect_err(|error| {
            failed.get_or_insert_with(|| error.clone());
        });
        let flaw = |reason: &'static str, words: String| {
            Condition::new(CLUSTER_MODULES_READY, ConditionStatus::False, reason).with_message(words)
        };
        self.record.set(match (&made, &failed) {
            (_, Some(error)) => flaw("NotReady", error.report()),
            (Ok(Made::NotThere), _) => flaw(
                "InvalidVCenterVersion",
                "this vCenter has no cluster modules, which need version 7.0 or later".to_owned(),
            ),
            _ => Condition::new(CLUSTER_MODULES_READY, ConditionStatus::True, "Ready"),
        });
        if failed.is_some() {
            self.machines.module_requests.ask_again(&self.request.mark);
        }
        match made {
            Ok(Made::All(all)) if all != self.request.spec.cluster_modules => Some(all),
            _ => None,
        }
    }

    /// Makes the modules that are missing. A group whose module cannot be made keeps no other one waiting; the first error is in `failed`.
    async fn make_modules(&self, failed: &mut Option<Error>) -> Result<Made> {
        let (mark, recorded) = (&self.request.mark, &self.request.spec.cluster_modules);
        let turn = Arc::new(self.machines.module_requests.turn(mark).await);
        let (wanted, unrecorded) = self.machines.module_requests.next(mark, recorded);
        let mut all: Vec<_> = recorded.iter().cloned().chain(unrecorded).collect();
        if wanted.is_empty() {
            return Ok(Made::All(all));
        }
        // A module may be recorded that is younger than what was read last.
        self.machines.known_modules.clear();
        let known = self.machines.own_modules(&self.vcenter, mark, &all, &self.request.objects).await?;
        let Some(known) = known else { return Ok(Made::NotThere) };
        let planned = plan(&all, &wanted, &known);
        let is_missing = |group: &&Group| planned.missing.contains(group);
        self.machines
            .module_requests
            .served(mark, &wanted.iter().filter(|group| !is_missing(group)).cloned().collect());
        all = planned.recorded;
        for group in planned.missing {
            let (vcenter, turn) = (Arc::clone(&self.vcenter), Arc::clone(&turn));
            let (requests, mark) = (Arc::clone(&self.machines.module_requests), mark.clone());
            let client = client(&self.vcenter)?;
            // to its end, so that the module is known to the next step
            let made = self.machines.to_its_end(async move {
                let turn = turn;
                let made = ClusterModules::new(client.rest()).create(&group.cluster).await;
                let made = made.map_err(|error| vcenter.error_of(&error));
                let made = made.inspect(|id| requests.made(&mark, group.clone(), id.clone()));
                drop(turn);
                made.map(|id| group.recorded(id))
            });
            let made = made.await.and_then(|made| made);
            self.machines.known_modules.clear();
            match made {
                Ok(module) => all.push(module),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        Ok(Made::All(all))
    }
}

impl VSphereMachines {
    /// Deletes the modules of a cluster whose machines are gone. One that has machines, which are others', stays.
    ///
    /// # Errors
    /// Those of the calls.
    pub(super) async fn delete_modules(&self, request: &ClusterRequest<VSphereClusterSpec>) -> Result<()> {
        if !self.options.node_anti_affinity {
            return Ok(());
        }
        let mark = &request.mark;
        let _turn = self.module_requests.turn(mark).await;
        let (_, unrecorded) = self.module_requests.next(mark, &request.spec.cluster_modules);
        let all: Vec<_> = request.spec.cluster_modules.iter().cloned().chain(unrecorded).collect();
        if !all.is_empty() {
            let owner = (&*mark.namespace, &*mark.uid);
            let vcenter =
                self.vcenter_for(&Login::of_cluster(&request.spec, owner, &request.objects)).await?;
            vcenter.check_live()?;
            let client = client(&vcenter)?;
            for module in &all {
                if self.is_foreign(&vcenter, mark, &module.module_uuid, &request.objects).await? {
                    tracing::warn!(cluster = %mark, module = module.module_uuid, "a cluster module is not deleted: it is another cluster's");
                    continue;
                }
                let calls = ClusterModules::new(client.rest());
                delete_unused(&vcenter, calls, module).await?;
                self.module_joining.forget(vcenter.name(), &module.module_uuid);
            }
            self.known_modules.clear();
        }
        self.module_requests.forget(mark);
        Ok(())
    }

    /// The modules of a vCenter without those that a cluster names and that are another one's: they are as if they were gone. None if it
    /// has no such thing.
    async fn own_modules(
        &self,
        vcenter: &Arc<VCenterHandle>,
        mark: &Mark,
        recorded: &[ClusterModule],
        objects: &Objects,
    ) -> Result<Option<Known>> {
        let all = self.all_modules(vcenter).await?;
        let Some(all) = &*all else { return Ok(None) };
        let mut own = all.clone();
        for module in recorded.iter().map(|module| &module.module_uuid).filter(|id| all.contains_key(*id)) {
            if self.is_foreign(vcenter, mark, module, objects).await? {
                tracing::warn!(object = %mark, %module, "spec.clusterModules names a cluster module of another cluster, which is not used");
                own.remove(module);
            }
        }
        Ok(Some(own))
    }

    /// Whether a module that a cluster names is another one's: machines of others are in it, or another cluster names it too and none of
    /// its own is in it.
    async fn is_foreign(
        &self,
        vcenter: &Arc<VCenterHandle>,
        mark: &Mark,
        module: &str,
        objects: &Objects,
    ) -> Result<bool> {
        let claim = self.module_requests.claim(mark, module);
        if claim == Claim::Made {
            return Ok(false);
        }
        let read = async {
            let client = client(vcenter)?;
            let members = ClusterModules::new(client.rest()).members(module).await;
            members.map(Option::unwrap_or_default).map_err(|error| vcenter.error_of(&error))
        };
        let key = (vcenter.name().to_owned(), module.to_owned());
        let mut has_own = false;
        for member in &*self.module_members.get(key, read).await? {
            let vm = vcenter.state().inventory.machine(member).cloned();
            let Some(vm) = vm else { continue };
            let is_own = match vcenter.mark_of(&vm).await? {
                Some(found) => (&found.namespace, &found.cluster) == (&mark.namespace, &mark.cluster),
                None => is_of_namespace(&vm, mark, objects),
            };
            if !is_own {
                return Ok(true);
            }
            has_own = true;
        }
        Ok(claim == Claim::Shared && !has_own)
    }

    /// The modules of a vCenter, of anybody. None if it has no such thing.
    async fn all_modules(&self, vcenter: &VCenterHandle) -> Result<Arc<Option<Known>>> {
        let read = async {
            let client = client(vcenter)?;
            ClusterModules::new(client.rest()).list().await.map_err(|error| vcenter.error_of(&error))
        };
        self.known_modules.get(vcenter.name().to_owned(), read).await
    }
}

/// What became of the modules of a cluster.
enum Made {
    /// These are to be recorded.
    All(Vec<ClusterModule>),
    /// The vCenter has no modules.
    NotThere,
}

/// Deletes a module that has no machines which are still there.
async fn delete_unused(
    vcenter: &VCenterHandle,
    calls: ClusterModules<'_>,
    module: &ClusterModule,
) -> Result<()> {
    let id = &module.module_uuid;
    let Some(members) = calls.members(id).await.map_err(|error| vcenter.error_of(&error))? else {
        return Ok(());
    };
    let mut left = None;
    for one in &members {
        let is_shown = vcenter.state().inventory.machine(one).is_some();
        // one that is not shown may be where this session does not look
        if is_shown || !vcenter.has_removed(one).await? {
            left = Some(one);
            break;
        }
    }
    if let Some(machine) = left {
        tracing::warn!(
            module = id,
            vcenter = vcenter.name(),
            machine = machine.id(),
            "a cluster module is not deleted: it has machines that are not of its cluster"
        );
        return Ok(());
    }
    calls.delete(id).await.map_err(|error| vcenter.error_of(&error))
}

/// Whether a machine without a mark is one that Cluster API Provider vSphere has made for an object of the namespace.
fn is_of_namespace(vm: &VirtualMachine, mark: &Mark, objects: &Objects) -> bool {
    let is_it = |text: Option<&str>, uuid: Option<Uuid>| uuid.is_some() && text.and_then(parse_uuid) == uuid;
    let all = objects.list(&VM_KIND, Some(&mark.namespace)).unwrap_or_default();
    all.iter().any(|one| {
        is_it(Some(&one.uid), vm.instance_uuid) || is_it(one.spec["biosUUID"].as_str(), vm.bios_uuid)
    })
}

fn client(vcenter: &VCenterHandle) -> Result<Arc<TagClient>> {
    let client = vcenter.tag_client().clone();
    client.ok_or_else(|| vcenter.error(ErrorKind::Unavailable, "not connected"))
}
