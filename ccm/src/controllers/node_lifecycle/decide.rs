//! Decides what to do with a Node, from the state of its instance and its kubelet. Pure.

use std::time::Duration;

use cloudprovider::InstanceLookup;
use controller_kit::{
    conditions::{INSTANCE_EXISTS, WantedCondition, doubt_word},
    nodes::{Node, NodePatch, ReadyStatus, Taint},
};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{
    ALLOW_DELETION, EXCLUDE_LABEL, SHUTDOWN_TAINT,
    absence::MAX_CALL_AGE,
    memory::Memory,
    silence::{Kubelet, LEASE_POLL, LeaseHistory},
    unseen,
    verdict::{HeldBack, Verdict},
};

/// If it stays unknown for this long whether the kubelet is alive, that is reported.
const TELL_AFTER: Duration = Duration::from_secs(30);

/// Observation of kubelets begins this long before a grace period ends. In most clusters that is enough to
/// detect a dead one.
const LISTEN_AHEAD: Duration = Duration::from_secs(60);

/// The minimum time between two answers that an instance is gone.
const LEAST_BETWEEN: Duration = Duration::from_millis(100);

/// The conditions for the deletion of a Node.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeletionRules {
    /// Minimum time between the two answers that the instance is gone.
    pub grace: Duration,
    /// Minimum age of the Node.
    pub minimum_age: Duration,
}

/// Whether the Node opted out of deletion.
pub(super) fn is_excluded(node: &Node) -> bool {
    // Upstream's rule for such labels: present, and not a boolean "false".
    let is_false = |value: &String| matches!(value.as_str(), "0" | "f" | "F" | "false" | "FALSE" | "False");
    node.identity.labels.get(EXCLUDE_LABEL).is_some_and(|value| !is_false(value))
}

/// Whether the Node's condition says that the breaker held it back. An earlier leader may have written the
/// condition.
pub(super) fn is_held_by_breaker(node: &Node) -> bool {
    let reason = HeldBack::BreakerOpen.as_str();
    node.condition(INSTANCE_EXISTS).is_some_and(|c| c.status == "False" && c.reason == reason)
}

/// Whether an operator permitted the deletion despite the breaker.
pub(super) fn is_allowed(node: &Node) -> bool {
    node.identity.annotations.get(ALLOW_DELETION).is_some_and(|value| value == "true")
}

/// Decides about a Node whose instance is gone according to the last answer. `kubelet` is the result of a
/// lease read after that answer. `None`: there was no such read.
pub(super) fn verdict(
    node: &Node,
    memory: &Memory,
    kubelet: Option<Kubelet>,
    rules: DeletionRules,
    breaker_is_open: bool,
    now: Instant,
    wall_clock: Timestamp,
) -> Verdict {
    let Some(absence) = memory.absence else { return Verdict::Ignore };
    if node.deleting || memory.deleted {
        return Verdict::Ignore;
    }
    // Two answers are required, even if the grace period is zero.
    let between = absence.lasted();
    if between < rules.grace || between.is_zero() {
        return Verdict::Wait(absence.first + rules.grace.max(LEAST_BETWEEN));
    }
    if is_excluded(node) {
        return Verdict::HoldBack(HeldBack::Excluded, None);
    }
    let age = age(node, memory, now, wall_clock);
    if let Some(missing) = rules.minimum_age.checked_sub(age).filter(|missing| !missing.is_zero()) {
        return Verdict::Wait(now + missing);
    }
    if breaker_is_open && !is_allowed(node) {
        return Verdict::HoldBack(HeldBack::BreakerOpen, None);
    }
    if let Some(until) = unseen::waits_until(memory.unseen, absence).filter(|_| !is_allowed(node)) {
        return Verdict::HoldBack(HeldBack::InstanceNeverSeen, Some(until));
    }
    match kubelet {
        // The decisions about earlier Nodes took too long, so the answer is too old. The cloud is asked
        // again.
        Some(Kubelet::Silent(_)) if absence.is_old(now) => Verdict::Listen(now),
        Some(Kubelet::Silent(_)) if now.duration_since(absence.last.sent) > MAX_CALL_AGE => {
            listen(HeldBack::CloudTooSlow, now, memory, now)
        }
        Some(Kubelet::Silent(proof)) => Verdict::Delete(proof),
        Some(Kubelet::ReadyWithoutLease) => Verdict::HoldBack(HeldBack::NodeReady, None),
        // The Node is also looked at in each period, so that a renewal is not missed.
        Some(Kubelet::Renews { silent_at }) => Verdict::HoldBack(HeldBack::KubeletAlive, Some(silent_at)),
        Some(Kubelet::Undecided(why, again)) => listen(why.into(), again, memory, now),
        // When the leases were read, it was not yet clear that the Node may have to be deleted.
        None => listen(HeldBack::LeaseUnread, now + LEASE_POLL, memory, now),
    }
}

