//! What becomes of a Node, from what the cloud and the kubelet say. Pure.

use std::time::Duration;

use cloudprovider::InstanceLookup;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::{ALLOW_DELETION, EXCLUDE_LABEL, SHUTDOWN_TAINT, memory::Memory};
use crate::{
    conditions::{INSTANCE_EXISTS, WantedCondition, doubt_word},
    nodes::{Node, NodePatch, ReadyStatus, Taint},
};

/// How often a kubelet's lease is looked at until it is clear whether it lives.
const LEASE_POLL: Duration = Duration::from_secs(2);

/// The least time between two answers that an instance is gone.
const LEAST_BETWEEN: Duration = Duration::from_millis(100);

/// What must hold before a Node is deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeletionRules {
    /// Time between the two answers that the instance is gone.
    pub grace: Duration,
    /// Least age of the Node.
    pub minimum_age: Duration,
}

/// Why a Node whose instance is gone is not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HeldBack {
    /// The label says so.
    Excluded,
    /// The breaker is open.
    BreakerOpen,
    /// The kubelet goes on renewing its lease.
    KubeletAlive,
    /// The Node is Ready, and there is no lease to tell whether its kubelet lives.
    NodeReady,
}

/// What is to be done about a Node whose instance is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again then.
    Wait(Instant),
    /// Not now, and for a reason that people should know; look again then.
    HoldBack(HeldBack, Option<Instant>),
    /// Delete it.
    Delete,
    /// Leave it alone: it is going already.
    Ignore,
}

impl Verdict {
    /// For the log.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Wait(_) => "the instance seems to be gone: waiting until that is certain",
            Self::HoldBack(..) => "the instance is gone, and the node is kept",
            Self::Delete => "the instance is gone: the node is to be deleted",
            Self::Ignore => "nothing to delete",
        }
    }
}

impl HeldBack {
    /// The word for reasons and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Excluded => "Excluded",
            Self::BreakerOpen => "BreakerOpen",
            Self::KubeletAlive => "KubeletAlive",
            Self::NodeReady => "NodeReady",
        }
    }

    /// A sentence for people.
    pub(super) fn message(self) -> String {
        let why = match self {
            Self::Excluded => format!("the node has the label {EXCLUDE_LABEL}"),
            Self::BreakerOpen => format!(
                "too many nodes would be deleted at once; if that is right, set the annotation {ALLOW_DELETION}=true on them"
            ),
            Self::KubeletAlive => "its kubelet goes on renewing its lease in kube-node-lease".to_owned(),
            Self::NodeReady => {
                "it is Ready, and there is no lease in kube-node-lease to tell otherwise".to_owned()
            }
        };
        format!("the cloud provider has no instance for this node, but it is not deleted: {why}")
    }

    /// The condition that says so on the Node.
    pub(super) fn condition(self) -> WantedCondition {
        WantedCondition::new(INSTANCE_EXISTS, "False", self.as_str(), self.message())
    }
}

/// Whether the Node opted out of deletion.
pub(super) fn is_excluded(node: &Node) -> bool {
    // As upstream reads such labels: there and not a boolean "false".
    let is_false = |value: &String| matches!(value.as_str(), "0" | "f" | "F" | "false" | "FALSE" | "False");
    node.identity.labels.get(EXCLUDE_LABEL).is_some_and(|value| !is_false(value))
}

/// Whether an operator allowed the deletion past the breaker.
pub(super) fn is_allowed(node: &Node) -> bool {
    node.identity.annotations.get(ALLOW_DELETION).is_some_and(|value| value == "true")
}

/// Decides on a Node whose instance is gone by the last answer.
pub(super) fn verdict(
    node: &Node,
    memory: &Memory,
    rules: DeletionRules,
    breaker_is_open: bool,
    now: Instant,
    wall_clock: Timestamp,
) -> Verdict {
    let Some(absence) = memory.absence else { return Verdict::Ignore };
    if node.deleting || memory.deleted {
        return Verdict::Ignore;
    }
    // Two answers, whatever the rules say about the time between them.
    let between = absence.last.duration_since(absence.first);
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
    match &memory.lease {
        None if node.ready() == ReadyStatus::True => Verdict::HoldBack(HeldBack::NodeReady, None),
        None => Verdict::Delete,
        // kube-controller-manager says that the kubelet has been silent for long, and its lease agrees.
        Some(history)
            if node.ready() == ReadyStatus::Unknown && history.lease.expired && !history.renewed =>
        {
            Verdict::Delete
        }
        Some(history) if now >= history.dead_at() => Verdict::Delete,
        // The period looks at the lease too, so that a renewal is not missed.
        Some(history) if history.renewed => {
            Verdict::HoldBack(HeldBack::KubeletAlive, Some(history.dead_at()))
        }
        Some(history) => Verdict::Wait(history.dead_at().min(now + LEASE_POLL)),
    }
}

