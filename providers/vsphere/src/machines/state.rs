//! What this process knows of each machine beside the status of its object. All of it may be lost.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, Result, machines::Condition};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use uuid::Uuid;

use super::work::Work;
use crate::{moref::MoRef, vim::CallError};

/// For how long work that has succeeded is of interest.
const DONE_LASTS: Duration = Duration::from_secs(60);

/// The same for a deletion. The inventory may be away for longer, and the object may stay for a while after its machine is gone.
const DESTROYED_LASTS: Duration = Duration::from_secs(60 * 60);

/// When a write that a complete machine does not depend on is tried again after a failure.
pub(crate) const WRITE_RETRY: Duration = Duration::from_secs(60);

/// How often all machines are searched for states that are not needed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Work that was begun on a machine and whose end is not known.
#[derive(Clone, Debug)]
pub(crate) struct RunningTask {
    pub(crate) work: Work,
    pub(crate) task: MoRef,
    pub(crate) since: Instant,
}

/// What the last step has seen and neither answered nor recorded.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The shape of the network configuration that the guest has, if that is known.
    pub(crate) guest: Option<u64>,
    /// Whether the vCenter is followed, if the step came so far.
    pub(crate) vcenter: Option<Result<()>>,
    /// How far the shutdown of the guest is.
    pub(crate) soft_power_off: Option<Condition>,
}

/// What is known of one machine. Its steps share it with the calls that they leave behind.
#[derive(Debug, Default)]
pub(crate) struct MachineState(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    running: Option<RunningTask>,
    /// The work that has succeeded last. The inventory may show it a moment later.
    done: Option<(Work, Instant)>,
    /// When a clone was begun of which it is not known whether it was.
    uncertain: Option<Instant>,
    /// The vCenter that the work, or the uncertain clone, is of.
    vcenter: Option<String>,
    /// What the work is done to that was begun last: the machine, the template of a clone, or the datacenter of a power-on by DRS.
    target: Option<MoRef>,
    /// The clones that ran when the machine was to be deleted and was not found, by vCenter. One could be its own.
    clones: HashMap<String, HashSet<MoRef>>,
    /// Since when vCenter finds the machine by its instance UUID and the inventory does not show it.
    unshown_since: Option<Instant>,
    /// The task of another program that was waited for.
    taken_over: Option<String>,
    /// Whether the tags are attached. It is forgotten once the machine is complete.
    is_tagged: bool,
    /// Whether DRS was to power it on and named no task. It is forgotten once the machine is complete.
    was_left_to_drs: bool,
    /// The shape of the network configuration that its guest has. It is forgotten once the machine is complete.
    guest: Option<u64>,
    /// The shape that was written to its guest last, until its `VSphereVM` has it.
    guest_written: Option<u64>,
    /// When an edit could not be passed on to its guest.
    guest_failed: Option<Instant>,
    /// When its bootstrap data could not be removed.
    removal_failed: Option<Instant>,
    /// Whether its vCenter is followed, as far as the current step has come.
    is_followed: Option<Result<()>>,
    /// How far the shutdown of its guest is before it is deleted. A later process does not know whether one that is off was forced.
    soft_power_off: Option<Condition>,
}

impl Facts {
    fn has_just_done(&self, work: Work, within: Duration) -> bool {
        self.done.is_some_and(|(done, since)| done == work && since.elapsed() < within)
    }

    /// Whether the task, or the uncertain clone, is of this vCenter, as far as is known.
    fn is_of(&self, vcenter: &str) -> bool {
        self.vcenter.as_deref().is_none_or(|name| name == vcenter)
    }
}

