//! Work that an earlier step has begun.

use std::time::Duration;

use cloudprovider::{
    ErrorKind, Result,
    machines::{Condition, ConditionStatus, MachineReport, Wait},
};
use tokio::time::Instant;

use super::step::{Flow, Step, Stop, waiting};
use crate::{
    machines::{naming::vm_name_or_own, state::RunningTask, work::Work},
    moref::MoRef,
    tasks::{TASK, TaskFault, TaskState},
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

impl Step<'_> {
    /// Waits for the task of an earlier step. Meanwhile a machine that is there is reported as it is.
    pub(super) async fn wait_for_task(&mut self) -> Flow<MachineReport> {
        let Some(wait) = self.outstanding().await? else { return Ok(()) };
        let report = match (self.state.quiet_work(), self.shown()?) {
            (Some(Work::RemoveBootstrapData), Some(vm)) => self.report_beside(&vm, wait.look_again_after)?,
            (Some(work), Some(vm)) => self.report_meanwhile(&vm, work)?,
            // A machine that is being cloned may be seen already, and is not to be touched.
            (None, Some(vm)) if self.request.provider_id.is_some() && self.is_own(&vm).await? => {
                self.report(&vm, Some(wait))?
            }
            _ => MachineReport::Creating(wait),
        };
        Err(Stop::Answer(report))
    }
}

