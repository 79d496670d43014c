use cloudprovider::{Error, ErrorKind, Instance, PowerState, ProviderId};
use controller_kit::cloud::CallTime;

use super::{
    super::{
        absence::Absence,
        silence::{SilentKubelet, Undecided},
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

/// An instance that has been gone for 30 s, with a second answer.
fn gone(now: Instant) -> Memory {
    let absence = Some(Absence { first: now - seconds(30), last: CallTime::at(now) });
    Memory { absence, ..Memory::new("u", now - seconds(60)) }
}

fn silent() -> Kubelet {
    Kubelet::Silent(SilentKubelet::fake("u", Instant::now()))
}

/// Decides about a Node whose kubelet is silent.
fn decide(node: &Node, memory: &Memory, breaker_is_open: bool, now: Instant) -> Verdict {
    verdict(node, memory, Some(silent()), RULES, breaker_is_open, now, Timestamp::UNIX_EPOCH)
}

#[track_caller]
fn assert_deletes(verdict: &Verdict) {
    assert!(matches!(verdict, Verdict::Delete(_)), "{verdict:?}");
}

fn start() -> Instant {
    Instant::now() + seconds(1000)
}

#[test]
fn gone_is_asked_twice_over_the_grace_period() {
    let (node, now) = (node("Unknown"), start());
    let mut memory = Memory::new("u", now - seconds(60));
    assert_eq!(decide(&node, &memory, false, now), Verdict::Ignore);
    memory.note(&InstanceLookup::Absent, CallTime::at(now));
    assert_eq!(decide(&node, &memory, false, now), Verdict::Wait(now + seconds(5)));
    // Time alone is not a second answer.
    assert_eq!(decide(&node, &memory, false, now + seconds(9)), Verdict::Wait(now + seconds(5)));
    memory.note(&InstanceLookup::Absent, CallTime::at(now + seconds(4)));
    assert_eq!(decide(&node, &memory, false, now + seconds(4)), Verdict::Wait(now + seconds(5)));
    memory.note(&InstanceLookup::Absent, CallTime::at(now + seconds(5)));
    assert_deletes(&decide(&node, &memory, false, now + seconds(5)));
    // An error in between restarts the sequence.
    memory.note(&Error::new(ErrorKind::Unavailable, "away").into(), CallTime::at(now + seconds(6)));
    memory.note(&InstanceLookup::Absent, CallTime::at(now + seconds(7)));
    assert_eq!(decide(&node, &memory, false, now + seconds(7)), Verdict::Wait(now + seconds(12)));
}

#[test]
fn one_answer_is_never_enough() {
    let now = start();
    let rules = DeletionRules { grace: Duration::ZERO, minimum_age: Duration::ZERO };
    let mut memory = Memory::new("u", now);
    memory.note(&InstanceLookup::Absent, CallTime::at(now));
    let decide = |memory: &Memory| {
        verdict(&node("Unknown"), memory, Some(silent()), rules, false, now, Timestamp::UNIX_EPOCH)
    };
    assert_eq!(decide(&memory), Verdict::Wait(now + LEAST_BETWEEN));
    memory.note(&InstanceLookup::Absent, CallTime::at(now + LEAST_BETWEEN));
    assert_deletes(&decide(&memory));
}

#[test]
fn young_excluded_and_terminating_nodes_stay() {
    let now = start();
    let young = Memory { first_seen: now - seconds(4), ..gone(now) };
    assert_eq!(decide(&node("Unknown"), &young, false, now), Verdict::Wait(now + seconds(6)));
    for value in ["", "true", "false"] {
        let mut node = node("Unknown");
        node.identity.labels.insert(EXCLUDE_LABEL.into(), value.into());
        let verdict = decide(&node, &gone(now), false, now);
        if value == "false" {
            assert_deletes(&verdict);
        } else {
            assert_eq!(verdict, Verdict::HoldBack(HeldBack::Excluded, None), "{value:?}");
        }
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
    assert_deletes(&decide(&node, &gone(now), true, now));
}

#[test]
fn an_old_answer_deletes_nothing() {
    let now = start();
    for (age, deletes) in [(0, true), (10, true), (11, false), (300, false)] {
        let absence = Some(Absence { first: now - seconds(400), last: CallTime::at(now - seconds(age)) });
        let memory = Memory { absence, ..Memory::new("u", now - seconds(500)) };
        let verdict = decide(&node("Unknown"), &memory, false, now);
        if deletes {
            assert_deletes(&verdict);
        } else {
            assert_eq!(verdict, Verdict::Listen(now), "asked again at once");
        }
    }
}

#[test]
fn an_answer_is_as_old_as_its_call() {
    let now = start();
    let decide = |sent: u64, ended: u64, listening: Option<u64>| {
        let last = CallTime { sent: now - seconds(sent), ended: now - seconds(ended) };
        let memory = Memory {
            absence: Some(Absence { first: now - seconds(400), last }),
            listening_since: listening.map(|listening| now - seconds(listening)),
            ..Memory::new("u", now - seconds(500))
        };
        decide(&node("Unknown"), &memory, false, now)
    };
    for (sent, ended) in [(15, 0), (30, 0), (30, 10)] {
        assert_deletes(&decide(sent, ended, None));
    }
    for (sent, ended) in [(31, 0), (50, 0), (20, 11)] {
        assert_eq!(decide(sent, ended, Some(29)), Verdict::Listen(now), "asked again at once");
    }
    let told = Verdict::HoldBack(HeldBack::CloudTooSlow, Some(now));
    assert_eq!(decide(50, 0, Some(30)), told, "it does not get quicker");
    assert_eq!(decide(20, 11, Some(30)), Verdict::Listen(now), "that was no fault of the cloud");
}

#[test]
fn of_two_calls_that_overlap_one_counts() {
    let now = start();
    let decide = |first_ended: u64, last_sent: u64| {
        let last = CallTime { sent: now - seconds(last_sent), ended: now };
        let memory = Memory {
            absence: Some(Absence { first: now - seconds(first_ended), last }),
            ..Memory::new("u", now - seconds(500))
        };
        decide(&node("Unknown"), &memory, false, now)
    };
    assert_deletes(&decide(20, 15));
    assert_eq!(decide(19, 15), Verdict::Wait(now - seconds(14)), "asked again at once");
    assert!(matches!(decide(10, 15), Verdict::Wait(_)));
}

#[test]
fn only_reasons_of_the_kubelet_stand_while_it_is_listened_to() {
    for (reason, is_about_kubelet) in [
        (HeldBack::Excluded, false),
        (HeldBack::BreakerOpen, false),
        (HeldBack::InstanceNeverSeen, false),
        (HeldBack::KubeletAlive, true),
        (HeldBack::NodeReady, true),
        (HeldBack::LeaseUnread, true),
        (HeldBack::LeaseRecent, true),
        (HeldBack::NoKubeletHeard, true),
        (HeldBack::CloudTooSlow, true),
    ] {
        assert_eq!(reason.is_about_kubelet(), is_about_kubelet, "{reason:?}");
    }
}

#[test]
fn nothing_is_deleted_without_proof_of_the_kubelet() {
    let now = start();
    let node = node("False");
    let decide =
        |kubelet, memory: &Memory| verdict(&node, memory, kubelet, RULES, false, now, Timestamp::UNIX_EPOCH);
    let again = now + seconds(1);
    let memory = gone(now);
    assert_eq!(decide(None, &memory), Verdict::Listen(now + LEASE_POLL));
    assert_eq!(
        decide(Some(Kubelet::ReadyWithoutLease), &memory),
        Verdict::HoldBack(HeldBack::NodeReady, None)
    );
    assert_eq!(
        decide(Some(Kubelet::Renews { silent_at: again }), &memory),
        Verdict::HoldBack(HeldBack::KubeletAlive, Some(again))
    );
    for (undecided, told) in [
        (Undecided::Unread, HeldBack::LeaseUnread),
        (Undecided::Recent, HeldBack::LeaseRecent),
        (Undecided::NobodyHeard, HeldBack::NoKubeletHeard),
    ] {
        let decide = |memory: &Memory| decide(Some(Kubelet::Undecided(undecided, again)), memory);
        assert_eq!(decide(&memory), Verdict::Listen(again));
        let since = |then| Memory { listening_since: Some(then), ..gone(now) };
        assert_eq!(decide(&since(now - seconds(29))), Verdict::Listen(again));
        assert_eq!(decide(&since(now - seconds(30))), Verdict::HoldBack(told, Some(again)));
    }
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
fn another_value_of_the_shutdown_taint_is_replaced() {
    let off = present(PowerState::Off);
    let mut odd = tainted("False");
    let time = Some("2026-01-02T03:04:05Z".to_owned());
    for (value, time_added) in [("someone", None), ("", time.clone()), ("someone", time)] {
        odd.taints[1].value = value.into();
        odd.taints[1].time_added = time_added;
        assert_eq!(
            shutdown_taint_patch(&odd, &off),
            Some(NodePatch::Json(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/spec/taints/1/key", "value": SHUTDOWN_TAINT},
                {"op": "test", "path": "/spec/taints/1/effect", "value": "NoSchedule"},
                {"op": "replace", "path": "/spec/taints/1", "value": {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}},
            ]))),
            "{value:?}"
        );
        assert_eq!(
            shutdown_taint_patch(&odd, &present(PowerState::Running)),
            None,
            "only where it is shut down"
        );
    }
    // A taint with another effect is a different one. Ours is added beside it, and a Ready Node keeps the
    // other one.
    let mut other = tainted("False");
    other.taints[1].effect = "NoExecute".into();
    assert_eq!(
        shutdown_taint_patch(&other, &off),
        Some(NodePatch::Json(json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": "/spec/taints/-", "value": {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}},
        ])))
    );
    other.conditions.clone_from(&node("True").conditions);
    assert_eq!(shutdown_taint_patch(&other, &off), None);
}