/// Work that is under way or has ended.
impl MachineState {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock()
    }

    /// Whether something was begun that may have made the machine.
    pub(crate) fn has_begun(&self) -> bool {
        let facts = self.facts();
        facts.running.is_some()
            || facts.uncertain.is_some()
            || facts.done.is_some_and(|(work, _)| work == Work::Clone)
    }

    /// Notes the answer of a call that begins work on `target`.
    pub(crate) fn note_begun(
        &self,
        vcenter: &str,
        (work, target): (Work, MoRef),
        answer: &Result<MoRef, CallError>,
    ) {
        let mut facts = self.facts();
        facts.vcenter = Some(vcenter.to_owned());
        match answer {
            Ok(task) => {
                facts.running = Some(RunningTask { work, task: task.clone(), since: Instant::now() });
                facts.target = Some(target);
                facts.done = None;
            }
            // Any other fault says that nothing was begun.
            Err(error) if work == Work::Clone && !matches!(error, CallError::Fault { .. }) => {
                facts.uncertain = Some(Instant::now());
            }
            Err(_) => {}
        }
    }

    /// Notes that the power-on goes on in another task.
    pub(crate) fn note_next_task(&self, task: MoRef, since: Instant) {
        let mut facts = self.facts();
        facts.running = Some(RunningTask { work: Work::PowerOn, task, since });
        facts.target = None;
    }

    /// Notes that no task runs. Returns what the work was done to that was begun last.
    pub(crate) fn note_ended(&self, done: Option<Work>) -> Option<MoRef> {
        let mut facts = self.facts();
        (facts.running, facts.uncertain) = (None, None);
        if let Some(done) = done {
            facts.done = Some((done, Instant::now()));
        }
        facts.target.clone()
    }

    /// Notes that DRS powers the machine on later, without a task.
    pub(crate) fn note_left_to_drs(&self, work: Option<Work>) {
        let mut facts = self.facts();
        facts.done = work.map(|work| (work, Instant::now()));
        facts.was_left_to_drs = true;
    }

    pub(crate) fn was_left_to_drs(&self) -> bool {
        self.facts().was_left_to_drs
    }

    pub(crate) fn running(&self) -> Option<RunningTask> {
        self.facts().running.clone()
    }

    /// Whether the running task is of another vCenter than this one.
    pub(crate) fn runs_elsewhere(&self, vcenter: &str) -> bool {
        let facts = self.facts();
        facts.running.is_some() && !facts.is_of(vcenter)
    }

    /// The work that runs, if it stops nothing.
    pub(crate) fn quiet_work(&self) -> Option<Work> {
        self.facts().running.as_ref().map(|running| running.work).filter(|work| work.stops_nothing())
    }

    /// Whether the work that was begun last is done to an object of this kind.
    pub(crate) fn works_on(&self, kind: &str) -> bool {
        self.facts().target.as_ref().is_some_and(|target| target.kind() == kind)
    }

    /// Whether this work has just succeeded, so that the inventory may not show it yet.
    pub(crate) fn has_just_done(&self, work: Work, within: Duration) -> bool {
        self.facts().has_just_done(work, within)
    }

    /// Whether a clone whose answer was lost this recently may still appear on this vCenter.
    pub(crate) fn may_appear_on(&self, vcenter: &str, within: Duration) -> bool {
        let facts = self.facts();
        facts.uncertain.is_some_and(|since| since.elapsed() < within) && facts.is_of(vcenter)
    }

    /// Whether this vCenter has said that it has destroyed the machine, and nothing was begun since.
    pub(crate) fn is_destroyed_on(&self, vcenter: &str) -> bool {
        let facts = self.facts();
        facts.has_just_done(Work::Destroy, DESTROYED_LASTS) && facts.vcenter.as_deref() == Some(vcenter)
    }

    /// Takes the task of another program, unless it was waited for before.
    pub(crate) fn take_over(&self, task: &str) -> bool {
        let mut facts = self.facts();
        let is_new = facts.taken_over.as_deref() != Some(task);
        facts.taken_over = Some(task.to_owned());
        is_new
    }
}

/// What steps have seen and done.
impl MachineState {
    /// Notes whether the vCenter is followed, which looking for it has shown.
    pub(crate) fn note_followed<T>(&self, found: Result<T>) -> Result<T> {
        self.facts().is_followed = Some(found.as_ref().map(drop).map_err(Error::clone));
        found
    }

    /// What the step has seen that ends here. What the guest of a complete machine has is forgotten.
    pub(crate) fn observed(&self, is_complete: bool) -> Observed {
        let mut facts = self.facts();
        let (vcenter, soft_power_off) = (facts.is_followed.take(), facts.soft_power_off.clone());
        let guest = facts.guest;
        facts.guest = guest.filter(|_| !is_complete);
        Observed { guest, vcenter, soft_power_off }
    }

    /// Notes that vCenter has no machine that the inventory does not show.
    pub(crate) fn clear_unshown(&self) {
        self.facts().unshown_since = None;
    }

    /// For how long vCenter has found the machine and the inventory has not shown it.
    pub(crate) fn unshown_for(&self) -> Duration {
        self.facts().unshown_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Notes that the machine is made anew. One that was destroyed before it was complete may have had its tags.
    pub(crate) fn note_new(&self) {
        let mut facts = self.facts();
        (facts.is_tagged, facts.was_left_to_drs) = (false, false);
    }

    pub(crate) fn is_tagged(&self) -> bool {
        self.facts().is_tagged
    }

    pub(crate) fn note_tagged(&self, is_tagged: bool) {
        self.facts().is_tagged = is_tagged;
    }

    /// The clones of this vCenter that were under way when the machine was first not found, and still are. The first call has all of
    /// `running`.
    pub(crate) fn clones_left(&self, vcenter: &str, running: &HashSet<MoRef>) -> Option<MoRef> {
        let mut facts = self.facts();
        let watched = facts.clones.entry(vcenter.to_owned()).or_insert_with(|| running.clone());
        watched.retain(|task| running.contains(task));
        watched.iter().min().cloned()
    }

    /// Whether the clones of [`clones_left`](Self::clones_left) have all ended.
    pub(crate) fn has_waited_for_clones(&self, vcenter: &str) -> bool {
        self.facts().clones.get(vcenter).is_some_and(HashSet::is_empty)
    }

    /// Notes how far the shutdown of the guest is. `next` gets what was known before.
    pub(crate) fn note_soft_power_off(&self, next: impl FnOnce(Option<Condition>) -> Option<Condition>) {
        let mut facts = self.facts();
        let before = facts.soft_power_off.take();
        facts.soft_power_off = next(before);
    }
}

/// What the guest has.
impl MachineState {
    /// The shape of the network configuration that the guest has, and the one that was written last.
    pub(crate) fn guest(&self) -> (Option<u64>, Option<u64>) {
        let facts = self.facts();
        (facts.guest, facts.guest_written)
    }

