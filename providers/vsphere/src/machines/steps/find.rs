//! Whether a machine is nowhere, before it is made, said to be lost, or said to be gone.
//!
//! It may be in another vCenter, be one that another program has made, be hidden from the session, or be found by vCenter and not shown
//! yet. None of these machines is made again, and none is left behind.

use std::{slice, sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, Wait},
};
use uuid::Uuid;

use super::{
    login::MadeOn,
    step::{Flow, Step},
    take_over::expected_of,
};
use crate::{
    machines::{kinds::VM_KIND, naming::vm_name_or_own, spec::invalid, vcenter_handle::VCenterHandle},
    moref::MoRef,
    provider_id::{byte_orders, parse_provider_id},
    vcenter::State,
    vm::{VirtualMachine, VmPower},
};

/// For how long the inventory may be behind the end of a task. A vCenter with much to do takes several seconds to report a change, and
/// asking it for the same again makes that longer.
pub(super) const MAX_BEHIND: Duration = Duration::from_secs(30);

/// How soon a step looks again at a machine that vCenter has and that is not shown.
const UNSHOWN_RETRY: Duration = Duration::from_secs(60);

/// When to look again for a machine that another session still shows.
const SIGHTING_RETRY: Duration = Duration::from_secs(1);

/// The same where it is not known that both are sessions of one vCenter.
const ELSEWHERE_RETRY: Duration = Duration::from_secs(10);

impl Step<'_> {
    /// Confirms that a machine that has a provider ID is lost.
    ///
    /// # Errors
    /// Where it is, or why that is not known.
    pub(super) async fn confirm_lost(&self) -> Flow<MachineReport, MachineReport> {
        if let Some(wait) = self.check_elsewhere(slice::from_ref(&self.vcenter)).await? {
            return Err(Error::new(ErrorKind::Unavailable, wait.message).into());
        }
        self.confirm_other_absent().await?;
        self.vcenter.confirm_absent(self.uid).await?;
        self.confirm_left().await?;
        let words = format!(
            "vCenter {:?} has no virtual machine with the instance UUID {} any more",
            self.vcenter.name(),
            self.uid
        );
        Ok(MachineReport::lost(words))
    }
}

