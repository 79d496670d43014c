//! What to do about a `RebootRemediation`. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::status::{Phase, Progress, RebootSpec, has_asked_owner};
use crate::{
    auxiliary::Auxiliary,
    names::{CORE_GROUP, HEALTH_CHECK_SUCCEEDED, NODE_DELETED},
    object::InfraObject,
};

/// When a remediation is looked at again that waits for what brings no event, such as the end of a pause of the Machine.
const HELD_INTERVAL: Duration = Duration::from_secs(30);

/// What is known when it is decided.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The `RebootRemediation`.
    pub remediation: &'a Auxiliary,
    /// Its Machine, as the API server has it now.
    pub machine: &'a InfraObject,
    /// What is known of the machine in the cloud.
    pub target: Target,
    /// Whether the provider can reset machines.
    pub can_reset: bool,
    /// How much of the time is left that the Node has after the last reboot.
    pub left: Option<Duration>,
    /// Whether the last reboot is counted and was not made, as this process knows.
    pub is_open: bool,
}

/// What is known of the machine in the cloud, by its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It may be reset.
    Ready,
    /// The object or its Cluster is paused.
    Paused,
    /// There is no such object, or it never had a machine.
    Absent,
    /// Not now: the object is not in order, or not this daemon's.
    Held,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Rest,
    /// Nothing, until this time has passed or something changes.
    Look(Duration),
    /// Say that it is paused, and look again after this time.
    Pause(Duration),
    /// The Node has this much time left. If the status does not have the outcome of the reboot, it is not known.
    Wait(Duration),
    /// Make the reboot with this number. Unless it `is_counted`, it is counted first.
    Reboot {
        /// From 1.
        number: u32,
        /// Whether the status has it.
        is_counted: bool,
    },
    /// Ask the owner of the Machine to replace it.
    HandOver(HandOver),
}

/// Why the owner of a Machine is asked to replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOver {
    /// The reboots did not help.
    RetryLimitReached,
    /// The Node object was deleted, which a reboot does not bring back.
    NodeDeleted,
    /// There is no machine to reset.
    MachineNotFound,
    /// The provider cannot reset machines.
    ResetNotSupported,
    /// The owner was asked before, such as by another health check.
    OwnerAsked,
}

impl HandOver {
    /// The reason in the condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::RetryLimitReached => "RetryLimitReached",
            Self::NodeDeleted => NODE_DELETED,
            Self::MachineNotFound => "MachineNotFound",
            Self::ResetNotSupported => "ResetNotSupported",
            Self::OwnerAsked => "OwnerAsked",
        }
    }

    /// For people. `count` reboots of `limit` were begun.
    pub fn message(self, count: u32, limit: u32) -> String {
        match self {
            Self::RetryLimitReached => {
                format!("{count} of {limit} reboots did not bring a healthy Node in their time")
            }
            Self::NodeDeleted => {
                "the Node object was deleted, and a reboot does not bring it back".to_owned()
            }
            Self::MachineNotFound => "there is no machine in the cloud that could be rebooted".to_owned(),
            Self::ResetNotSupported => "the provider of the infrastructure cannot reset machines".to_owned(),
            Self::OwnerAsked => "the owner of the Machine has been asked for its remediation".to_owned(),
        }
    }
}

/// The Machine that a remediation is for: the owner with the name of the object.
pub fn owner_of(remediation: &Auxiliary) -> Option<&OwnerReference> {
    let is_it = |owner: &&OwnerReference| {
        owner.kind == "Machine"
            && owner.api_version.split('/').next() == Some(CORE_GROUP)
            && owner.name == remediation.object.name
    };
    remediation.metadata.owner_references.iter().flatten().find(is_it)
}

/// The reason for which a health check has found a Machine unhealthy. `None`: it has not.
pub fn failed_check(machine: &InfraObject) -> Option<&str> {
    let check = machine.condition(HEALTH_CHECK_SUCCEEDED).filter(|one| one["status"] == "False")?;
    Some(check["reason"].as_str().unwrap_or_default())
}

