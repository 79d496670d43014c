//! Takes over virtual machines that Cluster API Provider vSphere (CAPV) has made.
//!
//! ```text
//!   identify    which one it is: its instance UUID becomes the identity of the object        nothing is changed
//!   a step      everything agrees, and it has no mark: the mark is written                   one ReconfigVM_Task
//!   from now on it is ours, like one that a step has cloned
//! ```
//!
//! A process that ends in between leaves a virtual machine without a mark, which the next one finds by the same identity. The mark is
//! written to the configuration that was read, so nobody else's change gets lost, and nothing that became somebody else's gets it.
//!
//! A virtual machine that CAPV had not started yet has no `guestinfo.metadata`. It gets them with the mark, for the MAC addresses that
//! it has.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, MachineRequest, Mark, PresentMachine, Wait},
    ties::{Contender, Meant, the_meant_one},
};
use uuid::Uuid;

use super::{
    DeletionRequest, MachineRecord, Request,
    configuration::{Configuration, METADATA},
    conflict,
    login::Login,
    outstanding::is_outdated,
};
use crate::{
    machines::{
        allowed::Located,
        fleet::{Fleet, Turn},
        guest::metadata,
        kinds::VM_KIND,
        naming::vm_name_or_own,
        site::Site,
        spec::VSphereMachineSpec,
        takeover::Told,
        work::Work,
    },
    mark::{self, MARK},
    provider_id::parse_provider_id,
    vim::{
        CallError, Value,
        machines::{ConfigSpec, OptionValue, ReconfigVm},
    },
    vm::{VirtualMachine, VmPower},
};

/// How soon a step looks again at a machine whose mark was written. The inventory tells it.
const RETRY: Duration = Duration::from_secs(1);

/// For how long the inventory may be behind the writing of a mark. After that it is read whether it can be read at all.
const MARK_BEHIND: Duration = Duration::from_secs(5);

/// How soon a step looks again at a machine that is not to be taken over.
const FOREIGN_RETRY: Duration = Duration::from_secs(5);

impl Fleet {
    /// Whether a machine that has the BIOS UUID of an object's own, and not its identity as the instance UUID, is a copy of that, or another
    /// object's. Where nothing says so, it may be one that CAPV has made for the object.
    ///
    /// # Errors
    /// It cannot be told.
    pub(super) async fn is_copy<C>(
        site: &Site,
        vm: &VirtualMachine,
        request: &MachineRequest<VSphereMachineSpec, C>,
    ) -> Result<bool> {
        match site.mark_of(vm).await? {
            Some(mark) if !request.mark.owns(Some(&mark)) => Ok(true),
            // It may have got another instance UUID when it was moved.
            Some(_) => Ok(vm.is_connected() && vm.power == VmPower::Off),
            None => Ok(told_of(request)?.is_some_and(|told| {
                told.check(vm).is_err() || told.is_another(vm, |server| site.is_called(server))
            })),
        }
    }

    /// The identity of an object on which CAPV has worked. See [`Machines::identify_machine`](cloudprovider::Machines::identify_machine).
    pub(super) async fn identify(&self, request: &DeletionRequest) -> Result<Option<String>> {
        let Some(told) = told_of(request)? else {
            // Before it clones, CAPV makes the VSphereVM.
            let Some(id) = request.provider_id.as_deref() else { return Ok(Some(request.mark.uid.clone())) };
            return match &self.found(request, parse_provider_id(id)?).await?[..] {
                [] => Ok(Some(request.mark.uid.clone())),
                [(site, vm), ..] => {
                    let why = "the object owns no VSphereVM, by which it would be known as its own";
                    Err(foreign(site, vm, &request.mark, why))
                }
            };
        };
        let of_vm = || Ok(Some(told.vm_uid.hyphenated().to_string()));
        let Some(bios_uuid) = told.bios_uuid() else { return of_vm() };
        let found = self.found(request, bios_uuid).await?;
        let (site, vm) = match &found[..] {
            [] => return of_vm(),
            [only] => only,
            several => meant_of(&told, several, bios_uuid)?,
        };
        told.check(vm).map_err(|why| foreign(site, vm, &request.mark, &why))?;
        // after a move or a restore, one that is ours has its mark
        if site.mark_of(vm).await?.is_none() {
            self.may_take_over(site, vm, &request.mark, has_identity(request, None))?;
        }
        let uid = vm.instance_uuid.ok_or_else(|| {
            let words = format!("it does not tell the instance UUID of {:?}", vm.name);
            site.vcenter.error(ErrorKind::Unavailable, &words)
        })?;
        Ok(Some(uid.hyphenated().to_string()))
    }

