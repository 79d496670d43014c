//! Work that an earlier step has begun.

use std::{sync::Arc, time::Duration};

use cloudprovider::{
    ErrorKind, Result,
    machines::{Condition, ConditionStatus, MachineRequest, Mark, Wait},
};
use tokio::time::Instant;

use super::{MachineRecord, edits::failed_to_pass_on, machine_of};
use crate::{
    machines::{
        fleet::{Fleet, Turn, task_of},
        naming::vm_name_or_own,
        site::Site,
        spec::VSphereMachineSpec,
        work::Work,
    },
    moref::MoRef,
    tasks::{TaskFault, TaskState},
};

/// When a step looks again for a task that is not shown yet.
const UNSEEN_RETRY: Duration = Duration::from_secs(5);

/// When a step looks again for a task that runs, and asks vCenter for it. Its end is told, unless the task manager has so many that
/// it shows this one no longer.
const RUNNING_RETRY: Duration = Duration::from_secs(10);

/// The same for a task that has run for longer than [`RUNNING_RETRY`].
const LONG_RUNNING_RETRY: Duration = Duration::from_secs(60);

/// For how long a task may go on after the inventory shows what it does. vCenter refuses another task of the machine meanwhile.
const MAX_LAST_MOMENT: Duration = Duration::from_secs(2);

/// The condition that says why bootstrap data are still there.
const BOOTSTRAP_DATA_REMOVED: &str = "BootstrapDataRemoved";

impl Fleet {
    /// What to wait for, if work is under way. Work that has ended is removed from the status.
    ///
    /// # Errors
    /// Why the work has failed.
    pub(super) async fn outstanding<C>(
        &self,
        site: &Arc<Site>,
        turn: &Turn,
        request: &MachineRequest<VSphereMachineSpec, C>,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        let begun = {
            let known = turn.slot.known();
            if known.task.is_some() && !known.is_of(site.vcenter.name()) {
                return Ok(None);
            }
            known.task.clone()
        };
        let (mut work, first, since) = match begun {
            Some((work, task, since)) => (Some(work), task, Some(since)),
            None => match record.status.task_ref.as_deref() {
                Some(id) if !id.is_empty() => (None, task_of(id), None),
                _ => return Ok(None),
            },
        };
        let age = since.map(|since| since.elapsed());
        let is_done = work.and_then(Work::change).is_some_and(|change| {
            change.ends_its_task()
                && change.is_shown(site.vcenter.state().inventory.with_instance_uuid(turn.uid))
        });
        let mut task = first.clone();
        let mut state = self.state_of(site, &task, &request.mark, age, is_done).await?;
        if let Some(TaskState::Continued(next)) = &state {
            // only a power-on does
            work = work.or(Some(Work::PowerOn));
            if let Some(next) = next.clone() {
                // vCenter forgets the first one some minutes after its end.
                {
                    let mut known = turn.slot.known();
                    known.task = Some((Work::PowerOn, next.clone(), since.unwrap_or_else(Instant::now)));
                    known.target = None;
                }
                state = self.state_of(site, &next, &request.mark, age, is_done).await?;
                task = next;
            }
        }
        match state {
            Some(TaskState::Running) => {
                if !work.is_some_and(Work::stops_nothing) {
                    record.status.task_ref = Some(task.id().to_owned());
                }
                let is_shown = site.vcenter.state().tasks.get(&task).is_some();
                let look = match age {
                    _ if is_done => MAX_LAST_MOMENT,
                    _ if !is_shown => UNSEEN_RETRY,
                    Some(age) if age < RUNNING_RETRY => RUNNING_RETRY,
                    _ => LONG_RUNNING_RETRY,
                };
                Ok(Some(waiting(site, work, &task).look_again_after(look)))
            }
            Some(TaskState::Success) => {
                finish(site, turn, record, work);
                Ok(None)
            }
            // Nothing tells the end of it but the inventory, some time later. A failure is told by nobody, so the next try is without DRS.
            Some(TaskState::Continued(_)) => {
                finish(site, turn, record, None);
                let mut known = turn.slot.known();
                known.done = work.map(|work| (work, Instant::now()));
                known.was_left_to_drs = true;
                Ok(None)
            }
            // vCenter does not know it any more: what it did is seen in the inventory.
            None => {
                finish(site, turn, record, None);
                Ok(None)
            }
            Some(TaskState::Failed(fault))
                if is_done_already(work, machine_of(site, turn)?.is_some(), &fault.kind) =>
            {
                finish(site, turn, record, work);
                Ok(None)
            }
            Some(TaskState::Failed(fault))
                if work.is_some_and(Work::stops_nothing) && is_outdated(&fault.kind) =>
            {
                finish(site, turn, record, None);
                Ok(None)
            }
            Some(TaskState::Failed(fault)) if work == Some(Work::RemoveBootstrapData) => {
                finish(site, turn, record, None);
                failed_to_remove(turn, record, format!("the removal has failed ({}): {fault}", task.id()));
                Ok(None)
            }
            Some(TaskState::Failed(fault)) if work == Some(Work::Guest) && request.is_provisioned => {
                finish(site, turn, record, None);
                failed_to_pass_on(turn, record, format!("the writing has failed ({}): {fault}", task.id()));
                Ok(None)
            }
            Some(TaskState::Failed(fault)) => {
                finish(site, turn, record, None);
                self.failed(site, turn, request, work, &task, &fault).await
            }
        }
    }

