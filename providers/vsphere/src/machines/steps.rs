//! The steps of machines and clusters.
//!
//! ```text
//!  a task runs? ── wait for its end
//!  find the machine by its instance UUID ─┬─ it is there: upgrade, power on, wait for its addresses     (present)
//!                                         ├─ it was there, and vCenter denies it: lost
//!                                         └─ ask vCenter once more, then clone                          (create)
//! ```
//!
//! The instance UUID is the UID of the mark. It and the whole mark are in the call that makes a machine, so whatever
//! happens in between, the machine is found again.

mod available;
mod bootstrap;
mod claims;
mod cluster;
mod cluster_modules;
mod companion;
mod configuration;
mod create;
mod delete;
mod edits;
mod failure_domains;
mod last_seen;
mod login;
mod outstanding;
mod power_on;
mod present;
mod request;
mod take_over;
mod vm_group;
mod zone_status;

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, InstanceStream, Machines, Result, async_trait,
    machines::{
        Capacity, ClusterReport, ClusterRequest, Condition, ConditionStatus, Deletion, Kinds, MachineReport,
        MachineRequest, Mark, NodeInfo, ObserveRequest, Record, StatusReport, Wait,
    },
    ties::{Contender, Evidence, Meant, the_meant_one},
};
use uuid::Uuid;

use self::{
    companion::{Seen, deleted, name_of, provisioned},
    edits::Edit,
    last_seen::confirm_left,
    login::{Login, MadeOn},
};
use super::{
    clone::{cpus, memory_mib},
    fleet::{Fleet, Turn},
    identities::ObjectKey,
    invalid::invalid,
    kinds::{CLUSTER_IDENTITY_KIND, DEPLOYMENT_ZONE_KIND, KINDS},
    naming::is_windows,
    pools::Addresses,
    site::Site,
    spec::{VSphereClusterSpec, VSphereMachineSpec},
    status::{VSphereClusterStatus, VSphereMachineStatus},
    supported,
    work::Work,
};
use crate::{
    provider_id::{byte_orders, parse_provider_id},
    vcenter::State,
    vm::VirtualMachine,
};

pub(crate) use request::{DeletionRequest, MachineRecord, Request};

/// When to look again for a machine that another session still shows.
const SIGHTING_RETRY: Duration = Duration::from_secs(1);

/// The same where it is not known that both are sessions of one vCenter.
const ELSEWHERE_RETRY: Duration = Duration::from_secs(10);

/// The condition that names fields that mean nothing here.
const FIELDS_IGNORED: &str = "FieldsIgnored";

#[async_trait]
impl Machines for Fleet {
    type MachineSpec = VSphereMachineSpec;
    type MachineStatus = VSphereMachineStatus;
    type ClusterSpec = VSphereClusterSpec;
    type ClusterStatus = VSphereClusterStatus;

    const KINDS: Kinds = KINDS;

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
        let request = &*Self::placed_for_deletion(request);
        let mut seen = Seen::default();
        let answer = {
            let (record, seen) = (&mut *record, &mut seen);
            self.one_step(&request.mark, move |turn| async move {
                let slot = Arc::clone(&turn.slot);
                let answer = self.delete(turn, request, record).await;
                *seen = Seen::of(&slot);
                answer
            })
            .await
        };
        claims::note(request);
        self.tell_deletion(request, record, &answer, seen);
        if let Some(condition) = deleted(&answer) {
            record.set(condition);
        }
        answer
    }

    async fn identify_machine(&self, request: &DeletionRequest) -> Result<Option<String>> {
        let answer = self.identify(&Self::placed_for_deletion(request)).await;
        if answer.as_ref().is_ok_and(|uid| uid.as_deref() != Some(&*request.mark.uid)) {
            // From now on it has another UID.
            self.open.release(&ObjectKey::of(&request.mark));
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
        self.open.release(&ObjectKey::of(&request.mark));
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
        self.open.forget(uid);
        self.module_board.forget_object(uid);
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(self.open.changes())
    }
}

