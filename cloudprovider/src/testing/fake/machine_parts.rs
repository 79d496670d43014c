//! What machines of the fake cloud consist of, and the work that is under way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::FakeInstance;
use crate::{
    Error, NodeAddress,
    machines::{BootstrapData, Mark},
};

/// Everything that belongs to machines and clusters, except the instances.
#[derive(Default)]
pub(super) struct MachineParts {
    /// Disks and endpoints by their names, each with its mark if it has one.
    pub(super) things: BTreeMap<String, Option<Mark>>,
    /// What the machines were given, by the IDs of their instances.
    pub(super) bootstrap: BTreeMap<String, BootstrapData>,
    pub(super) tasks: BTreeMap<String, Task>,
    /// The last task of each machine, by the UID of its mark.
    last_tasks: BTreeMap<String, String>,
    /// When the next task or lease is due, or earlier.
    due: Option<Instant>,
    /// When an instance gets its address.
    leases: BTreeMap<String, Instant>,
    tasks_begun: usize,
    addresses_given: u32,
    pub(super) task_time: Duration,
    pub(super) address_time: Duration,
    /// The errors of the next tasks.
    pub(super) failures: VecDeque<Error>,
    /// How many changes the cloud still makes before the daemon seems to die. `Some(0)`: it is dead.
    pub(super) changes_until_crash: Option<usize>,
    /// How often each machine was reset, by the UID of its mark.
    pub(super) resets: BTreeMap<String, usize>,
    /// The identities of objects that are gone, as the provider was told.
    pub(super) forgotten: BTreeSet<String>,
}

/// Work that takes time.
pub(super) struct Task {
    pub(super) mark: Mark,
    pub(super) state: TaskState,
}

pub(super) enum TaskState {
    Running { until: Instant, work: Work, failure: Option<Error> },
    Succeeded,
    Failed(Error),
}

pub(super) enum Work {
    Create(String, Box<FakeInstance>),
    Destroy(String),
}

impl MachineParts {
    /// Begins a task. Returns its ID and when it ends.
    pub(super) fn begin(&mut self, mark: &Mark, work: Work, now: Instant) -> (String, Instant) {
        self.tasks_begun += 1;
        let (id, until) = (format!("task-{}", self.tasks_begun), now + self.task_time);
        let state = TaskState::Running { until, work, failure: self.failures.pop_front() };
        self.tasks.insert(id.clone(), Task { mark: mark.clone(), state });
        self.last_tasks.insert(mark.uid.clone(), id.clone());
        self.is_due(until);
        (id, until)
    }

    fn is_due(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// The running task with this mark, and when it ends.
    pub(super) fn running(&self, mark: &Mark) -> Option<(&String, Instant)> {
        let id = self.last_tasks.get(&mark.uid)?;
        match self.tasks.get(id)? {
            Task { mark: of, state: TaskState::Running { until, .. } } if of == mark => Some((id, *until)),
            _ => None,
        }
    }

    /// Whether a task has worked for the machine with this UID.
    pub(super) fn is_machine(&self, uid: &str) -> bool {
        self.last_tasks.contains_key(uid)
    }

    /// Lets an instance wait for an address. Returns when it gets one.
    pub(super) fn lease(&mut self, id: &str, now: Instant) -> Instant {
        let at = *self.leases.entry(id.to_owned()).or_insert(now + self.address_time);
        self.is_due(at);
        at
    }

    /// Does what has come to its end by now.
    pub(super) fn settle(&mut self, instances: &mut BTreeMap<String, FakeInstance>, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for task in self.tasks.values_mut() {
            let TaskState::Running { until, .. } = &task.state else { continue };
            if *until > now {
                continue;
            }
            let state = std::mem::replace(&mut task.state, TaskState::Succeeded);
            match state {
                TaskState::Running { failure: Some(error), .. } => task.state = TaskState::Failed(error),
                TaskState::Running { work: Work::Create(id, instance), .. } => {
                    instances.entry(id).or_insert(*instance);
                }
                TaskState::Running { work: Work::Destroy(id), .. } => {
                    instances.remove(&id);
                }
                TaskState::Succeeded | TaskState::Failed(_) => {}
            }
        }
        let leased: Vec<_> =
            self.leases.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in leased {
            self.leases.remove(&id);
            if let Some(instance) = instances.get_mut(&id) {
                self.addresses_given += 1;
                let [_, _, high, low] = self.addresses_given.to_be_bytes();
                instance.metadata.addresses = vec![
                    NodeAddress::internal_ip(format!("10.1.{high}.{low}")),
                    NodeAddress::hostname(instance.name.clone().unwrap_or_default()),
                ];
            }
        }
        let tasks = self.tasks.values().filter_map(|task| match &task.state {
            TaskState::Running { until, .. } => Some(*until),
            TaskState::Succeeded | TaskState::Failed(_) => None,
        });
        self.due = tasks.chain(self.leases.values().copied()).min();
    }
}