    /// How far a task of this age is. `is_done` is whether the inventory shows what it does. `None` if vCenter knows no such task.
    async fn state_of(
        &self,
        site: &Site,
        task: &MoRef,
        mark: &Mark,
        age: Option<Duration>,
        is_done: bool,
    ) -> Result<Option<TaskState>> {
        let seen = site.vcenter.wait_for_task(task, &mark.uid).map(|task| task.state);
        let is_young = |limit| age.is_some_and(|age| age < limit);
        let state = match seen {
            Some(ended) if ended != TaskState::Running => Some(ended),
            _ if is_done && !is_young(MAX_LAST_MOMENT) => Some(TaskState::Success),
            // It was begun just now, or the tasks are being listed.
            None if is_young(UNSEEN_RETRY) => Some(TaskState::Running),
            Some(_) if is_young(RUNNING_RETRY) => Some(TaskState::Running),
            _ => self.task(site, task).await?.map(|task| task.state),
        };
        if state != Some(TaskState::Running) {
            site.vcenter.stop_waiting_for_task(task);
        }
        Ok(state)
    }

    /// What becomes of work that has failed.
    async fn failed<C>(
        &self,
        site: &Site,
        turn: &Turn,
        request: &MachineRequest<VSphereMachineSpec, C>,
        work: Option<Work>,
        task: &MoRef,
        fault: &TaskFault,
    ) -> Result<Option<Wait>> {
        self.forget_facts();
        if self.gives_up_drs(site, turn, &request.mark, work, fault).await? {
            return Ok(None);
        }
        let name = vm_name_or_own(request);
        if &*fault.kind == "DuplicateName" && site.find(turn.uid).await?.is_empty() {
            let what =
                format!("virtual machine {name:?} in the same folder of vCenter {:?}", site.vcenter.name());
            return Err(request.mark.conflict(what, None));
        }
        if &*fault.kind == "DuplicateName" {
            // an earlier call has made it
            return Ok(None);
        }
        // It may be about the machine, or about something that the work needs.
        if &*fault.kind == "ManagedObjectNotFound"
            && let Some(vm) = machine_of(site, turn)?
            && site.has_removed(&vm.moref).await?
        {
            return Ok(None);
        }
        let what = work.map_or("work", Work::words);
        let words = format!("the {what} of {name:?} has failed ({}): {fault}", task.id());
        let kind = match &*fault.kind {
            "NoPermission" => ErrorKind::PermissionDenied,
            _ => ErrorKind::Unavailable,
        };
        Err(site.vcenter.error(kind, &words).with_source(fault.clone()))
    }
}

