//! What to do about a `RebootRemediation`. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

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
    /// Whether the last reboot is counted and was certainly not made.
    pub is_open: bool,
    /// Whether it is not known how the Node is now, by [`is_unseen`].
    pub is_unseen: bool,
}

/// What is known of the machine in the cloud, by its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It may be reset.
    Ready,
    /// The object or its Cluster is paused.
    Paused,
    /// The API server has no such object.
    Absent,
    /// The object has no provider ID.
    Unprovisioned,
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
    /// Count the reboot with this number, from 1, and make it. One that was certainly not made keeps its number.
    Reboot(u32),
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
    /// The infrastructure has no provider ID.
    NotProvisioned,
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
            Self::NotProvisioned => "NotProvisioned",
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
            Self::NotProvisioned => {
                "the infrastructure of the Machine has no provider ID, so no machine is known that could be rebooted"
                    .to_owned()
            }
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

/// Whether it is not known how the Node of a Machine is now. What a health check said last may then be long out of date: a Node
/// that cannot be seen is neither found healthy nor unhealthy. A Node that is seen and whose kubelet is silent is known to be so.
pub fn is_unseen(machine: &InfraObject, is_connected: bool) -> bool {
    let says_so = |condition: &Value| {
        let reason = condition["reason"].as_str();
        condition["status"] == "Unknown" && matches!(reason, Some("ConnectionDown" | "InternalError"))
    };
    !is_connected
        || ["NodeReady", "NodeHealthy"].into_iter().any(|one| machine.condition(one).is_some_and(says_so))
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
        Target::Unprovisioned => return Next::HandOver(HandOver::NotProvisioned),
        Target::Held | Target::Paused => return Next::Look(HELD_INTERVAL),
        Target::Ready => {}
    }
    let retry_limit = RebootSpec::read(&remediation.object.spec).retry_limit;
    let is_open = facts.is_open && progress.count <= retry_limit;
    if let Some(left) = facts.left.filter(|_| !is_open) {
        return Next::Wait(left);
    }
    let number = if is_open { progress.count } else { progress.count.saturating_add(1) };
    // The first one is made all the same: it deletes nothing, and may bring back a cluster with one control plane machine.
    if facts.is_unseen && number > 1 {
        return Next::Look(HELD_INTERVAL);
    }
    if number > retry_limit {
        return Next::HandOver(HandOver::RetryLimitReached);
    }
    Next::Reboot(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let (target, can_reset) = (Target::Ready, true);
        Facts { remediation, machine, target, can_reset, left: None, is_open: false, is_unseen: false }
    }

    #[test]
    fn reboots_are_counted_up_to_the_limit() {
        let machine = machine("UnhealthyNode", &[]);
        let next = |remediation: &Auxiliary, left: Option<u64>| {
            let left = left.map(Duration::from_secs);
            next(&Facts { left, ..facts(remediation, &machine) })
        };
        assert_eq!(next(&remediation(json!({})), None), Next::Reboot(1));
        assert_eq!(next(&counted(1), Some(40)), Next::Wait(Duration::from_secs(40)));
        assert_eq!(next(&counted(1), None), Next::Reboot(2));
        assert_eq!(next(&counted(2), Some(1)), Next::Wait(Duration::from_secs(1)));
        assert_eq!(next(&counted(2), None), Next::HandOver(HandOver::RetryLimitReached));
        // The limit was lowered meanwhile, or the count is broken.
        assert_eq!(next(&counted(7), None), Next::HandOver(HandOver::RetryLimitReached));
        let broken = remediation(json!({"status": {"retryCount": "one"}}));
        assert_eq!(next(&broken, None), Next::HandOver(HandOver::RetryLimitReached));
    }

    #[test]
    fn what_was_not_made_is_tried_again_and_uses_up_nothing() {
        let machine = machine("UnhealthyNode", &[]);
        let of = |count, left: Option<u64>| {
            let (remediation, left) = (counted(count), left.map(Duration::from_secs));
            next(&Facts { left, is_open: true, ..facts(&remediation, &machine) })
        };
        for left in [Some(40), None] {
            assert_eq!(of(1, left), Next::Reboot(1));
            assert_eq!(of(2, left), Next::Reboot(2), "the last one too");
        }
        assert_eq!(of(3, None), Next::HandOver(HandOver::RetryLimitReached), "the limit was lowered");
        assert_eq!(of(3, Some(40)), Next::Wait(Duration::from_secs(40)), "the limit was lowered");
    }

    #[test]
    fn nothing_follows_the_first_reboot_while_the_node_is_not_seen() {
        let machine = machine("UnhealthyNode", &[]);
        let of = |count: u32, left: Option<u64>, is_open: bool| {
            let (remediation, left) = (counted(count), left.map(Duration::from_secs));
            next(&Facts { left, is_open, is_unseen: true, ..facts(&remediation, &machine) })
        };
        assert_eq!(of(0, None, false), Next::Reboot(1));
        assert_eq!(of(1, None, true), Next::Reboot(1), "it is the first one still");
        assert_eq!(of(1, Some(40), false), Next::Wait(Duration::from_secs(40)));
        assert_eq!(of(1, None, false), Next::Look(HELD_INTERVAL));
        assert_eq!(of(2, None, true), Next::Look(HELD_INTERVAL));
        assert_eq!(of(2, None, false), Next::Look(HELD_INTERVAL), "nor is it handed over");
        assert_eq!(of(7, None, false), Next::Look(HELD_INTERVAL));
    }

    #[test]
    fn a_node_is_not_seen_without_a_connection() {
        let of = |kind: &str, status: &str, reason: &str| {
            let condition = json!({"type": kind, "status": status, "reason": reason});
            is_unseen(&machine("UnhealthyNode", &[condition]), true)
        };
        for kind in ["NodeReady", "NodeHealthy"] {
            assert!(of(kind, "Unknown", "ConnectionDown") && of(kind, "Unknown", "InternalError"));
            assert!(!of(kind, "False", "NodeNotReady") && !of(kind, "True", "NodeReady"));
            // Its kubelet is silent, or it never came.
            assert!(!of(kind, "Unknown", "NodeReadyUnknown") && !of(kind, "Unknown", "NodeHealthyUnknown"));
            assert!(!of(kind, "Unknown", "InspectionFailed"));
        }
        assert!(!of("InfrastructureReady", "Unknown", "InternalError"));
        let machine = machine("UnhealthyNode", &[]);
        assert!(!is_unseen(&machine, true) && is_unseen(&machine, false));
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
        let early = Facts { target: Target::Unprovisioned, ..facts(&any, &unhealthy) };
        assert_eq!(next(&early), hand_over(HandOver::NotProvisioned));
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
        assert_eq!(again, Next::Reboot(1));
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
