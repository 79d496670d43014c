//! The step of a machine towards gone.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{Deletion, Wait},
};

use super::{
    DeletionRequest, MachineRecord,
    create::{MAX_BEHIND, check_unshown},
    has_begun, is_left_over,
    last_seen::confirm_left,
    login::{self, Login, MadeOn},
    machine_of,
    take_over::server_of_vm,
};
use crate::{
    machines::{
        fleet::{Fleet, Turn},
        identities::ObjectKey,
        naming::vm_name_or_own,
        power::{PowerOffStep, power_off, soft_power_off},
        site::Site,
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

impl Fleet {
    /// One step towards gone. Without its cluster's object nothing may say on which vCenter the machine is. Then it has to be
    /// gone from all that are configured: whoever names no credentials has those of nobody else.
    pub(super) async fn delete(
        &self,
        turn: Turn,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        let (known, made_on) = (record.status.login.clone(), MadeOn::of(&record.status));
        let sites = match Login::of_deletion(request, known.as_ref()) {
            Some(login) => {
                let has_begun = || !was_never_begun(&turn, request, record);
                match self.site_of(&login, &request.mark, has_begun).await {
                    // On a vCenter that is not configured, nothing was begun.
                    Err(error) if login::is_out_of_reach(&login, &error) => return Ok(Deletion::Gone),
                    site => {
                        let own = turn.note_vcenter(site)?;
                        let other = self.site_of_lost_zone(request, &own).await?;
                        [Some(own), other].into_iter().flatten().collect()
                    }
                }
            }
            None => {
                self.open.release(&ObjectKey::of(&request.mark));
                match server_of_vm(request)? {
                    Some(server) => vec![self.site("spec.server of the VSphereVM", Some(&server))?],
                    None => self.configured.clone(),
                }
            }
        };
        if sites.is_empty() {
            let words = "nothing says any more on which vCenter the virtual machine is, so the finalizer stays; if there is none, an operator can \
                         remove it by hand";
            return Err(Error::new(ErrorKind::NotFound, words));
        }
        let was_begun = has_begun(&turn, request, record);
        for site in &sites {
            let answer = self.delete_on(site, &turn, request, record).await?;
            if answer != Deletion::Gone {
                return Ok(answer);
            }
        }
        if let Some(wait) = self.check_elsewhere(&sites, &turn, request, record).await? {
            return Ok(Deletion::Deleting(wait));
        }
        let is_destroyed = sites.iter().any(|site| turn.slot.known().is_destroyed_on(site.vcenter.name()));
        if was_begun && !is_destroyed && made_on.is_elsewhere(&sites) {
            self.confirm_left_elsewhere(&made_on, &turn, &request.mark).await?;
        }
        {
            let mut known = turn.slot.known();
            *known = known.of_gone();
        }
        self.open.release(&ObjectKey::of(&request.mark));
        Ok(Deletion::Gone)
    }

    async fn delete_on(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        site.vcenter.follow_tasks();
        turn.note_vcenter(site.check_live())?;
        Self::take_over_task(turn, request, record);
        match self.outstanding(site, turn, request, record).await {
            Ok(Some(wait)) => return Ok(Deletion::Deleting(wait)),
            Ok(None) => {}
            Err(error) if machine_of(site, turn)?.is_some() => return Err(error),
            // What could not be made need not be deleted.
            Err(error) => {
                tracing::debug!(machine = %request.mark, error = %error.report(), "work has failed");
            }
        }
        let shown = machine_of(site, turn)?;
        if shown.is_some() {
            turn.slot.known().unshown_since = None;
        }
        let wait = match shown {
            // Nothing can be done to it. Whether it is gone is confirmed once the inventory does not show it any more.
            Some(vm) if site.removed.has(&vm.moref) => Some(leaving(&vm)),
            // Nothing can be done to it either.
            Some(vm) if is_left_over(site, turn, &vm) => None,
            Some(vm) => match self.remove_shown(site, turn, &vm, request, record).await {
                // It has left while the step had it in hand.
                Err(_) if site.removed.has(&vm.moref) => Some(leaving(&vm)),
                wait => wait?,
            },
            None => self.confirm_gone(site, turn, request, record).await?,
        };
        Ok(wait.map_or(Deletion::Gone, Deletion::Deleting))
    }

    /// A step of a machine that the inventory shows. `None` if it is not the object's own.
    async fn remove_shown(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        match site.mark_of(vm).await? {
            None => self.remove_unmarked(site, turn, vm, request, record).await,
            // It is somebody else's, and the only one with this instance UUID.
            mark if !request.mark.owns(mark.as_ref()) => Ok(None),
            _ => self.remove(site, turn, vm, request, record).await,
        }
    }

    /// A step of a machine that has no mark, and the identity of the object as its instance UUID. One that is being cloned gets its
    /// mark a moment later, so clones come to their ends first.
    async fn remove_unmarked(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        if let Some(wait) = other_clones(site, turn, request).await? {
            return Ok(Some(wait));
        }
        match site.mark_of(vm).await? {
            None => self.check_own(site, vm, request, record).await?,
            mark if !request.mark.owns(mark.as_ref()) => return Ok(None),
            _ => {}
        }
        self.remove(site, turn, vm, request, record).await
    }

    /// A step of a machine that is there.
    async fn remove(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        let has_just_stopped = turn.slot.known().has_just_done(Work::PowerOff, MAX_BEHIND);
        if !has_just_stopped && let Some(wait) = self.stop(site, turn, vm, request, record).await? {
            return Ok(Some(wait));
        }
        // read now: a volume may have been attached a moment ago
        let foreign = foreign(&self.devices(site, &vm.moref).await?);
        if !foreign.is_empty() {
            let call = ReconfigVm { spec: ConfigSpec { device_change: foreign, ..ConfigSpec::empty() } };
            let call = call.of(&vm.moref);
            let begun = self.work(site, turn, Work::Detach, call, &request.mark, record).await?;
            // if it is not there any more, that is to be confirmed
            return Ok(Some(begun.unwrap_or_else(|| leaving(vm))));
        }
        self.leave_module(site, vm, request, record).await?;
        let call = DestroyVm {}.of(&vm.moref);
        let begun = self.work(site, turn, Work::Destroy, call, &request.mark, record).await?;
        Ok(Some(begun.unwrap_or_else(|| leaving(vm))))
    }

    /// Powers a machine off. `None` if it is off.
    async fn stop(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        vm: &VirtualMachine,
        request: &DeletionRequest,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        let can_ask = vm.can_shut_down && vm.tools == Tools::Running;
        let since = record.status.soft_power_off_since;
        let mut step = power_off(vm.power, can_ask, &request.spec, since, now());
        if let Some(PowerOffStep::Ask { since, wait }) = &step {
            match site.call(&ShutdownGuest {}.of(&vm.moref)).await {
                Ok(_) => record.status.soft_power_off_since = Some(*since),
                Err(error) if is_deaf(&error) => {
                    step = power_off(vm.power, false, &request.spec, None, now());
                }
                Err(error) if error.is_fault("InvalidPowerState") => return Ok(Some(wait.clone())),
                Err(error) => return Err(site.vcenter.error_of(&error)),
            }
        }
        {
            let mut known = turn.slot.known();
            let before = known.soft_power_off.take();
            known.soft_power_off = soft_power_off(step.as_ref(), since.is_some(), before);
        }
        match step {
            None => Ok(None),
            Some(PowerOffStep::Ask { wait, .. } | PowerOffStep::Wait(wait)) => Ok(Some(wait)),
            Some(PowerOffStep::Force) => {
                let call = PowerOffVm {}.of(&vm.moref);
                self.work(site, turn, Work::PowerOff, call, &request.mark, record).await
            }
        }
    }

    /// `None` once it is sure that there is no such machine, and none that could still appear.
    async fn confirm_gone(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &DeletionRequest,
        record: &MachineRecord,
    ) -> Result<Option<Wait>> {
        if turn.slot.known().is_destroyed_on(site.vcenter.name()) {
            // vCenter said that it was removed, and shows it no more.
            return Ok(None);
        }
        let is_uncertain = {
            let known = turn.slot.known();
            let is_recent = known.uncertain.is_some_and(|since| since.elapsed() < MAX_UNCERTAIN);
            is_recent && known.is_of(site.vcenter.name())
        };
        if is_uncertain {
            let words = "a clone was begun whose answer was lost; it may still appear";
            return Ok(Some(Wait::task(words).look_again_after(RETRY)));
        }
        if let Some(wait) = other_clones(site, turn, request).await? {
            return Ok(Some(wait));
        }
        if !site.vcenter.state().inventory.departed_with(turn.uid).is_empty() {
            site.vcenter.confirm_absent(turn.uid).await?;
        }
        let found = site.find(turn.uid).await?;
        if found.is_empty() {
            // One that is known is named, which says more than that vCenter has it.
            let here = std::slice::from_ref(site);
            if let Some(wait) = self.check_elsewhere(here, turn, request, record).await? {
                return Ok(Some(wait));
            }
            self.confirm_other_absent(site, turn, request.provider_id.as_deref()).await?;
            confirm_left(site, turn, request).await?;
            return Ok(None);
        }
        check_unshown(site, turn, &found).await?;
        let words = format!("virtual machine {:?} was found and is being read", vm_name_or_own(request));
        Ok(Some(Wait::task(words).look_again_after(RETRY)))
    }
}

/// Whether no step has ever begun anything, as far as is known.
fn was_never_begun(turn: &Turn, request: &DeletionRequest, record: &MachineRecord) -> bool {
    record.status.login.is_none() && !has_begun(turn, request, record)
}

/// A wait for the clones that were under way when the machine was not found: without its status, one could be its own.
async fn other_clones(site: &Site, turn: &Turn, request: &DeletionRequest) -> Result<Option<Wait>> {
    let has_waited = turn.slot.known().clones.get(site.vcenter.name()).is_some_and(HashSet::is_empty);
    if has_waited {
        return Ok(None);
    }
    let running = site.clones_under_way().await?;
    let left = {
        let mut known = turn.slot.known();
        let watched = known.clones.entry(site.vcenter.name().to_owned()).or_insert_with(|| running.clone());
        watched.retain(|task| running.contains(task));
        watched.iter().min().cloned()
    };
    Ok(left.map(|task| {
        site.vcenter.wait_for_task(&task, &request.mark.uid);
        let words = format!("a clone by {} may be of this virtual machine", task.id());
        Wait::task(words).look_again_after(CLONE_RETRY)
    }))
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
