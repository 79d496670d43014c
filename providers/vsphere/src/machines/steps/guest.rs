//! What the guest of a machine that is there reads: its network configuration, and its bootstrap data.
//!
//! ```text
//!   its VSphereVM tells other devices ──> read the configuration ─┬─ other metadata: one ReconfigVM_Task, then look again
//!                                                                 └─ the same: the VSphereVM gets the devices
//! ```
//!
//! So a process that ends in between finds the same difference again. The devices of the virtual machine stay as they are, and
//! nothing is started again: a guest reads its metadata when it boots.
//!
//! Who may read a machine in vCenter can read its extra configuration, and with it the bootstrap data. If the configuration asks for
//! it, their keys are emptied once the machine is a Node. `guestinfo.metadata` stays, and with it the instance ID: cloud-init works
//! once for each, and does not run again. Ignition works at the first boot alone. The keys are not read, since they are secret. The
//! status remembers that they are empty. Where it is lost, they are emptied once more, which changes nothing.

use std::time::Duration;

use cloudprovider::{
    Result,
    machines::{Condition, ConditionStatus, MachineReport},
};

use super::{
    configuration::Configuration,
    step::{Flow, Request, Step, Stop, UNSEEN_TASK_RETRY},
    tasks::is_outdated,
    vsphere_vm::{existing, network_of},
};
use crate::{
    guestinfo,
    machines::{
        guest::{metadata, no_bootstrap, shape},
        naming::vm_name_or_own,
        pools::Addresses,
        spec::NetworkSpec,
        state::WRITE_RETRY,
        work::Work,
    },
    vim::{
        CallError, Value,
        machines::{ConfigSpec, OptionValue, ReconfigVm},
    },
    vm::VirtualMachine,
};

/// The condition of a machine whose guest did not get an edit.
const NETWORK_PASSED_ON: &str = "NetworkPassedOn";

/// What is to be done about the network configuration of a guest. The numbers are [`shape`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// Nothing is passed on.
    Ignored,
    /// The guest has what the spec says, as far as is known.
    Passed(u64),
    /// It may have something else.
    Due(u64),
}

impl Edit {
    /// What the objects say. `known` is what this process has told the guest when it was made, and `written` what it has written since
    /// and the `VSphereVM` does not tell yet: an edit may be taken back meanwhile.
    pub(super) fn of(
        request: &Request,
        addresses: &Addresses,
        known: Option<u64>,
        written: Option<u64>,
    ) -> Self {
        // In a failure domain a machine keeps what it was made with, and without all its addresses it would lose some.
        if request.failure_domain.is_some() || matches!(addresses, Addresses::Missing(_)) {
            return Self::Ignored;
        }
        let wanted = shape(&request.spec.clone.network);
        match existing(request).map(|vm| network_of(&vm)) {
            Some(None) => Self::Ignored,
            Some(Some(told)) if shape(&told) == wanted && written.is_none_or(|shape| shape == wanted) => {
                Self::Passed(wanted)
            }
            // it is not known what it was made with
            None if request.is_provisioned => Self::Ignored,
            None if known == Some(wanted) => Self::Passed(wanted),
            Some(Some(_)) | None => Self::Due(wanted),
        }
    }

    /// That of the configuration which a machine gets when it is made.
    pub(super) fn shape(self) -> Option<u64> {
        match self {
            Self::Ignored => None,
            Self::Passed(shape) | Self::Due(shape) => Some(shape),
        }
    }
}

