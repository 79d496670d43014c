//! Removes a machine, and confirms that it is gone.

use std::{
    slice,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cloudprovider::{
    Result,
    machines::{Deletion, Wait},
};

use super::{
    find::MAX_BEHIND,
    step::{DeletionStep, Flow, Stop},
};
use crate::{
    machines::{
        naming::vm_name_or_own,
        power::{PowerOffStep, power_off, soft_power_off},
        template::{TemplateDisk, TemplateFacts, folder_of},
        work::Work,
    },
    vim::{
        CallError,
        encode::object,
        machines::{ConfigSpec, DestroyVm, DeviceConfigSpec, Disk, PowerOffVm, ReconfigVm, ShutdownGuest},
    },
    vm::{Tools, VirtualMachine},
};

/// How soon a step looks again at a machine that is removed and still shown. Its end is told.
const SHOWN_RETRY: Duration = Duration::from_secs(30);

/// How soon a step looks again at what is not told.
const RETRY: Duration = Duration::from_secs(1);

/// How soon a step looks again at the clones of others. The end of one is told.
const CLONE_RETRY: Duration = Duration::from_secs(5);

/// For how long a clone may begin after its call was lost.
const MAX_UNCERTAIN: Duration = Duration::from_secs(10);

impl DeletionStep<'_> {
    /// Confirms that there is no machine, and none that could still appear.
    pub(super) async fn confirm_gone(&mut self) -> Flow<Deletion> {
        if self.state.is_destroyed_on(self.vcenter.name()) {
            // vCenter said that it was removed, and shows it no more.
            return Ok(());
        }
        if self.state.may_appear_on(self.vcenter.name(), MAX_UNCERTAIN) {
            let words = "a clone was begun whose answer was lost; it may still appear";
            return wait_for(Wait::task(words).look_again_after(RETRY));
        }
        self.wait_for_other_clones().await?;
        if !self.vcenter.state().inventory.departed_with(self.uid).is_empty() {
            self.vcenter.confirm_absent(self.uid).await?;
        }
        let found = self.vcenter.find(self.uid).await?;
        if found.is_empty() {
            // One that is known is named, which says more than that vCenter has it.
            if let Some(wait) = self.check_elsewhere(slice::from_ref(&self.vcenter)).await? {
                return wait_for(wait);
            }
            self.confirm_other_absent().await?;
            return Ok(self.confirm_left().await?);
        }
        self.check_unshown(&found).await?;
        let words = format!("virtual machine {:?} was found and is being read", vm_name_or_own(self.request));
        wait_for(Wait::task(words).look_again_after(RETRY))
    }

    /// Waits for the task of an earlier step. What could not be made need not be deleted.
    pub(super) async fn wait_for_last_task(&mut self) -> Flow<Deletion> {
        match self.outstanding().await {
            Ok(Some(wait)) => wait_for(wait),
            Ok(None) => Ok(()),
            Err(error) if self.shown()?.is_some() => Err(error.into()),
            Err(error) => {
                tracing::debug!(machine = %self.request.mark, error = %error.report(), "work has failed");
                Ok(())
            }
        }
    }

    /// Waits until the inventory does not show a machine any more that vCenter has removed. Nothing can be done to it, and whether it is
    /// gone is confirmed then.
    pub(super) fn wait_until_left(&self, vm: &VirtualMachine) -> Flow<Deletion> {
        self.state.clear_unshown();
        if self.vcenter.tombstones.has(&vm.moref) { wait_for(leaving(vm)) } else { Ok(()) }
    }

    /// Ends the deletion if the machine that is shown is not the object's own. One without a mark, with the identity of the object as
    /// its instance UUID, may be being cloned: it gets its mark a moment later, so clones come to their ends first.
    pub(super) async fn check_is_own(&mut self, vm: &VirtualMachine) -> Flow<Deletion> {
        let mut mark = self.vcenter.mark_of(vm).await?;
        if mark.is_none() {
            self.wait_for_other_clones().await?;
            mark = self.vcenter.mark_of(vm).await?;
            if mark.is_none() {
                return Ok(self.check_own(vm).await?);
            }
        }
        if self.request.mark.owns(mark.as_ref()) {
            return Ok(());
        }
        // It is another object's, and the only one with this instance UUID.
        Err(Stop::Answer(Deletion::Gone))
    }

    /// Waits for the clones that were under way when the machine was not found: without its status, one could be its own.
    async fn wait_for_other_clones(&self) -> Flow<Deletion> {
        if self.state.has_waited_for_clones(self.vcenter.name()) {
            return Ok(());
        }
        let running = self.vcenter.clones_under_way().await?;
        let Some(task) = self.state.clones_left(self.vcenter.name(), &running) else { return Ok(()) };
        self.vcenter.wait_for_task(&task, &self.request.mark.uid);
        let words = format!("a clone by {} may be of this virtual machine", task.id());
        wait_for(Wait::task(words).look_again_after(CLONE_RETRY))
    }

    /// Powers the machine off, as its spec says.
    pub(super) async fn power_off(&mut self, vm: &VirtualMachine) -> Flow<Deletion> {
        if self.state.has_just_done(Work::PowerOff, MAX_BEHIND) {
            return Ok(());
        }
        self.begin_power_off(vm).await?.map_or(Ok(()), wait_for)
    }

    /// `None` if it is off.
    async fn begin_power_off(&mut self, vm: &VirtualMachine) -> Result<Option<Wait>> {
        let can_ask = vm.can_shut_down && vm.tools == Tools::Running;
        let since = self.record.status.soft_power_off_since;
        let mut step = power_off(vm.power, can_ask, &self.request.spec, since, now());
        if let Some(PowerOffStep::Ask { since, wait }) = &step {
            match self.vcenter.call(&ShutdownGuest {}.of(&vm.moref)).await {
                Ok(_) => self.record.status.soft_power_off_since = Some(*since),
                Err(error) if is_deaf(&error) => {
                    step = power_off(vm.power, false, &self.request.spec, None, now());
                }
                Err(error) if error.is_fault("InvalidPowerState") => return Ok(Some(wait.clone())),
                Err(error) => return Err(self.vcenter.error_of(&error)),
            }
        }
        self.state.note_soft_power_off(|before| soft_power_off(step.as_ref(), since.is_some(), before));
        match step {
            None => Ok(None),
            Some(PowerOffStep::Ask { wait, .. } | PowerOffStep::Wait(wait)) => Ok(Some(wait)),
            Some(PowerOffStep::Force) => self.work(Work::PowerOff, PowerOffVm {}.of(&vm.moref)).await,
        }
    }

    /// Detaches the disks that are not the machine's own. They are read each time: a volume may have been attached a moment ago.
    pub(super) async fn detach_foreign_disks(&mut self, vm: &VirtualMachine) -> Flow<Deletion> {
        let foreign = foreign(&self.machines.devices(&self.vcenter, &vm.moref).await?);
        if foreign.is_empty() {
            return Ok(());
        }
        let call = ReconfigVm { spec: ConfigSpec { device_change: foreign, ..ConfigSpec::empty() } };
        let begun = self.work(Work::Detach, call.of(&vm.moref)).await?;
        // if it is not there any more, that is to be confirmed
        wait_for(begun.unwrap_or_else(|| leaving(vm)))
    }

    pub(super) async fn destroy(&mut self, vm: &VirtualMachine) -> Result<Deletion> {
        let begun = self.work(Work::Destroy, DestroyVm {}.of(&vm.moref)).await?;
        Ok(Deletion::Deleting(begun.unwrap_or_else(|| leaving(vm))))
    }
}

