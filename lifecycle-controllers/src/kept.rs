//! Failed Machines that are kept for a while, to be looked at.
//!
//! A `MachineSet` with the annotation [`KEEP_FAILED_FOR`] lets go of a Machine that it replaces. The Machine then belongs to its Cluster
//! alone: it has no controller, no label that the set selects, and the label [`KEPT_OF`]. No owner reference names the set any more:
//! cluster-autoscaler takes whatever names one for a member of its group, and would scale the group down for it.
//!
//! | What | Who |
//! |---|---|
//! | lets go of it in one write, deletes it when the set itself goes | the controller of `MachineSet`s |
//! | says so in its status, keeps its Node cordoned, deletes it in time | the controller of Machines |
//! | keeps an old `MachineSet` meanwhile | the controller of `MachineDeployment`s |
//! | leaves it out of what it says about its workers | the controller of Clusters |
//! | does not look at it any more | the controller of `MachineHealthCheck`s |

use std::{sync::Arc, time::Duration};

use cluster_api::{Machine, MachineSet, names::labels};
use jiff::Timestamp;
use kube::ResourceExt as _;
use lifecycle::conditions::{Statement, Status};

use crate::{
    core::Core,
    engine::object::{Meta as _, Stored},
};

/// On a `MachineDeployment`, on a `MachineSet` without one, or on a Machine: for how long a failed Machine is kept, as Go writes durations.
/// `0` is not at all. The value of the Machine goes before that of its set.
pub(crate) const KEEP_FAILED_FOR: &str = "machine.cloudprovider.kubernetes.io/keep-failed-for";

/// On a Machine that is kept: when it is deleted, RFC 3339. Without it, the Machine stays until a user deletes it.
pub(crate) const KEPT_UNTIL: &str = "machine.cloudprovider.kubernetes.io/kept-until";

/// The label of a Machine that is kept: the name of its `MachineSet`, as [`labels::SET_NAME`] has it.
pub(crate) const KEPT_OF: &str = "machine.cloudprovider.kubernetes.io/kept-of";

/// The reason of `OwnerRemediated` while a Machine is kept.
pub(crate) const REASON: &str = "MachineKept";

/// So much of a value that a user wrote is quoted, in characters.
const QUOTED: usize = 40;

/// A Machine that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    cluster: &'a str,
    set: &'a str,
    until: Until<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Until<'a> {
    Time(Timestamp),
    /// A user deletes it.
    Deleted,
    /// The annotation is no time. Nothing is deleted on it.
    Unreadable(&'a str),
}

impl<'a> Kept<'a> {
    /// `None`: this Machine is like any other. One that has a controller is in use again.
    pub(crate) fn of(machine: &'a Machine) -> Option<Self> {
        let set = machine.label(KEPT_OF).filter(|_| machine.controller().is_none())?;
        let until = match machine.annotation(KEPT_UNTIL) {
            None => Until::Deleted,
            Some(text) => text.parse().map_or(Until::Unreadable(text), Until::Time),
        };
        Some(Self { cluster: &machine.spec.cluster_name, set, until })
    }

    /// How long it stays. Zero: its time is over. `None`: no time ends it.
    pub(crate) fn left(&self, now: i64) -> Option<Duration> {
        let Until::Time(until) = self.until else { return None };
        Some(Duration::from_secs(u64::try_from(until.as_second().saturating_sub(now)).unwrap_or(0)))
    }

    /// `OwnerRemediated`: its owner has replaced it. `why`: what its health check says.
    pub(crate) fn statement(&self, why: &str) -> Statement {
        let until = match self.until {
            Until::Time(until) => format!("until {until} (annotation {KEPT_UNTIL})"),
            Until::Deleted => format!("until it is deleted, since it has no annotation {KEPT_UNTIL}"),
            Until::Unreadable(text) => {
                format!(
                    "until it is deleted: annotation {KEPT_UNTIL} is {}, and no time such as 2026-01-31T18:00:00Z",
                    quoted(text)
                )
            }
        };
        let message =
            format!("MachineSet {} has replaced this Machine, which is kept {until}. {why}", self.set);
        Statement::new(Status::True, REASON, message.trim_end())
    }

