use super::*;
use crate::{
    conditions::Condition,
    machine::Deletion,
    rollout::{Bound, Deployment, Strategy},
};
use Status::{False, True, Unknown};

const NOW: i64 = 1_000_000;

fn condition(kind: &str, status: Status, message: &str) -> Condition {
    Condition { kind: kind.into(), status, reason: "Because".into(), message: message.into(), since: 0 }
}

fn machine<'a>(name: &'a str, conditions: &'a [Condition]) -> Replica<'a> {
    Replica { name, created: 0, conditions, deletion: None, is_updating: false, is_moving: false }
}

/// One whose deletion began so many seconds ago, and whose drain says this.
fn going<'a>(name: &'a str, ago: i64, message: &'a str) -> Replica<'a> {
    let deletion =
        Deletion { since: NOW - ago, stage: "DrainingNode", message, drain_since: Some(NOW - ago) };
    Replica { deletion: Some(deletion), ..machine(name, &[]) }
}

fn said(statement: Statement) -> (Status, String, String) {
    (statement.status, statement.reason, statement.message)
}

fn is(status: Status, reason: &str, message: &str) -> (Status, String, String) {
    (status, reason.into(), message.into())
}

const THREE: Scale = Scale { replicas: Some(3), current: 3, is_deleting: false };

#[test]
fn replicas_are_counted_by_their_conditions() {
    let good = ["Ready", "Available", "UpToDate"].map(|kind| condition(kind, True, ""));
    let old = [condition("Ready", True, ""), condition("UpToDate", False, "")];
    let machines = [
        machine("a", &good),
        machine("b", &old),
        machine("c", &[]),
        Replica { is_updating: true, ..machine("d", &good) },
    ];
    assert_eq!(count(&machines), Counters { replicas: 4, ready: 2, available: 1, up_to_date: 1 });
}

#[test]
fn scaling_up_says_what_holds_it() {
    let of = |scale: Scale, missing: &[&str], held: &[&str], owner| {
        let held: Vec<_> = held.iter().map(ToString::to_string).collect();
        said(scaling_up(&scale, missing, &held, owner))
    };
    let (set, deployment) = (Owner::MachineSet, Owner::MachineDeployment);
    for owner in [set, deployment] {
        assert_eq!(of(THREE, &[], &[], owner), is(False, "NotScalingUp", ""));
        assert_eq!(
            of(THREE, &["ATemplate"], &[], owner),
            is(False, "NotScalingUp", "Scaling up would be blocked because ATemplate does not exist")
        );
        assert_eq!(
            of(Scale { is_deleting: true, ..THREE }, &["ATemplate"], &[], owner),
            is(False, "NotScalingUp", "")
        );
        assert_eq!(
            of(Scale { replicas: None, ..THREE }, &[], &[], owner),
            is(Unknown, "WaitingForReplicasSet", "Waiting for spec.replicas set")
        );
        assert_eq!(
            of(Scale { current: 1, ..THREE }, &[], &[], owner),
            is(True, "ScalingUp", "Scaling up from 1 to 3 replicas")
        );
    }
    let up = Scale { current: 1, ..THREE };
    assert_eq!(
        of(up, &["ATemplate", "BTemplate"], &[], deployment).2,
        "Scaling up from 1 to 3 replicas is blocked because ATemplate and BTemplate do not exist"
    );
    assert_eq!(
        of(up, &["ATemplate"], &["the control plane is upgrading"], set).2,
        "Scaling up from 1 to 3 replicas is blocked because:\n* the control plane is upgrading\n* ATemplate does not exist"
    );
    assert_eq!(
        of(up, &[], &["BTemplate t: it cannot be owned"], deployment).2,
        "Scaling up from 1 to 3 replicas is blocked because:\n* BTemplate t: it cannot be owned"
    );
}

#[test]
fn scaling_down_names_machines_that_take_long() {
    let of =
        |scale: Scale, machines: &[Replica<'_>]| said(scaling_down(&scale, machines, Owner::MachineSet, NOW));
    assert_eq!(of(THREE, &[]), is(False, "NotScalingDown", ""));
    let two = Scale { replicas: Some(2), ..THREE };
    assert_eq!(of(two, &[]), is(True, "ScalingDown", "Scaling down from 3 to 2 replicas"));
    let moving = [Replica { is_moving: true, ..machine("a", &[]) }];
    assert_eq!(of(two, &moving), is(False, "NotScalingDown", ""), "another MachineSet takes it over");
    let of_deployment = scaling_down(&two, &moving, Owner::MachineDeployment, NOW);
    assert_eq!(of_deployment.status, True, "of which both belong to the deployment");
    let budget = "Pod x: cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(
        of(Scale { is_deleting: true, ..THREE }, &[going("b", 901, ""), going("c", 900, budget)]).2,
        "Scaling down from 3 to 0 replicas\n* Machine b is in deletion since more than 15m"
    );
    let many = [
        going("d", 999, budget),
        going("a", 999, "Pod y: waiting for completion"),
        going("c", 999, budget),
        going("b", 999, ""),
    ];
    assert_eq!(
        of(two, &many).2,
        "Scaling down from 3 to 2 replicas\n* Machines a, b, c, ... (1 more) are in deletion since more than 15m, \
         delay likely due to PodDisruptionBudgets, Pods not completed yet"
    );
    assert_eq!(of(Scale { replicas: None, ..THREE }, &[]).1, "WaitingForReplicasSet");
}

