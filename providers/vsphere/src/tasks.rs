//! The tasks of one vCenter, as its task manager shows them: those that run, and those that ended lately.

mod power_on;
mod state;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

pub(crate) use self::state::{TaskFault, TaskState};
use crate::{
    moref::MoRef,
    vim::{
        element::Element,
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec, TraversalSpec},
        property_collector::{ObjectUpdate, Property, UpdateKind},
    },
};

/// The type of the objects.
pub(crate) const TASK: &str = "Task";

/// The properties that are read of a task. Not its progress, which changes often.
pub(crate) const TASK_PATHS: [&str; 5] =
    ["info.state", "info.error", "info.result", "info.entity", "info.descriptionId"];

/// The properties of a task that are watched: what code asks of tasks that have ended.
const WATCHED_PATHS: [&str; 3] = ["info.state", "info.error", "info.result"];

/// How many tasks that have ended are kept. vCenter shows the last 200.
const MAX_ENDED: usize = 4096;

/// After this time without a question, nobody waits for a task any more.
const WAIT_LASTS: Duration = Duration::from_secs(180);

/// What the description of every edit of a cluster of hosts has in it: `ComputeResource.reconfigureEx`, and
/// `ClusterComputeResource.reconfigure` of the older method.
const EDIT: &str = "ComputeResource.reconfigure";

/// What the description of every clone begins with.
const CLONE: &str = "VirtualMachine.clone";

/// Selects the tasks that run, and those that ended lately, with all that is read of them.
pub(crate) fn selection(manager: &MoRef) -> PropertyFilterSpec {
    selected(manager, TASK_PATHS.into())
}

/// Selects the same tasks, with what is watched of them.
pub(crate) fn watched(manager: &MoRef) -> PropertyFilterSpec {
    selected(manager, WATCHED_PATHS.into())
}

fn selected(manager: &MoRef, path_set: Vec<&'static str>) -> PropertyFilterSpec {
    let recent = TraversalSpec {
        name: Some("recent"),
        kind: "TaskManager",
        path: "recentTask",
        skip: Some(false),
        select_set: Vec::new(),
    };
    PropertyFilterSpec {
        prop_set: vec![PropertySpec { kind: TASK, all: None, path_set }],
        object_set: vec![ObjectSpec { obj: manager.clone(), skip: Some(true), select_set: vec![recent] }],
        report_missing_objects_in_results: None,
    }
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) state: TaskState,
    /// What it works on. For a clone it is the template. Not known of a task that is watched.
    pub(crate) entity: Option<MoRef>,
    /// What it does, such as `VirtualMachine.clone`. Not known of a task that is watched.
    pub(crate) description: Box<str>,
    /// How far its work is once the task has succeeded, if its result says more than that.
    result: Option<Box<TaskState>>,
}

impl Task {
    /// Takes the properties of an update.
    pub(crate) fn apply(&mut self, properties: &[Property<'_>]) {
        for (path, value) in properties {
            match (*path, value) {
                ("info.state", Some(value)) => match &*value.text {
                    "success" => self.state = TaskState::Success,
                    "error" if !matches!(self.state, TaskState::Failed(_)) => {
                        self.state = TaskState::Failed(TaskFault::default());
                    }
                    "queued" | "running" => self.state = TaskState::Running,
                    _ => {}
                },
                ("info.error", Some(value)) => self.state = TaskState::Failed(TaskFault::read(value)),
                ("info.result", value) => self.result = value.and_then(power_on::read).map(Box::new),
                ("info.entity", value) => self.entity = value.and_then(Element::moref),
                ("info.descriptionId", Some(value)) => self.description = value.text.clone(),
                _ => {}
            }
        }
        if let (TaskState::Success, Some(result)) = (&self.state, &self.result) {
            self.state = (**result).clone();
        }
    }

    /// Whether it is a clone that is under way.
    pub(crate) fn is_clone_under_way(&self) -> bool {
        !self.has_ended() && self.description.starts_with(CLONE)
    }

    /// Whether it is an edit of this cluster of hosts that is under way.
    pub(crate) fn is_edit_under_way(&self, cluster: &MoRef) -> bool {
        !self.has_ended() && self.entity.as_ref() == Some(cluster) && self.description.contains(EDIT)
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.state != TaskState::Running
    }
}

/// All of them, and which objects of the API wait for which.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    known: HashMap<MoRef, Task>,
    /// Those that have ended, in the order of their ends.
    ended: VecDeque<MoRef>,
    waiting: HashMap<MoRef, Waiting>,
    /// How many ends were told of tasks that somebody waited for.
    ends: u64,
}

