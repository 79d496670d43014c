use super::*;
use Status::{False, True, Unknown};

const READY: Merge = Merge {
    polarity: Polarity::Positive,
    reasons: Reasons { issue: "NotReady", unknown: "ReadyUnknown", info: "Ready" },
};

fn condition(kind: &str, status: Status, message: &str) -> Condition {
    Condition {
        kind: kind.into(),
        status,
        reason: format!("{kind}{status}"),
        message: message.into(),
        since: 0,
    }
}

/// Status, reason and message.
fn said(statement: Option<Statement>) -> (Status, String, String) {
    let Statement { status, reason, message, since } = statement.expect("there is something to say");
    assert_eq!(since, None);
    (status, reason, message)
}

fn is(status: Status, reason: &str, lines: &[&str]) -> (Status, String, String) {
    (status, reason.into(), lines.join("\n"))
}

/// Of a Machine: what is good, what is bad, and what may not be there.
const PARTS: [Part<'_>; 3] = [
    Part::new("NodeHealthy", Polarity::Positive),
    Part { is_optional: true, ..Part::new("HealthCheckSucceeded", Polarity::Positive) },
    Part { is_optional: true, ..Part::new("Deleting", Polarity::Negative) },
];

fn summary_of(conditions: &[Condition]) -> (Status, String, String) {
    said(summary(&PARTS, conditions, &READY))
}

#[test]
fn a_summary_says_issues_and_unknown_ones_in_the_order_of_its_parts() {
    let healthy = condition("NodeHealthy", True, "");
    assert_eq!(summary_of(std::slice::from_ref(&healthy)), is(True, "Ready", &[]));
    assert_eq!(
        summary_of(&[condition("Deleting", True, ""), condition("NodeHealthy", Unknown, "no connection")]),
        is(False, "NotReady", &["* NodeHealthy: no connection", "* Deleting: DeletingTrue"])
    );
    assert_eq!(
        summary_of(&[condition("HealthCheckSucceeded", Unknown, "who knows"), healthy.clone()]),
        is(Unknown, "ReadyUnknown", &["* HealthCheckSucceeded: who knows"])
    );
    // What is well is said only where all is.
    let deleting = condition("Deleting", False, "nothing to do");
    assert_eq!(summary_of(&[deleting.clone(), healthy]), is(True, "Ready", &["* Deleting: nothing to do"]));
    assert_eq!(
        summary_of(&[deleting, condition("Other", False, "of nobody")]),
        is(Unknown, "ReadyUnknown", &["* NodeHealthy: Condition not yet reported"])
    );
}

#[test]
fn a_summary_of_nothing_says_nothing() {
    assert_eq!(summary(&PARTS[1..], &[], &READY), None);
    assert_eq!(summary(&[], &[condition("NodeHealthy", True, "")], &READY), None);
}

#[test]
fn messages_of_several_lines_are_below_their_titles() {
    let of = |message: &str| summary_of(&[condition("NodeHealthy", False, message)]).2;
    assert_eq!(of("one line"), "* NodeHealthy: one line");
    assert_eq!(of("a * b"), "* NodeHealthy:\n  a * b");
    assert_eq!(of("* one\n* two"), "* NodeHealthy:\n  * one\n  * two");
    assert_eq!(of("pods:\n* one"), "* NodeHealthy:\n  * pods:\n    * one");
    assert_eq!(of("one\ntwo"), "* NodeHealthy:\n  * one\n  * two");
}

/// Objects named a, b, c ... each with the condition `Ready`, if it has a status.
fn aggregate_of(kind: &str, said_by: &[(Option<Status>, &str)]) -> (Status, String, String) {
    let conditions: Vec<Vec<_>> = said_by
        .iter()
        .map(|(status, message)| {
            status.map(|status| condition("Ready", status, message)).into_iter().collect()
        })
        .collect();
    let names: Vec<_> = ('a'..).take(said_by.len()).map(String::from).collect();
    let sources: Vec<_> = names
        .iter()
        .zip(&conditions)
        .map(|(name, conditions)| Source { kind, name, is_control_plane_machine: false, conditions })
        .collect();
    said(aggregate(&sources, "Ready", Polarity::Positive, &Merge::positive(Reasons::default())))
}

#[test]
fn an_aggregate_names_three_messages_and_three_objects_of_each() {
    let (no, unknown, yes) = (Some(False), Some(Unknown), Some(True));
    assert_eq!(
        aggregate_of(
            "Machine",
            &[(no, "x"), (no, "y"), (no, "y"), (yes, "fine"), (no, "y"), (no, "y"), (no, "y")]
        ),
        is(False, "IssuesReported", &["* Machines b, c, e, ... (2 more): y", "* Machine a: x"])
    );
    assert_eq!(
        aggregate_of(
            "Machine",
            &[(unknown, "u"), (no, "1"), (no, "2"), (no, "3"), (no, "4"), (unknown, "u")]
        ),
        is(
            False,
            "IssuesReported",
            &[
                "* Machine b: 1",
                "* Machine c: 2",
                "* Machine d: 3",
                "And 1 Machine with other issues",
                "And 2 Machines with status unknown"
            ]
        )
    );
    assert_eq!(
        aggregate_of("Machine", &[(yes, "fine"), (yes, ""), (yes, "1"), (yes, "2"), (yes, "3")]),
        is(
            True,
            "InfoReported",
            &["* Machine a: fine", "* Machine c: 1", "* Machine d: 2", "And 1 Machine with additional info"]
        )
    );
    assert_eq!(
        aggregate_of("Machine", &[(yes, "fine"), (None, "")]),
        is(Unknown, "UnknownReported", &["* Machine b: Condition Ready not yet reported"])
    );
    assert_eq!(
        aggregate_of("Proxy", &[(no, "* x\n* y"), (no, "* x\n* y")]),
        is(False, "IssuesReported", &["* Proxies a, b:", "  * x", "  * y"])
    );
}

