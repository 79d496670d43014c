//! The steps of machines and clusters. [`Step::reconcile`] and [`DeletionStep::reconcile_delete`] list those of a machine, in their order.
//!
//! The instance UUID of a virtual machine is the UID of its object's mark. It and the whole mark are in the call that makes the machine,
//! so whatever happens in between, the machine is found again. A step decides from what the inventory shows, from the status of the
//! object, and from what this process knows beside them, all of which may be lost.

mod boot;
mod claims;
mod cluster;
mod cluster_modules;
mod configuration;
mod create;
mod delete;
mod failure_domains;
mod find;
mod guest;
mod login;
mod report;
mod reset;
mod step;
mod take_over;
mod tasks;
mod vm_group;
mod vsphere_vm;
mod zone_status;

use std::{future::Future, slice, sync::Arc};

use cloudprovider::{
    Error, ErrorKind, InstanceStream, Machines, Result, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Deletion, Kinds, MachineReport, Mark, NodeInfo, ObjectLocks,
        ObserveRequest, Record, Reset, StatusReport,
    },
};
use uuid::Uuid;

use self::{
    cluster::note_ignored,
    guest::Edit,
    login::{Login, MadeOn},
    step::{
        DeletionRequest, DeletionStep, Flow, MachineRecord, Pass, Request, Step, Stop, answer_of, owner_of,
    },
    take_over::server_of_vm,
    vsphere_vm::{deleted, name_of, provisioned},
};
use super::{
    clone::{cpus, memory_mib},
    identities::ObjectKey,
    kinds::{CLUSTER_IDENTITY_KIND, DEPLOYMENT_ZONE_KIND, KINDS},
    naming::is_windows,
    pools::Addresses,
    spec::{VSphereClusterSpec, VSphereMachineSpec},
    state::{MachineState, Observed},
    status::{VSphereClusterStatus, VSphereMachineStatus},
    supported,
    vcenter_handle::VCenterHandle,
    vsphere_machines::VSphereMachines,
};
use crate::vm::VirtualMachine;

impl Step<'_> {
    /// The steps of a machine towards existing. The first one that has to wait ends them.
    async fn reconcile(&mut self, addresses: &Addresses, edit: Edit) -> Flow<MachineReport, MachineReport> {
        self.wait_for_task().await?;
        let Some(vm) = self.shown()? else {
            if self.request.provider_id.is_some() {
                return self.confirm_lost().await;
            }
            self.wait_for_addresses(addresses)?;
            return self.clone_template(edit).await;
        };
        self.wait_until_left(&vm)?;
        self.take_over(&vm).await?;
        self.attach_tags(&vm).await?;
        self.pass_on_network(&vm, edit).await?;
        if self.is_to_start(&vm) {
            self.wait_for_start(&vm)?;
            self.upgrade_hardware(&vm).await?;
            self.join_vm_group(&vm).await?;
            self.join_module(&vm).await?;
            return self.power_on(&vm).await;
        }
        self.remove_bootstrap_data(&vm).await
    }
}

impl DeletionStep<'_> {
    /// The steps of a machine towards gone from one vCenter. The first one that has to wait ends them.
    async fn reconcile_delete(&mut self) -> Flow<Deletion, Deletion> {
        self.take_over_task();
        self.wait_for_last_task().await?;
        let Some(vm) = self.shown()? else {
            self.confirm_gone().await?;
            return Ok(Deletion::Gone);
        };
        self.wait_until_left(&vm)?;
        if self.is_left_over(&vm) {
            return Ok(Deletion::Gone);
        }
        let answer = self.remove(&vm).await;
        if let Err(Stop::Error(_)) = answer {
            // It may have left while the step had it in hand.
            self.wait_until_left(&vm)?;
        }
        answer
    }

    /// The steps of a machine that is shown.
    async fn remove(&mut self, vm: &VirtualMachine) -> Flow<Deletion, Deletion> {
        self.check_is_own(vm).await?;
        self.power_off(vm).await?;
        self.detach_foreign_disks(vm).await?;
        self.leave_module(vm).await?;
        Ok(self.destroy(vm).await?)
    }
}

