//! What the spec of a `RebootRemediation` says, and what its status and that of the Machine are to say.

use std::time::Duration;

use cloudprovider::machines::{Condition, ConditionStatus};
use component::api_text::api_time;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    auxiliary::Auxiliary,
    conditions::not_paused,
    names::{OWNER_MISSING, OWNER_REMEDIATED, REBOOTED, WAITING_FOR_REMEDIATION},
    object::InfraObject,
    status::with_conditions,
};

/// The bounds of `spec.retryLimit`, and its default.
pub(super) const RETRY_LIMIT: (u32, u32, u32) = (1, 10, 1);

/// The bounds of `spec.timeoutSeconds`, and its default.
pub(super) const TIMEOUT_SECONDS: (u32, u32, u32) = (10, 86_400, 300);

/// The spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebootSpec {
    /// `retryLimit`: how often the machine is reset at most.
    pub retry_limit: u32,
    /// `timeoutSeconds`: how long the Node may take to become healthy after a reset.
    pub timeout: Duration,
}

impl RebootSpec {
    /// Reads a spec. The definition has the same defaults and bounds, so this decides only about objects of another one.
    pub fn read(spec: &Value) -> Self {
        let number = |field: &str, (least, most, default): (u32, u32, u32)| {
            let given = spec[field].as_u64().map(|given| u32::try_from(given).unwrap_or(most));
            given.unwrap_or(default).clamp(least, most)
        };
        let timeout = Duration::from_secs(number("timeoutSeconds", TIMEOUT_SECONDS).into());
        Self { retry_limit: number("retryLimit", RETRY_LIMIT), timeout }
    }
}

/// How far a remediation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was done yet.
    #[default]
    Pending,
    /// A reboot is counted, and it is not written that it was made.
    Running,
    /// The Node has time to become healthy.
    Waiting,
    /// The owner of the Machine was asked.
    HandedOver,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Running, Self::Waiting, Self::HandedOver];

    /// The word in `status.phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::HandedOver => "HandedOver",
        }
    }
}

/// What the status says of the reboots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// `phase`
    pub phase: Phase,
    /// `retryCount`: how many reboots were begun, each counted before it was made.
    pub count: u32,
    /// `lastRemediated`: when the last one was counted.
    pub last: Option<Timestamp>,
}

impl Progress {
    /// Reads a status.
    pub fn of(remediation: &Auxiliary) -> Self {
        let status = &remediation.object.status;
        let phase = Phase::ALL.into_iter().find(|phase| status["phase"] == phase.as_str());
        // A count that cannot be read is no reason for one more.
        let count = match &status["retryCount"] {
            Value::Null => 0,
            count => count.as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(u32::MAX),
        };
        let last = status["lastRemediated"].as_str().and_then(|time| time.parse().ok());
        Self { phase: phase.unwrap_or_default(), count, last }
    }

    /// How much of the time is left that the Node has after the last reboot. `None`: nothing, or there was none. A time in the
    /// future, by a clock that was wrong, adds at most as much again.
    pub fn left(&self, timeout: Duration, now: Timestamp) -> Option<Duration> {
        let last = self.last.filter(|_| self.count > 0)?;
        let elapsed = now.as_second().saturating_sub(last.as_second());
        let limit = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let left = limit.saturating_sub(elapsed);
        let is_running = left > 0 && elapsed >= -limit;
        is_running.then(|| Duration::from_secs(left.unsigned_abs()))
    }
}

/// The whole status with this progress and these conditions, or `None` if the object says so already.
pub fn status(
    remediation: &Auxiliary,
    progress: &Progress,
    conditions: &[Condition],
    now: Timestamp,
) -> Option<Map<String, Value>> {
    let object = remediation.as_infra();
    let is_about_pause = conditions.iter().any(|one| one.condition_type == not_paused().condition_type);
    let more = (!is_about_pause).then(not_paused);
    let all: Vec<_> = conditions.iter().cloned().chain(more).collect();
    let mut status = with_conditions(&object, &all, &[], now).unwrap_or_else(|| object.status.clone());
    status.insert("phase".to_owned(), progress.phase.as_str().into());
    if progress.count > 0 {
        status.insert("retryCount".to_owned(), progress.count.into());
    }
    if let Some(last) = progress.last {
        status.insert("lastRemediated".to_owned(), api_time(last).into());
    }
    (status != object.status).then_some(status)
}

/// Whether the status says that the reboot that is counted last was certainly not made. It stops saying so before the cloud is
/// asked again.
pub fn was_not_made(remediation: &Auxiliary) -> bool {
    let progress = Progress::of(remediation);
    let is_said = |one: &Value| one["status"] == "False" && one["reason"] != OWNER_MISSING;
    progress.count > 0
        && progress.phase == Phase::Running
        && remediation.as_infra().condition(REBOOTED).is_some_and(is_said)
}

/// Whether the owner of a Machine is asked for its remediation, or has answered. From then on the condition is the owner's.
pub fn has_asked_owner(machine: &InfraObject) -> bool {
    machine.condition(OWNER_REMEDIATED).is_some_and(|one| one["status"] != "True")
}