impl Fleet {
    /// A step towards existing, and what is wanted beside the object after it.
    async fn ensure_with_objects(
        &self,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        // Without its failure domain it is not known what its `VSphereVM` would say.
        let request = &*self.placed(request, record).await?;
        let mut seen = Seen::default();
        let answer = {
            let (record, seen) = (&mut *record, &mut seen);
            self.one_step(&request.mark, move |turn| async move {
                let slot = Arc::clone(&turn.slot);
                let answer = self.ensure(turn, request, record).await;
                *seen = Seen::of(&slot);
                if request.is_provisioned {
                    slot.known().guest = None;
                }
                answer
            })
            .await
        };
        let is_there = request.provider_id.is_some() || self.has(&request.mark);
        claims::want(request, record, &answer, is_there);
        self.want_vm(request, record, &answer, seen);
        answer
    }

    async fn ensure(
        &self,
        turn: Turn,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        if request.provider_id.is_none() {
            supported::check_machine(&request.spec)?;
            name_of(request)?;
        }
        note_ignored(record, supported::ignored_of_machine(&request.spec, &request.cluster.spec));
        let login = Login::of_machine(request);
        let made_on = MadeOn::of(&record.status);
        if record.status.login.is_none() {
            record.status.login = login.remembered(None);
        }
        let is_there = request.provider_id.is_some() || self.has(&request.mark);
        let addresses = claims::addresses(request, record, is_there)?;
        let with_addresses = claims::with_addresses(request, &addresses);
        let site = self.site_of(&login, &request.mark, || has_begun(&turn, request, record)).await;
        let site = &turn.note_vcenter(site)?;
        let (known, written) = {
            let known = turn.slot.known();
            (known.guest, known.guest_written)
        };
        let edit = Edit::of(request, &addresses, known, written);
        let request = with_addresses.as_ref().unwrap_or(request);
        site.vcenter.follow_tasks();
        turn.note_vcenter(site.check_live())?;
        // What was used before stays while what was made there may be there.
        let is_shown = machine_of(site, &turn)?.is_some();
        let mut may_be_elsewhere = !is_shown && has_begun(&turn, request, record);
        if may_be_elsewhere && made_on.is_elsewhere(std::slice::from_ref(site)) {
            self.check_elsewhere(std::slice::from_ref(site), &turn, request, record).await?;
            self.confirm_left_elsewhere(&made_on, &turn, &request.mark).await?;
            may_be_elsewhere = false;
        }
        if !may_be_elsewhere || login.has_identity() {
            login.note(site, &mut record.status);
        }
        if request.provider_id.is_none() {
            Self::take_over_task(&turn, request, record);
        }
        let answer = self.ensure_on(site, &turn, request, record, (&addresses, edit)).await;
        match machine_of(site, &turn) {
            // It has left while the step had it in hand.
            Ok(Some(vm)) if answer.is_err() && site.removed.has(&vm.moref) => {
                Self::report_removed(&vm, site, request, record)
            }
            _ => answer,
        }
    }

    /// The rest of a step towards existing, once it is known on which vCenter.
    async fn ensure_on(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &Request,
        record: &mut MachineRecord,
        (addresses, edit): (&Addresses, Edit),
    ) -> Result<MachineReport> {
        if let Some(wait) = self.outstanding(site, turn, request, record).await? {
            let quiet = turn.slot.known().quiet_work();
            match (quiet, machine_of(site, turn)?) {
                (Some(Work::RemoveBootstrapData), Some(vm)) => {
                    return Self::report_beside(&vm, site, request, record, wait.look_again_after);
                }
                (Some(work), Some(vm)) => return Self::report_meanwhile(&vm, site, request, record, work),
                _ => {}
            }
            // A machine that is being cloned may be seen already, and is not to be touched.
            return match (&request.provider_id, machine_of(site, turn)?) {
                (Some(_), Some(vm)) if request.mark.owns(site.mark_of(&vm).await?.as_ref()) => {
                    Self::report(&vm, site, request, record, Some(wait))
                }
                _ => Ok(MachineReport::Creating(wait)),
            };
        }
        if let Some(vm) = machine_of(site, turn)? {
            turn.slot.known().unshown_since = None;
            if site.removed.has(&vm.moref) {
                return Self::report_removed(&vm, site, request, record);
            }
            return self.present(site, turn, &vm, request, record, edit).await;
        }
        if request.provider_id.is_none() {
            if let Some(wait) = claims::wait(request, addresses) {
                return Ok(MachineReport::Creating(wait));
            }
            return self.create(site, turn, request, record, edit).await;
        }
        let here = std::slice::from_ref(site);
        if let Some(wait) = self.check_elsewhere(here, turn, request, record).await? {
            return Err(Error::new(ErrorKind::Unavailable, wait.message));
        }
        self.confirm_other_absent(site, turn, request.provider_id.as_deref()).await?;
        site.vcenter.confirm_absent(turn.uid).await?;
        confirm_left(site, turn, request).await?;
        let words = format!(
            "vCenter {:?} has no virtual machine with the instance UUID {} any more",
            site.vcenter.name(),
            turn.uid
        );
        Ok(MachineReport::lost(words))
    }

