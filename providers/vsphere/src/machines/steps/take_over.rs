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
    machines::{MachineReport, MachineRequest, Mark},
    ties::{Contender, Meant, the_meant_one},
};
use uuid::Uuid;

use super::{
    configuration::{Configuration, METADATA},
    login::Login,
    step::{DeletionRequest, DeletionStep, Flow, MachineRecord, Step, Stop},
};
use crate::{
    machines::{
        allowed::{Allowed, Located},
        guest::metadata,
        kinds::VM_KIND,
        naming::vm_name_or_own,
        spec::VSphereMachineSpec,
        takeover::ExpectedVm,
        vcenter_handle::VCenterHandle,
        vsphere_machines::VSphereMachines,
        work::Work,
    },
    mark::{self, MARK},
    provider_id::parse_provider_id,
    vim::{Value, machines::OptionValue},
    vm::{VirtualMachine, VmPower},
};

/// For how long the inventory may be behind the writing of a mark. After that it is read whether it can be read at all.
const MARK_BEHIND: Duration = Duration::from_secs(5);

impl VSphereMachines {
    /// The identity of an object on which CAPV has worked. See [`Machines::identify_machine`](cloudprovider::Machines::identify_machine).
    pub(super) async fn identify(&self, request: &DeletionRequest) -> Result<Option<String>> {
        let Some(expected) = expected_of(request)? else {
            // Before it clones, CAPV makes the VSphereVM.
            let Some(id) = request.provider_id.as_deref() else { return Ok(Some(request.mark.uid.clone())) };
            return match &self.found(request, parse_provider_id(id)?).await?[..] {
                [] => Ok(Some(request.mark.uid.clone())),
                [(vcenter, vm), ..] => {
                    let why = "the object owns no VSphereVM, by which it would be known as its own";
                    Err(vcenter.foreign(vm, &request.mark, why))
                }
            };
        };
        let of_vm = || Ok(Some(expected.vm_uid.hyphenated().to_string()));
        let Some(bios_uuid) = expected.bios_uuid() else { return of_vm() };
        let found = self.found(request, bios_uuid).await?;
        let (vcenter, vm) = match &found[..] {
            [] => return of_vm(),
            [only] => only,
            several => meant_of(&expected, several, bios_uuid)?,
        };
        expected.check(vm).map_err(|why| vcenter.foreign(vm, &request.mark, &why))?;
        // after a move or a restore, one that is ours has its mark
        if vcenter.mark_of(vm).await?.is_none() {
            let has_identity = has_identity(request, None);
            may_take_over(vcenter, vm, &self.allowed(vcenter, &request.mark.namespace, has_identity))?;
        }
        let uid = vm.instance_uuid.ok_or_else(|| {
            let words = format!("it does not tell the instance UUID of {:?}", vm.name);
            vcenter.error(ErrorKind::Unavailable, &words)
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
    ) -> Result<Vec<(Arc<VCenterHandle>, VirtualMachine)>> {
        let vcenters = match Login::of_deletion(request, None) {
            None => self.configured.clone(),
            Some(login) => vec![self.vcenter_for(&login).await?],
        };
        let mut found = Vec::new();
        for vcenter in &vcenters {
            vcenter.check_live()?;
            let state = vcenter.state();
            found.extend(
                state.inventory.with_bios_uuid(bios_uuid).map(|vm| (Arc::clone(vcenter), vm.clone())),
            );
        }
        if found.is_empty() {
            // The answer is kept for good.
            for vcenter in &vcenters {
                vcenter.confirm_absent(bios_uuid).await?;
            }
        }
        Ok(found)
    }
}

impl<C> Step<'_, C> {
    /// Takes over the task that CAPV had begun last, once.
    pub(super) fn take_over_task(&mut self) {
        if self.record.status.task_ref.is_some() || self.state.running().is_some() {
            return;
        }
        let Ok(Some(expected)) = expected_of(self.request) else { return };
        // One of ours has a VSphereVM with another UID, and has its task in its own status.
        if expected.vm_uid == self.uid
            && let Some(task) = expected.task
            && self.state.take_over(&task)
        {
            self.record.status.task_ref = Some(task);
        }
    }
}

impl Step<'_> {
    /// Makes sure that the machine is the object's own. One without a mark that CAPV has made for the object gets the mark.
    pub(super) async fn take_over(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        let mark = self.vcenter.mark_of(vm).await?;
        if mark.is_none()
            && let Some(expected) = expected_of(self.request)?
        {
            let report = self.take_over_from_capv(vm, &expected).await?;
            return Err(Stop::Answer(report));
        }
        if self.request.mark.owns(mark.as_ref()) {
            return Ok(());
        }
        Err(self.vcenter.conflict(vm, &self.request.mark, mark.as_ref()).into())
    }