#[test]
fn machines_are_ready_and_up_to_date_together() {
    assert_eq!(said(machines_ready(&[])), is(True, "NoReplicas", ""));
    let (good, bad) = ([condition("Ready", True, "")], [condition("Ready", False, "* NodeHealthy: no")]);
    let machines = [machine("a", &good), machine("b", &bad), machine("c", &bad)];
    assert_eq!(said(machines_ready(&machines[..1])), is(True, "Ready", ""));
    assert_eq!(
        said(machines_ready(&machines)),
        is(False, "NotReady", "* Machines b, c:\n  * NodeHealthy: no")
    );

    let young = Replica { created: NOW - 10, ..machine("a", &[]) };
    assert_eq!(said(machines_up_to_date(&[young], NOW)), is(True, "NoReplicas", ""));
    assert_eq!(
        said(machines_up_to_date(&[young], NOW + 1)),
        is(Unknown, "UpToDateUnknown", "* Machine a: Condition UpToDate not yet reported")
    );
    let old = [condition("UpToDate", False, "* Version v1, v2 required")];
    assert_eq!(
        said(machines_up_to_date(&[young, machine("b", &old)], NOW)),
        is(False, "NotUpToDate", "* Machine b:\n  * Version v1, v2 required")
    );
}

#[test]
fn remediation_says_what_others_have_to_do() {
    let of = |machines: &[Replica<'_>], owner| said(remediating(machines, owner));
    let unhealthy = [condition("HealthCheckSucceeded", False, "x")];
    let ours =
        [condition("HealthCheckSucceeded", False, "x"), condition("OwnerRemediated", False, "it is deleted")];
    let done = [condition("HealthCheckSucceeded", False, "x"), condition("OwnerRemediated", True, "")];
    assert_eq!(of(&[machine("a", &[])], Owner::MachineSet), is(False, "NotRemediating", ""));
    assert_eq!(
        of(&[machine("b", &unhealthy), machine("a", &done)], Owner::MachineSet),
        is(False, "NotRemediating", "Machines a, b are not healthy (not to be remediated by MachineSet)")
    );
    assert_eq!(
        of(&[machine("b", &unhealthy)], Owner::MachineDeployment).2,
        "Machine b is not healthy (not to be remediated by MachineDeployment/MachineSet)"
    );
    assert_eq!(
        of(&[machine("b", &unhealthy), machine("a", &ours)], Owner::MachineSet),
        is(True, "Remediating", "* Machine a: it is deleted")
    );
}

#[test]
fn a_deletion_counts_what_is_left() {
    let of = |machines: &[Replica<'_>], sets| said(deleting(true, machines, sets, NOW));
    assert_eq!(said(deleting(false, &[], 0, NOW)), is(False, "NotDeleting", ""));
    assert_eq!(of(&[], 0), is(True, "Deleting", "Deletion completed"));
    assert_eq!(of(&[], 2).2, "Deleting 2 MachineSets");
    assert_eq!(of(&[machine("a", &[])], 2).2, "Deleting 1 Machine");
    assert_eq!(
        of(&[machine("a", &[]), going("b", 901, "")], 0).2,
        "Deleting 2 Machines\n* Machine b is in deletion since more than 15m"
    );
}

#[test]
fn a_deployment_is_available_with_what_a_rollout_leaves() {
    let rolling = |max_unavailable| Deployment {
        replicas: 10,
        strategy: Strategy::RollingUpdate { max_surge: Bound::Count(1), max_unavailable },
        in_place_updates: false,
    };
    let percent = rolling(Bound::Percent(25));
    let of = |deployment: &Deployment, count| said(available(Some(deployment), count, false));
    assert_eq!(of(&percent, Some(8)), is(True, "Available", ""));
    let why = "(spec.strategy.rollout.maxUnavailable is 25%, spec.replicas is 10)";
    assert_eq!(
        of(&percent, Some(7)),
        is(False, "NotAvailable", &format!("7 available replicas, at least 8 required {why}"))
    );
    assert!(of(&rolling(Bound::Count(3)), Some(6)).2.contains("maxUnavailable is 3,"));
    let on_delete = Deployment { strategy: Strategy::OnDelete, ..percent };
    assert_eq!(of(&on_delete, Some(9)).2, "9 available replicas, at least 10 required");
    assert_eq!(said(available(Some(&percent), Some(0), true)).2, "Deletion in progress");
    assert_eq!(of(&percent, None).1, "WaitingForAvailableReplicasSet");
    assert_eq!(said(available(None, Some(1), false)).1, "WaitingForReplicasSet");
}

#[test]
fn a_rollout_says_why_with_a_new_version_first() {
    let old = |message| [condition("UpToDate", False, message)];
    let (one, two, none) = (
        old("* Failure domain a, b required\n* Version v1, v2 required"),
        old("* Version v0, v2 required"),
        old(""),
    );
    let good = [condition("UpToDate", True, "")];
    assert_eq!(said(rolling_out(&[machine("a", &good), machine("b", &[])])), is(False, "NotRollingOut", ""));
    assert_eq!(
        said(rolling_out(&[machine("a", &one), machine("b", &two), machine("c", &none), machine("d", &one)])),
        is(
            True,
            "RollingOut",
            "Rolling out 4 not up-to-date replicas\n* Version v0, v2 required\n* Version v1, v2 required\n\
             * Failure domain a, b required"
        )
    );
}

#[test]
fn the_phase_compares_what_is_there() {
    for (scale, expected) in [
        (THREE, Phase::Running),
        (Scale { current: 2, ..THREE }, Phase::ScalingUp),
        (Scale { current: 4, ..THREE }, Phase::ScalingDown),
        (Scale { is_deleting: true, ..THREE }, Phase::ScalingDown),
        (Scale { replicas: None, ..THREE }, Phase::Unknown),
    ] {
        assert_eq!(phase(&scale), expected, "{scale:?}");
    }
    assert_eq!(Phase::ScalingUp.to_string(), "ScalingUp");
}
