use super::*;
use Status::True;

fn said(statement: Statement) -> (Status, String, String) {
    (statement.status, statement.reason, statement.message)
}

fn is(status: Status, reason: &str, message: &str) -> (Status, String, String) {
    (status, reason.into(), message.into())
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
