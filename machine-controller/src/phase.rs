//! How far an object is, for metrics and for people.

use super::{
    names::{MACHINE_LOST, PAUSED, READY},
    object::InfraObject,
};

/// How far an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It waits for others, and nothing was made for it yet.
    Waiting,
    /// It is being made.
    Creating,
    /// Nothing is left to do.
    Ready,
    /// It was ready once, and is not now.
    NotReady,
    /// Its machine is gone.
    Lost,
    /// Nothing is done about it.
    Paused,
    /// It is being deleted.
    Deleting,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Creating,
        Self::Ready,
        Self::NotReady,
        Self::Lost,
        Self::Paused,
        Self::Deleting,
    ];

    /// The word for it in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Lost => "lost",
            Self::Paused => "paused",
            Self::Deleting => "deleting",
        }
    }

    /// How far this object is.
    pub fn of(object: &InfraObject) -> Self {
        let is = |condition: &str, field: &str, value: &str| {
            object.condition(condition).is_some_and(|found| found[field] == value)
        };
        if is(PAUSED, "status", "True") {
            Self::Paused
        } else if object.is_deleting() {
            Self::Deleting
        } else if is(READY, "status", "True") {
            Self::Ready
        } else if is(READY, "reason", MACHINE_LOST) {
            Self::Lost
        } else if object.is_provisioned() {
            Self::NotReady
        } else if object.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()) {
            Self::Creating
        } else {
            Self::Waiting
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn how_far_objects_are() {
        let condition = |kind: &str, status: &str, reason: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason}]});
        let ready = || condition("Ready", "True", "Ready");
        let with = |mut status: Value| {
            status["initialization"] = json!({"provisioned": true});
            status
        };
        for (metadata, status, expected) in [
            (json!({}), json!({}), Phase::Waiting),
            (json!({"finalizers": ["a"]}), json!({}), Phase::Creating),
            (json!({"finalizers": ["a"]}), with(ready()), Phase::Ready),
            (json!({}), with(condition("Ready", "False", "ProviderUnavailable")), Phase::NotReady),
            (json!({}), with(condition("Ready", "False", "MachineLost")), Phase::Lost),
            (json!({}), condition("Paused", "True", "Paused"), Phase::Paused),
            (json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), ready(), Phase::Deleting),
        ] {
            let object = json!({"metadata": metadata, "status": status});
            let object = serde_json::from_value(object).expect("an object");
            assert_eq!(Phase::of(&object), expected, "{object:?}");
        }
        let words: std::collections::BTreeSet<_> = Phase::ALL.map(Phase::as_str).into();
        assert_eq!(words.len(), Phase::ALL.len());
    }
}