fn age(node: &Node, memory: &Memory, now: Instant, wall_clock: Timestamp) -> Duration {
    let by_wall_clock = node
        .created
        .and_then(|created| Duration::try_from(wall_clock.duration_since(created)).ok())
        .unwrap_or_default();
    by_wall_clock.max(now.duration_since(memory.first_seen))
}

/// The patch that puts the shutdown taint right, if it is not: upstream's rules. A Ready Node never has it, whatever
/// the cloud says; a Node that is not Ready gets it when the cloud says that its instance is shut down.
pub(super) fn shutdown_taint_patch(node: &Node, answer: &InstanceLookup) -> Option<NodePatch> {
    let is_ours = |taint: &Taint| taint.key == SHUTDOWN_TAINT && taint.effect == "NoSchedule";
    let index = node.taints.iter().position(is_ours);
    let operations = match (node.ready(), index, answer) {
        (ReadyStatus::True, Some(index), _) => vec![
            json!({"op": "test", "path": format!("/spec/taints/{index}/key"), "value": SHUTDOWN_TAINT}),
            json!({"op": "test", "path": format!("/spec/taints/{index}/effect"), "value": "NoSchedule"}),
            json!({"op": "remove", "path": format!("/spec/taints/{index}")}),
        ],
        (ReadyStatus::False | ReadyStatus::Unknown, None, InstanceLookup::Present(instance))
            if instance.power_state.is_shutdown() && !node.deleting =>
        {
            let taint = json!({"key": SHUTDOWN_TAINT, "effect": "NoSchedule"});
            if node.taints.is_empty() {
                // There is no list to append to, and putting one in place must not lose a taint that somebody else
                // adds right now.
                vec![
                    json!({"op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version}),
                    json!({"op": "add", "path": "/spec/taints", "value": [taint]}),
                ]
            } else {
                vec![json!({"op": "add", "path": "/spec/taints/-", "value": taint})]
            }
        }
        _ => return None,
    };
    let same_node = json!({"op": "test", "path": "/metadata/uid", "value": node.identity.uid});
    Some(NodePatch::Json(std::iter::once(same_node).chain(operations).collect()))
}

/// The condition [`INSTANCE_EXISTS`] that an answer other than "gone" asks for, if any.
///
/// What the cloud cannot tell matters where it would decide: on a Node that is not Ready. A Node that never was in
/// doubt gets no condition, so a settled cluster costs no write.
pub(super) fn condition_for(node: &Node, answer: &InstanceLookup) -> Option<WantedCondition> {
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
            // Other words for the same reason are not worth a write each.
            let is_known = now.is_some_and(|c| c.status == wanted.status && c.reason == wanted.reason);
            (node.ready() != ReadyStatus::True && !is_known).then_some(wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{Error, ErrorKind, Instance, PowerState, ProviderId};

    use super::{
        super::{
            lease::{LeaseHistory, LeaseView},
            memory::Absence,
        },
        *,
    };

    const RULES: DeletionRules =
        DeletionRules { grace: Duration::from_secs(5), minimum_age: Duration::from_secs(10) };

    fn node(ready: &str) -> Node {
        Node::from_json(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Gone since 30 s, confirmed.
    fn gone(now: Instant) -> Memory {
        let absence = Some(Absence { first: now - seconds(30), last: now });
        Memory { absence, ..Memory::new("u", now - seconds(60)) }
    }

    fn decide(node: &Node, memory: &Memory, breaker_is_open: bool, now: Instant) -> Verdict {
        verdict(node, memory, RULES, breaker_is_open, now, Timestamp::UNIX_EPOCH)
    }

    fn start() -> Instant {
        Instant::now() + seconds(1000)
    }

    #[test]
    fn gone_is_asked_twice_over_the_grace_period() {
        let (node, now) = (node("Unknown"), start());
        let mut memory = Memory::new("u", now - seconds(60));
        assert_eq!(decide(&node, &memory, false, now), Verdict::Ignore);
        memory.note(&InstanceLookup::Absent, now);
        assert_eq!(decide(&node, &memory, false, now), Verdict::Wait(now + seconds(5)));
        // time alone does not confirm
        assert_eq!(decide(&node, &memory, false, now + seconds(9)), Verdict::Wait(now + seconds(5)));
        memory.note(&InstanceLookup::Absent, now + seconds(4));
        assert_eq!(decide(&node, &memory, false, now + seconds(4)), Verdict::Wait(now + seconds(5)));
        memory.note(&InstanceLookup::Absent, now + seconds(5));
        assert_eq!(decide(&node, &memory, false, now + seconds(5)), Verdict::Delete);
        // an error in between breaks the row
        memory.note(&Error::new(ErrorKind::Unavailable, "away").into(), now + seconds(6));
        memory.note(&InstanceLookup::Absent, now + seconds(7));
        assert_eq!(decide(&node, &memory, false, now + seconds(7)), Verdict::Wait(now + seconds(12)));
    }

    #[test]
    fn one_answer_is_never_enough() {
        let now = start();
        let rules = DeletionRules { grace: Duration::ZERO, minimum_age: Duration::ZERO };
        let mut memory = Memory::new("u", now);
        memory.note(&InstanceLookup::Absent, now);
        let decide =
            |memory: &Memory| verdict(&node("Unknown"), memory, rules, false, now, Timestamp::UNIX_EPOCH);
        assert_eq!(decide(&memory), Verdict::Wait(now + LEAST_BETWEEN));
        memory.note(&InstanceLookup::Absent, now + LEAST_BETWEEN);
        assert_eq!(decide(&memory), Verdict::Delete);
    }

    #[test]
    fn young_excluded_and_terminating_nodes_stay() {
        let now = start();
        let young = Memory { first_seen: now - seconds(4), ..gone(now) };
        assert_eq!(decide(&node("Unknown"), &young, false, now), Verdict::Wait(now + seconds(6)));
        for (value, verdict) in [
            ("", Verdict::HoldBack(HeldBack::Excluded, None)),
            ("true", Verdict::HoldBack(HeldBack::Excluded, None)),
            ("false", Verdict::Delete),
        ] {
            let mut node = node("Unknown");
            node.identity.labels.insert(EXCLUDE_LABEL.into(), value.into());
            assert_eq!(decide(&node, &gone(now), false, now), verdict, "{value:?}");
        }
        let terminating = Node { deleting: true, ..node("Unknown") };
        assert_eq!(decide(&terminating, &gone(now), false, now), Verdict::Ignore);
        let deleted = Memory { deleted: true, ..gone(now) };
        assert_eq!(decide(&node("Unknown"), &deleted, false, now), Verdict::Ignore);
    }

    #[test]
    fn the_breaker_stops_all_but_those_allowed() {
        let now = start();
        let mut node = node("Unknown");
        assert_eq!(decide(&node, &gone(now), true, now), Verdict::HoldBack(HeldBack::BreakerOpen, None));
        node.identity.annotations.insert(ALLOW_DELETION.into(), "true".into());
        assert_eq!(decide(&node, &gone(now), true, now), Verdict::Delete);
    }

    fn lease(renew_time: &str, expired: bool) -> LeaseView {
        LeaseView { renew_time: renew_time.into(), silence: Duration::from_millis(12_500), expired }
    }

    #[test]
    fn a_kubelet_that_lives_keeps_its_node() {
        let now = start();
        let silence = lease("a", false).silence;
        for ready in ["True", "False", "Unknown"] {
            let mut memory = gone(now);
            LeaseHistory::update(&mut memory.lease, lease("a", false), now);
            assert_eq!(decide(&node(ready), &memory, false, now), Verdict::Wait(now + LEASE_POLL), "{ready}");
            assert_eq!(decide(&node(ready), &memory, false, now + silence), Verdict::Delete, "{ready}");
            let renewed = now + seconds(9);
            LeaseHistory::update(&mut memory.lease, lease("b", false), renewed);
            assert_eq!(
                decide(&node(ready), &memory, false, now + silence),
                Verdict::HoldBack(HeldBack::KubeletAlive, Some(renewed + silence)),
                "{ready}"
            );
            assert_eq!(decide(&node(ready), &memory, false, renewed + silence), Verdict::Delete, "{ready}");
        }
    }

    #[test]
    fn an_expired_lease_counts_where_the_node_is_unknown() {
        let now = start();
        let mut memory = gone(now);
        LeaseHistory::update(&mut memory.lease, lease("a", true), now);
        assert_eq!(decide(&node("Unknown"), &memory, false, now), Verdict::Delete);
        // a clock that goes wrong is no proof against a renewal that was seen
        let mut alive = memory.clone();
        LeaseHistory::update(&mut alive.lease, lease("b", true), now);
        assert_eq!(
            decide(&node("Unknown"), &alive, false, now),
            Verdict::HoldBack(HeldBack::KubeletAlive, Some(now + lease("b", true).silence))
        );
        // our clock alone is no proof against a kubelet that says that it is there
        assert_eq!(decide(&node("True"), &memory, false, now), Verdict::Wait(now + LEASE_POLL));
    }

    #[test]
    fn without_a_lease_upstreams_rule_holds() {
        let now = start();
        let held = Verdict::HoldBack(HeldBack::NodeReady, None);
        assert_eq!(decide(&node("True"), &gone(now), false, now), held);
        assert_eq!(decide(&node("False"), &gone(now), false, now), Verdict::Delete);
    }

    fn present(state: PowerState) -> InstanceLookup {
        Instance::new(ProviderId::new("test", "/1"), state).into()
    }

    fn tainted(ready: &str) -> Node {
        let taint = |key: &str| Taint {
            key: key.into(),
            value: String::new(),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        Node { taints: vec![taint("other"), taint(SHUTDOWN_TAINT)], ..node(ready) }
    }

    #[test]
    fn the_shutdown_taint_comes_and_goes() {
        let off = present(PowerState::Off);
        let added = shutdown_taint_patch(&node("False"), &off).expect("added");
        assert_eq!(
            added,
            NodePatch::Json(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/spec/taints", "value": [{"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}]},
            ]))
        );
        let removed = shutdown_taint_patch(&tainted("True"), &off).expect("a Ready node never has it");
        assert_eq!(
            removed,
            NodePatch::Json(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/spec/taints/1/key", "value": SHUTDOWN_TAINT},
                {"op": "test", "path": "/spec/taints/1/effect", "value": "NoSchedule"},
                {"op": "remove", "path": "/spec/taints/1"},
            ]))
        );
        let unknown = || InstanceLookup::Unknown(Error::new(ErrorKind::Unavailable, "away"));
        assert!(shutdown_taint_patch(&tainted("True"), &unknown()).is_some());
        for (node, answer) in [
            (node("True"), present(PowerState::Off)),
            (node("False"), present(PowerState::Running)),
            (node("False"), present(PowerState::Paused)),
            (node("False"), present(PowerState::ShuttingDown)),
            (node("False"), unknown()),
            (node("False"), InstanceLookup::Absent),
            (tainted("False"), present(PowerState::Off)),
            (tainted("False"), present(PowerState::Running)),
        ] {
            assert_eq!(shutdown_taint_patch(&node, &answer), None, "{answer:?}");
        }
    }

    #[test]
    fn doubt_is_written_once_and_taken_back() {
        let away = || InstanceLookup::Unknown(Error::new(ErrorKind::Unavailable, "kvm1 is away"));
        assert_eq!(condition_for(&node("True"), &away()), None);
        let doubt = condition_for(&node("False"), &away()).expect("it matters");
        assert_eq!((doubt.status, doubt.message.as_str()), ("Unknown", "kvm1 is away"));
        let mut doubtful = node("False");
        doubtful.conditions.push(crate::nodes::Condition {
            condition_type: INSTANCE_EXISTS.into(),
            status: "Unknown".into(),
            reason: "ProviderUnavailable".into(),
            message: "in other words".into(),
        });
        assert_eq!(condition_for(&doubtful, &away()), None);
        let found = condition_for(&doubtful, &present(PowerState::Running)).expect("taken back");
        assert_eq!(found.status, "True");
        assert_eq!(condition_for(&node("False"), &present(PowerState::Running)), None);
    }
}
