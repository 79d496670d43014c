//! Edits of the network devices of a machine that is there: its guest's metadata are written again.
//!
//! ```text
//!   its VSphereVM tells other devices ──> read the configuration ─┬─ other metadata: one ReconfigVM_Task, then look again
//!                                                                 └─ the same: the VSphereVM gets the devices
//! ```
//!
//! So a process that ends in between finds the same difference again. The devices of the virtual machine stay as they are, and
//! nothing is started again: a guest reads its metadata when it boots.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Result,
    machines::{Condition, ConditionStatus, MachineReport},
};
use tokio::time::Instant;

use super::{
    MachineRecord, Request,
    companion::{existing, network_of},
    configuration::Configuration,
};
use crate::{
    guestinfo,
    machines::{
        fleet::{Fleet, Turn},
        guest::{metadata, shape},
        naming::vm_name_or_own,
        pools::Addresses,
        site::Site,
        spec::NetworkSpec,
        work::{WRITE_RETRY, Work},
    },
    vim::{Value, machines::OptionValue},
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

impl Fleet {
    /// Passes an edit on to the guest. `None`: it has it, or it will get it later: a machine that is complete works all the same if that
    /// fails.
    pub(super) async fn pass_on(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
        record: &mut MachineRecord,
        edit: Edit,
    ) -> Result<Option<MachineReport>> {
        if let Edit::Due(_) = edit {
            if retry_after(turn).is_some() {
                return Ok(None);
            }
            match self.write_guest(site, turn, vm, request).await {
                Ok(true) => {
                    turn.slot.known().guest_written = edit.shape();
                    return Self::report_meanwhile(vm, site, request, record, Work::Guest).map(Some);
                }
                Ok(false) => {}
                Err(error) if request.is_provisioned => {
                    failed_to_pass_on(turn, record, error.report());
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        record.remove(NETWORK_PASSED_ON);
        let mut known = turn.slot.known();
        (known.guest, known.guest_written) = (edit.shape(), None);
        Ok(None)
    }

    /// Writes what the guest reads of its network. False: it has been written.
    async fn write_guest(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
    ) -> Result<bool> {
        let found = Configuration::read(site, vm).await?;
        let name = existing(request).map_or_else(|| vm_name_or_own(request), |vm| vm.name.clone());
        let Some(options) = renewed(&found, &name, &request.spec.clone.network) else { return Ok(false) };
        self.write_options(site, turn, Work::Guest, &found, options, &request.mark).await?;
        Ok(true)
    }
}

/// Notes that an edit was not passed on to the guest of a machine that is complete.
pub(super) fn failed_to_pass_on(turn: &Turn, record: &mut MachineRecord, why: String) {
    turn.slot.known().guest_failed = Some(Instant::now());
    let condition = Condition::new(NETWORK_PASSED_ON, ConditionStatus::False, "PassingOnFailed");
    record.set(condition.with_message(why));
}

/// When an edit that was not passed on is tried again. `None`: none has failed lately.
pub(super) fn retry_after(turn: &Turn) -> Option<Duration> {
    let failed = turn.slot.known().guest_failed?;
    WRITE_RETRY.checked_sub(failed.elapsed()).filter(|left| !left.is_zero())
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