    /// Whether a machine that is not where it should be is nowhere, as far as is known. It may be in the vCenter that its
    /// `server` named before, or be one that another program made, with the BIOS UUID of the provider ID. Neither is
    /// lost, or gone. A copy of the machine is neither of the two. `here` is where it should be. There is something to wait for while
    /// another session of the same vCenter shows it.
    ///
    /// # Errors
    /// What was found.
    async fn check_elsewhere<C>(
        &self,
        here: &[Arc<Site>],
        turn: &Turn,
        request: &MachineRequest<VSphereMachineSpec, C>,
        record: &MachineRecord,
    ) -> Result<Option<Wait>> {
        let mark = &request.mark;
        let was_made = was_made(here, turn, record);
        for site in &self.sites_of(mark) {
            let (same, others) = {
                let state = site.vcenter.state();
                let same = state.inventory.with_instance_uuid(turn.uid).next().cloned();
                (same, with_bios_uuid_alone(&state, turn.uid, request.provider_id.as_deref()))
            };
            if let Some(vm) = same
                && mark.owns(site.mark_of(&vm).await?.as_ref())
                && !is_left_over(site, turn, &vm)
            {
                if here.iter().any(|own| is_one_vcenter(own, site)) {
                    let words =
                        format!("another session of vCenter {:?} still shows it", site.vcenter.name());
                    return Ok(Some(Wait::task(words).look_again_after(SIGHTING_RETRY)));
                }
                let error = invalid(format!(
                    "spec.server: the virtual machine {:?} ({}) is in vCenter {:?}, and another one is named",
                    vm.name,
                    vm.moref.id(),
                    site.vcenter.name()
                ));
                // It may be the same one under another address, whose session knows a change a moment later.
                return Err(error.with_retry_after(ELSEWHERE_RETRY));
            }
            for vm in others {
                if !was_made && !Self::is_copy(site, &vm, request).await? {
                    let found = site.mark_of(&vm).await?;
                    return Err(conflict(site, &vm, mark, found.as_ref()));
                }
            }
        }
        Ok(None)
    }

    /// Confirms that a vCenter has no machine with the BIOS UUID of a provider ID either, but for copies: what the inventory shows was
    /// checked before.
    ///
    /// # Errors
    /// Why there may be one.
    async fn confirm_other_absent(&self, site: &Site, turn: &Turn, provider_id: Option<&str>) -> Result<()> {
        let Some(Ok(bios_uuid)) = provider_id.map(parse_provider_id) else { return Ok(()) };
        let copies = with_bios_uuid_alone(&site.vcenter.state(), turn.uid, provider_id);
        let copies: Vec<_> = copies.into_iter().map(|vm| vm.moref).collect();
        site.vcenter.confirm_absent_but_for(bios_uuid, &copies).await
    }
}

/// The machines that have the BIOS UUID of a provider ID, in either byte order, and not the instance UUID of the object.
fn with_bios_uuid_alone(state: &State, uid: Uuid, provider_id: Option<&str>) -> Vec<VirtualMachine> {
    let Some(Ok(bios_uuid)) = provider_id.map(parse_provider_id) else { return Vec::new() };
    let mut orders = byte_orders(bios_uuid).to_vec();
    orders.dedup();
    let found = orders.into_iter().flat_map(|uuid| state.inventory.with_bios_uuid(uuid));
    found.filter(|vm| vm.instance_uuid != Some(uid)).cloned().collect()
}