#[test]
fn what_the_breaker_held_back_stays_written_until_the_instance_is_back() {
    let mut held = node("False");
    held.conditions.push(controller_kit::nodes::Condition {
        condition_type: INSTANCE_EXISTS.into(),
        status: "False".into(),
        reason: "BreakerOpen".into(),
        message: String::new(),
    });
    assert!(is_held_by_breaker(&held) && !is_held_by_breaker(&node("False")));
    let away = Error::new(ErrorKind::Unavailable, "away").into();
    assert_eq!(condition_for(&held, &away, false), None);
    // When the breaker holds nothing back any more, the next leader must not assume that it does.
    for ready in ["True", "False"] {
        let mut held = held.clone();
        held.conditions[0] = node(ready).conditions[0].clone();
        let over = condition_for(&held, &away, true).expect("it is no longer true");
        assert_eq!(over.status, "Unknown");
    }
    let back = condition_for(&held, &present(PowerState::Running), false).expect("it is back");
    assert_eq!(back.status, "True");
}

#[test]
fn doubt_is_written_once_and_taken_back() {
    let away = || InstanceLookup::Unknown(Error::new(ErrorKind::Unavailable, "kvm1 is away"));
    assert_eq!(condition_for(&node("True"), &away(), false), None);
    let doubt = condition_for(&node("False"), &away(), false).expect("it matters");
    assert_eq!((doubt.status, doubt.message.as_str()), ("Unknown", "kvm1 is away"));
    let mut doubtful = node("False");
    doubtful.conditions.push(controller_kit::nodes::Condition {
        condition_type: INSTANCE_EXISTS.into(),
        status: "Unknown".into(),
        reason: "ProviderUnavailable".into(),
        message: "in other words".into(),
    });
    assert_eq!(condition_for(&doubtful, &away(), false), None);
    let found = condition_for(&doubtful, &present(PowerState::Running), false).expect("taken back");
    assert_eq!(found.status, "True");
    assert_eq!(condition_for(&node("False"), &present(PowerState::Running), false), None);
}
