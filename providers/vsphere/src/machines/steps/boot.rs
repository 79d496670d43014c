//! What comes before the first boot of a machine, and the boot itself.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, Wait},
};

use super::{
    find::MAX_BEHIND,
    step::{Flow, Step},
};
use crate::{
    inventory::Inventory,
    machines::{
        clone,
        drs::{self, Drs},
        groups,
        work::Work,
    },
    moref::MoRef,
    tasks::TaskFault,
    vim::{
        CallError,
        machines::{PowerOnVm, UpgradeVm},
        property_collector::ObjectUpdate,
    },
    vm::{VirtualMachine, VmPower},
};

/// How soon a step looks again at a machine that was powered on. A change comes earlier.
const POWERED_RETRY: Duration = Duration::from_secs(5);

const DATACENTER: &str = "Datacenter";

impl Step<'_> {
    /// Attaches the tags of the spec, once, before the first boot: the zone of the Node may be one of them.
    pub(super) async fn attach_tags(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        let spec = &self.request.spec.clone;
        if self.request.is_provisioned || spec.tag_ids.is_empty() || self.state.is_tagged() {
            // what is complete is not touched again
            if self.request.is_provisioned {
                self.state.note_tagged(false);
            }
            return Ok(());
        }
        self.allowed().tags(spec)?;
        let client = self.vcenter.tag_client().clone();
        let client = client.ok_or_else(|| self.vcenter.error(ErrorKind::Unavailable, "not connected"))?;
        let refused = client.attach(&vm.moref, &spec.tag_ids).await;
        let refused = refused.map_err(|error| self.vcenter.error_of(&error))?;
        if !refused.is_empty() {
            let words = format!("spec.tagIDs: vCenter does not attach all of them: {}", refused.join("; "));
            return Err(Error::new(ErrorKind::NotFound, words).into());
        }
        self.state.note_tagged(true);
        Ok(())
    }

    /// Whether the machine is to be powered on. It is not if it was complete once: whoever powers it off then has a reason.
    pub(super) fn is_to_start(&self, vm: &VirtualMachine) -> bool {
        vm.power != VmPower::On && !self.request.is_provisioned
    }

    /// Waits for the inventory after a power-on.
    pub(super) fn wait_for_start(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        let has_started = self.state.has_just_done(Work::PowerOn, MAX_BEHIND);
        self.report_wait(vm, has_started.then(starting))
    }

    /// Upgrades the virtual hardware to the version of the spec.
    pub(super) async fn upgrade_hardware(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        let Some((version, number)) = clone::hardware_version(&self.request.spec.clone)? else {
            return Ok(());
        };
        if self.record.status.hardware_version.as_deref() == Some(version) {
            return Ok(());
        }
        let is_done = self.state.has_just_done(Work::Upgrade, MAX_BEHIND)
            || self.machines.devices(&self.vcenter, &vm.moref).await?.hardware_version >= Some(number);
        if !is_done {
            let call = UpgradeVm { version: version.to_owned() }.of(&vm.moref);
            let begun = self.work(Work::Upgrade, call).await?;
            self.report_wait(vm, begun)?;
        }
        self.record.status.hardware_version = Some(version.to_owned());
        Ok(())
    }

    /// Powers the machine on: by DRS where that is switched on, so that each starts on the host with most room.
    pub(super) async fn power_on(&mut self, vm: &VirtualMachine) -> Flow<MachineReport, MachineReport> {
        let begun = self.begin_power_on(vm).await?;
        Ok(self.report(vm, Some(begun.unwrap_or_else(starting)))?)
    }

    /// `None` if vCenter says that it is on already.
    async fn begin_power_on(&mut self, vm: &VirtualMachine) -> Result<Option<Wait>> {
        if !self.state.was_left_to_drs()
            && let Some((datacenter, drs)) = self.drs_of(vm).await?.filter(|(_, drs)| drs.is_used())
        {
            let call = drs::power_on(&vm.moref).of(&datacenter);
            match self.try_work(Work::PowerOn, call).await {
                Ok(begun) => return Ok(begun),
                Err(CallError::Fault { kind, .. }) if drs::is_refusal(&kind) => {
                    self.note_refusal(&drs, &kind);
                }
                Err(error) => {
                    // it may be about the datacenter
                    if error.is_fault("ManagedObjectNotFound") {
                        self.vcenter.has_removed(&vm.moref).await?;
                    }
                    return Err(self.vcenter.error_of(&error));
                }
            }
        }
        let call = PowerOnVm { host: None }.of(&vm.moref);
        self.work(Work::PowerOn, call).await
    }
}

impl<C> Step<'_, C> {
    /// Whether work that has failed is to be done without DRS: it was a power-on by it, and vCenter refuses those.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn gives_up_drs(&self, work: Option<Work>, fault: &TaskFault) -> Result<bool> {
        let was_by_drs = self.state.works_on(DATACENTER);
        if work != Some(Work::PowerOn) || !was_by_drs || !drs::is_refusal(&fault.kind) {
            return Ok(false);
        }
        let Some(vm) = self.shown()? else { return Ok(false) };
        let Some((_, drs)) = self.drs_of(&vm).await? else { return Ok(false) };
        self.note_refusal(&drs, &fault.kind);
        Ok(true)
    }

    /// The datacenter of a machine, and what is known of DRS in its cluster. `None` on a host that is in no cluster.
    async fn drs_of(&self, vm: &VirtualMachine) -> Result<Option<(MoRef, Arc<Drs>)>> {
        let place = place_of(&self.vcenter.state().inventory, vm);
        let Some((datacenter, cluster)) = place else { return Ok(None) };
        let key = (self.vcenter.name().to_owned(), cluster.clone());
        let read = async {
            let mut found = None;
            let take = |updates: &[ObjectUpdate<'_>]| found = Drs::read(updates).or(found.take());
            match self.vcenter.read(groups::selection(&cluster), take).await {
                Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error),
                _ => Ok(found.unwrap_or_default()),
            }
        };
        Ok(Some((datacenter, self.machines.clusters.get(key, read).await?)))
    }

    fn note_refusal(&self, drs: &Drs, fault: &str) {
        tracing::debug!(
            machine = %self.request.mark, vcenter = self.vcenter.name(), fault,
            "vCenter refuses to power on by DRS; machines of this cluster are powered on without it"
        );
        drs.refuse();
    }
}

/// The wait for the inventory, which does not show yet that the machine runs. Like the wait for the power-on, it holds no move.
fn starting() -> Wait {
    let wait = Wait::address("the virtual machine starts").with_reason("PoweringOn");
    wait.look_again_after(POWERED_RETRY)
}

/// The datacenter and the cluster of hosts that a machine is in.
fn place_of(inventory: &Inventory, vm: &VirtualMachine) -> Option<(MoRef, MoRef)> {
    let start = vm.resource_pool.as_ref().or(vm.host.as_ref())?;
    let is_cluster = |object: &MoRef| object.kind() == "ClusterComputeResource";
    let cluster = inventory.path_up(start).into_iter().find(is_cluster)?;
    Some((inventory.datacenter_of(vm)?, cluster))
}

#[cfg(test)]
mod tests;