    async fn take_over_from_capv(
        &mut self,
        vm: &VirtualMachine,
        expected: &ExpectedVm,
    ) -> Result<MachineReport> {
        let foreign = |why: String| self.vcenter.foreign(vm, &self.request.mark, &why);
        expected.check(vm).map_err(foreign)?;
        may_take_over(&self.vcenter, vm, &self.allowed())?;
        if !self.state.has_just_done(Work::Mark, MARK_BEHIND) {
            let found = Configuration::read(&self.vcenter, vm).await?;
            check(&found, expected).map_err(foreign)?;
            if found.has_mark {
                let words = format!("the mark of {:?} ({}) cannot be read", vm.name, vm.moref.id());
                return Err(self.vcenter.error(ErrorKind::Unavailable, &words));
            }
            self.write_mark(&found).await?;
        }
        self.report_meanwhile(vm, Work::Mark)
    }

    async fn write_mark(&self, found: &Configuration) -> Result<()> {
        let option = |key: &str, value| OptionValue { key: key.to_owned(), value: Value::AnyString(value) };
        let mut extra_config = vec![option(MARK, mark::write(&self.request.mark))];
        let is_off = found.vm.power == VmPower::Off;
        if !self.request.is_provisioned && is_off && found.metadata.is_none() {
            extra_config.extend(metadata(&found.vm.name, &self.request.spec.clone.network, &found.macs));
        }
        self.write_options(Work::Mark, found, extra_config).await
    }
}

impl DeletionStep<'_> {
    /// Checks that a machine without a mark, which has the identity of an object as its instance UUID, is the object's own all the same,
    /// so that it is removed with it.
    ///
    /// # Errors
    /// What speaks against it. It is never left over in silence: nobody else would know of it.
    pub(super) async fn check_own(&self, vm: &VirtualMachine) -> Result<()> {
        let mark = &self.request.mark;
        let Some(expected) = expected_of(self.request)? else {
            return Err(self.vcenter.conflict(vm, mark, None));
        };
        let found = Configuration::read(&self.vcenter, vm).await?;
        check(&found, &expected).map_err(|why| self.vcenter.foreign(vm, mark, &why))?;
        let has_identity = has_identity(self.request, Some(self.record));
        may_take_over(&self.vcenter, vm, &self.machines.allowed(&self.vcenter, &mark.namespace, has_identity))
    }
}

/// Checks that a virtual machine without a mark may become an object's own, which then changes and destroys it. What the objects of
/// the API say of it a user may have written, so the configuration has to list it.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`].
fn may_take_over(vcenter: &VCenterHandle, vm: &VirtualMachine, allowed: &Allowed<'_>) -> Result<()> {
    let path = vcenter.state().inventory.names_to_machine(vm).unwrap_or_default();
    allowed.take_over(Located { object: &vm.moref, path: &path, is_default: false })
}

/// The one of several virtual machines with a BIOS UUID that the objects mean.
///
/// # Errors
/// [`ErrorKind::Ambiguous`] if nothing that is known tells them apart.
fn meant_of<'a>(
    expected: &ExpectedVm,
    found: &'a [(Arc<VCenterHandle>, VirtualMachine)],
    bios_uuid: Uuid,
) -> Result<&'a (Arc<VCenterHandle>, VirtualMachine)> {
    let contender = |one: &'a (Arc<VCenterHandle>, VirtualMachine)| {
        let (vcenter, vm) = one;
        let evidence = expected.evidence(vm, |server| vcenter.is_called(server))?;
        Some(Contender { instance: one, evidence, is_read: true })
    };
    let contenders: Vec<_> = found.iter().filter_map(contender).collect();
    match the_meant_one(&contenders) {
        Meant::One(one) | Meant::Unread(one) => Ok(one),
        Meant::None | Meant::Tie => {
            let ids: Vec<_> = found.iter().map(|(_, vm)| vm.moref.id()).collect();
            let words = format!("the virtual machines {} have the BIOS UUID {bios_uuid}", ids.join(" and "));
            let vcenter = found.first().map(|(vcenter, _)| vcenter);
            Err(match vcenter {
                Some(vcenter) => vcenter.error(ErrorKind::Ambiguous, &words),
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
fn check(found: &Configuration, expected: &ExpectedVm) -> Result<(), String> {
    expected.check(&found.vm)?;
    if found.vm.instance_uuid != Some(expected.vm_uid) && found.metadata.is_none() {
        return Err(format!("its instance UUID is not {}, and it has no {METADATA}", expected.vm_uid));
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
pub(super) fn expected_of<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> Result<Option<ExpectedVm>> {
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
    let expected = ExpectedVm::new(vm, request.provider_id.as_deref());
    expected.map(Some).map_err(|why| Error::new(ErrorKind::Conflict, why))
}
