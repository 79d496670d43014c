//! What is remembered of an object between two pieces of work.

use std::{borrow::Cow, time::Duration};

use cloudprovider::machines::Record;
use serde_json::Value;
use tokio::time::Instant;

use crate::controllers::machine::{
    further::Reads,
    object::InfraObject,
    surroundings::{Cluster, Machine},
};

/// How long a wait lasts that is told. Each one told is a write, with the one for an object beside the machine two, and people do not
/// read what is over after some seconds.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// How long nothing is told though one wait follows another, each for something else. A guest that ends whenever it is started waits for its
/// start and for its address in turn, and neither wait lasts.
const MAX_SILENCE: Duration = Duration::from_secs(20);

/// For how long nothing is done about an object whose finalizer is gone. The API server answers such a write with the version that the
/// object had, so the version does not tell that what the watch shows is old.
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
    /// What it waits for, if that was not told at once.
    pub untold: Option<Untold>,
    /// What steps have left for the status that is not written.
    pub unwritten: Option<Record<Value>>,
    /// When our finalizer went, since nothing was left of it.
    pub released: Option<Instant>,
}

/// A wait that was not told at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untold {
    /// The reason of the condition `Ready`.
    pub reason: Cow<'static, str>,
    /// When it began.
    pub since: Instant,
    /// When the first of the waits began that followed each other without being told.
    pub silent_since: Instant,
}

impl Untold {
    /// A wait for this reason now, after another one that was not told, or none.
    pub(in crate::controllers::machine) fn after(
        earlier: Option<&Self>,
        reason: Cow<'static, str>,
        now: Instant,
    ) -> Self {
        match earlier {
            Some(same) if same.reason == reason => same.clone(),
            Some(other) => Self { reason, since: now, silent_since: other.silent_since },
            None => Self { reason, since: now, silent_since: now },
        }
    }

    /// When it is told if it still lasts.
    pub(in crate::controllers::machine) fn told_at(&self) -> Instant {
        (self.since + TELL_AFTER).min(self.silent_since + MAX_SILENCE)
    }
}

impl Memory {
    /// The wait for this reason, if it was not told at once.
    pub(in crate::controllers::machine) fn untold_of(
        &self,
        object: &InfraObject,
        reason: &str,
    ) -> Option<&Untold> {
        self.last_untold(object).filter(|untold| untold.reason == reason)
    }

    /// The wait of this object that was not told, whatever it is for.
    pub(in crate::controllers::machine) fn last_untold(&self, object: &InfraObject) -> Option<&Untold> {
        self.untold.as_ref().filter(|_| self.is_of(object))
    }

    /// Whether something that was to be written at once is not. The API server did not take it.
    pub(in crate::controllers::machine) fn owes_a_write(&self, object: &InfraObject) -> bool {
        self.untold.is_none() && self.unwritten_of(object).is_some()
    }

    /// What steps of this object have left that is not written.
    pub(in crate::controllers::machine) fn unwritten_of(
        &self,
        object: &InfraObject,
    ) -> Option<&Record<Value>> {
        self.unwritten.as_ref().filter(|_| self.is_of(object))
    }

    /// Whether the next step of this object can do without the bootstrap data.
    pub(in crate::controllers::machine) fn needs_no_bootstrap_of(&self, object: &InfraObject) -> bool {
        self.needs_no_bootstrap && self.is_of(object)
    }

    /// Until when nothing is done about this object, if our finalizer has just gone.
    pub(in crate::controllers::machine) fn released_until(
        &self,
        object: &InfraObject,
        now: Instant,
    ) -> Option<Instant> {
        let until = self.released.filter(|_| self.is_of(object))? + RELEASED_FOR;
        (until > now).then_some(until)
    }

    /// Whether it is of this object. Another one may get the name of one that was deleted.
    pub(in crate::controllers::machine) fn is_of(&self, object: &InfraObject) -> bool {
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
    pub(in crate::controllers::machine) fn or(self, other: Self) -> Self {
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
    pub(super) machine: Option<Machine>,
    pub(super) cluster: Option<Cluster>,
    /// UID and generation of the infrastructure of its Cluster.
    pub(super) infra_cluster: Option<(Option<String>, i64)>,
    pub(super) has_bootstrap: bool,
    /// What it read of further kinds, and what it saw there.
    pub(super) reads: Reads,
    pub(super) provider: u64,
}

impl Inputs {
    /// What the capacity of a template is made from.
    pub(in crate::controllers::machine) fn of_template(template: &InfraObject, provider: u64) -> Self {
        let uid = template.metadata.uid.clone();
        Self { uid, generation: template.generation(), provider, ..Self::default() }
    }

    /// What the step read of further kinds.
    pub(in crate::controllers::machine) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The same, to be changed.
    pub(in crate::controllers::machine) fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }

    /// The same with what the step read.
    #[must_use]
    pub(in crate::controllers::machine) fn with_reads(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }
}