impl<C> Step<'_, C> {
    /// What to wait for, if work is under way. Work that has ended is removed from the status.
    ///
    /// # Errors
    /// Why the work has failed.
    pub(super) async fn outstanding(&mut self) -> Result<Option<Wait>> {
        if self.state.runs_elsewhere(self.vcenter.name()) {
            return Ok(None);
        }
        let (mut work, mut task, since) = match self.state.running() {
            Some(RunningTask { work, task, since }) => (Some(work), task, Some(since)),
            None => match self.record.status.task_ref.as_deref() {
                Some(id) if !id.is_empty() => (None, MoRef::new(TASK, id), None),
                _ => return Ok(None),
            },
        };
        let age = since.map(|since| since.elapsed());
        let is_done = work.and_then(Work::change).is_some_and(|change| {
            change.ends_its_task()
                && change.is_shown(self.vcenter.state().inventory.with_instance_uuid(self.uid))
        });
        let mut state = self.state_of(&task, age, is_done).await?;
        if let Some(TaskState::Continued(next)) = &state {
            // only a power-on does
            work = work.or(Some(Work::PowerOn));
            if let Some(next) = next.clone() {
                // vCenter forgets the first one some minutes after its end.
                self.state.note_next_task(next.clone(), since.unwrap_or_else(Instant::now));
                state = self.state_of(&next, age, is_done).await?;
                task = next;
            }
        }
        match state {
            Some(TaskState::Running) => {
                if !work.is_some_and(Work::stops_nothing) {
                    self.record.status.task_ref = Some(task.id().to_owned());
                }
                let is_shown = self.vcenter.state().tasks.get(&task).is_some();
                let look = match age {
                    _ if is_done => MAX_LAST_MOMENT,
                    _ if !is_shown => UNSEEN_RETRY,
                    Some(age) if age < RUNNING_RETRY => RUNNING_RETRY,
                    _ => LONG_RUNNING_RETRY,
                };
                Ok(Some(waiting(&self.vcenter, work, &task).look_again_after(look)))
            }
            Some(TaskState::Success) => {
                self.finish(work);
                Ok(None)
            }
            // Nothing tells the end of it but the inventory, some time later. A failure is told by nobody, so the next try is without DRS.
            Some(TaskState::Continued(_)) => {
                self.finish(None);
                self.state.note_left_to_drs(work);
                Ok(None)
            }
            // vCenter does not know it any more: what it did is seen in the inventory.
            None => {
                self.finish(None);
                Ok(None)
            }
            Some(TaskState::Failed(fault)) if is_done_already(work, self.shown()?.is_some(), &fault.kind) => {
                self.finish(work);
                Ok(None)
            }
            Some(TaskState::Failed(fault))
                if work.is_some_and(Work::stops_nothing) && is_outdated(&fault.kind) =>
            {
                self.finish(None);
                Ok(None)
            }
            Some(TaskState::Failed(fault)) if work == Some(Work::RemoveBootstrapData) => {
                self.finish(None);
                self.failed_to_remove(format!("the removal has failed ({}): {fault}", task.id()));
                Ok(None)
            }
            Some(TaskState::Failed(fault)) if work == Some(Work::Guest) && self.request.is_provisioned => {
                self.finish(None);
                self.failed_to_pass_on(format!("the writing has failed ({}): {fault}", task.id()));
                Ok(None)
            }
            Some(TaskState::Failed(fault)) => {
                self.finish(None);
                self.failed(work, &task, &fault).await
            }
        }
    }

    /// How far a task of this age is. `is_done` is whether the inventory shows what it does. `None` if vCenter knows no such task.
    async fn state_of(
        &self,
        task: &MoRef,
        age: Option<Duration>,
        is_done: bool,
    ) -> Result<Option<TaskState>> {
        let seen = self.vcenter.wait_for_task(task, &self.request.mark.uid).map(|task| task.state);
        let is_young = |limit| age.is_some_and(|age| age < limit);
        let state = match seen {
            Some(ended) if ended != TaskState::Running => Some(ended),
            _ if is_done && !is_young(MAX_LAST_MOMENT) => Some(TaskState::Success),
            // It was begun just now, or the tasks are being listed.
            None if is_young(UNSEEN_RETRY) => Some(TaskState::Running),
            Some(_) if is_young(RUNNING_RETRY) => Some(TaskState::Running),
            _ => self.machines.task(&self.vcenter, task).await?.map(|task| task.state),
        };
        if state != Some(TaskState::Running) {
            self.vcenter.stop_waiting_for_task(task);
        }
        Ok(state)
    }

    /// What follows from work that has failed.
    async fn failed(&self, work: Option<Work>, task: &MoRef, fault: &TaskFault) -> Result<Option<Wait>> {
        self.machines.forget_facts();
        if self.gives_up_drs(work, fault).await? {
            return Ok(None);
        }
        let name = vm_name_or_own(self.request);
        if &*fault.kind == "DuplicateName" && self.vcenter.find(self.uid).await?.is_empty() {
            let what =
                format!("virtual machine {name:?} in the same folder of vCenter {:?}", self.vcenter.name());
            return Err(self.request.mark.conflict(what, None));
        }
        if &*fault.kind == "DuplicateName" {
            // an earlier call has made it
            return Ok(None);
        }
        // It may be about the machine, or about something that the work needs.
        if &*fault.kind == "ManagedObjectNotFound"
            && let Some(vm) = self.shown()?
            && self.vcenter.has_removed(&vm.moref).await?
        {
            return Ok(None);
        }
        let what = work.map_or("work", Work::words);
        let words = format!("the {what} of {name:?} has failed ({}): {fault}", task.id());
        let kind = match &*fault.kind {
            "NoPermission" => ErrorKind::PermissionDenied,
            _ => ErrorKind::Unavailable,
        };
        Err(self.vcenter.error(kind, &words).with_source(fault.clone()))
    }

    /// Notes that the task has ended, and the work that it has done.
    fn finish(&mut self, done: Option<Work>) {
        self.record.status.task_ref = None;
        let target = self.state.note_ended(done);
        if let Some(change) = done.and_then(Work::change) {
            self.vcenter.note_change(self.uid, change);
        }
        if let (Some(Work::Destroy), Some(machine)) = (done, &target) {
            self.vcenter.tombstones.note(machine);
        }
        if done == Some(Work::RemoveBootstrapData) {
            self.state.note_removal(false);
            self.record.status.is_bootstrap_data_removed = true;
            self.record.remove(BOOTSTRAP_DATA_REMOVED);
        }
    }

    /// Says why the bootstrap data of the machine are still there.
    pub(super) fn failed_to_remove(&mut self, why: String) {
        self.state.note_removal(true);
        let condition = Condition::new(BOOTSTRAP_DATA_REMOVED, ConditionStatus::False, "RemovalFailed");
        self.record.set(condition.with_message(why));
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