/// Whether it is known that a machine was made with the identity of the object as its instance UUID. What has another one is a copy.
fn was_made(here: &[Arc<Site>], turn: &Turn, record: &MachineRecord) -> bool {
    // only a clone of our own has its mode in the status
    record.status.clone_mode.is_some()
        || here.iter().any(|site| {
            turn.slot.known().is_destroyed_on(site.vcenter.name())
                || !site.vcenter.state().inventory.departed_with(turn.uid).is_empty()
        })
}

/// Whether a machine is only an entry that vCenter has kept of one that it has destroyed.
fn is_left_over(site: &Site, turn: &Turn, vm: &VirtualMachine) -> bool {
    !vm.is_connected() && turn.slot.known().is_destroyed_on(site.vcenter.name())
}

/// The machine with this instance UUID, as far as it is known. Of several, the one that carries the mark is meant, and of these the one
/// that vCenter can reach.
///
/// # Errors
/// [`ErrorKind::Ambiguous`] if that leaves two.
fn machine_of(site: &Site, turn: &Turn) -> Result<Option<VirtualMachine>> {
    let state = site.vcenter.state();
    let found: Vec<_> = state.inventory.with_instance_uuid(turn.uid).collect();
    let contender = |vm: &&VirtualMachine| {
        let evidence = Evidence {
            is_marked: turn.mark.owns(vm.mark.as_deref()),
            is_connected: vm.is_connected(),
            ..Evidence::default()
        };
        Contender { instance: vm.moref.clone(), evidence, is_read: true }
    };
    let contenders: Vec<_> = found.iter().map(contender).collect();
    match the_meant_one(&contenders) {
        Meant::None => Ok(None),
        Meant::One(meant) | Meant::Unread(meant) => Ok(state.inventory.machine(&meant).cloned()),
        Meant::Tie => {
            let ids: Vec<_> = found.iter().map(|vm| vm.moref.id()).collect();
            let words =
                format!("the virtual machines {} have the instance UUID {}", ids.join(" and "), turn.uid);
            Err(site.vcenter.error(ErrorKind::Ambiguous, &words))
        }
    }
}

/// Whether a machine was made, or may have been, as far as is known.
fn has_begun<C>(
    turn: &Turn,
    request: &MachineRequest<VSphereMachineSpec, C>,
    record: &MachineRecord,
) -> bool {
    let known = turn.slot.known();
    request.provider_id.is_some()
        || record.status.task_ref.is_some()
        || known.task.is_some()
        || known.uncertain.is_some()
        || known.done.is_some_and(|(work, _)| work == Work::Clone)
}

/// The error about a machine that is somebody else's.
fn conflict(site: &Site, vm: &VirtualMachine, mark: &Mark, found: Option<&Mark>) -> Error {
    conflict_over(mark.name(), site, vm, mark, found)
}

/// The same where the object is to have this name in vCenter.
fn conflict_over(name: &str, site: &Site, vm: &VirtualMachine, mark: &Mark, found: Option<&Mark>) -> Error {
    // another name is not for everybody who reads the object
    let name = if *vm.name == *name { format!("{name:?} ") } else { String::new() };
    let what = format!("virtual machine {name}({}) in vCenter {:?}", vm.moref.id(), site.vcenter.name());
    tracing::info!(%mark, machine = %vm.name, moref = vm.moref.id(), "a foreign virtual machine is in its way");
    mark.conflict(what, found)
}

fn note_ignored<S>(record: &mut Record<S>, words: Option<String>) {
    match ignored_fields(words) {
        Some(condition) => record.set(condition),
        None => record.remove(FIELDS_IGNORED),
    }
}

/// The condition that names fields that mean nothing here.
fn ignored_fields(words: Option<String>) -> Option<Condition> {
    words.map(|words| Condition::new(FIELDS_IGNORED, ConditionStatus::True, "NotNeeded").with_message(words))
}

/// Whether two sites are sessions of the same vCenter. One of them may know a change a moment later than the other.
fn is_one_vcenter(one: &Arc<Site>, other: &Arc<Site>) -> bool {
    let (one, other) = (&one.vcenter, &other.vcenter);
    Arc::ptr_eq(one, other) || {
        let (state, other_state) = (one.state(), other.state());
        one.is_same(&state, other, &other_state)
    }
}

#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod reach_tests;
#[cfg(test)]
mod removed_tests;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod term_tests;
#[cfg(test)]
mod told_tests;
#[cfg(test)]
mod unshown_tests;