/// Whether a fault says that what was to be done is done. Work that an earlier process began may be any but a clone if the
/// machine is there.
fn is_done_already(work: Option<Work>, is_there: bool, fault: &str) -> bool {
    const ALL: [Work; 5] = [Work::Upgrade, Work::PowerOn, Work::PowerOff, Work::Detach, Work::Destroy];
    match work {
        Some(work) => work.is_done_by(fault),
        None => is_there && ALL.iter().any(|work| work.is_done_by(fault)),
    }
}

/// Whether a fault says that a configuration has changed since it was read.
pub(super) fn is_outdated(fault: &str) -> bool {
    fault == "ConcurrentAccess"
}

/// Keeps that a task has ended.
fn finish(site: &Site, turn: &Turn, record: &mut MachineRecord, done: Option<Work>) {
    record.status.task_ref = None;
    let mut known = turn.slot.known();
    known.task = None;
    known.uncertain = None;
    if let Some(done) = done {
        known.done = Some((done, Instant::now()));
        if let Some(change) = done.change() {
            site.vcenter.note_change(turn.uid, change);
        }
    }
    if let (Some(Work::Destroy), Some(machine)) = (done, &known.target) {
        site.removed.note(machine);
    }
    drop(known);
    if done == Some(Work::RemoveBootstrapData) {
        removed(turn, record);
    }
}

/// Keeps that the bootstrap data of a machine are gone.
fn removed(turn: &Turn, record: &mut MachineRecord) {
    turn.slot.known().removal_failed = None;
    record.status.is_bootstrap_data_removed = true;
    record.remove(BOOTSTRAP_DATA_REMOVED);
}

/// Says why the bootstrap data of a machine are still there.
pub(super) fn failed_to_remove(turn: &Turn, record: &mut MachineRecord, why: String) {
    turn.slot.known().removal_failed = Some(Instant::now());
    let condition = Condition::new(BOOTSTRAP_DATA_REMOVED, ConditionStatus::False, "RemovalFailed");
    record.set(condition.with_message(why));
}

/// The wait for a task.
pub(super) fn waiting(site: &Site, work: Option<Work>, task: &MoRef) -> Wait {
    let what = work.map_or("work", Work::words);
    let reason = match work {
        Some(Work::Clone) => "WaitingForClone",
        Some(Work::PowerOn) => "PoweringOn",
        Some(Work::PowerOff) => "PoweringOff",
        _ => "WaitingForTask",
    };
    let words = format!("{what} by {} of vCenter {:?}", task.id(), site.vcenter.name());
    // A power-on need not hold a move: whether a machine runs is seen in the inventory.
    let wait = if work == Some(Work::PowerOn) { Wait::address(words) } else { Wait::task(words) };
    // No task need be known after a crash: a second clone is refused, since the name is taken, and whatever else is done twice does no harm.
    // The clone has the bootstrap data, and what comes after it needs none.
    wait.with_reason(reason).without_bootstrap_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_the_end_of_the_work_that_it_belongs_to() {
        for (work, is_there, fault, expected) in [
            // the snapshot, pool or folder of a clone is gone: that is an error
            (Some(Work::Clone), false, "ManagedObjectNotFound", false),
            (Some(Work::Clone), true, "InvalidPowerState", false),
            (Some(Work::PowerOn), true, "InvalidPowerState", true),
            (Some(Work::PowerOff), true, "InvalidPowerState", true),
            (Some(Work::Destroy), true, "InvalidPowerState", false),
            (Some(Work::Destroy), true, "ManagedObjectNotFound", true),
            (Some(Work::Upgrade), true, "AlreadyUpgraded", true),
            (None, false, "ManagedObjectNotFound", false),
            (None, true, "ManagedObjectNotFound", true),
            (None, true, "NoDiskSpace", false),
        ] {
            assert_eq!(is_done_already(work, is_there, fault), expected, "{work:?} {is_there} {fault}");
        }
    }
}