impl Pass<'_> {
    /// One step towards existing: finds out where the machine is to be, and makes the steps there.
    async fn ensure(&mut self) -> Result<MachineReport> {
        let request = self.request;
        if request.provider_id.is_none() {
            supported::check_machine(&request.spec)?;
            name_of(request)?;
        }
        note_ignored(self.record, supported::ignored_of_machine(&request.spec, &request.cluster.spec));
        let login = Login::of_machine(request);
        let made_on = MadeOn::of(&self.record.status);
        if self.record.status.login.is_none() {
            self.record.status.login = login.remembered(None);
        }
        let is_there = request.provider_id.is_some() || self.machines.has(&request.mark);
        let addresses = claims::addresses(request, self.record, is_there)?;
        let has_begun = self.has_begun();
        let vcenter = self.machines.vcenter_of(&login, &request.mark, has_begun).await;
        let vcenter = self.state.note_followed(vcenter)?;
        let (known, written) = self.state.guest();
        let edit = Edit::of(request, &addresses, known, written);
        let with_addresses = claims::with_addresses(request, &addresses);
        let mut step = Step { request: with_addresses.as_ref().unwrap_or(request), ..self.on(&vcenter) };
        step.follow()?;
        // What was used before stays while what was made there may be there.
        let mut may_be_elsewhere = step.shown()?.is_none() && has_begun;
        if may_be_elsewhere && made_on.is_elsewhere(slice::from_ref(&vcenter)) {
            step.check_elsewhere(slice::from_ref(&vcenter)).await?;
            step.confirm_left_elsewhere(&made_on).await?;
            may_be_elsewhere = false;
        }
        if !may_be_elsewhere || login.has_identity() {
            login.note(&vcenter, &mut step.record.status);
        }
        if request.provider_id.is_none() {
            step.take_over_task();
        }
        let answer = answer_of(step.reconcile(&addresses, edit).await);
        match step.shown() {
            // It has left while the step had it in hand.
            Ok(Some(vm)) if answer.is_err() && vcenter.tombstones.has(&vm.moref) => step.report_removed(&vm),
            _ => answer,
        }
    }
}

impl Pass<'_, Option<VSphereClusterSpec>> {
    /// One step towards gone. Without its cluster's object nothing may say on which vCenter the machine is. Then it has to be
    /// gone from all that are configured: who names no credentials has those of nobody else.
    async fn delete(&mut self) -> Result<Deletion> {
        let made_on = MadeOn::of(&self.record.status);
        let was_begun = self.has_begun();
        let Some(vcenters) = self.vcenters_to_delete_from(was_begun).await? else {
            return Ok(Deletion::Gone);
        };
        let Some(first) = vcenters.first() else {
            let words = "nothing says any more on which vCenter the virtual machine is, so the finalizer stays; if there is none, an operator can \
                         remove it by hand";
            return Err(Error::new(ErrorKind::NotFound, words));
        };
        for vcenter in &vcenters {
            let mut step = self.on(vcenter);
            step.follow()?;
            let answer = answer_of(step.reconcile_delete().await)?;
            if answer != Deletion::Gone {
                return Ok(answer);
            }
        }
        let step = self.on(first);
        if let Some(wait) = step.check_elsewhere(&vcenters).await? {
            return Ok(Deletion::Deleting(wait));
        }
        let is_destroyed = vcenters.iter().any(|vcenter| step.state.is_destroyed_on(vcenter.name()));
        if was_begun && !is_destroyed && made_on.is_elsewhere(&vcenters) {
            step.confirm_left_elsewhere(&made_on).await?;
        }
        self.state.note_gone();
        self.machines.pool.release(&ObjectKey::of(&self.request.mark));
        Ok(Deletion::Gone)
    }

    /// The vCenters on which the machine may be. `None` if nothing was begun on any.
    async fn vcenters_to_delete_from(&self, was_begun: bool) -> Result<Option<Vec<Arc<VCenterHandle>>>> {
        let (machines, request) = (self.machines, self.request);
        let known = self.record.status.login.as_ref();
        let Some(login) = Login::of_deletion(request, known) else {
            machines.pool.release(&ObjectKey::of(&request.mark));
            return Ok(Some(match server_of_vm(request)? {
                Some(server) => {
                    vec![machines.configured_vcenter("spec.server of the VSphereVM", Some(&server))?]
                }
                None => machines.configured.clone(),
            }));
        };
        let was_begun = was_begun || known.is_some();
        match machines.vcenter_of(&login, &request.mark, was_begun).await {
            // On a vCenter that is not configured, nothing was begun.
            Err(error) if login::is_out_of_reach(&login, &error) => Ok(None),
            vcenter => {
                let own = self.state.note_followed(vcenter)?;
                let other = machines.vcenter_of_lost_zone(request, &own).await?;
                Ok(Some([Some(own), other].into_iter().flatten().collect()))
            }
        }
    }
}

impl VSphereMachines {
    /// A step towards existing, and what is wanted beside the object after it.
    async fn ensure_with_objects(
        &self,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        // Without its failure domain it is not known what its `VSphereVM` would say.
        let request = &*self.placed(request, record).await?;
        let of_step = &mut *record;
        let step = move |uid, state| async move {
            Pass { machines: self, uid, state, request, record: of_step }.ensure().await
        };
        let (answer, observed) = self.with_state(&request.mark, request.is_provisioned, step).await;
        let is_there = request.provider_id.is_some() || self.has(&request.mark);
        claims::want(request, record, &answer, is_there);
        self.want_vm(request, record, &answer, observed);
        answer
    }

