//! The step of a machine that is there.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineReport, Mark, PresentMachine, Wait},
};

use super::{
    MachineRecord, Request, conflict,
    create::{MAX_BEHIND, UNSEEN_TASK_RETRY},
    edits::{Edit, retry_after},
    outstanding::waiting,
};
use crate::{
    instances::instance_of,
    machines::{
        clone,
        fleet::{Fleet, Turn},
        guest::written,
        site::Site,
        status::NetworkStatus,
        work::Work,
    },
    provider_id::format_provider_id,
    vim::{Call, CallError, machines::UpgradeVm},
    vm::{VirtualMachine, VmPower},
};

/// How soon a step looks again at a machine that was powered on. A change comes earlier.
const POWERED_RETRY: Duration = Duration::from_secs(5);

/// How soon a step looks again at a machine that is removed and still shown. A change of the inventory comes earlier.
const REMOVED_RETRY: Duration = Duration::from_secs(30);

impl Fleet {
    /// A step of a machine that the inventory has.
    pub(super) async fn present(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
        record: &mut MachineRecord,
        edit: Edit,
    ) -> Result<MachineReport> {
        let mark = site.mark_of(vm).await?;
        if mark.is_none()
            && let Some(report) = self.take_over(site, turn, vm, request, record).await?
        {
            return Ok(report);
        }
        if !request.mark.owns(mark.as_ref()) {
            return Err(conflict(site, vm, &request.mark, mark.as_ref()));
        }
        self.attach_tags(site, turn, vm, request).await?;
        if let Some(report) = self.pass_on(site, turn, vm, request, record, edit).await? {
            return Ok(report);
        }
        // Whoever powers off a machine that was complete once had a reason.
        if vm.power != VmPower::On && !request.is_provisioned {
            if turn.slot.known().has_just_done(Work::PowerOn, MAX_BEHIND) {
                return Self::report(vm, site, request, record, Some(starting()));
            }
            let wait = self.start(site, turn, vm, request, record).await?;
            return Self::report(vm, site, request, record, Some(wait));
        }
        let again = self.remove_bootstrap_data(site, turn, vm, request, record).await;
        let again = again.into_iter().chain(retry_after(turn)).min();
        Self::report_beside(vm, site, request, record, again)
    }

    /// What is seen of a machine while something is done that stops nothing. `again` is when to look again at the latest.
    pub(super) fn report_beside(
        vm: &VirtualMachine,
        site: &Site,
        request: &Request,
        record: &mut MachineRecord,
        again: Option<Duration>,
    ) -> Result<MachineReport> {
        Ok(match Self::report(vm, site, request, record, None)? {
            MachineReport::Present(machine) => machine.look_again_after(again).into(),
            report => report,
        })
    }

    /// Attaches the tags of the spec, once, before the first boot: the zone of the Node may be one of them.
    async fn attach_tags(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
    ) -> Result<()> {
        let tags = &request.spec.clone.tag_ids;
        if request.is_provisioned || tags.is_empty() || turn.slot.known().is_tagged {
            // what is complete is not touched again
            turn.slot.known().is_tagged &= !request.is_provisioned;
            return Ok(());
        }
        let has_identity = request.cluster.spec.identity_ref.is_some();
        self.allowed(site, &request.mark.namespace, has_identity).tags(&request.spec.clone)?;
        let client = site.vcenter.tag_client().clone();
        let client = client.ok_or_else(|| site.vcenter.error(ErrorKind::Unavailable, "not connected"))?;
        let refused = client.attach(&vm.moref, tags).await.map_err(|error| site.vcenter.error_of(&error))?;
        if !refused.is_empty() {
            let words = format!("spec.tagIDs: vCenter does not attach all of them: {}", refused.join("; "));
            return Err(Error::new(ErrorKind::NotFound, words));
        }
        turn.slot.known().is_tagged = true;
        Ok(())
    }