impl<C> Step<'_, C> {
    /// Whether a machine that is not where it should be is nowhere, as far as is known. It may be in the vCenter that its
    /// `server` named before, or be one that another program made, with the BIOS UUID of the provider ID. Neither is
    /// lost, or gone. A copy of the machine is neither of the two. `here` is where it should be. There is something to wait for while
    /// another session of the same vCenter shows it.
    ///
    /// # Errors
    /// What was found.
    pub(super) async fn check_elsewhere(&self, here: &[Arc<VCenterHandle>]) -> Result<Option<Wait>> {
        let mark = &self.request.mark;
        let was_made = self.was_made(here);
        for vcenter in &self.machines.vcenters_of(mark) {
            let (same, others) = {
                let state = vcenter.state();
                let same = state.inventory.with_instance_uuid(self.uid).next().cloned();
                (same, self.with_bios_uuid_alone(&state))
            };
            if let Some(vm) = same
                && mark.owns(vcenter.mark_of(&vm).await?.as_ref())
                && (vm.is_connected() || !self.state.is_destroyed_on(vcenter.name()))
            {
                if here.iter().any(|own| is_one_vcenter(own, vcenter)) {
                    let words = format!("another session of vCenter {:?} still shows it", vcenter.name());
                    return Ok(Some(Wait::task(words).look_again_after(SIGHTING_RETRY)));
                }
                let error = invalid(format!(
                    "spec.server: the virtual machine {:?} ({}) is in vCenter {:?}, and another one is named",
                    vm.name,
                    vm.moref.id(),
                    vcenter.name()
                ));
                // It may be the same one under another address, whose session knows a change a moment later.
                return Err(error.with_retry_after(ELSEWHERE_RETRY));
            }
            for vm in others {
                if !was_made && !self.is_copy(vcenter, &vm).await? {
                    let found = vcenter.mark_of(&vm).await?;
                    return Err(vcenter.conflict(&vm, mark, found.as_ref()));
                }
            }
        }
        Ok(None)
    }

    /// Whether it is known that the machine was made with the identity of the object as its instance UUID. What has another one is a
    /// copy.
    fn was_made(&self, here: &[Arc<VCenterHandle>]) -> bool {
        // only a clone of our own has its mode in the status
        self.record.status.clone_mode.is_some()
            || here.iter().any(|vcenter| {
                self.state.is_destroyed_on(vcenter.name())
                    || !vcenter.state().inventory.departed_with(self.uid).is_empty()
            })
    }

    /// Whether a machine that has the BIOS UUID of an object's own, and not its identity as the instance UUID, is a copy of that, or
    /// another object's. Where nothing says so, it may be one that CAPV has made for the object.
    ///
    /// # Errors
    /// It is not known.
    async fn is_copy(&self, vcenter: &VCenterHandle, vm: &VirtualMachine) -> Result<bool> {
        match vcenter.mark_of(vm).await? {
            Some(mark) if !self.request.mark.owns(Some(&mark)) => Ok(true),
            // It may have got another instance UUID when it was moved.
            Some(_) => Ok(vm.is_connected() && vm.power == VmPower::Off),
            None => Ok(expected_of(self.request)?.is_some_and(|expected| {
                expected.check(vm).is_err() || expected.is_another(vm, |server| vcenter.is_called(server))
            })),
        }
    }

    /// The machines that have the BIOS UUID of the provider ID, in either byte order, and not the instance UUID of the object.
    fn with_bios_uuid_alone(&self, state: &State) -> Vec<VirtualMachine> {
        let Some(bios_uuid) = self.bios_uuid() else { return Vec::new() };
        let mut orders = byte_orders(bios_uuid).to_vec();
        orders.dedup();
        let found = orders.into_iter().flat_map(|uuid| state.inventory.with_bios_uuid(uuid));
        found.filter(|vm| vm.instance_uuid != Some(self.uid)).cloned().collect()
    }

    fn bios_uuid(&self) -> Option<Uuid> {
        parse_provider_id(self.request.provider_id.as_deref()?).ok()
    }

    /// Confirms that the vCenter has no machine with the BIOS UUID of the provider ID either, but for copies: what the inventory shows
    /// was checked before.
    ///
    /// # Errors
    /// Why there may be one.
    pub(super) async fn confirm_other_absent(&self) -> Result<()> {
        let Some(bios_uuid) = self.bios_uuid() else { return Ok(()) };
        let copies = self.with_bios_uuid_alone(&self.vcenter.state());
        let copies: Vec<_> = copies.into_iter().map(|vm| vm.moref).collect();
        self.vcenter.confirm_absent_but_for(bios_uuid, &copies).await
    }

    /// Confirms that the virtual machine is gone whose reference the `VSphereVM` has: an earlier session has seen it, and a user that may
    /// see less finds none, though it runs. Without such an object nothing is asked.
    ///
    /// # Errors
    /// Why it may still be there.
    pub(super) async fn confirm_left(&self) -> Result<()> {
        let (mark, name) = (&self.request.mark, vm_name_or_own(self.request));
        let objects =
            self.request.objects.owned_by(&VM_KIND, &mark.namespace, &name, &self.request.object_uid)?;
        for id in objects.iter().filter_map(|vm| vm.status["vmRef"].as_str()).filter(|id| !id.is_empty()) {
            self.vcenter.confirm_left(&MoRef::new("VirtualMachine", id), self.uid).await?;
        }
        Ok(())
    }

    /// Confirms that nothing is left of the machine on the vCenter where it was made, which is not one of those that were asked.
    ///
    /// # Errors
    /// What may be there, or that it cannot be asked.
    pub(super) async fn confirm_left_elsewhere(&self, made_on: &MadeOn) -> Result<()> {
        let mut configured = self.machines.configured.iter();
        let Some(vcenter) = configured.find(|vcenter| made_on.is(vcenter) == Some(true)) else {
            return Err(made_on.elsewhere(&self.request.mark));
        };
        vcenter.check_live()?;
        vcenter.confirm_absent(self.uid).await
    }

    /// Checks that the inventory may still show a machine that vCenter finds.
    ///
    /// # Errors
    /// Why it does not, once it had the time.
    pub(super) async fn check_unshown(&self, found: &[MoRef]) -> Result<()> {
        let unshown_for = self.state.unshown_for();
        let Some(machine) = found.first().filter(|_| unshown_for >= MAX_BEHIND) else { return Ok(()) };
        Err(self.vcenter.why_unshown(machine).await.with_retry_after(UNSHOWN_RETRY))
    }
}

/// Whether two handles are sessions of the same vCenter. One of them may know a change a moment later than the other.
fn is_one_vcenter(one: &VCenterHandle, other: &VCenterHandle) -> bool {
    let (one, other) = (&one.vcenter, &other.vcenter);
    Arc::ptr_eq(one, other) || {
        let (state, other_state) = (one.state(), other.state());
        one.is_same(&state, other, &other_state)
    }
}