    /// The machines with this BIOS UUID on the vCenter of an object, or on all that are configured if nothing says on which it is.
    ///
    /// # Errors
    /// An inventory is not complete, or vCenter has such a machine that it does not show.
    async fn found(
        &self,
        request: &DeletionRequest,
        bios_uuid: Uuid,
    ) -> Result<Vec<(Arc<Site>, VirtualMachine)>> {
        let sites = match Login::of_deletion(request, None) {
            None => self.configured.clone(),
            Some(login) => vec![self.site_for(&login).await?],
        };
        let mut found = Vec::new();
        for site in &sites {
            site.check_live()?;
            let state = site.vcenter.state();
            found.extend(state.inventory.with_bios_uuid(bios_uuid).map(|vm| (Arc::clone(site), vm.clone())));
        }
        if found.is_empty() {
            // The answer is kept for good.
            for site in &sites {
                site.vcenter.confirm_absent(bios_uuid).await?;
            }
        }
        Ok(found)
    }

    /// Waits for the task that CAPV had begun last, once.
    pub(super) fn take_over_task<C>(
        turn: &Turn,
        request: &MachineRequest<VSphereMachineSpec, C>,
        record: &mut MachineRecord,
    ) {
        if record.status.task_ref.is_some() || turn.slot.known().task.is_some() {
            return;
        }
        let Ok(Some(told)) = told_of(request) else { return };
        let mut known = turn.slot.known();
        // One of ours has a VSphereVM with another UID, and has its task in its own status.
        if told.vm_uid == turn.uid && told.task.is_some() && known.taken_over != told.task {
            known.taken_over.clone_from(&told.task);
            record.status.task_ref = told.task;
        }
    }

    /// A step of a machine without a mark. `None`: it is not one of CAPV's, as far as is known.
    pub(super) async fn take_over(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<Option<MachineReport>> {
        let Some(told) = told_of(request)? else { return Ok(None) };
        told.check(vm).map_err(|why| foreign(site, vm, &request.mark, &why))?;
        let has_identity = request.cluster.spec.identity_ref.is_some();
        self.may_take_over(site, vm, &request.mark, has_identity)?;
        if !turn.slot.known().has_just_done(Work::Mark, MARK_BEHIND) {
            let found = Configuration::read(site, vm).await?;
            check(&found, &told).map_err(|why| foreign(site, vm, &request.mark, &why))?;
            if found.has_mark {
                let words = format!("the mark of {:?} ({}) cannot be read", vm.name, vm.moref.id());
                return Err(site.vcenter.error(ErrorKind::Unavailable, &words));
            }
            self.write_mark(site, turn, &found, request).await?;
        }
        Self::report_meanwhile(vm, site, request, record, Work::Mark).map(Some)
    }

    /// Checks that a virtual machine without a mark may become an object's own, which then changes and destroys it. What the objects of
    /// the API say of it a user may have written, so the configuration has to list it.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`].
    fn may_take_over(&self, site: &Site, vm: &VirtualMachine, mark: &Mark, has_identity: bool) -> Result<()> {
        let path = site.vcenter.state().inventory.names_to_machine(vm).unwrap_or_default();
        let at = Located { object: &vm.moref, path: &path, is_default: false };
        self.allowed(site, &mark.namespace, has_identity).take_over(at)
    }

    /// Checks that a machine without a mark, which has the identity of an object as its instance UUID, is the object's own all the same,
    /// so that it is removed with it.
    ///
    /// # Errors
    /// What speaks against it. It is never left over in silence: nobody else would know of it.
    pub(super) async fn check_own(
        &self,
        site: &Site,
        vm: &VirtualMachine,
        request: &DeletionRequest,
        record: &MachineRecord,
    ) -> Result<()> {
        let Some(told) = told_of(request)? else { return Err(conflict(site, vm, &request.mark, None)) };
        let found = Configuration::read(site, vm).await?;
        check(&found, &told).map_err(|why| foreign(site, vm, &request.mark, &why))?;
        self.may_take_over(site, vm, &request.mark, has_identity(request, Some(record)))
    }

    /// What is seen of a machine whose options are being written. Nothing else is done about it. If it was complete, it still is.
    pub(super) fn report_meanwhile(
        vm: &VirtualMachine,
        site: &Site,
        request: &Request,
        record: &mut MachineRecord,
        work: Work,
    ) -> Result<MachineReport> {
        let wait = (!request.is_provisioned).then(|| meanwhile(work));
        Ok(match Self::report(vm, site, request, record, wait)? {
            MachineReport::Present(machine) => PresentMachine::look_again_after(*machine, RETRY).into(),
            report => report,
        })
    }

    async fn write_mark(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        found: &Configuration,
        request: &Request,
    ) -> Result<()> {
        let option = |key: &str, value| OptionValue { key: key.to_owned(), value: Value::AnyString(value) };
        let mut extra_config = vec![option(MARK, mark::write(&request.mark))];
        if !request.is_provisioned && found.vm.power == VmPower::Off && found.metadata.is_none() {
            extra_config.extend(metadata(&found.vm.name, &request.spec.clone.network, &found.macs));
        }
        self.write_options(site, turn, Work::Mark, found, extra_config, &request.mark).await
    }

    /// Writes options of a machine, unless it has changed since it was read. Then it is looked at again.
    pub(super) async fn write_options(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        work: Work,
        found: &Configuration,
        extra_config: Vec<OptionValue>,
        mark: &Mark,
    ) -> Result<()> {
        let change_version = found.change_version.clone();
        let call = ReconfigVm { spec: ConfigSpec { change_version, extra_config, ..ConfigSpec::empty() } };
        match self.begin(site, turn, work, call.of(&found.vm.moref)).await {
            Ok(task) => {
                site.vcenter.wait_for_task(&task, &mark.uid);
                Ok(())
            }
            Err(CallError::Fault { kind, .. }) if is_outdated(&kind) => Ok(()),
            Err(error) => Err(site.vcenter.error_of(&error)),
        }
    }
}

/// The one of several virtual machines with a BIOS UUID that the objects mean.
///
/// # Errors
/// [`ErrorKind::Ambiguous`] if nothing that is known tells them apart.
fn meant_of<'a>(
    told: &Told,
    found: &'a [(Arc<Site>, VirtualMachine)],
    bios_uuid: Uuid,
) -> Result<&'a (Arc<Site>, VirtualMachine)> {
    let contender = |one: &'a (Arc<Site>, VirtualMachine)| {
        let (site, vm) = one;
        let evidence = told.evidence(vm, |server| site.is_called(server))?;
        Some(Contender { instance: one, evidence, is_read: true })
    };
    let contenders: Vec<_> = found.iter().filter_map(contender).collect();
    match the_meant_one(&contenders) {
        Meant::One(one) | Meant::Unread(one) => Ok(one),
        Meant::None | Meant::Tie => {
            let ids: Vec<_> = found.iter().map(|(_, vm)| vm.moref.id()).collect();
            let words = format!("the virtual machines {} have the BIOS UUID {bios_uuid}", ids.join(" and "));
            let site = found.first().map(|(site, _)| site);
            Err(match site {
                Some(site) => site.vcenter.error(ErrorKind::Ambiguous, &words),
                None => Error::new(ErrorKind::Ambiguous, words),
            })
        }
    }
}

