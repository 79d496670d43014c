use super::*;

const NOW: i64 = 100_000;

fn checks() -> Checks {
    let ready =
        |status: Status| ConditionCheck { kind: "Ready".into(), status, timeout: Duration::from_secs(300) };
    Checks {
        node_startup: Some(Duration::from_secs(600)),
        machine: vec![ConditionCheck {
            kind: "Broken".into(),
            status: Status::True,
            timeout: Duration::from_secs(60),
        }],
        node: vec![ready(Status::Unknown), ready(Status::False)],
    }
}

fn condition(kind: &str, status: &str, ago: i64) -> Condition {
    Condition {
        kind: kind.into(),
        status: Status::from_text(status),
        reason: "Because".into(),
        message: String::new(),
        since: NOW - ago,
    }
}

fn target(node: Node<'_>) -> Target<'_> {
    Target {
        requested: false,
        control_plane: false,
        control_plane_initialized: Some(0),
        cluster_infrastructure: Some(0),
        machine_infrastructure: Some(0),
        created: 0,
        conditions: &[],
        node,
    }
}

fn undecided(seconds: u64) -> Health {
    Health::Undecided { again: Some(Duration::from_secs(seconds)) }
}

fn unhealthy(reason: Reason, lines: &[&str]) -> Health {
    let lines: Vec<String> = lines.iter().map(|line| format!("  * {line}")).collect();
    Health::Unhealthy { reason, message: format!("Health check failed:\n{}", lines.join("\n")) }
}

#[test]
fn a_node_with_good_conditions_is_healthy() {
    let conditions = [condition("Ready", "True", 1)];
    assert_eq!(evaluate(&checks(), &target(Node::Exists { conditions: &conditions }), NOW), Health::Healthy);
    assert_eq!(evaluate(&checks(), &target(Node::Exists { conditions: &[] }), NOW), Health::Healthy);
}

#[test]
fn a_bad_condition_counts_when_it_lasted_longer_than_its_limit() {
    let after = |ago: i64| {
        let conditions = [condition("Ready", "Unknown", ago)];
        evaluate(&checks(), &target(Node::Exists { conditions: &conditions }), NOW)
    };
    assert_eq!(after(0), undecided(301));
    assert_eq!(after(300), undecided(1));
    let message =
        "Condition Ready on Node is reporting status Unknown with reason Because for more than 5m0s";
    assert_eq!(after(301), unhealthy(Reason::UnhealthyNode, &[message]));
    // a clock that is behind
    assert_eq!(after(-10), undecided(311));
}

#[test]
fn a_node_that_is_gone_or_never_came_is_unhealthy() {
    assert_eq!(
        evaluate(&checks(), &target(Node::Deleted { name: "n" }), NOW),
        unhealthy(Reason::NodeDeleted, &["Node n has been deleted"])
    );
    assert_eq!(
        evaluate(&checks(), &target(Node::None), NOW),
        unhealthy(Reason::NodeStartupTimeout, &["Node failed to report startup in 10m0s"])
    );
}

#[test]
fn the_time_for_a_node_begins_when_it_can_come() {
    let late: [fn(&mut Target<'_>); 4] = [
        |target| target.created = NOW - 10,
        |target| target.control_plane_initialized = Some(NOW - 10),
        |target| target.cluster_infrastructure = Some(NOW - 10),
        |target| target.machine_infrastructure = Some(NOW - 10),
    ];
    for change in late {
        let mut target = target(Node::None);
        change(&mut target);
        assert_eq!(evaluate(&checks(), &target, NOW), undecided(591));
    }
    let without_limit = Checks { node_startup: None, ..checks() };
    assert_eq!(evaluate(&without_limit, &target(Node::None), NOW), Health::Undecided { again: None });
}

#[test]
fn nothing_is_evaluated_before_the_cluster_is_there() {
    let deleted = || target(Node::Deleted { name: "n" });
    let undecided = Health::Undecided { again: None };
    let without_control_plane = Target { control_plane_initialized: None, ..deleted() };
    assert_eq!(evaluate(&checks(), &without_control_plane, NOW), undecided);
    let without_infrastructure = Target { cluster_infrastructure: None, ..deleted() };
    assert_eq!(evaluate(&checks(), &without_infrastructure, NOW), undecided);
    // The first machine of a control plane may be the broken one.
    let first = Target { control_plane: true, ..without_control_plane };
    assert!(matches!(
        evaluate(&checks(), &first, NOW),
        Health::Unhealthy { reason: Reason::NodeDeleted, .. }
    ));
}

#[test]
fn a_user_may_ask_for_a_remediation_at_any_time() {
    let requested = Target { requested: true, cluster_infrastructure: None, ..target(Node::None) };
    assert!(matches!(
        evaluate(&checks(), &requested, NOW),
        Health::Unhealthy { reason: Reason::HasRemediateAnnotation, .. }
    ));
}

#[test]
fn conditions_of_the_machine_come_first_and_all_messages_are_there() {
    let machine = [condition("Broken", "True", 61)];
    let both = Target { conditions: &machine, ..target(Node::Deleted { name: "n" }) };
    let broken =
        "Condition Broken on Machine is reporting status True with reason Because for more than 1m0s";
    assert_eq!(
        evaluate(&checks(), &both, NOW),
        unhealthy(Reason::UnhealthyMachine, &[broken, "Node n has been deleted"])
    );
    // The nearer one of two limits is waited for.
    let machine = [condition("Broken", "True", 50)];
    let node = [condition("Ready", "False", 0)];
    let waits = Target { conditions: &machine, ..target(Node::Exists { conditions: &node }) };
    assert_eq!(evaluate(&checks(), &waits, NOW), undecided(11));
}

#[test]
fn remediation_stops_where_too_many_are_unhealthy() {
    let half = Trigger::AtMost(Bound::Percent(50));
    assert_eq!([half.allowed(5, 5), half.allowed(5, 3), half.allowed(5, 2)], [Some(2), Some(0), None]);
    let two = Trigger::AtMost(Bound::Count(2));
    assert_eq!([two.allowed(5, 3), two.allowed(5, 2)], [Some(0), None]);
    assert_eq!(Trigger::DEFAULT.allowed(3, 0), Some(0));
    let range = Trigger::Within { from: 2, to: 3 };
    assert_eq!(
        [range.allowed(5, 4), range.allowed(5, 3), range.allowed(5, 2), range.allowed(5, 1)],
        [None, Some(1), Some(0), None]
    );
}

#[test]
fn durations_are_written_as_go_writes_them() {
    let written = |seconds| go_duration(Duration::from_secs(seconds));
    assert_eq!([written(0), written(59), written(60), written(3600)], ["0s", "59s", "1m0s", "1h0m0s"]);
}