    /// Begins what comes before the first boot, and the boot itself.
    async fn start(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<Wait> {
        if let Some((version, number)) = clone::hardware_version(&request.spec.clone)?
            && record.status.hardware_version.as_deref() != Some(version)
        {
            let is_done = turn.slot.known().has_just_done(Work::Upgrade, MAX_BEHIND)
                || self.devices(site, &vm.moref).await?.hardware_version >= Some(number);
            let call = UpgradeVm { version: version.to_owned() }.of(&vm.moref);
            if !is_done
                && let Some(wait) = self.work(site, turn, Work::Upgrade, call, &request.mark, record).await?
            {
                return Ok(wait);
            }
            record.status.hardware_version = Some(version.to_owned());
        }
        if let Some(wait) = self.join_group(site, vm, request).await? {
            return Ok(wait);
        }
        if let Some(wait) = self.join_module(site, vm, request, record).await? {
            return Ok(wait);
        }
        let begun = self.power_on(site, turn, vm, &request.mark, record).await?;
        Ok(begun.unwrap_or_else(starting))
    }

    /// Begins work on a machine. `None` if vCenter says that it is done already.
    pub(super) async fn work(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        work: Work,
        call: Call,
        mark: &Mark,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        let begun = self.try_work(site, turn, work, call, mark, record).await;
        begun.map_err(|error| site.vcenter.error_of(&error))
    }

    /// The same, with the error of the call.
    pub(super) async fn try_work(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        work: Work,
        call: Call,
        mark: &Mark,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>, CallError> {
        let task = match self.begin(site, turn, work, call).await {
            Ok(task) => task,
            Err(CallError::Fault { kind, .. }) if work.is_done_by(&kind) => return Ok(None),
            Err(error) => return Err(error),
        };
        record.status.task_ref = Some(task.id().to_owned());
        site.vcenter.wait_for_task(&task, &mark.uid);
        Ok(Some(waiting(site, Some(work), &task).look_again_after(UNSEEN_TASK_RETRY)))
    }

    /// What was seen last of a machine that vCenter has not any more. Nothing is decided before the inventory has moved on.
    pub(super) fn report_removed(
        vm: &VirtualMachine,
        site: &Site,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<MachineReport> {
        let words = format!("virtual machine {:?} was removed; the inventory still shows it", vm.name);
        let wait = Wait::task(words).look_again_after(REMOVED_RETRY);
        let Some(provider_id) = &request.provider_id else { return Ok(MachineReport::Creating(wait)) };
        let is_own = match &vm.mark {
            Some(mark) => request.mark.owns(Some(mark)),
            // It cannot be read any more.
            None => vm.bios_uuid.is_some_and(|uuid| format_provider_id(uuid).as_str() == provider_id),
        };
        if !is_own {
            return Err(conflict(site, vm, &request.mark, vm.mark.as_deref()));
        }
        let wait = (!request.is_provisioned).then_some(wait);
        Ok(match Self::report(vm, site, request, record, wait)? {
            MachineReport::Present(machine) => machine.look_again_after(REMOVED_RETRY).into(),
            report => report,
        })
    }

    /// What is seen of a machine, and what it waits for.
    pub(super) fn report(
        vm: &VirtualMachine,
        site: &Site,
        request: &Request,
        record: &mut MachineRecord,
        wait: Option<Wait>,
    ) -> Result<MachineReport> {
        // It may have moved on while the step was made.
        let current = site.vcenter.state().inventory.machine(&vm.moref).filter(|vm| !vm.is_template).cloned();
        let Some(vm) = &current else {
            let words = format!("virtual machine {:?} has just left", vm.name);
            return Err(site.vcenter.error(ErrorKind::Unavailable, &words));
        };
        let mut instance = instance_of(&site.vcenter, vm)?;
        let incomplete: Option<Error> = instance.incomplete.take();
        record.status.network = networks(vm);
        let wait = wait
            .or_else(|| incomplete.map(|why| Wait::address(why.to_string())))
            .map(Wait::without_bootstrap_data);
        let machine = PresentMachine::new(instance).with_failure_domain(request.failure_domain.clone());
        Ok(machine.with_wait(wait).into())
    }
}

/// The wait for the inventory, which does not show yet that the machine runs. Like the wait for the power-on, it holds no move.
fn starting() -> Wait {
    let wait = Wait::address("the virtual machine starts").with_reason("PoweringOn");
    wait.look_again_after(POWERED_RETRY)
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