/// Whether frequent reads of leases are useless for this Node now: if one read of its lease in each period is
/// enough to hold it back, or if it is held back for a long time anyway. If the cloud is wrong about a
/// machine, this state may last for ever.
pub(super) fn needs_no_listening(node: &Node, memory: &Memory, now: Instant) -> bool {
    let unseen_until = memory.absence.and_then(|absence| unseen::waits_until(memory.unseen, absence));
    if unseen_until.is_some_and(|until| now + LISTEN_AHEAD < until) && !is_allowed(node) {
        return true;
    }
    // During the first time after that, the decision should come as soon as possible.
    if memory.held_back_since.is_none_or(|since| now.duration_since(since) < TELL_AFTER) {
        return false;
    }
    let lease = memory.lease.as_ref();
    match memory.held_back {
        Some(HeldBack::KubeletAlive) => lease.is_some_and(LeaseHistory::is_in_time),
        Some(HeldBack::NodeReady) => {
            node.ready() == ReadyStatus::True && lease.is_some_and(LeaseHistory::is_mute)
        }
        Some(HeldBack::LeaseUnread) => lease.is_some_and(|lease| lease.is_forbidden() && lease.renewed),
        _ => false,
    }
}

fn listen(reason: HeldBack, again: Instant, memory: &Memory, now: Instant) -> Verdict {
    if memory.listening_since.is_none_or(|since| now.duration_since(since) < TELL_AFTER) {
        return Verdict::Listen(again);
    }
    Verdict::HoldBack(reason, Some(again))
}

fn age(node: &Node, memory: &Memory, now: Instant, wall_clock: Timestamp) -> Duration {
    let by_wall_clock = node
        .created
        .and_then(|created| Duration::try_from(wall_clock.duration_since(created)).ok())
        .unwrap_or_default();
    by_wall_clock.max(now.duration_since(memory.first_seen))
}

/// The patch that corrects the shutdown taint. `None`: it is correct. The rules are upstream's. A Ready Node
/// never has the taint, whatever the cloud answers. A Node that is not Ready gets it if the cloud reports its
/// instance as shut down. The taint is identified by key and effect. A taint with a value or a time is
/// replaced.
pub(super) fn shutdown_taint_patch(node: &Node, answer: &InstanceLookup) -> Option<NodePatch> {
    let is_ours = |taint: &Taint| taint.key == SHUTDOWN_TAINT && taint.effect == "NoSchedule";
    let ours = node.taints.iter().enumerate().find(|(_, taint)| is_ours(taint));
    let wanted = json!({"key": SHUTDOWN_TAINT, "effect": "NoSchedule"});
    let is_there = |index: usize| {
        [("key", SHUTDOWN_TAINT), ("effect", "NoSchedule")].map(
            |(field, value)| json!({"op": "test", "path": format!("/spec/taints/{index}/{field}"), "value": value}),
        )
    };
    let is_shut_down = || match answer {
        InstanceLookup::Present(instance) => instance.power_state.is_shutdown() && !node.deleting,
        InstanceLookup::Absent | InstanceLookup::Unknown(_) => false,
    };
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": node.identity.uid})];
    match (node.ready(), ours) {
        (ReadyStatus::True, Some((index, _))) => {
            operations.extend(is_there(index));
            operations.push(json!({"op": "remove", "path": format!("/spec/taints/{index}")}));
        }
        (ReadyStatus::False | ReadyStatus::Unknown, Some((index, taint)))
            if is_shut_down() && !(taint.value.is_empty() && taint.time_added.is_none()) =>
        {
            operations.extend(is_there(index));
            operations
                .push(json!({"op": "replace", "path": format!("/spec/taints/{index}"), "value": wanted}));
        }
        (ReadyStatus::False | ReadyStatus::Unknown, None) if is_shut_down() => {
            if node.taints.is_empty() {
                // There is no list to append to. The test prevents the new list from overwriting a taint that
                // another client adds at this moment.
                operations.push(
                    json!({"op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version}),
                );
                operations.push(json!({"op": "add", "path": "/spec/taints", "value": [wanted]}));
            } else {
                operations.push(json!({"op": "add", "path": "/spec/taints/-", "value": wanted}));
            }
        }
        _ => return None,
    }
    Some(NodePatch::Json(operations.into()))
}

/// The condition [`INSTANCE_EXISTS`] that follows from an answer other than "gone", if any.
///
/// If the cloud cannot tell, this matters only for a Node that is not Ready, where the answer would decide. A
/// Node that was never in doubt gets no condition, so a stable cluster causes no writes. A condition that
/// says that the breaker held the Node back stays until the cloud has the instance again, or until nothing is
/// held back any more (`breaker_is_done`).
pub(super) fn condition_for(
    node: &Node,
    answer: &InstanceLookup,
    breaker_is_done: bool,
) -> Option<WantedCondition> {
    let now = node.condition(INSTANCE_EXISTS);
    match answer {
        InstanceLookup::Absent => None,
        InstanceLookup::Present(_) => {
            let found =
                || WantedCondition::new(INSTANCE_EXISTS, "True", "InstanceFound", "the instance exists");
            now.filter(|condition| condition.status != "True").map(|_| found())
        }
        InstanceLookup::Unknown(error) => {
            let wanted =
                WantedCondition::new(INSTANCE_EXISTS, "Unknown", doubt_word(error.kind()), error.report());
            // A new message for the same reason is not worth a write.
            let is_known = now.is_some_and(|c| c.status == wanted.status && c.reason == wanted.reason);
            // This condition is the next leader's only record of the Nodes that the breaker held back.
            let says_more = !breaker_is_done && is_held_by_breaker(node);
            let is_stale = breaker_is_done && is_held_by_breaker(node);
            let matters = node.ready() != ReadyStatus::True || is_stale;
            (matters && !is_known && !says_more).then_some(wanted)
        }
    }
}

#[cfg(test)]
mod tests;