    /// Whether it was of this set.
    fn is_of(&self, set: &MachineSet) -> bool {
        self.cluster == set.spec.cluster_name && self.set == labels::value_of(set.name_or_empty())
    }
}

/// The beginning of what a user wrote.
pub(crate) fn quoted(text: &str) -> String {
    let begin: String = text.chars().take(QUOTED).collect();
    if begin.len() < text.len() { format!("{begin:?}...") } else { format!("{begin:?}") }
}

/// The Machines of a set that are kept, those that are being deleted included.
pub(crate) fn machines_of(core: &Core, set: &MachineSet) -> Vec<Arc<Stored<Machine>>> {
    core.machines_in(set.namespace_or_empty(), |machine| {
        Kept::of(machine).is_some_and(|kept| kept.is_of(set))
    })
}

/// The set of a Machine that is kept.
pub(crate) fn set_of(core: &Core, machine: &Machine) -> Option<Arc<Stored<MachineSet>>> {
    let kept = Kept::of(machine)?;
    let sets = core.stores.machine_sets.read();
    let of_namespace = |set: &&Arc<Stored<MachineSet>>| set.namespace() == machine.namespace();
    sets.values().filter(of_namespace).find(|set| kept.is_of(set)).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(metadata: Value) -> Machine {
        let reference = json!({"apiGroup": "g", "kind": "X", "name": "x"});
        let spec = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Machine")
    }

    fn kept(until: Option<&str>) -> Machine {
        machine(
            json!({"labels": {KEPT_OF: "s"}, "annotations": until.map(|until| json!({KEPT_UNTIL: until}))}),
        )
    }

    #[test]
    fn a_machine_is_kept_while_nothing_controls_it() {
        assert_eq!(Kept::of(&machine(json!({"annotations": {KEPT_UNTIL: "2026-01-01T00:00:00Z"}}))), None);
        assert!(Kept::of(&kept(None)).is_some());
        let owner = |controls| json!({"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "u", "controller": controls});
        let owned =
            |controls| machine(json!({"labels": {KEPT_OF: "s"}, "ownerReferences": [owner(controls)]}));
        assert_eq!(Kept::of(&owned(true)), None);
        assert!(Kept::of(&owned(false)).is_some());
    }

    #[test]
    fn only_a_time_ends_it() {
        let left = |until, now| Kept::of(&kept(until)).expect("it is kept").left(now);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(left(Some("1970-01-01T00:01:00Z"), 20), seconds(40));
        assert_eq!(left(Some("1970-01-01T02:01:00+02:00"), 20), seconds(40));
        assert_eq!(left(Some("1970-01-01T00:01:00Z"), 60), seconds(0));
        assert_eq!(left(Some("1970-01-01T00:01:00Z"), i64::MAX), seconds(0));
        for none in [None, Some(""), Some("2h"), Some("1970-01-01")] {
            assert_eq!(left(none, i64::MAX), None, "{none:?}");
        }
    }

    #[test]
    fn the_condition_says_until_when_and_why() {
        let message = |until| Kept::of(&kept(until)).expect("it is kept").statement("Node gone").message;
        let words = "MachineSet s has replaced this Machine, which is kept until ";
        let time = message(Some("2026-01-01T02:00:00+02:00"));
        assert_eq!(time, format!("{words}2026-01-01T00:00:00Z (annotation {KEPT_UNTIL}). Node gone"));
        assert!(
            message(None).contains(&format!("until it is deleted, since it has no annotation {KEPT_UNTIL}."))
        );
        let wrong = message(Some(&"2h".repeat(1000)));
        assert!(wrong.contains(&format!("annotation {KEPT_UNTIL} is \"2h2h")), "{wrong}");
        assert!(wrong.contains("and no time such as 2026-01-31T18:00:00Z") && wrong.len() < 400, "{wrong}");
    }
}