    /// Notes what the guest gets when it is made.
    pub(crate) fn note_guest(&self, shape: Option<u64>) {
        self.facts().guest = shape;
    }

    /// Notes what was written to the guest.
    pub(crate) fn note_guest_written(&self, shape: Option<u64>) {
        self.facts().guest_written = shape;
    }

    /// Notes that the guest has what was written to it.
    pub(crate) fn note_guest_has(&self, shape: Option<u64>) {
        let mut facts = self.facts();
        (facts.guest, facts.guest_written) = (shape, None);
    }

    pub(crate) fn note_guest_failed(&self) {
        self.facts().guest_failed = Some(Instant::now());
    }

    /// When a write to the guest is tried again. `None` if none has failed lately.
    pub(crate) fn guest_retry(&self) -> Option<Duration> {
        retry_after(self.facts().guest_failed)
    }

    /// Notes whether the removal of the bootstrap data has failed.
    pub(crate) fn note_removal(&self, has_failed: bool) {
        self.facts().removal_failed = has_failed.then(Instant::now);
    }

    /// When the removal of the bootstrap data is tried again. `None` if none has failed lately.
    pub(crate) fn removal_retry(&self) -> Option<Duration> {
        retry_after(self.facts().removal_failed)
    }
}

fn retry_after(failed: Option<Instant>) -> Option<Duration> {
    WRITE_RETRY.checked_sub(failed?.elapsed()).filter(|left| !left.is_zero())
}

impl MachineState {
    /// Forgets all but that vCenter has destroyed the machine. Its object may have one more step before it goes too.
    pub(crate) fn note_gone(&self) {
        let mut facts = self.facts();
        let done = facts.done.filter(|(work, _)| *work == Work::Destroy);
        *facts = Facts { done, vcenter: facts.vcenter.take(), ..Facts::default() };
    }

    /// Whether nothing would be lost with it.
    fn is_empty(&self) -> bool {
        let facts = self.facts();
        let is_new = |(work, since): (Work, Instant)| {
            since.elapsed() < if work == Work::Destroy { DESTROYED_LASTS } else { DONE_LASTS }
        };
        facts.running.is_none()
            && !facts.done.is_some_and(is_new)
            && facts.uncertain.is_none()
            && facts.unshown_since.is_none()
            && facts.clones.is_empty()
            && facts.taken_over.is_none()
            && !facts.is_tagged
            && facts.guest.is_none()
            && facts.guest_written.is_none()
            && !facts.was_left_to_drs
            && retry_after(facts.guest_failed).is_none()
            && retry_after(facts.removal_failed).is_none()
    }
}

/// The namespace and the UID of a machine's object: objects of several namespaces may claim one UID.
pub(crate) type Owner = (String, Uuid);

/// The states of all machines of which something is known.
#[derive(Debug)]
pub(crate) struct MachineStates(Mutex<States>);

#[derive(Debug)]
struct States {
    by_owner: HashMap<Owner, Arc<MachineState>>,
    swept: Instant,
}

impl MachineStates {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(States { by_owner: HashMap::new(), swept: Instant::now() }))
    }

    /// The state of a machine.
    pub(crate) fn of(&self, owner: &Owner) -> Arc<MachineState> {
        Arc::clone(self.0.lock().by_owner.entry(owner.clone()).or_default())
    }

    /// Whether a machine with this instance UUID has a state.
    pub(crate) fn has(&self, instance_uuid: Option<Uuid>) -> bool {
        self.0.lock().by_owner.keys().any(|(_, uid)| Some(*uid) == instance_uuid)
    }

    /// Forgets a machine after its step, unless something would be lost. Now and then, others too: a machine that is gone may have no
    /// other step.
    pub(crate) fn forget_unused(&self, owner: &Owner) {
        // A step and a call that is under way have a clone.
        let is_unused = |state: &Arc<MachineState>| Arc::strong_count(state) == 1 && state.is_empty();
        let mut states = self.0.lock();
        if states.by_owner.get(owner).is_some_and(is_unused) {
            states.by_owner.remove(owner);
        }
        if states.swept.elapsed() >= SWEEP_INTERVAL {
            states.by_owner.retain(|_, state| !is_unused(state));
            states.swept = Instant::now();
        }
    }
}
