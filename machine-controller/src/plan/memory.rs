//! What is remembered of an object between two pieces of work.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    auxiliary::{Auxiliary, Reads},
    cluster_api::{Cluster, Machine},
    deferred::DeferredStatus,
    object::InfraObject,
};

/// For how long nothing is done about an object whose finalizer is gone. The API server answers such a write
/// with the version that the object had, so the version does not tell that what the watch shows is old.
const RELEASED_FOR: Duration = Duration::from_secs(30);

/// What is remembered of the last step of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the step got.
    pub inputs: Inputs,
    /// When the next one is due.
    pub due: Due,
    /// How many steps in a row failed.
    pub failures: u32,
    /// Whether the step said that the next one can do without the bootstrap data.
    pub needs_no_bootstrap: bool,
    /// The status that is not written yet.
    pub deferred: Option<DeferredStatus>,
    /// When our finalizer went, since nothing was left of it.
    pub released: Option<Instant>,
    /// Whether a failure domain that is deleted stays for the machines that are in it.
    pub is_held: bool,
    /// The reboot that was counted last.
    pub reboot: Option<CountedReboot>,
}

/// A reboot that the status counts, as this process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedReboot {
    /// From 1.
    pub number: u32,
    /// Until when the Node has time to become healthy. The clock of the host may be set meanwhile.
    pub until: Instant,
    /// What came of it.
    pub outcome: RebootOutcome,
}

/// What came of a reboot that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootOutcome {
    /// It may have been made.
    Unknown,
    /// The provider has made it.
    Made,
    /// The provider says that nothing was reset.
    NotMade,
}

impl CountedReboot {
    /// Whether it is still to be made.
    pub(crate) fn is_open(&self) -> bool {
        self.outcome == RebootOutcome::NotMade
    }

    /// How much of the time is left.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

impl Memory {
    /// The status of this object that is not written yet.
    pub(crate) fn deferred_of(&self, object: &InfraObject) -> Option<&DeferredStatus> {
        self.deferred.as_ref().filter(|_| self.is_of(object))
    }

    /// Whether the next step of this object can do without the bootstrap data.
    pub(crate) fn needs_no_bootstrap_of(&self, object: &InfraObject) -> bool {
        self.needs_no_bootstrap && self.is_of(object)
    }

    /// Until when nothing is done about this object, if our finalizer has just gone.
    pub(crate) fn released_until(&self, object: &InfraObject, now: Instant) -> Option<Instant> {
        let until = self.released.filter(|_| self.is_of(object))? + RELEASED_FOR;
        (until > now).then_some(until)
    }

    /// Whether it is of this object. Another one may get the name of one that was deleted.
    pub(crate) fn is_of(&self, object: &InfraObject) -> bool {
        self.inputs.uid == object.metadata.uid
    }
}

/// When the next step is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// Now, because the cloud or the clock said so.
    Now,
    /// At this time.
    At(Instant),
    /// When something changes.
    #[default]
    WhenChanged,
}

impl Due {
    /// Whichever of the two is earlier.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now, _) | (_, Self::Now) => Self::Now,
            (Self::At(one), Self::At(other)) => Self::At(one.min(other)),
            (Self::WhenChanged, due) | (due, Self::WhenChanged) => due,
        }
    }
}

/// What a step gets. If it differs from what the last one got, the next one is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Another object may get the name of one that was deleted.
    pub(super) uid: Option<String>,
    pub(super) generation: i64,
    pub(super) is_deleting: bool,
    /// Whether a `RebootRemediation` is paused. Of other objects the next step is not asked for then.
    pub(super) is_paused: bool,
    pub(super) machine: Option<Machine>,
    pub(super) cluster: Option<Cluster>,
    /// UID and generation of the infrastructure of its Cluster.
    pub(super) infra_cluster: Option<(Option<String>, i64)>,
    pub(super) has_bootstrap: bool,
    /// What it read of auxiliary kinds, and what it saw there.
    pub(super) reads: Reads,
    pub(super) provider: u64,
}

impl Inputs {
    /// What the capacity of a template is made from.
    pub(crate) fn of_template(template: &InfraObject, provider: u64) -> Self {
        let uid = template.metadata.uid.clone();
        Self { uid, generation: template.generation(), provider, ..Self::default() }
    }

    /// What the status of a status-only object is made from, besides what the provider reads for it.
    pub(crate) fn of_status_only(found: &Auxiliary, provider: u64) -> Self {
        Self { uid: found.metadata.uid.clone(), provider, ..Self::default() }
    }

    /// What it is decided from what to do about a `RebootRemediation`.
    pub(crate) fn of_reboot(
        found: &Auxiliary,
        machine: Option<&Machine>,
        cluster: Option<&Cluster>,
        provider: u64,
    ) -> Self {
        Self {
            generation: found.metadata.generation.unwrap_or_default(),
            is_deleting: found.object.is_deleting,
            is_paused: found.as_infra().is_paused(),
            machine: machine.cloned(),
            cluster: cluster.cloned(),
            ..Self::of_status_only(found, provider)
        }
    }

    /// Whether the core says that it reaches the workload cluster.
    pub(crate) fn is_connected(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.is_connected)
    }

    /// Whether the Cluster is paused.
    pub(crate) fn is_cluster_paused(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.is_paused)
    }

    /// What the step read of auxiliary kinds.
    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The same, to be changed.
    pub(crate) fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }

    /// The same with what the step read.
    #[must_use]
    pub(crate) fn with_reads(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }
}