    /// A step towards gone, and what is said of it beside the object.
    async fn delete_with_objects(
        &self,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        let request = &*Self::placed_for_deletion(request);
        let of_step = &mut *record;
        let step = move |uid, state| async move {
            Pass { machines: self, uid, state, request, record: of_step }.delete().await
        };
        let (answer, observed) = self.with_state(&request.mark, false, step).await;
        claims::note(request);
        self.want_vm_of_deletion(request, record, &answer, observed);
        if let Some(condition) = deleted(&answer) {
            record.set(condition);
        }
        answer
    }

    /// Makes a step with what is known of its machine. Returns what it has seen beside its answer.
    async fn with_state<T, F: Future<Output = Result<T>>>(
        &self,
        mark: &Mark,
        is_complete: bool,
        step: impl FnOnce(Uuid, Arc<MachineState>) -> F,
    ) -> (Result<T>, Observed) {
        let owner = match owner_of(mark) {
            Ok(owner) => owner,
            Err(error) => return (Err(error), Observed::default()),
        };
        let state = self.states.of(&owner);
        let answer = step(owner.1, Arc::clone(&state)).await;
        let observed = state.observed(is_complete);
        drop(state);
        self.states.forget_unused(&owner);
        (answer, observed)
    }
}

#[async_trait]
impl Machines for VSphereMachines {
    type MachineSpec = VSphereMachineSpec;
    type MachineStatus = VSphereMachineStatus;
    type ClusterSpec = VSphereClusterSpec;
    type ClusterStatus = VSphereClusterStatus;

    const KINDS: Kinds = KINDS;

    fn object_locks(&self) -> &ObjectLocks {
        &self.object_locks
    }

    async fn ensure_machine(&self, request: &Request, record: &mut MachineRecord) -> Result<MachineReport> {
        let answer = self.ensure_with_objects(request, record).await;
        record.set(provisioned(&answer));
        answer
    }

    async fn delete_machine(
        &self,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        self.delete_with_objects(request, record).await
    }

    async fn reset_machine(&self, request: &Request, record: &MachineRecord) -> Result<Reset> {
        self.reset(request, record).await
    }

    async fn identify_machine(&self, request: &DeletionRequest) -> Result<Option<String>> {
        let answer = self.identify(&Self::placed_for_deletion(request)).await;
        if answer.as_ref().is_ok_and(|uid| uid.as_deref() != Some(&*request.mark.uid)) {
            // From now on it has another UID.
            self.pool.release(&ObjectKey::of(&request.mark));
        }
        answer
    }

    async fn ensure_cluster(
        &self,
        request: &ClusterRequest<VSphereClusterSpec>,
        record: &mut Record<VSphereClusterStatus>,
    ) -> Result<ClusterReport> {
        self.ensure_one_cluster(request, record).await
    }

    async fn delete_cluster(
        &self,
        request: &ClusterRequest<VSphereClusterSpec>,
        _: &mut Record<VSphereClusterStatus>,
    ) -> Result<Deletion> {
        self.delete_modules(request).await?;
        self.pool.release(&ObjectKey::of(&request.mark));
        Ok(Deletion::Gone)
    }

    async fn capacity(&self, spec: &VSphereMachineSpec) -> Result<Capacity> {
        let clone = &spec.clone;
        let mut capacity = Capacity::default()
            .with_resource("cpu", cpus(clone).to_string())
            .with_resource("memory", format!("{}Mi", memory_mib(clone)));
        if let Some(size) = clone.disk_gib.filter(|size| *size > 0) {
            capacity = capacity.with_resource("ephemeral-storage", format!("{size}Gi"));
        }
        let system = if is_windows(spec) { "windows" } else { "linux" };
        let node_info = NodeInfo { architecture: None, operating_system: Some(system.to_owned()) };
        Ok(capacity.with_node_info(node_info))
    }

    async fn observe(&self, request: &ObserveRequest) -> Result<StatusReport> {
        if request.kind == CLUSTER_IDENTITY_KIND {
            return self.observe_identity(request);
        }
        if request.kind == DEPLOYMENT_ZONE_KIND {
            return self.observe_zone(request).await;
        }
        Err(Error::new(ErrorKind::Internal, format!("nothing is said about {}", request.kind.kind)))
    }

    fn forget(&self, uid: &str) {
        self.pool.forget(uid);
        self.module_requests.forget_object(uid);
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(self.pool.changes())
    }
}

#[cfg(test)]
mod tests;