/// The conditions of a Machine whose owner is asked for its remediation. `None`: it is asked already.
pub fn ask_owner(machine: &InfraObject, why: &str, now: Timestamp) -> Option<Value> {
    if has_asked_owner(machine) {
        return None;
    }
    let asked = Condition::new(OWNER_REMEDIATED, ConditionStatus::False, WAITING_FOR_REMEDIATION);
    let mut status = with_conditions(machine, &[asked.with_message(why.to_owned())], &[], now)?;
    Some(status.remove("conditions").unwrap_or_else(|| json!([])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auxiliary::WireAuxiliary;

    fn remediation(status: &Value) -> Auxiliary {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "RebootRemediation",
            "metadata": {"name": "one", "namespace": "lab", "uid": "u", "generation": 1}, "status": status,
        });
        serde_json::from_value::<WireAuxiliary>(object).expect("an object").into()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_spec_has_defaults_and_bounds() {
        for (spec, limit, seconds) in [
            (json!(null), 1, 300),
            (json!({"retryLimit": 3, "timeoutSeconds": 60}), 3, 60),
            (json!({"retryLimit": 0, "timeoutSeconds": 1}), 1, 10),
            (json!({"retryLimit": 99, "timeoutSeconds": 9_999_999_999_u64}), 10, 86_400),
            (json!({"retryLimit": -1, "timeoutSeconds": "5m"}), 1, 300),
        ] {
            let read = RebootSpec::read(&spec);
            assert_eq!((read.retry_limit, read.timeout.as_secs()), (limit, seconds), "{spec}");
        }
    }

    #[test]
    fn a_status_is_read_as_it_is_written() {
        let now = at(1_000);
        for phase in Phase::ALL {
            let progress = Progress { phase, count: 2, last: Some(now) };
            let written = status(&remediation(&json!({})), &progress, &[], now).expect("it is new");
            let found = remediation(&written.into());
            assert_eq!(Progress::of(&found), progress);
            assert_eq!(status(&found, &progress, &[], at(2_000)), None, "nothing is new");
        }
        assert_eq!(Progress::of(&remediation(&Value::Null)), Progress::default());
        for broken in [json!(-1), json!("two"), json!(99_999_999_999_u64)] {
            assert_eq!(Progress::of(&remediation(&json!({"retryCount": broken}))).count, u32::MAX);
        }
    }

    #[test]
    fn a_status_says_that_a_reboot_was_not_made() {
        let of = |phase: &str, count: u32, status: &str, reason: &str| {
            let conditions = json!([{"type": "Rebooted", "status": status, "reason": reason}]);
            was_not_made(&remediation(
                &json!({"phase": phase, "retryCount": count, "conditions": conditions}),
            ))
        };
        assert!(of("Running", 1, "False", "ProviderUnavailable"));
        assert!(!of("Running", 1, "Unknown", "Rebooting"), "the cloud is asked");
        assert!(!of("Waiting", 1, "False", "ProviderUnavailable"));
        assert!(!of("Running", 0, "False", "ProviderUnavailable"));
        assert!(!of("Running", 1, "False", "OwnerMissing"), "that is not about the reboot");
        assert!(!was_not_made(&remediation(&json!({"phase": "Running", "retryCount": 1}))));
    }

    #[test]
    fn the_time_of_a_node_ends() {
        let left = |count, last: i64, now: i64| {
            let progress = Progress { phase: Phase::Waiting, count, last: Some(at(last)) };
            progress.left(Duration::from_secs(60), at(now)).map(|left| left.as_secs())
        };
        assert_eq!([left(1, 100, 100), left(1, 100, 159), left(1, 100, 160)], [Some(60), Some(1), None]);
        assert_eq!(left(0, 100, 100), None, "there was no reboot");
        // A clock that was a little wrong, and one that was very wrong.
        assert_eq!([left(1, 110, 100), left(1, 161, 100)], [Some(70), None]);
    }

    #[test]
    fn the_owner_is_asked_once_and_other_conditions_stay() {
        let machine = |conditions: Value| -> InfraObject {
            let object = json!({"metadata": {"generation": 3}, "status": {"conditions": conditions, "phase": "Running"}});
            serde_json::from_value(object).expect("an object")
        };
        let unhealthy = json!({"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode"});
        let asked = ask_owner(&machine(json!([unhealthy])), "2 of 2 reboots", at(0)).expect("it is asked");
        assert_eq!(asked[0], unhealthy);
        assert_eq!(
            asked[1],
            json!({
                "type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation",
                "message": "2 of 2 reboots", "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:00:00Z",
            })
        );
        assert_eq!(ask_owner(&machine(asked), "again", at(9)), None);
        let before = json!([{"type": "OwnerRemediated", "status": "True", "reason": "Done"}]);
        assert!(ask_owner(&machine(before), "", at(9)).is_some(), "the remediation before is over");
    }
}
