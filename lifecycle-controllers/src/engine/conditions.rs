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
                reason: reason(&condition.reason),
                message: message(&condition.message),
            })
            .collect()
    }
}

/// The longest reason and the longest message that a definition permits, in characters.
const LONGEST_REASON: usize = 1024;
const LONGEST_MESSAGE: usize = 32_768;

/// A reason that a definition permits. That of a mirrored condition is another author's, whose definition may permit any text; the API
/// server would refuse the whole status for it.
fn reason(reason: &str) -> String {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let is_permitted = reason.len() <= LONGEST_REASON
        && reason.bytes().all(is_inner)
        && reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && !reason.ends_with([',', ':']);
    match reason {
        "" => "NoReasonReported".to_owned(),
        _ if is_permitted => reason.to_owned(),
        _ => "InvalidConditionReported".to_owned(),
    }
}

fn message(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => message[..end].to_owned(),
        None => message.to_owned(),
    }
}

/// The conditions of an object.
pub fn read(conditions: &[ApiCondition]) -> Vec<Condition> {
    conditions
        .iter()
        .map(|one| Condition {
            reason: one.reason.clone(),
            message: one.message.clone(),
            ..read_without_words(one)
        })
        .collect()
}

/// A condition without reason and message.
pub fn read_without_words(condition: &ApiCondition) -> Condition {
    Condition {
        kind: condition.type_.clone(),
        status: match condition.status {
            ConditionStatus::True => Status::True,
            ConditionStatus::False => Status::False,
            ConditionStatus::Unknown => Status::Unknown,
        },
        reason: String::new(),
        message: String::new(),
        since: condition.last_transition_time.0.as_second(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_author_words_is_brought_within_the_limits() {
        let mut conditions = Conditions::of(&[], Some(3));
        let long = "ä".repeat(LONGEST_MESSAGE + 1);
        let table = [
            ("Good_1,b:c", "Good_1,b:c"),
            ("", "NoReasonReported"),
            ("a reason", "InvalidConditionReported"),
            ("1st", "InvalidConditionReported"),
            ("ends:", "InvalidConditionReported"),
        ];
        for (said, expected) in table {
            conditions.set("Ready", Statement::new(Status::False, said, long.as_str()), 5);
            let written = conditions.write();
            assert_eq!(written[0].reason, expected, "{said:?}");
            assert_eq!(written[0].message.chars().count(), LONGEST_MESSAGE);
            assert_eq!(written[0].observed_generation, Some(3));
        }
        let reason = "x".repeat(LONGEST_REASON + 1);
        conditions.set("Ready", Statement::new(Status::False, &reason, ""), 5);
        assert_eq!(conditions.write()[0].reason, "InvalidConditionReported");
    }
}
