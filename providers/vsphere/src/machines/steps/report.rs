//! What is said of a machine that the inventory shows.

use std::time::Duration;

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, PresentMachine, Wait},
};

use super::step::{Flow, Step, Stop};
use crate::{
    instances::instance_of,
    machines::{guest::written, status::NetworkStatus, work::Work},
    provider_id::format_provider_id,
    vm::VirtualMachine,
};

/// How soon a step looks again at a machine that is removed and still shown. A change of the inventory comes earlier.
const REMOVED_RETRY: Duration = Duration::from_secs(30);

/// How soon a step looks again at a machine whose options were written. The inventory reports it.
const WRITTEN_RETRY: Duration = Duration::from_secs(1);

impl Step<'_> {
    /// What is seen of a machine, and what it waits for.
    pub(super) fn report(&mut self, vm: &VirtualMachine, wait: Option<Wait>) -> Result<MachineReport> {
        // It may have moved on while the step was made.
        let current = self.vcenter.state().inventory.machine(&vm.moref).filter(|vm| !vm.is_template).cloned();
        let Some(vm) = &current else {
            let words = format!("virtual machine {:?} has just left", vm.name);
            return Err(self.vcenter.error(ErrorKind::Unavailable, &words));
        };
        let mut instance = instance_of(&self.vcenter, vm)?;
        let incomplete: Option<Error> = instance.incomplete.take();
        self.record.status.network = networks(vm);
        let wait = wait
            .or_else(|| incomplete.map(|why| Wait::address(why.to_string())))
            .map(Wait::without_bootstrap_data);
        let machine = PresentMachine::new(instance).with_failure_domain(self.request.failure_domain.clone());
        Ok(machine.with_wait(wait).into())
    }

    /// Ends the steps of a machine that waits for something.
    pub(super) fn report_wait(&mut self, vm: &VirtualMachine, wait: Option<Wait>) -> Flow<MachineReport> {
        match wait {
            Some(wait) => Err(Stop::Answer(self.report(vm, Some(wait))?)),
            None => Ok(()),
        }
    }

    /// What is seen of a machine while something is done that stops nothing. `again` is when to look again at the latest.
    pub(super) fn report_beside(
        &mut self,
        vm: &VirtualMachine,
        again: Option<Duration>,
    ) -> Result<MachineReport> {
        Ok(match self.report(vm, None)? {
            MachineReport::Present(machine) => machine.look_again_after(again).into(),
            report => report,
        })
    }

    /// What is seen of a machine whose options are being written. Nothing else is done about it. If it was complete, it still is.
    pub(super) fn report_meanwhile(&mut self, vm: &VirtualMachine, work: Work) -> Result<MachineReport> {
        let wait = (!self.request.is_provisioned).then(|| meanwhile(work));
        Ok(match self.report(vm, wait)? {
            MachineReport::Present(machine) => {
                PresentMachine::look_again_after(*machine, WRITTEN_RETRY).into()
            }
            report => report,
        })
    }

    /// Waits until the inventory does not show a machine any more that vCenter has removed.
    pub(super) fn wait_until_left(&mut self, vm: &VirtualMachine) -> Flow<MachineReport> {
        self.state.clear_unshown();
        if self.vcenter.tombstones.has(&vm.moref) {
            return Err(Stop::Answer(self.report_removed(vm)?));
        }
        Ok(())
    }

    /// What was seen last of a machine that vCenter has not any more. Nothing is decided before the inventory has moved on.
    pub(super) fn report_removed(&mut self, vm: &VirtualMachine) -> Result<MachineReport> {
        let words = format!("virtual machine {:?} was removed; the inventory still shows it", vm.name);
        let wait = Wait::task(words).look_again_after(REMOVED_RETRY);
        let Some(provider_id) = &self.request.provider_id else { return Ok(MachineReport::Creating(wait)) };
        let mark = &self.request.mark;
        let is_own = match &vm.mark {
            Some(found) => mark.owns(Some(found)),
            // It cannot be read any more.
            None => vm.bios_uuid.is_some_and(|uuid| format_provider_id(uuid).as_str() == provider_id),
        };
        if !is_own {
            return Err(self.vcenter.conflict(vm, mark, vm.mark.as_deref()));
        }
        let wait = (!self.request.is_provisioned).then_some(wait);
        Ok(match self.report(vm, wait)? {
            MachineReport::Present(machine) => machine.look_again_after(REMOVED_RETRY).into(),
            report => report,
        })
    }
}

fn meanwhile(work: Work) -> Wait {
    let wait = match work {
        Work::Mark => Wait::task("the virtual machine is taken over").with_reason("TakingOver"),
        work => Wait::task(work.words()),
    };
    wait.look_again_after(WRITTEN_RETRY)
}

/// What the network devices have, for people.
fn networks(vm: &VirtualMachine) -> Vec<NetworkStatus> {
    let one = |nic: &crate::vm::GuestNic| {
        Some(NetworkStatus {
            connected: Some(nic.connected),
            ip_addrs: nic.addresses.iter().map(|address| address.ip.to_string()).collect(),
            mac_addr: written(nic.mac?),
            network_name: (!nic.network.is_empty()).then(|| nic.network.to_string()),
        })
    };
    vm.guest_nics.iter().filter_map(one).collect()
}
