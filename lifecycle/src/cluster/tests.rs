use std::time::Duration;

use super::{
    deletion::{Found, Next, Referred, Remaining, next},
    *,
};
use crate::{
    conditions::{Condition, Polarity, Source, Statement, Status},
    machine::{Gate, Probe, Related},
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

fn to<'a>(related: Related<'a>) -> Reference<'a> {
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
    let of = |probe: Probe, is_connected, has_condition| {
        let Remote { statement, again } = remote_connection(&probe, is_connected, has_condition, grace, now);
        (statement.map(said), again.map(|again| again.as_secs()))
    };
    let not_yet = is(False, "ProbeFailed", "Remote connection not established yet");
    let failed = is(False, "ProbeFailed", "Remote connection probe failed");
    let table = [
        // Upstream's table: no attempt yet, the same with a condition of before, some failures, many failures.
        (probe(None, 0), false, false, Some(not_yet.clone()), None),
        (probe(None, 0), false, true, None, None),
        (probe(None, 4), false, false, Some(not_yet), Some(30)),
        (probe(None, 4), false, true, None, Some(30)),
        (probe(None, 5), false, true, Some(failed), None),
        // The last success is longer ago than the grace period, or not.
        (
            probe(Some(now - 51), 5),
            false,
            true,
            Some(is(
                False,
                "ProbeFailed",
                "Remote connection probe failed, probe last succeeded at 1970-01-12T13:45:49Z",
            )),
            None,
        ),
        (probe(Some(now - 50), 5), false, true, Some(is(True, "ProbeSucceeded", "")), Some(1)),
        (probe(Some(now - 10), 2), false, true, Some(is(True, "ProbeSucceeded", "")), Some(41)),
        (probe(Some(now - 10), 0), true, true, Some(is(True, "ProbeSucceeded", "")), None),
    ];
    for (probe, is_connected, has_condition, statement, again) in table {
        assert_eq!(of(probe, is_connected, has_condition), (statement, again), "{probe:?}");
    }
}

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
    type Of<'a> = &'a dyn Fn(Reference<'_>, bool, bool) -> (Status, String, String);
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

#[test]
fn a_cluster_is_deleted_from_its_workers_to_its_infrastructure() {
    let gone = |kind| Referred { kind, found: Found::Gone };
    let nothing = Remaining {
        machine_deployments: &[],
        machine_sets: &[],
        workers: &[],
        control_plane_machines: &[],
        control_plane: gone("FakeControlPlane"),
        infrastructure: gone("FakeInfrastructure"),
    };
    let control_plane = |found| Referred { found, ..nothing.control_plane };
    let infrastructure = |found| Referred { found, ..nothing.infrastructure };
    let all = Remaining {
        machine_deployments: &["md1", "md2"],
        machine_sets: &["ms1"],
        workers: &["w1", "w2", "w3", "w4", "w5", "w6", "w7"],
        control_plane_machines: &["cp1"],
        control_plane: control_plane(Found::There),
        infrastructure: infrastructure(Found::There),
    };
    let machines = Remaining { machine_deployments: &[], machine_sets: &[], workers: &[], ..all };
    let of_workers = "* MachineDeployments: md1, md2\n* MachineSets: ms1\n* Worker Machines: w1, w2, w3, w4, w5, ... (2 more)";
    let stand_alone = format!("* Control plane Machines: cp1\n{of_workers}");
    let (workers, machine) = ("WaitingForWorkersDeletion", "WaitingForControlPlaneDeletion");
    let (last, waits) = ("WaitingForInfrastructureDeletion", "Waiting for FakeControlPlane to be deleted");
    let waits_last = "Waiting for FakeInfrastructure to be deleted";
    let table = [
        (all, Next::DeleteWorkers, workers, of_workers),
        // Nobody else deletes Machines that stand alone, so they are named.
        (
            Remaining { control_plane: control_plane(Found::NotReferred), ..all },
            Next::DeleteWorkers,
            workers,
            &stand_alone,
        ),
        // Workers go while it is unknown what else there is.
        (
            Remaining { control_plane: control_plane(Found::Unknown), ..all },
            Next::DeleteWorkers,
            workers,
            of_workers,
        ),
        (machines, Next::DeleteControlPlane, machine, waits),
        (
            Remaining { control_plane: control_plane(Found::Deleting), ..machines },
            Next::WaitForControlPlane,
            machine,
            waits,
        ),
        (
            Remaining { control_plane: control_plane(Found::Unknown), ..machines },
            Next::Stop,
            "InternalError",
            SEE_LOG,
        ),
        // What a control plane object left behind is deleted as what stands alone.
        (
            Remaining { control_plane: control_plane(Found::Gone), ..machines },
            Next::DeleteControlPlaneMachines,
            machine,
            "* Control plane Machines: cp1",
        ),
        (
            Remaining { control_plane: control_plane(Found::NotReferred), ..machines },
            Next::DeleteControlPlaneMachines,
            machine,
            "* Control plane Machines: cp1",
        ),
        (
            Remaining { infrastructure: infrastructure(Found::There), ..nothing },
            Next::DeleteInfrastructure,
            last,
            waits_last,
        ),
        (
            Remaining { infrastructure: infrastructure(Found::Deleting), ..nothing },
            Next::WaitForInfrastructure,
            last,
            waits_last,
        ),
        (
            Remaining { infrastructure: infrastructure(Found::Unknown), ..nothing },
            Next::Stop,
            "InternalError",
            SEE_LOG,
        ),
        (
            Remaining { infrastructure: infrastructure(Found::NotReferred), ..nothing },
            Next::Release,
            "DeletionCompleted",
            "Deletion completed",
        ),
        (nothing, Next::Release, "DeletionCompleted", "Deletion completed"),
    ];
    for (remaining, step, reason, message) in table {
        let (found, statement) = next(&remaining);
        assert_eq!((found, said(statement)), (step, is(True, reason, message)), "{remaining:?}");
    }
}
