//! What a step leaves in the status of its object.

use std::borrow::Cow;

/// What a step reads and leaves in the status of its object. The controller writes it after each step, also
/// after one that failed, if it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<S> {
    /// The provider's own part of the status. It may be empty at any time: see [the module](super).
    pub status: S,
    /// Conditions of the provider's own, as the last step left them. The controller keeps the times of their
    /// transitions, and adds those of Cluster API.
    pub conditions: Vec<Condition>,
}

impl<S> Record<S> {
    /// A record with this status and without conditions.
    pub fn new(status: S) -> Self {
        Self { status, conditions: Vec::new() }
    }

    /// Sets a condition, in the place of the one of the same type.
    pub fn set(&mut self, condition: Condition) {
        match self.conditions.iter_mut().find(|one| one.condition_type == condition.condition_type) {
            Some(one) => *one = condition,
            None => self.conditions.push(condition),
        }
    }

    /// Removes the condition of this type.
    pub fn remove(&mut self, condition_type: &str) {
        self.conditions.retain(|one| one.condition_type != condition_type);
    }
}

/// A condition of an object, without the times that the controller adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type in CamelCase, such as `VCenterAvailable`. `Ready` and `Paused` are the controller's.
    pub condition_type: Cow<'static, str>,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in CamelCase.
    pub reason: Cow<'static, str>,
    /// Why, for people. May be empty. Without secrets.
    pub message: Cow<'static, str>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// That is not known.
    Unknown,
}

impl ConditionStatus {
    /// The status as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Condition {
    /// A condition without a message.
    pub fn new(
        condition_type: impl Into<Cow<'static, str>>,
        status: ConditionStatus,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (condition_type, reason) = (condition_type.into(), reason.into());
        Self { condition_type, status, reason, message: Cow::default() }
    }

    /// Sets the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(down.status.as_str(), "False");
    }
}