fn wait_for(wait: Wait) -> Flow<Deletion> {
    Err(Stop::Answer(Deletion::Deleting(wait)))
}

/// Whether a guest cannot be asked to shut down.
fn is_deaf(error: &CallError) -> bool {
    ["ToolsUnavailable", "NotSupported"].iter().any(|kind| error.is_fault(kind))
}

/// Takes away the disks that are not the machine's own: volumes of Kubernetes, and disks with files elsewhere. Their
/// files stay.
fn foreign(facts: &TemplateFacts) -> Vec<DeviceConfigSpec> {
    let is_elsewhere = |disk: &TemplateDisk| match (&facts.folder, disk.file.as_deref().map(folder_of)) {
        (Some(own), Some(Some(folder))) => folder != own,
        // What cannot be told is not destroyed.
        (None, Some(_)) | (_, Some(None)) => true,
        // It has no file that could be destroyed.
        (_, None) => false,
    };
    let one = |disk: &TemplateDisk| {
        let disk = Disk {
            key: disk.key,
            backing: None,
            controller_key: None,
            unit_number: None,
            capacity_kib: disk.capacity_kib,
            capacity_bytes: None,
        };
        DeviceConfigSpec {
            operation: "remove",
            file_operation: None,
            device: object(disk),
            profile: Vec::new(),
        }
    };
    facts.disks.iter().filter(|disk| disk.is_first_class || is_elsewhere(disk)).map(one).collect()
}

/// The wait for the inventory.
fn leaving(vm: &VirtualMachine) -> Wait {
    Wait::task(format!("virtual machine {:?} is removed", vm.name)).look_again_after(SHOWN_RETRY)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