impl Step<'_> {
    /// Passes an edit of the network devices on to the guest. A machine that is complete works all the same if that fails.
    pub(super) async fn pass_on_network(&mut self, vm: &VirtualMachine, edit: Edit) -> Flow<MachineReport> {
        if let Edit::Due(_) = edit {
            if self.state.guest_retry().is_some() {
                return Ok(());
            }
            match self.write_network(vm).await {
                Ok(true) => {
                    self.state.note_guest_written(edit.shape());
                    return Err(Stop::Answer(self.report_meanwhile(vm, Work::Guest)?));
                }
                Ok(false) => {}
                Err(error) if self.request.is_provisioned => {
                    self.failed_to_pass_on(error.report());
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.record.remove(NETWORK_PASSED_ON);
        self.state.note_guest_has(edit.shape());
        Ok(())
    }

    /// Writes what the guest reads of its network. False: it has been written.
    async fn write_network(&self, vm: &VirtualMachine) -> Result<bool> {
        let found = Configuration::read(&self.vcenter, vm).await?;
        let name = existing(self.request).map_or_else(|| vm_name_or_own(self.request), |vm| vm.name.clone());
        let Some(options) = renewed(&found, &name, &self.request.spec.clone.network) else {
            return Ok(false);
        };
        self.write_options(Work::Guest, &found, options).await?;
        Ok(true)
    }

    /// Begins to remove the bootstrap data of a machine that is a Node, if that is asked for, and reports the machine as it is. A removal
    /// that fails is said in a condition and tried again: the machine works all the same.
    pub(super) async fn remove_bootstrap_data(
        &mut self,
        vm: &VirtualMachine,
    ) -> Flow<MachineReport, MachineReport> {
        let again = self.begin_removal(vm).await.into_iter().chain(self.state.guest_retry()).min();
        Ok(self.report_beside(vm, again)?)
    }

    /// Says when to look again at the latest.
    async fn begin_removal(&mut self, vm: &VirtualMachine) -> Option<Duration> {
        let is_asked = self.machines.options.remove_bootstrap_data;
        let have_served = self.request.is_provisioned && self.request.has_node;
        if !is_asked || !have_served || self.record.status.is_bootstrap_data_removed {
            return None;
        }
        if let Some(left) = self.state.removal_retry() {
            return Some(left);
        }
        let spec = ConfigSpec { extra_config: no_bootstrap(), ..ConfigSpec::empty() };
        match self.begin(Work::RemoveBootstrapData, ReconfigVm { spec }.of(&vm.moref)).await {
            Ok(task) => {
                self.vcenter.wait_for_task(&task, &self.request.mark.uid);
                Some(UNSEEN_TASK_RETRY)
            }
            Err(error) => {
                self.failed_to_remove(self.vcenter.error_of(&error).report());
                Some(WRITE_RETRY)
            }
        }
    }
}

impl<C> Step<'_, C> {
    /// Writes options of a machine, unless it has changed since it was read. Then the next step looks again.
    pub(super) async fn write_options(
        &self,
        work: Work,
        found: &Configuration,
        extra_config: Vec<OptionValue>,
    ) -> Result<()> {
        let change_version = found.change_version.clone();
        let call = ReconfigVm { spec: ConfigSpec { change_version, extra_config, ..ConfigSpec::empty() } };
        match self.begin(work, call.of(&found.vm.moref)).await {
            Ok(task) => {
                self.vcenter.wait_for_task(&task, &self.request.mark.uid);
                Ok(())
            }
            Err(CallError::Fault { kind, .. }) if is_outdated(&kind) => Ok(()),
            Err(error) => Err(self.vcenter.error_of(&error)),
        }
    }

    /// Notes that an edit was not passed on to the guest of a machine that is complete.
    pub(super) fn failed_to_pass_on(&mut self, why: String) {
        self.state.note_guest_failed();
        let condition = Condition::new(NETWORK_PASSED_ON, ConditionStatus::False, "PassingOnFailed");
        self.record.set(condition.with_message(why));
    }
}

/// The metadata, if the machine has others. A guest that gets another instance ID takes itself for a new one and joins its cluster
/// again, so that stays. `name` is for a machine without one.
fn renewed(found: &Configuration, name: &str, network: &NetworkSpec) -> Option<Vec<OptionValue>> {
    let stored = found.metadata.as_ref();
    let id = stored.and_then(|stored| guestinfo::instance_id(&stored.text, &stored.encoding));
    let options = metadata(id.as_deref().unwrap_or(name), network, &found.macs);
    let is_stored = stored.is_some_and(|stored| {
        let texts = [&stored.text, &stored.encoding];
        options.iter().zip(texts).all(|(option, text)| option.value == Value::AnyString(text.clone()))
    });
    (!is_stored).then_some(options)
}

#[cfg(test)]
mod tests;