#[test]
fn machines_of_control_planes_come_first() {
    let conditions = [[condition("Ready", False, "worse")], [condition("Ready", Unknown, "who knows")]];
    let machine = |name, of: usize, is_control_plane_machine| Source {
        kind: "Machine",
        name,
        is_control_plane_machine,
        conditions: &conditions[of],
    };
    let sources =
        [machine("a", 0, false), machine("b", 1, false), machine("c", 1, true), machine("d", 0, false)];
    let of = |sources: &[Source<'_>]| {
        said(aggregate(sources, "Ready", Polarity::Positive, &Merge::positive(Reasons::default()))).2
    };
    assert_eq!(of(&sources), "* Machines c, b: who knows\n* Machines a, d: worse");
    // The kinds come in alphabetical order, and share the three messages.
    let sets: Vec<_> = sources.iter().map(|one| Source { kind: "MachineSet", ..*one }).collect();
    assert_eq!(
        of(&[&sets[..], &sources[..1]].concat()),
        "* Machine a: worse\n* MachineSets c, b: who knows\n* MachineSets a, d: worse"
    );
}

#[test]
fn an_aggregate_may_be_bad_where_it_is_true() {
    let conditions = [[condition("ScalingUp", True, "from 1 to 3")], [condition("ScalingUp", False, "")]];
    let sources: Vec<_> = ["a", "b"]
        .iter()
        .zip(&conditions)
        .map(|(name, conditions)| Source {
            kind: "MachineDeployment",
            name,
            is_control_plane_machine: false,
            conditions,
        })
        .collect();
    let reasons = Reasons { issue: "ScalingUp", unknown: "ScalingUpUnknown", info: "NotScalingUp" };
    let merge = Merge { polarity: Polarity::Negative, reasons };
    let of = |sources: &[Source<'_>]| said(aggregate(sources, "ScalingUp", Polarity::Negative, &merge));
    assert_eq!(of(&sources), is(True, "ScalingUp", &["* MachineDeployment a: from 1 to 3"]));
    assert_eq!(of(&sources[1..]), is(False, "NotScalingUp", &[]));
    assert_eq!(aggregate(&[], "ScalingUp", Polarity::Negative, &merge), None);
}

#[test]
fn a_mirror_says_the_same_since_then() {
    let ready = Condition { since: 7, ..condition("Ready", False, "no address yet") };
    let mirrored = mirror(Some(&ready), "Ready", None);
    assert_eq!((mirrored.status, mirrored.since), (False, Some(7)));
    assert_eq!((mirrored.reason.as_str(), mirrored.message.as_str()), ("ReadyFalse", "no address yet"));
    assert_eq!(
        said(Some(mirror(None, "Ready", None))),
        is(Unknown, NOT_YET_REPORTED, &["Condition Ready not yet reported"])
    );
    let gone =
        Statement { status: False, reason: "Deleted".into(), message: "it is gone".into(), since: None };
    assert_eq!(mirror(None, "Ready", Some(gone.clone())), gone);
}

#[test]
fn the_time_moves_with_the_status_and_the_order_stays() {
    let statement = |status, message: &str, since| Statement {
        status,
        reason: "Because".into(),
        message: message.into(),
        since,
    };
    let mut conditions = Vec::new();
    for kind in ["Deleting", "ZGate", "Paused", "AGate", "Ready", "NodeReady", "Available"] {
        assert!(set(&mut conditions, kind, statement(False, "", None), 1));
    }
    let kinds: Vec<_> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
    assert_eq!(kinds, ["Available", "Ready", "NodeReady", "AGate", "ZGate", "Paused", "Deleting"]);
    assert!(!set(&mut conditions, "Ready", statement(False, "", None), 2), "nothing changes");
    assert!(set(&mut conditions, "Ready", statement(False, "other words", Some(9)), 3));
    assert_eq!((conditions[1].since, conditions[1].message.as_str()), (1, "other words"));
    assert!(set(&mut conditions, "Ready", statement(True, "", None), 4));
    assert_eq!(conditions[1].since, 4);
    assert!(set(&mut conditions, "Ready", statement(False, "", Some(3)), 5));
    assert_eq!(conditions[1].since, 3, "that of a mirrored condition");
}

#[test]
fn other_words_for_a_status_are_unknown() {
    for (text, status) in
        [("True", True), ("False", False), ("Unknown", Unknown), ("true", Unknown), ("", Unknown)]
    {
        assert_eq!(Status::from_text(text), status, "{text:?}");
    }
    assert_eq!([True, False, Unknown].map(|status| status.to_string()), ["True", "False", "Unknown"]);
}
