//! What a step leaves in the status of its object.

use std::collections::BTreeSet;

use super::{Condition, DesiredObject};

/// What a step reads and leaves in the status of its object. The controller writes it after each step, also
/// after one that failed, if it changed. That may take some seconds after a wait, unless it is one for
/// [objects](super::WaitsFor::Objects).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Record<S> {
    /// The provider's own part of the status. It may be empty at any time: see [the module](super).
    pub status: S,
    /// All conditions but those of the controller, as the last step left them: the provider's own, and those
    /// of others. A step changes them with [`set`](Self::set) and [`remove`](Self::remove). The controller
    /// writes those and no others, keeps the times of their transitions, and adds those of Cluster API.
    pub conditions: Vec<Condition>,
    /// The types of the conditions that were set or removed.
    pub(super) changed: BTreeSet<String>,
    /// The objects that the step wants to have beside its own.
    pub(super) wanted: Vec<DesiredObject>,
}

/// What is left in the status counts. Which conditions were set does not.
impl<S: PartialEq> PartialEq for Record<S> {
    fn eq(&self, other: &Self) -> bool {
        self.status == other.status && self.conditions == other.conditions
    }
}

impl<S: Eq> Eq for Record<S> {}

impl<S> Record<S> {
    /// A record with this status and without conditions.
    pub fn new(status: S) -> Self {
        Self { status, conditions: Vec::new(), changed: BTreeSet::new(), wanted: Vec::new() }
    }

    /// Sets a condition, in the place of the one of the same type.
    pub fn set(&mut self, condition: Condition) {
        self.changed.insert(condition.condition_type.clone().into_owned());
        match self.conditions.iter_mut().find(|one| one.condition_type == condition.condition_type) {
            Some(one) => *one = condition,
            None => self.conditions.push(condition),
        }
    }

    /// Removes the condition of this type.
    pub fn remove(&mut self, condition_type: &str) {
        self.changed.insert(condition_type.to_owned());
        self.conditions.retain(|one| one.condition_type != condition_type);
    }

    /// Wants to have an object beside that of the step, in the place of one of the same kind and name. A step
    /// wants it again each time: see [the module](super).
    pub fn want(&mut self, wanted: DesiredObject) {
        self.wanted.retain(|one| one.kind != wanted.kind || one.name != wanted.name);
        self.wanted.push(wanted);
    }

    /// The same with what an earlier step left and what is not written yet: its status, and the conditions
    /// that it set or removed.
    #[must_use]
    pub fn with_deferred(mut self, earlier: &Self) -> Self
    where
        S: Clone,
    {
        self.status = earlier.status.clone();
        for name in &earlier.changed {
            match earlier.conditions.iter().find(|one| one.condition_type == *name) {
                Some(condition) => self.set(condition.clone()),
                None => self.remove(name),
            }
        }
        self
    }

    /// The objects that the step wants to have.
    pub fn wanted(&self) -> &[DesiredObject] {
        &self.wanted
    }

    /// Whether the step has [set](Self::set) or [removed](Self::remove) this condition. Others that it was
    /// given may be another program's.
    pub fn has_changed(&self, condition_type: &str) -> bool {
        self.changed.contains(condition_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{AuxiliaryKind, ConditionStatus, Kind};

    #[test]
    fn of_two_wanted_objects_of_one_name_the_later_one_counts() {
        const GUEST: AuxiliaryKind =
            AuxiliaryKind::new("example.org", "v1", Kind::new("Guest", "guests")).made();
        let mut record = Record::new(());
        for (name, cpus) in [("a", 1), ("b", 1), ("a", 2)] {
            record.want(DesiredObject::new(GUEST, name, serde_json::json!({"cpus": cpus})));
        }
        let seen: Vec<_> =
            record.wanted().iter().map(|one| (&*one.name, one.spec["cpus"].as_u64())).collect();
        assert_eq!(seen, [("b", Some(1)), ("a", Some(2))]);
        assert_eq!(record, Record::new(()), "what is wanted is no part of the status");
    }

    #[test]
    fn what_is_not_written_yet_is_there_for_the_next_step() {
        let condition =
            |name: &'static str, reason: &'static str| Condition::new(name, ConditionStatus::True, reason);
        let mut written = Record::new(1);
        written.conditions = vec![condition("Others", "Old"), condition("Passes", "Old")];
        let mut earlier = Record { status: 2, ..written.clone() };
        earlier.set(condition("Own", "New"));
        earlier.remove("Passes");
        // Meanwhile somebody else has changed a condition of theirs.
        written.conditions[0] = condition("Others", "New");
        let next = written.with_deferred(&earlier);
        assert_eq!(next.status, 2);
        assert_eq!(next.conditions, [condition("Others", "New"), condition("Own", "New")]);
        let changed = ["Own", "Passes", "Others"].map(|name| next.has_changed(name));
        assert_eq!(changed, [true, true, false]);
    }

    #[test]
    fn each_type_has_one_condition() {
        let mut record = Record::new(());
        let down = Condition::new("VCenterAvailable", ConditionStatus::False, "VCenterUnreachable");
        record.set(down.clone().with_message("connection refused"));
        record.set(Condition::new("DisksGrown", ConditionStatus::True, "Grown"));
        record.set(Condition::new("VCenterAvailable", ConditionStatus::True, "Available"));
        let seen: Vec<_> = record.conditions.iter().map(|one| (&*one.condition_type, &*one.reason)).collect();
        assert_eq!(seen, [("VCenterAvailable", "Available"), ("DisksGrown", "Grown")]);
        record.remove("VCenterAvailable");
        assert_eq!(record.conditions.len(), 1);
        let changed = ["VCenterAvailable", "DisksGrown", "NeverSet"].map(|one| record.has_changed(one));
        assert_eq!(changed, [true, true, false]);
        assert_eq!(down.status.as_str(), "False");
    }
}
