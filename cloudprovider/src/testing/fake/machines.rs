//! Machines of the fake cloud, as a test sees and disturbs them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FakeCloud, FakeInstance};
use crate::{
    Error,
    machines::{AuxiliaryKind, BootstrapData, GROUP, Kind, Kinds, Mark},
};

/// The kinds of the fake cloud.
pub(super) const KINDS: Kinds = Kinds::new(
    "v1alpha1",
    Kind::new("FakeMachine", "fakemachines"),
    Kind::new("FakeCluster", "fakeclusters"),
)
.with_auxiliary(&[FAKE_FLAVOR, FAKE_GUEST, FAKE_REGION])
.with_reset();

/// What a machine of the fake cloud can be: `spec` has `cpus` and `memoryMiB`. Steps read it.
pub const FAKE_FLAVOR: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1alpha1", Kind::new("FakeFlavor", "fakeflavors")).cluster_scoped();

/// What the fake cloud says about a guest, beside the machine. Steps want it.
pub const FAKE_GUEST: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1alpha1", Kind::new("FakeGuest", "fakeguests"))
        .made()
        .with_left_finalizers(&["fakeguest.example.org"]);

/// A region of the fake cloud: `spec` has `flavors`, the names of the [flavors](FAKE_FLAVOR) that it is to have. The fake cloud
/// says in its status whether they exist, and how many machines it has. It is the failure domain of its name.
pub const FAKE_REGION: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1alpha1", Kind::new("FakeRegion", "fakeregions"))
        .cluster_scoped()
        .status_only()
        .failure_domains("fakeregion.infrastructure.cluster.x-k8s.io")
        .with_left_finalizers(&["fakeregion.example.org"]);

/// The spec of a machine of the fake cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FakeMachineSpec {
    /// How many CPUs it has.
    #[schemars(range(min = 1))]
    pub cpus: u32,
    /// Its memory in MiB.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 128))]
    pub memory_mib: u32,
    /// The name of the [`FAKE_FLAVOR`] that says how many CPUs and how much memory it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// Whether it has a [`FAKE_GUEST`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guest: bool,
}

impl Default for FakeMachineSpec {
    fn default() -> Self {
        Self { cpus: 2, memory_mib: 2048, flavor: None, guest: false }
    }
}

/// The status of a machine of the fake cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FakeMachineStatus {
    /// The task that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<String>,
}

/// The spec of a cluster of the fake cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FakeClusterSpec {
    /// The names of its failure domains. Machines that ask for none get the first.
    pub failure_domains: Vec<String>,
    /// Whether the cloud makes the endpoint of its control plane.
    pub endpoint: bool,
}

/// Machines. A machine is an instance whose ID is the UID of its mark, and a disk called `disk/<name>`. It is
/// made in four calls: the disk, the instance (a task), the power. A cluster with an endpoint has
/// `endpoint/<name>`.
impl FakeCloud {
    /// The same cloud; providers made from this handle have machines.
    #[must_use]
    pub fn with_machines(mut self) -> Self {
        self.parts.has_machines = true;
        self
    }

    /// Tasks that begin from now on take this long. Creating and destroying an instance is a task.
    pub fn set_task_time(&self, time: Duration) {
        self.lock().machines.task_time = time;
    }

    /// Machines that are powered on from now on get their addresses after this time.
    pub fn set_address_time(&self, time: Duration) {
        self.lock().machines.address_time = time;
    }

    /// Makes the next task fail at its end. Several errors apply to as many tasks, in order.
    pub fn fail_next_task(&self, error: Error) {
        self.lock().machines.failures.push_back(error);
    }

    /// Lets the daemon seem to die after this many calls of its providers that change something: no call
    /// answers any more, and the answer of the last change is lost too. With 0 it is dead at once.
    /// [`recover`](Self::recover) ends this.
    pub fn crash_after(&self, changes: usize) {
        self.lock().machines.changes_until_crash = Some(changes);
    }

    /// Calls are answered again after [`crash_after`](Self::crash_after). Those that were under way never are.
    /// Returns whether the daemon had died.
    pub fn recover(&self) -> bool {
        self.lock().machines.changes_until_crash.take() == Some(0)
    }

    /// A line for each instance, disk and endpoint of the cloud, with the UID of its mark. Sorted.
    pub fn objects(&self) -> Vec<String> {
        let state = self.lock();
        let line = |what: &str, name: &str, mark: Option<&Mark>| match mark {
            Some(mark) => format!("{what}{name} of {}", mark.uid),
            None => format!("{what}{name}"),
        };
        let instance = |(id, instance): (&String, &FakeInstance)| {
            line("instance/", instance.name.as_deref().unwrap_or(id), instance.mark.as_ref())
        };
        let things = state.machines.things.iter().map(|(name, mark)| line("", name, mark.as_ref()));
        let mut lines: Vec<_> = state.instances.iter().map(instance).chain(things).collect();
        lines.sort();
        lines
    }

    /// Adds a disk or an endpoint behind the provider's back.
    pub fn put_object(&self, name: &str, mark: Option<Mark>) {
        self.lock().machines.things.insert(name.to_owned(), mark);
    }

    /// Removes a disk or an endpoint behind the provider's back.
    pub fn remove_object(&self, name: &str) {
        self.lock().machines.things.remove(name);
    }

    /// Whether its providers were told that there is no object with this identity any more.
    pub fn has_forgotten(&self, uid: &str) -> bool {
        self.lock().machines.forgotten.contains(uid)
    }

    /// How often the machine with this mark's UID was reset.
    pub fn resets_of(&self, uid: &str) -> usize {
        self.lock().machines.resets.get(uid).copied().unwrap_or_default()
    }

    /// What the machine with this mark's UID was given.
    pub fn bootstrap_of(&self, uid: &str) -> Option<BootstrapData> {
        self.lock().machines.bootstrap.get(uid).cloned()
    }
}
