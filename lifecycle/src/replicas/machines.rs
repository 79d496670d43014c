//! What is said of the Machines together.

use std::collections::BTreeSet;

use super::Owner;
use crate::{
    conditions::{Condition, Merge, Polarity, Reasons, Source, Statement, Status, aggregate, names},
    machine::{Delay, Deletion, delays},
};

/// A Machine without `UpToDate` counts only after this time in seconds: its controller has to see it first.
const YOUNG: i64 = 10;

/// A Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica<'a> {
    /// `metadata.name`
    pub name: &'a str,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created: i64,
    /// `status.conditions`
    pub conditions: &'a [Condition],
    /// Its deletion, if it is being deleted.
    pub deletion: Option<Deletion<'a>>,
    /// Whether it is updated in place. Then its conditions are of the time before.
    pub is_updating: bool,
    /// Whether another `MachineSet` is about to take it over.
    pub is_moving: bool,
}

impl Replica<'_> {
    fn is(&self, kind: &str, status: Status) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.status == status)
    }

    fn has(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind)
    }

    fn is_unhealthy(&self) -> bool {
        self.is("HealthCheckSucceeded", Status::False)
    }
}

/// The counters of the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `replicas`
    pub replicas: i64,
    /// `readyReplicas`
    pub ready: i64,
    /// `availableReplicas`
    pub available: i64,
    /// `upToDateReplicas`
    pub up_to_date: i64,
}

/// Counts the Machines of a `MachineSet`.
#[must_use]
pub fn count(machines: &[Replica<'_>]) -> Counters {
    let with = |kind| {
        let are = machines.iter().filter(|machine| !machine.is_updating && machine.is(kind, Status::True));
        i64::try_from(are.count()).unwrap_or(i64::MAX)
    };
    Counters {
        replicas: i64::try_from(machines.len()).unwrap_or(i64::MAX),
        ready: with("Ready"),
        available: with("Available"),
        up_to_date: with("UpToDate"),
    }
}

fn aggregated<'a>(
    machines: impl Iterator<Item = &'a Replica<'a>>,
    kind: &str,
    reasons: Reasons,
) -> Statement {
    let sources: Vec<_> = machines
        .map(|machine| Source {
            kind: "Machine",
            name: machine.name,
            is_control_plane_machine: false,
            conditions: machine.conditions,
        })
        .collect();
    aggregate(&sources, kind, Polarity::Positive, &Merge::positive(reasons))
        .unwrap_or_else(|| Statement::new(Status::True, "NoReplicas", ""))
}

/// `MachinesReady`
#[must_use]
pub fn machines_ready(machines: &[Replica<'_>]) -> Statement {
    let reasons = Reasons { issue: "NotReady", unknown: "ReadyUnknown", info: "Ready" };
    aggregated(machines.iter(), "Ready", reasons)
}

/// `MachinesUpToDate`
#[must_use]
pub fn machines_up_to_date(machines: &[Replica<'_>], now: i64) -> Statement {
    let reasons = Reasons { issue: "NotUpToDate", unknown: "UpToDateUnknown", info: "UpToDate" };
    let known =
        |machine: &&Replica<'_>| machine.has("UpToDate") || now.saturating_sub(machine.created) > YOUNG;
    aggregated(machines.iter().filter(known), "UpToDate", reasons)
}

/// `Remediating`
#[must_use]
pub fn remediating(machines: &[Replica<'_>], owner: Owner) -> Statement {
    let unhealthy: Vec<_> = machines.iter().filter(|machine| machine.is_unhealthy()).collect();
    let ours: Vec<_> =
        unhealthy.iter().copied().filter(|machine| machine.is("OwnerRemediated", Status::False)).collect();
    if !ours.is_empty() {
        let said = aggregated(ours.into_iter(), "OwnerRemediated", Reasons::default());
        return Statement::new(Status::True, "Remediating", said.message);
    }
    let mut of: Vec<_> = unhealthy.iter().map(|machine| machine.name).collect();
    of.sort_unstable();
    let by = match owner {
        Owner::MachineSet => "MachineSet",
        Owner::MachineDeployment => "MachineDeployment/MachineSet",
    };
    let message = are(&of, &format!("not healthy (not to be remediated by {by})"));
    Statement::new(Status::False, "NotRemediating", message)
}

/// `Deleting`. `machine_sets` is how many `MachineSets` a `MachineDeployment` still has.
#[must_use]
pub fn deleting(is_deleting: bool, machines: &[Replica<'_>], machine_sets: usize, now: i64) -> Statement {
    if !is_deleting {
        return Statement::new(Status::False, "NotDeleting", "");
    }
    let message = match (machines.len(), machine_sets) {
        (0, 0) => "Deletion completed".to_owned(),
        (0, sets) => format!("Deleting {sets} MachineSets"),
        (1, _) => with_stale("Deleting 1 Machine".into(), machines, now),
        (many, _) => with_stale(format!("Deleting {many} Machines"), machines, now),
    };
    Statement::new(Status::True, "Deleting", message)
}

/// The message, and a line about Machines whose deletion takes long.
pub(super) fn with_stale(mut message: String, machines: &[Replica<'_>], now: i64) -> String {
    let mut stale: Vec<_> = machines
        .iter()
        .filter_map(|machine| {
            Some((machine.name, machine.deletion.filter(|deletion| deletion.is_long(now))?))
        })
        .collect();
    stale.sort_unstable_by_key(|(name, _)| *name);
    let of: Vec<_> = stale.iter().map(|(name, _)| *name).collect();
    let line = are(&of, "in deletion since more than 15m");
    if line.is_empty() {
        return message;
    }
    message.push_str("\n* ");
    message.push_str(&line);
    let causes: BTreeSet<_> = stale.iter().flat_map(|(_, deletion)| delays(deletion, now)).collect();
    if !causes.is_empty() {
        let causes: Vec<_> = causes.into_iter().map(Delay::words).collect();
        message.push_str(", delay likely due to ");
        message.push_str(&causes.join(", "));
    }
    message
}

/// `Machine a is ...` or `Machines a, b are ...`. Empty without Machines.
pub(crate) fn are(of: &[&str], what: &str) -> String {
    match of {
        [] => String::new(),
        [one] => format!("Machine {one} is {what}"),
        many => format!("Machines {} are {what}", names(many)),
    }
}
