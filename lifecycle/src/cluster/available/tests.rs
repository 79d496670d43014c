use super::*;
use Status::{False, True, Unknown};

fn condition(kind: &str, status: Status, reason: &str, message: &str) -> Condition {
    Condition { kind: kind.into(), status, reason: reason.into(), message: message.into(), since: 7 }
}

fn said(statement: Statement) -> (Status, String, String) {
    (statement.status, statement.reason, statement.message)
}

fn is(status: Status, reason: &str, message: &str) -> (Status, String, String) {
    (status, reason.into(), message.into())
}

/// The conditions of a Cluster where all is well.
fn well() -> Vec<Condition> {
    let good = |kind| condition(kind, True, "Foo", "");
    vec![
        good("InfrastructureReady"),
        good("ControlPlaneAvailable"),
        good("WorkersAvailable"),
        good("RemoteConnectionProbe"),
        condition("Deleting", False, "Foo", ""),
    ]
}

fn with(other: Condition) -> Vec<Condition> {
    let mut all = well();
    all.retain(|condition| condition.kind != other.kind);
    all.push(other);
    all
}

#[test]
fn a_cluster_is_available_when_all_of_it_is() {
    let of = |conditions: &[Condition]| said(available(conditions, &[], false, false));
    assert_eq!(
        of(&[]),
        is(
            Unknown,
            "AvailableUnknown",
            "* Deleting: Condition not yet reported\n* RemoteConnectionProbe: Condition not yet reported\n\
             * InfrastructureReady: Condition not yet reported\n* ControlPlaneAvailable: Condition not yet reported\n\
             * WorkersAvailable: Condition not yet reported"
        )
    );
    assert_eq!(of(&well()), is(True, "Available", ""));
    let left = "* Control plane Machines: cp1, cp2, cp3\n* MachineDeployments: md1, md2";
    assert_eq!(
        of(&with(condition("Deleting", True, "WaitingForWorkersDeletion", left))),
        is(
            False,
            "NotAvailable",
            "* Deleting:\n  * Control plane Machines: cp1, cp2, cp3\n  * MachineDeployments: md1, md2"
        )
    );
}

#[test]
fn gates_count_for_availability() {
    let mut conditions = well();
    conditions.push(condition("MyGate", False, "SomeReason", "Some message"));
    conditions.push(condition("MyNegativeGate", True, "SomeReason", "Some other message"));
    let gates = [
        Gate { kind: "MyGate", polarity: Polarity::Positive },
        Gate { kind: "MyNegativeGate", polarity: Polarity::Negative },
    ];
    let message = "* MyGate: Some message\n* MyNegativeGate: Some other message";
    assert_eq!(said(available(&conditions, &gates, false, false)), is(False, "NotAvailable", message));
    assert_eq!(
        said(available(&well(), &gates[..1], false, false)),
        is(Unknown, "AvailableUnknown", "* MyGate: Condition not yet reported")
    );
}

#[test]
fn what_is_gone_is_no_issue_while_the_cluster_is_deleted() {
    let mut conditions = with(condition("Deleting", True, "WaitingForWorkersDeletion", "Some message"));
    for (kind, reason) in
        [("InfrastructureReady", "ObjectDeleted"), ("ControlPlaneAvailable", "ObjectDoesNotExist")]
    {
        conditions.retain(|condition| condition.kind != kind);
        conditions.push(condition(kind, False, reason, ""));
    }
    let of = |is_deleting| said(available(&conditions, &[], false, is_deleting)).2;
    assert_eq!(of(true), "* Deleting: Some message");
    assert_eq!(
        of(false),
        "* Deleting: Some message\n* InfrastructureReady: ObjectDeleted\n* ControlPlaneAvailable: ObjectDoesNotExist"
    );
}

#[test]
fn a_topology_counts_where_there_is_one() {
    let of = |conditions: &[Condition]| said(available(conditions, &[], true, false));
    let missing = "* TopologyReconciled: Condition not yet reported";
    assert_eq!(of(&well()), is(Unknown, "AvailableUnknown", missing));
    let upgrading = condition("TopologyReconciled", False, "ClusterUpgrading", "Upgrading to v1.22.0");
    assert_eq!(
        of(&with(upgrading.clone())),
        is(True, "Available", "* TopologyReconciled: Upgrading to v1.22.0")
    );
    let mut issue = with(upgrading);
    issue.retain(|condition| condition.kind != "WorkersAvailable");
    issue.push(condition("WorkersAvailable", False, "Foo", "3 of 4"));
    assert_eq!(of(&issue), is(False, "NotAvailable", "* WorkersAvailable: 3 of 4"));
    let ours = topology_reconciled();
    let ours = with(condition("TopologyReconciled", ours.status, &ours.reason, "no effect"));
    assert_eq!(of(&ours), is(False, "NotAvailable", "* TopologyReconciled: no effect"));
}