/// Who waits for a task.
#[derive(Debug)]
struct Waiting {
    /// The UIDs of the objects.
    uids: BTreeSet<String>,
    since: Instant,
    /// When it was last asked for.
    asked: Instant,
}

impl Tasks {
    /// Applies updates. Returns the UIDs of the objects that waited for tasks that have ended.
    pub(crate) fn apply(&mut self, updates: &[ObjectUpdate<'_>]) -> Vec<String> {
        let mut woken = Vec::new();
        for update in updates.iter().filter(|update| update.object.kind() == TASK) {
            if update.kind == UpdateKind::Leave {
                self.forget(&update.object);
                woken.extend(self.wake(&update.object));
                continue;
            }
            let task = self.known.entry(update.object.clone()).or_default();
            let had_ended = task.has_ended();
            task.apply(&update.properties);
            if task.has_ended() && !had_ended {
                self.ended.push_back(update.object.clone());
                woken.extend(self.wake(&update.object));
            }
        }
        while self.ended.len() > MAX_ENDED {
            if let Some(oldest) = self.ended.pop_front() {
                self.known.remove(&oldest);
            }
        }
        woken
    }

    /// The UIDs of the objects that wait for a task, which is over.
    fn wake(&mut self, task: &MoRef) -> BTreeSet<String> {
        let Some(waiting) = self.waiting.remove(task) else { return BTreeSet::new() };
        self.ends += 1;
        waiting.uids
    }

    /// Forgets the tasks under way that a listing has no more. Returns the UIDs of the objects that waited for them.
    pub(crate) fn retain(&mut self, listed: &HashSet<MoRef>) -> Vec<String> {
        let is_missing = |(task, known): &(&MoRef, &Task)| !known.has_ended() && !listed.contains(*task);
        let missing: Vec<_> = self.known.iter().filter(is_missing).map(|(task, _)| task.clone()).collect();
        let mut woken = Vec::new();
        for task in missing {
            self.forget(&task);
            woken.extend(self.wake(&task));
        }
        woken
    }

    fn forget(&mut self, task: &MoRef) {
        if self.known.remove(task).is_some_and(|task| task.has_ended()) {
            self.ended.retain(|one| one != task);
        }
    }

    /// A task, if it is known.
    pub(crate) fn get(&self, task: &MoRef) -> Option<&Task> {
        self.known.get(task)
    }

    /// Notes that an object waits for the end of a task. False if the task has ended already.
    pub(crate) fn wait(&mut self, task: &MoRef, uid: &str) -> bool {
        if self.known.get(task).is_some_and(Task::has_ended) {
            return false;
        }
        let now = Instant::now();
        let new = || Waiting { uids: BTreeSet::new(), since: now, asked: now };
        let waiting = self.waiting.entry(task.clone()).or_insert_with(new);
        waiting.asked = now;
        waiting.uids.insert(uid.to_owned());
        true
    }

    /// How many ends were told of tasks that somebody waited for.
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// For how long the oldest task has been waited for.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let asked = self.waiting.values().filter(|waiting| waiting.asked.elapsed() < WAIT_LASTS);
        asked.map(|waiting| waiting.since.elapsed()).max()
    }

    /// Forgets who waits for a task: its end is known from elsewhere.
    pub(crate) fn stop_waiting(&mut self, task: &MoRef) {
        self.waiting.remove(task);
    }

    /// Forgets the tasks, but not who waits: changes are followed no longer.
    pub(crate) fn lose(&mut self) {
        self.known.clear();
        self.ended.clear();
    }
}

#[cfg(test)]
mod tests;