/// What to do next. The owner reference of the remediation has the UID of the Machine.
pub fn next(facts: &Facts<'_>) -> Next {
    let Facts { remediation, machine, .. } = facts;
    if remediation.object.is_deleting || machine.is_deleting() {
        return Next::Rest;
    }
    let Some(reason) = failed_check(machine) else { return Next::Rest };
    if remediation.as_infra().is_paused() || machine.is_paused() || facts.target == Target::Paused {
        return Next::Pause(HELD_INTERVAL);
    }
    let progress = Progress::of(remediation);
    if has_asked_owner(machine) {
        let is_said = progress.phase == Phase::HandedOver;
        return if is_said { Next::Rest } else { Next::HandOver(HandOver::OwnerAsked) };
    }
    if reason == NODE_DELETED {
        return Next::HandOver(HandOver::NodeDeleted);
    }
    if !facts.can_reset {
        return Next::HandOver(HandOver::ResetNotSupported);
    }
    match facts.target {
        Target::Absent => return Next::HandOver(HandOver::MachineNotFound),
        Target::Held | Target::Paused => return Next::Look(HELD_INTERVAL),
        Target::Ready => {}
    }
    let retry_limit = RebootSpec::read(&remediation.object.spec).retry_limit;
    if let Some(left) = facts.left {
        return if facts.is_open && progress.count <= retry_limit {
            Next::Reboot { number: progress.count, is_counted: true }
        } else {
            Next::Wait(left)
        };
    }
    if progress.count >= retry_limit {
        return Next::HandOver(HandOver::RetryLimitReached);
    }
    Next::Reboot { number: progress.count + 1, is_counted: false }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::auxiliary::WireAuxiliary;

    fn remediation(more: Value) -> Auxiliary {
        let mut object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "RebootRemediation",
            "metadata": {"name": "one", "namespace": "lab", "uid": "u"},
            "spec": {"retryLimit": 2, "timeoutSeconds": 60},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            match value {
                Value::Object(inner) if object[field].is_object() => {
                    for (name, value) in inner {
                        object[field][name] = value.clone();
                    }
                }
                value => object[field] = value.clone(),
            }
        }
        serde_json::from_value::<WireAuxiliary>(object).expect("an object").into()
    }

    /// A remediation with so many reboots.
    fn counted(count: u32) -> Auxiliary {
        remediation(json!({"status": {"phase": "Waiting", "retryCount": count}}))
    }

    fn machine(reason: &str, conditions: &[Value]) -> InfraObject {
        let check = json!({"type": "HealthCheckSucceeded", "status": "False", "reason": reason});
        let conditions: Vec<_> = [check].into_iter().chain(conditions.iter().cloned()).collect();
        serde_json::from_value(json!({"metadata": {"name": "one"}, "status": {"conditions": conditions}}))
            .expect("an object")
    }

    fn facts<'a>(remediation: &'a Auxiliary, machine: &'a InfraObject) -> Facts<'a> {
        Facts { remediation, machine, target: Target::Ready, can_reset: true, left: None, is_open: false }
    }

    #[test]
    fn reboots_are_counted_up_to_the_limit() {
        let machine = machine("UnhealthyNode", &[]);
        let next = |remediation: &Auxiliary, left: Option<u64>| {
            let left = left.map(Duration::from_secs);
            next(&Facts { left, ..facts(remediation, &machine) })
        };
        assert_eq!(next(&remediation(json!({})), None), Next::Reboot { number: 1, is_counted: false });
        assert_eq!(next(&counted(1), Some(40)), Next::Wait(Duration::from_secs(40)));
        assert_eq!(next(&counted(1), None), Next::Reboot { number: 2, is_counted: false });
        assert_eq!(next(&counted(2), Some(1)), Next::Wait(Duration::from_secs(1)));
        assert_eq!(next(&counted(2), None), Next::HandOver(HandOver::RetryLimitReached));
        // The limit was lowered meanwhile, or the count is broken.
        assert_eq!(next(&counted(7), None), Next::HandOver(HandOver::RetryLimitReached));
        let broken = remediation(json!({"status": {"retryCount": "one"}}));
        assert_eq!(next(&broken, None), Next::HandOver(HandOver::RetryLimitReached));
    }

    /// Only the process that asked the cloud in vain knows that nothing was reset.
    #[test]
    fn what_is_counted_is_made_by_the_process_that_knows_it_was_not() {
        let machine = machine("UnhealthyNode", &[]);
        let of = |count, left: Option<u64>| {
            let (remediation, left) = (counted(count), left.map(Duration::from_secs));
            next(&Facts { left, is_open: true, ..facts(&remediation, &machine) })
        };
        assert_eq!(of(1, Some(40)), Next::Reboot { number: 1, is_counted: true });
        assert_eq!(of(1, None), Next::Reboot { number: 2, is_counted: false });
        assert_eq!(of(2, None), Next::HandOver(HandOver::RetryLimitReached));
        assert_eq!(of(3, Some(40)), Next::Wait(Duration::from_secs(40)), "the limit was lowered");
    }

    #[test]
    fn nothing_is_done_about_a_machine_that_no_check_has_found_unhealthy() {
        let of = |machine: Value| {
            let machine = serde_json::from_value(machine).expect("an object");
            next(&facts(&remediation(json!({})), &machine))
        };
        assert_eq!(of(json!({"metadata": {}})), Next::Rest);
        for status in ["True", "Unknown"] {
            let check =
                json!([{"type": "HealthCheckSucceeded", "status": status, "reason": "UnhealthyNode"}]);
            assert_eq!(of(json!({"metadata": {}, "status": {"conditions": check}})), Next::Rest);
        }
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let check = json!([{"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode"}]);
        assert_eq!(of(json!({"metadata": going, "status": {"conditions": check}})), Next::Rest);
        let ended = remediation(json!({"metadata": going}));
        assert_eq!(next(&facts(&ended, &machine("UnhealthyNode", &[]))), Next::Rest);
    }

    #[test]
    fn nothing_is_done_during_a_pause() {
        let paused = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
        let (unhealthy, any) = (machine("UnhealthyNode", &[]), remediation(json!({})));
        let pause = Next::Pause(HELD_INTERVAL);
        assert_eq!(next(&facts(&remediation(json!({"metadata": paused})), &unhealthy)), pause);
        let mut machine_paused = unhealthy.clone();
        machine_paused.metadata.annotations =
            Some([("cluster.x-k8s.io/paused".into(), String::new())].into());
        assert_eq!(next(&facts(&any, &machine_paused)), pause);
        assert_eq!(next(&Facts { target: Target::Paused, ..facts(&any, &unhealthy) }), pause);
    }

    #[test]
    fn the_owner_is_asked_where_a_reboot_does_not_help() {
        let (unhealthy, any) = (machine("UnhealthyNode", &[]), remediation(json!({})));
        let hand_over = |why| Next::HandOver(why);
        assert_eq!(next(&facts(&any, &machine("NodeDeleted", &[]))), hand_over(HandOver::NodeDeleted));
        let without = Facts { can_reset: false, ..facts(&any, &unhealthy) };
        assert_eq!(next(&without), hand_over(HandOver::ResetNotSupported));
        let absent = Facts { target: Target::Absent, ..facts(&any, &unhealthy) };
        assert_eq!(next(&absent), hand_over(HandOver::MachineNotFound));
        let held = Facts { target: Target::Held, ..facts(&any, &unhealthy) };
        assert_eq!(next(&held), Next::Look(HELD_INTERVAL));
        for asked in ["WaitingForRemediation", "RemediationDeferred", "MachineDeleting"] {
            let asked = json!({"type": "OwnerRemediated", "status": "False", "reason": asked});
            let machine = machine("UnhealthyNode", &[asked]);
            assert_eq!(next(&facts(&any, &machine)), hand_over(HandOver::OwnerAsked));
            let said = remediation(json!({"status": {"phase": "HandedOver"}}));
            assert_eq!(next(&facts(&said, &machine)), Next::Rest);
        }
        let over = json!({"type": "OwnerRemediated", "status": "True", "reason": "Done"});
        let again = next(&facts(&any, &machine("UnhealthyNode", &[over])));
        assert_eq!(again, Next::Reboot { number: 1, is_counted: false });
    }

    #[test]
    fn the_owner_has_the_name_of_the_object() {
        let owned = |owner: Value| remediation(json!({"metadata": {"ownerReferences": [owner]}}));
        let core = "cluster.x-k8s.io/v1beta2";
        for (owner, is_it) in [
            (json!({"apiVersion": core, "kind": "Machine", "name": "one", "uid": "m"}), true),
            (json!({"apiVersion": core, "kind": "Machine", "name": "two", "uid": "m"}), false),
            (json!({"apiVersion": core, "kind": "MachineSet", "name": "one", "uid": "m"}), false),
            (json!({"apiVersion": "example.org/v1", "kind": "Machine", "name": "one", "uid": "m"}), false),
        ] {
            let remediation = owned(owner.clone());
            assert_eq!(
                owner_of(&remediation).map(|owner| owner.uid.as_str()),
                is_it.then_some("m"),
                "{owner}"
            );
        }
    }
}
