use std::time::Duration;

use super::*;
use crate::{
    conditions::{Condition, Source, Statement, Status},
    machine::{Probe, Related},
    replicas::Replica,
};
use Status::{False, True, Unknown};

const SEE_LOG: &str = "Please check controller logs for errors";

fn condition(kind: &str, status: Status, reason: &str, message: &str) -> Condition {
    Condition { kind: kind.into(), status, reason: reason.into(), message: message.into(), since: 7 }
}

fn said(statement: Statement) -> (Status, String, String) {
    (statement.status, statement.reason, statement.message)
}

fn is(status: Status, reason: &str, message: &str) -> (Status, String, String) {
    (status, reason.into(), message.into())
}

fn source<'a>(kind: &'a str, name: &'a str, conditions: &'a [Condition]) -> Source<'a> {
    Source { kind, name, is_control_plane_machine: false, conditions }
}

fn to(related: Related<'_>) -> Reference<'_> {
    Reference::To { kind: "FakeObject", related }
}

#[test]
fn the_phase_follows_the_progress() {
    let none = Progress::default();
    let table = [
        (none, Phase::Pending),
        (Progress { has_reference: true, ..none }, Phase::Provisioning),
        (Progress { has_reference: true, is_provisioned: true, ..none }, Phase::Provisioning),
        (
            Progress { has_reference: true, is_provisioned: true, has_endpoint: true, ..none },
            Phase::Provisioned,
        ),
        (Progress { is_provisioned: true, has_endpoint: true, ..none }, Phase::Provisioned),
        (Progress { is_provisioned: true, has_endpoint: true, is_deleting: true, ..none }, Phase::Deleting),
    ];
    for (progress, expected) in table {
        assert_eq!(phase(&progress), expected, "{progress:?}");
    }
}

#[test]
fn counters_are_sums_of_what_is_reported() {
    let good = ["Ready", "Available", "UpToDate"].map(|kind| condition(kind, True, "Foo", ""));
    let old = [condition("Ready", True, "Foo", ""), condition("UpToDate", False, "Foo", "")];
    let machine = |conditions| Replica {
        name: "m",
        created: 0,
        conditions,
        deletion: None,
        is_updating: false,
        is_moving: false,
    };
    let none = Counts::default();
    assert_eq!([none; 0].into_iter().sum::<Counts>(), none);
    assert_eq!([none, none].into_iter().sum::<Counts>(), none);
    let one = Counts::of_machine(&machine(&[]));
    assert_eq!(one, Counts { desired: Some(1), replicas: Some(1), ..none });
    let deployment =
        Counts { desired: Some(5), replicas: Some(4), ready: Some(0), available: None, up_to_date: Some(2) };
    let all = [Counts::of_machine(&machine(&good)), Counts::of_machine(&machine(&old)), one, deployment];
    let expected = Counts {
        desired: Some(8),
        replicas: Some(7),
        ready: Some(2),
        available: Some(1),
        up_to_date: Some(3),
    };
    assert_eq!(all.into_iter().sum::<Counts>(), expected);
}

#[test]
fn the_connection_is_down_after_its_grace_period() {
    let now = 1_000_000;
    let probe = |last_success, failures| Probe { last_success, failures, grace: Duration::from_secs(300) };
    let grace = Duration::from_secs(50);
    let of = |probe: Probe, trouble, before| {
        let Remote { statement, again } = remote_connection(&probe, trouble, before, grace, now);
        (statement.map(said), again.map(|again| again.as_secs()))
    };
    let failed = |message: &str| Some(is(False, "ProbeFailed", message));
    let succeeded = || Some(is(True, "ProbeSucceeded", ""));
    let (refused, of_before) = (Some("it refuses"), Some("Remote connection probe failed"));
    let not_yet = Some("Remote connection not established yet: Secret c-kubeconfig does not exist");
    let table = [
        // Upstream's table: no attempt yet, the same with a condition of before, some failures, many failures. Here with the reason.
        (probe(None, 0), Some("not tried"), None, failed("Remote connection not established yet"), None),
        (probe(None, 0), Some("not tried"), of_before, None, None),
        (probe(None, 0), Some("not tried"), not_yet, None, None),
        (
            probe(None, 4),
            refused,
            None,
            failed("Remote connection not established yet: it refuses"),
            Some(30),
        ),
        (
            probe(None, 4),
            refused,
            not_yet,
            failed("Remote connection not established yet: it refuses"),
            Some(30),
        ),
        (probe(None, 4), refused, of_before, None, Some(30)),
        (probe(None, 4), refused, Some(""), None, Some(30)),
        (probe(None, 5), refused, of_before, failed("Remote connection probe failed: it refuses"), None),
        // The last success is longer ago than the grace period, or not.
        (
            probe(Some(now - 51), 5),
            refused,
            Some(""),
            failed(
                "Remote connection probe failed, probe last succeeded at 1970-01-12T13:45:49Z: it refuses",
            ),
            None,
        ),
        (
            probe(Some(now - 51), 2),
            None,
            Some(""),
            failed("Remote connection probe failed, probe last succeeded at 1970-01-12T13:45:49Z"),
            None,
        ),
        (probe(Some(now - 50), 5), refused, Some(""), succeeded(), Some(1)),
        (probe(Some(now - 10), 2), refused, Some(""), succeeded(), Some(41)),
        (probe(Some(now - 10), 0), None, Some(""), succeeded(), None),
    ];
    for (probe, trouble, before, statement, again) in table {
        assert_eq!(of(probe, trouble, before), (statement, again), "{probe:?} {before:?}");
    }
}

/// `InfrastructureReady` or `ControlPlaneAvailable`.
type Of<'a> = &'a dyn Fn(Reference<'_>, bool, bool) -> (Status, String, String);

#[test]
fn infrastructure_and_control_plane_are_mirrored() {
    let none = StandAlone::default();
    let infrastructure = |related: Reference<'_>, is_done, is_deleting| {
        said(infrastructure_ready(related, is_done, is_deleting))
    };
    let control_plane = |related: Reference<'_>, is_done, is_deleting| {
        said(control_plane_available(related, none, is_done, is_deleting))
    };
    let waiting = "Waiting for cluster topology to be reconciled";
    let both: [(Of<'_>, &str, &str, &str); 2] = [
        (&infrastructure, "Ready", "NotReady", "provisioned"),
        (&control_plane, "Available", "NotAvailable", "controlPlaneInitialized"),
    ];
    for (of, good, bad, field) in both {
        assert_eq!(of(Reference::Expected, false, false), is(False, "ObjectDoesNotExist", waiting));
        assert_eq!(of(Reference::Expected, false, true), is(False, "ObjectDoesNotExist", ""));
        let there = |condition| to(Related::There { ready: condition });
        let (no, yes, bare) = (
            condition(good, False, "SomeReason", "some message"),
            condition(good, True, "SomeReason", ""),
            condition(good, True, "", ""),
        );
        assert_eq!(of(there(Some(&no)), false, false), is(False, "SomeReason", "some message"));
        assert_eq!(of(there(Some(&yes)), false, false), is(True, "SomeReason", ""));
        assert_eq!(of(there(Some(&bare)), false, false), is(True, good, ""));
        let message = format!("FakeObject status.initialization.{field} is false");
        assert_eq!(of(there(None), false, false), is(False, bad, &message));
        assert_eq!(of(there(None), true, false), is(True, good, ""));
        let invalid = to(Related::Invalid { why: "odd" });
        assert_eq!(of(invalid, true, false), is(Unknown, "InvalidConditionReported", "odd"));
        assert_eq!(of(to(Related::Unknown), true, false), is(Unknown, "InternalError", SEE_LOG));
        let missing = to(Related::Missing);
        assert_eq!(of(missing, true, true), is(False, "ObjectDeleted", "FakeObject has been deleted"));
        let still = "FakeObject has been deleted while the cluster still exists";
        assert_eq!(of(missing, true, false), is(False, "ObjectDeleted", still));
        for is_deleting in [false, true] {
            let expected = is(False, "ObjectDoesNotExist", "FakeObject does not exist");
            assert_eq!(of(missing, false, is_deleting), expected);
        }
    }
    let since = condition("Ready", True, "Ready", "");
    let mirrored = infrastructure_ready(to(Related::There { ready: Some(&since) }), false, false);
    assert_eq!(mirrored.since, Some(7), "since the condition of the object says so");
}

#[test]
fn a_cluster_without_objects_of_its_own_is_judged_by_its_machines() {
    assert_eq!(said(infrastructure_ready(Reference::Empty, true, false)), is(True, "Ready", ""));
    let of = |machines| said(control_plane_available(Reference::Empty, machines, true, false));
    let node = StandAlone { has_node: true, is_available: false };
    let expected = is(False, "NotAvailable", "No control plane Machine is available");
    assert_eq!(of(node), expected);
    assert_eq!(of(StandAlone { is_available: true, ..node }), is(True, "Available", ""));
}

#[test]
fn a_control_plane_is_initialized_once_it_or_a_machine_says_so() {
    let (none, node) = (StandAlone::default(), StandAlone { has_node: true, is_available: false });
    let of = |control_plane, is_initialized, machines| {
        said(control_plane_initialized(control_plane, is_initialized, machines, false))
    };
    let waiting = "Waiting for cluster topology to be reconciled";
    assert_eq!(of(Reference::Expected, false, none), is(Unknown, "ObjectDoesNotExist", waiting));
    let deleting = control_plane_initialized(Reference::Expected, false, none, true);
    assert_eq!(said(deleting), is(Unknown, "ObjectDoesNotExist", ""));
    let missing = is(Unknown, "ObjectDoesNotExist", "FakeObject does not exist");
    assert_eq!(of(to(Related::Missing), false, none), missing);
    assert_eq!(of(to(Related::Unknown), true, node), is(Unknown, "InternalError", SEE_LOG));
    let there = to(Related::There { ready: None });
    assert_eq!(of(there, false, node), is(False, "NotInitialized", "Control plane not yet initialized"));
    assert_eq!(of(there, true, none), is(True, "Initialized", ""));
    let message = "Waiting for the first control plane machine to have status.nodeRef set";
    assert_eq!(of(Reference::Empty, false, none), is(False, "NotInitialized", message));
    assert_eq!(of(Reference::Empty, false, node), is(True, "Initialized", ""));
}

#[test]
fn workers_are_available_together() {
    assert_eq!(said(workers_available(&[])), is(True, "NoWorkers", ""));
    assert_eq!(
        said(workers_available(&[source("MachineDeployment", "md1", &[])])),
        is(Unknown, "AvailableUnknown", "* MachineDeployment md1: Condition Available not yet reported")
    );
    let words = "3 available replicas, at least 4 required (spec.strategy.rollout.maxUnavailable is 1, spec.replicas is 5)";
    let (bad, good) =
        ([condition("Available", False, "Foo", words)], [condition("Available", True, "Foo", "")]);
    assert_eq!(
        said(workers_available(&[
            source("MachineDeployment", "md1", &bad),
            source("MachineDeployment", "md2", &good)
        ])),
        is(False, "NotAvailable", &format!("* MachineDeployment md1: {words}"))
    );
    let well = workers_available(&[source("MachineDeployment", "md2", &good)]);
    assert_eq!(said(well), is(True, "Available", ""));
}

#[test]
fn changes_in_progress_are_those_of_the_objects_below() {
    for (change, not) in [
        (Change::RollingOut, "NotRollingOut"),
        (Change::ScalingUp, "NotScalingUp"),
        (Change::ScalingDown, "NotScalingDown"),
    ] {
        let kind = change.condition();
        assert_eq!(said(in_progress(change, Err(()), &[])), is(Unknown, "InternalError", SEE_LOG));
        assert_eq!(said(in_progress(change, Ok(None), &[])), is(False, not, ""));
        let silent = source("FakeControlPlane", "cp1", &[]);
        assert_eq!(said(in_progress(change, Ok(Some(silent)), &[])), is(False, not, ""));
        let deployment = source("MachineDeployment", "md1", &[]);
        assert_eq!(
            said(in_progress(change, Ok(Some(silent)), &[deployment])),
            is(
                Unknown,
                &format!("{kind}Unknown"),
                &format!("* MachineDeployment md1: Condition {kind} not yet reported")
            )
        );
        let [of_cp, of_md1, of_md2, of_ms] =
            ["cp", "md1", "md2", "ms"].map(|of| [condition(kind, True, "Foo", &format!("of {of}"))]);
        let others = [
            source("MachineDeployment", "md1", &of_md1),
            source("MachineDeployment", "md2", &of_md2),
            source("MachineSet", "ms1", &of_ms),
        ];
        assert_eq!(
            said(in_progress(change, Ok(Some(source("FakeControlPlane", "cp1", &of_cp))), &others)),
            is(
                True,
                kind,
                "* FakeControlPlane cp1: of cp\n* MachineDeployment md1: of md1\n\
                 * MachineDeployment md2: of md2\nAnd 1 MachineSet with other issues"
            )
        );
        let calm = [condition(kind, False, "Foo", "")];
        let all = [source("MachineDeployment", "md1", &calm)];
        assert_eq!(said(in_progress(change, Ok(None), &all)), is(False, not, ""));
    }
}

#[test]
fn unhealthy_machines_are_remediated_or_named() {
    let good = [condition("HealthCheckSucceeded", True, "Foo", "")];
    let bad = [condition("HealthCheckSucceeded", False, "Foo", "")];
    let waiting = [
        condition("HealthCheckSucceeded", False, "Foo", ""),
        condition("OwnerRemediated", False, "MachineDeleting", "Machine is deleting"),
    ];
    let machine = |name, conditions| source("Machine", name, conditions);
    let of = |machines: &[Source<'_>]| said(remediating(machines));
    assert_eq!(of(&[machine("m1", &[]), machine("m2", &good)]), is(False, "NotRemediating", ""));
    assert_eq!(
        of(&[machine("m1", &good), machine("m2", &bad), machine("m3", &waiting)]),
        is(True, "Remediating", "* Machine m3: Machine is deleting")
    );
    assert_eq!(
        of(&[machine("m2", &bad), machine("m1", &good)]),
        is(False, "NotRemediating", "Machine m2 is not healthy (not to be remediated)")
    );
    assert_eq!(
        of(&[machine("m2", &bad), machine("m1", &bad)]),
        is(False, "NotRemediating", "Machines m1, m2 are not healthy (not to be remediated)")
    );
    let first = Source { is_control_plane_machine: true, ..machine("z", &waiting) };
    assert_eq!(of(&[machine("a", &waiting), first]).2, "* Machines z, a: Machine is deleting");
}
