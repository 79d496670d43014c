//! Takes the bootstrap data out of a machine that they have served.
//!
//! Whoever may read a machine in vCenter can read its extra configuration, and with it the bootstrap data. If the configuration asks for it,
//! their keys are emptied once the machine is a Node. `guestinfo.metadata` stays, and with it the instance ID: cloud-init works once
//! for each, and does not run again. Ignition works at the first boot alone.
//!
//! The keys are not read, since they are secret. The status remembers that they are empty; where it is lost, they are emptied once more,
//! which changes nothing.

use std::{sync::Arc, time::Duration};

use super::{MachineRecord, Request, create::UNSEEN_TASK_RETRY, outstanding::failed_to_remove};
use crate::{
    machines::{
        fleet::{Fleet, Turn},
        guest::no_bootstrap,
        site::Site,
        work::{WRITE_RETRY, Work},
    },
    vim::machines::{ConfigSpec, ReconfigVm},
    vm::VirtualMachine,
};

impl Fleet {
    /// Begins to remove the bootstrap data of a machine that is a Node, if that is asked for. Says when to look again at the latest. A
    /// removal that fails is told in a condition and tried again: the machine works all the same.
    pub(super) async fn remove_bootstrap_data(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Option<Duration> {
        let is_asked = self.options.remove_bootstrap_data;
        let have_served = request.is_provisioned && request.has_node;
        if !is_asked || !have_served || record.status.is_bootstrap_data_removed {
            return None;
        }
        let failed = turn.slot.known().removal_failed;
        let left = failed.and_then(|since| WRITE_RETRY.checked_sub(since.elapsed()));
        if left.is_some_and(|left| !left.is_zero()) {
            return left;
        }
        let spec = ConfigSpec { extra_config: no_bootstrap(), ..ConfigSpec::empty() };
        let call = ReconfigVm { spec }.of(&vm.moref);
        match self.begin(site, turn, Work::RemoveBootstrapData, call).await {
            Ok(task) => {
                site.vcenter.wait_for_task(&task, &request.mark.uid);
                Some(UNSEEN_TASK_RETRY)
            }
            Err(error) => {
                failed_to_remove(turn, record, site.vcenter.error_of(&error).report());
                Some(WRITE_RETRY)
            }
        }
    }
}