/// Whether the session for an object that goes is one of credentials that its cluster names, or named.
fn has_identity(request: &DeletionRequest, record: Option<&MachineRecord>) -> bool {
    let known = record.and_then(|record| record.status.login.as_ref());
    Login::of_deletion(request, known).is_some_and(|login| login.has_identity())
}

/// Whether this is the virtual machine that the objects mean. One that they know by its BIOS UUID alone is at least one that CAPV
/// has made: CAPV writes a network configuration on each.
///
/// # Errors
/// What speaks against it.
fn check(found: &Configuration, told: &Told) -> Result<(), String> {
    told.check(&found.vm)?;
    if found.vm.instance_uuid != Some(told.vm_uid) && found.metadata.is_none() {
        return Err(format!("its instance UUID is not {}, and it has no {METADATA}", told.vm_uid));
    }
    Ok(())
}

/// The vCenter that the `VSphereVM` of an object names.
///
/// # Errors
/// It is not known yet whether there is one.
pub(super) fn server_of_vm(request: &DeletionRequest) -> Result<Option<String>> {
    let Mark { namespace, .. } = &request.mark;
    let vms = request.objects.owned_by(&VM_KIND, namespace, &vm_name_or_own(request), &request.object_uid)?;
    let servers = vms.iter().filter_map(|vm| vm.spec["server"].as_str());
    Ok(servers.map(str::to_owned).find(|server| !server.is_empty()))
}

/// What the objects of the API say. `None` without a `VSphereVM`.
fn told_of<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> Result<Option<Told>> {
    let Mark { namespace, .. } = &request.mark;
    let found =
        request.objects.owned_by(&VM_KIND, namespace, &vm_name_or_own(request), &request.object_uid)?;
    let vm = match &found[..] {
        [] => return Ok(None),
        [vm] => vm,
        [one, other, ..] => {
            let words =
                format!("it owns two objects of the kind VSphereVM: {:?} and {:?}", one.name, other.name);
            return Err(Error::new(ErrorKind::Ambiguous, words));
        }
    };
    let told = Told::new(vm, request.provider_id.as_deref());
    told.map(Some).map_err(|why| Error::new(ErrorKind::Conflict, why))
}

/// The error about a machine that is not to be taken over.
fn foreign(site: &Site, vm: &VirtualMachine, mark: &Mark, why: &str) -> Error {
    let error = conflict(site, vm, mark, None);
    let words = format!("{}; it is not taken over: {why}", error.report());
    Error::new(error.kind(), words).with_retry_after(error.retry_after().unwrap_or(FOREIGN_RETRY))
}

fn meanwhile(work: Work) -> Wait {
    let wait = match work {
        Work::Mark => Wait::task("the virtual machine is taken over").with_reason("TakingOver"),
        work => Wait::task(work.words()),
    };
    wait.look_again_after(RETRY)
}
