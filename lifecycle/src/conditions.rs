//! The conditions of Cluster API's objects, and those that follow from others.
//!
//! | A condition from | Function |
//! |---|---|
//! | several conditions of the same object, as `Ready` of a Machine | [`summary`] |
//! | one condition of several objects, as `MachinesReady` of a `MachineSet` | [`aggregate`] |
//! | one condition of another object, as `InfrastructureReady` of a Machine | [`mirror`] |
//!
//! Their messages are what people read in `clusterctl describe` and in `kubectl get --output yaml`, so they are Cluster API's word by
//! word. Source of the rules: `util/conditions` of Cluster API 1.14.2.

mod merge;
mod message;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use merge::summary_lines;
pub use merge::{Merge, Part, Polarity, Reasons, Source, aggregate, mirror, summary};
pub(crate) use message::{first_names, names};

/// The reason of a condition that is derived from one that is not there.
pub const NOT_YET_REPORTED: &str = "NotYetReported";

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`. Any other text counts as this one, as upstream has it.
    Unknown,
}

impl Status {
    /// The status of this text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}

/// A condition of an object, without its `observedGeneration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: String,
    /// Its status.
    pub status: Status,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// `lastTransitionTime` in seconds since 1970.
    pub since: i64,
}

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The status.
    pub status: Status,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
    /// Since when, if that is known from another condition.
    pub since: Option<i64>,
}

impl Statement {
    /// A statement whose time is not known from elsewhere.
    #[must_use]
    pub fn new(status: Status, reason: &str, message: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), message: message.into(), since: None }
    }
}

/// Puts a condition among those of an object, in Cluster API's order. Returns whether that changed anything.
///
/// `lastTransitionTime` moves only with the status: to that of the statement, or to `now`.
pub fn set(conditions: &mut Vec<Condition>, kind: &str, statement: Statement, now: i64) -> bool {
    let Statement { status, reason, message, since } = statement;
    let since = since.unwrap_or(now);
    match conditions.iter_mut().find(|condition| condition.kind == kind) {
        Some(old) => {
            let since = if old.status == status { old.since } else { since };
            let new = Condition { kind: kind.into(), status, reason, message, since };
            if *old == new {
                return false;
            }
            *old = new;
        }
        None => conditions.push(Condition { kind: kind.into(), status, reason, message, since }),
    }
    conditions.sort_by(|one, other| (place(&one.kind), &one.kind).cmp(&(place(&other.kind), &other.kind)));
    true
}

/// The order in which people see the conditions. Those that are not named here, such as readiness gates, come before the last two.
const ORDER: [&str; 37] = [
    "Available",
    "Ready",
    "UpToDate",
    "RemoteConnectionProbe",
    "BootstrapConfigReady",
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "ControlPlaneAvailable",
    "WorkersAvailable",
    "CertificatesAvailable",
    "Initialized",
    "EtcdClusterHealthy",
    "ControlPlaneComponentsHealthy",
    "NodeHealthy",
    "NodeReady",
    "NodeKubeadmLabelsAndTaintsSet",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    "HealthCheckSucceeded",
    "OwnerRemediated",
    "TopologyReconciled",
    "Updating",
    "RollingOut",
    "Remediating",
    "ScalingDown",
    "ScalingUp",
    "MachinesReady",
    "ControlPlaneMachinesReady",
    "WorkerMachinesReady",
    "MachinesUpToDate",
    "ControlPlaneMachinesUpToDate",
    "WorkerMachinesUpToDate",
    "Paused",
    "Deleting",
];

/// The last two of [`ORDER`].
const LAST: usize = ORDER.len() - 2;

fn place(kind: &str) -> usize {
    match ORDER.iter().position(|known| *known == kind) {
        Some(place) if place >= LAST => place + 1,
        Some(place) => place,
        None => LAST,
    }
}
