//! Between the conditions of the kinds and those that `lifecycle` words.

use cluster_api::{Condition as ApiCondition, ConditionStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lifecycle::conditions::{Condition, Statement, Status, set};

/// The conditions of an object, to be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    all: Vec<Condition>,
    observed: Vec<(String, Option<i64>)>,
    generation: Option<i64>,
}

impl Conditions {
    /// Those of an object of this `metadata.generation`.
    pub fn of(conditions: &[ApiCondition], generation: Option<i64>) -> Self {
        Self {
            all: read(conditions),
            observed: conditions.iter().map(|one| (one.type_.clone(), one.observed_generation)).collect(),
            generation,
        }
    }

    /// All of them.
    pub fn all(&self) -> &[Condition] {
        &self.all
    }

    /// The one of this type.
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.all.iter().find(|condition| condition.kind == kind)
    }

    /// Whether the one of this type has this status.
    pub fn is(&self, kind: &str, status: Status) -> bool {
        self.get(kind).is_some_and(|condition| condition.status == status)
    }

    /// Says it, for this generation of the object.
    pub fn set(&mut self, kind: &str, statement: Statement, now: i64) {
        set(&mut self.all, kind, statement, now);
        let observed = (kind.to_owned(), self.generation);
        match self.observed.iter_mut().find(|(of, _)| of == kind) {
            Some(known) => *known = observed,
            None => self.observed.push(observed),
        }
    }

    /// Takes it away.
    pub fn remove(&mut self, kind: &str) {
        self.all.retain(|condition| condition.kind != kind);
    }

    /// For the status of the object.
    pub fn write(&self) -> Vec<ApiCondition> {
        let observed = |kind: &str| {
            self.observed.iter().find(|(of, _)| of == kind).and_then(|(_, generation)| *generation)
        };
        self.all
            .iter()
            .map(|condition| ApiCondition {
                type_: condition.kind.clone(),
                status: match condition.status {
                    Status::True => ConditionStatus::True,
                    Status::False => ConditionStatus::False,
                    Status::Unknown => ConditionStatus::Unknown,
                },
                observed_generation: observed(&condition.kind),
                last_transition_time: time(condition.since),
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            })
            .collect()
    }
}

/// The conditions of an object.
pub fn read(conditions: &[ApiCondition]) -> Vec<Condition> {
    conditions
        .iter()
        .map(|one| Condition {
            kind: one.type_.clone(),
            status: match one.status {
                ConditionStatus::True => Status::True,
                ConditionStatus::False => Status::False,
                ConditionStatus::Unknown => Status::Unknown,
            },
            reason: one.reason.clone(),
            message: one.message.clone(),
            since: one.last_transition_time.0.as_second(),
        })
        .collect()
}

/// A time in seconds since 1970, as the API has it.
pub fn time(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}

/// `Paused`
pub fn paused(kind: &str, is_cluster_paused: bool, is_object_paused: bool) -> Statement {
    let own = format!("{kind} has the cluster.x-k8s.io/paused annotation");
    let why: Vec<_> = [
        is_cluster_paused.then_some("Cluster spec.paused is set to true"),
        is_object_paused.then_some(own.as_str()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if why.is_empty() {
        Statement::new(Status::False, "NotPaused", "")
    } else {
        Statement::new(Status::True, "Paused", why.join(", "))
    }
}
