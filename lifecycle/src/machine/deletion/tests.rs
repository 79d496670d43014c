use super::*;
use Status::True;

const NOW: i64 = 1_000_000;

const CONTROL_PLANE: OwningControlPlane =
    OwningControlPlane { is_deleting: false, is_external: false, machines: 1 };

const MACHINE: DeletingMachine<'_> = DeletingMachine {
    has_node_work: true,
    pre_drain_hooks: &[],
    pre_terminate_hooks: &[],
    excludes_drain: false,
    excludes_volumes: false,
    timeouts: Timeouts { drain: None, volumes: None },
    began: Began { drain: None, volumes: None, pre_terminate_hooks: None },
    is_drained: false,
    is_detached: false,
    is_node_gone: false,
    infrastructure: ("LibvirtMachine", Presence::There),
    bootstrap: Some(("KubeadmConfig", Presence::There)),
};

fn stage(machine: &DeletingMachine<'_>) -> (Next, String, String) {
    let (next, statement) = next(machine, NOW);
    assert_eq!(statement.status, True);
    (next, statement.reason, statement.message)
}

fn does(machine: &DeletingMachine<'_>) -> Next {
    next(machine, NOW).0
}

#[test]
fn the_node_of_a_cluster_that_goes_stays_as_it_is() {
    assert_eq!(node_to_delete(false, Some("one")), Ok("one"));
    assert_eq!(node_to_delete(false, None), Err(NoNodeWork::NoNode));
    assert_eq!(node_to_delete(true, Some("one")), Err(NoNodeWork::ClusterIsDeleted));
    assert_eq!(CONTROL_PLANE.stays(), Ok(()));
    let deleted = OwningControlPlane { is_deleting: true, ..CONTROL_PLANE };
    assert_eq!(deleted.stays(), Err(NoNodeWork::ControlPlaneIsDeleted));
    let last = OwningControlPlane { machines: 0, ..CONTROL_PLANE };
    assert_eq!(last.stays(), Err(NoNodeWork::NoControlPlaneLeft));
    assert_eq!(OwningControlPlane { is_external: true, ..last }.stays(), Ok(()));
    assert_eq!(NoNodeWork::NoNode.to_string(), "the Machine has no Node");
}

#[test]
fn a_machine_goes_step_by_step() {
    let mut machine = MACHINE;
    let hooks = [
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/b",
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/a",
    ];
    machine.pre_drain_hooks = &hooks;
    let (step, reason, message) = stage(&machine);
    assert_eq!((step, reason.as_str()), (Next::WaitForPreDrainHooks, "WaitingForPreDrainHook"));
    assert!(message.ends_with(&format!("(hooks: {},{})", hooks[1], hooks[0])), "{message}");
    machine.pre_drain_hooks = &[];
    assert_eq!(
        stage(&machine),
        (
            Next::Drain,
            "DrainingNode".into(),
            "Drain not completed yet (started at 1970-01-12T13:46:40Z):".into()
        )
    );
    machine.is_drained = true;
    machine.began.volumes = Some(0);
    assert_eq!(
        stage(&machine),
        (
            Next::DetachVolumes,
            "WaitingForVolumeDetach".into(),
            "Waiting for Node volumes to be detached (started at 1970-01-01T00:00:00Z)".into()
        )
    );
    machine.is_detached = true;
    machine.pre_terminate_hooks = &["pre-terminate.delete.hook.machine.cluster.x-k8s.io/a"];
    assert_eq!(stage(&machine).1, "WaitingForPreTerminateHook");
    machine.pre_terminate_hooks = &[];
    let waits = "Waiting for LibvirtMachine to be deleted";
    assert_eq!(
        stage(&machine),
        (Next::DeleteInfrastructure, "WaitingForInfrastructureDeletion".into(), waits.into())
    );
    machine.infrastructure.1 = Presence::Deleting;
    assert_eq!(
        stage(&machine),
        (Next::WaitForInfrastructure, "WaitingForInfrastructureDeletion".into(), waits.into())
    );
    machine.infrastructure.1 = Presence::Gone;
    let waits = "Waiting for KubeadmConfig to be deleted";
    assert_eq!(stage(&machine), (Next::DeleteBootstrap, "WaitingForBootstrapDeletion".into(), waits.into()));
    machine.bootstrap = Some(("KubeadmConfig", Presence::Deleting));
    assert_eq!(does(&machine), Next::WaitForBootstrap);
    machine.bootstrap = None;
    assert_eq!(stage(&machine).1, "DeletingNode");
    machine.is_node_gone = true;
    assert_eq!(stage(&machine), (Next::Release, "DeletionCompleted".into(), "Deletion completed".into()));
}

#[test]
fn nobody_waits_for_a_node_that_goes_with_its_cluster() {
    let machine = DeletingMachine {
        has_node_work: false,
        pre_drain_hooks: &["pre-drain.delete.hook.machine.cluster.x-k8s.io/a"],
        ..MACHINE
    };
    assert_eq!(does(&machine), Next::DeleteInfrastructure);
    let hooked = DeletingMachine {
        pre_terminate_hooks: &["pre-terminate.delete.hook.machine.cluster.x-k8s.io/a"],
        ..machine
    };
    assert_eq!(does(&hooked), Next::WaitForPreTerminateHooks, "these count always");
    let gone =
        DeletingMachine { infrastructure: ("LibvirtMachine", Presence::Gone), bootstrap: None, ..machine };
    assert_eq!(does(&gone), Next::Release);
}

#[test]
fn drain_and_volumes_are_waited_for_until_their_time_is_over() {
    let limits = Timeouts { drain: Some(Duration::from_secs(60)), volumes: Some(Duration::from_secs(30)) };
    let since = |drain: i64, volumes: i64| DeletingMachine {
        timeouts: limits,
        began: Began { drain: Some(NOW - drain), volumes: Some(NOW - volumes), ..Began::default() },
        ..MACHINE
    };
    assert_eq!(does(&since(59, 0)), Next::Drain);
    assert_eq!(does(&since(60, 29)), Next::DetachVolumes);
    assert_eq!(does(&since(60, 30)), Next::DeleteInfrastructure);
    let endless = Timeouts { drain: Some(Duration::ZERO), volumes: None };
    assert_eq!(does(&DeletingMachine { timeouts: endless, ..since(9999, 9999) }), Next::Drain);
    assert_eq!(does(&DeletingMachine { excludes_drain: true, ..MACHINE }), Next::DetachVolumes);
    assert_eq!(
        does(&DeletingMachine { excludes_drain: true, excludes_volumes: true, ..MACHINE }),
        Next::DeleteInfrastructure
    );
    let asked = Began { pre_terminate_hooks: Some(NOW - 1), ..Began::default() };
    assert_eq!(
        does(&DeletingMachine { began: asked, ..MACHINE }),
        Next::DeleteInfrastructure,
        "it goes already"
    );
    let going = DeletingMachine { infrastructure: ("LibvirtMachine", Presence::Deleting), ..MACHINE };
    assert_eq!(does(&going), Next::WaitForInfrastructure);
}
