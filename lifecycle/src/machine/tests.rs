use std::time::Duration;

use super::*;
use crate::conditions::{Condition, Polarity, Statement, Status};
use Status::{False, True, Unknown};

const NOW: i64 = 1_000_000;

fn condition(kind: &str, status: Status, message: &str) -> Condition {
    Condition { kind: kind.into(), status, reason: "Because".into(), message: message.into(), since: 5 }
}

fn is(status: Status, reason: &str, message: &str) -> (Status, String, String) {
    (status, reason.into(), message.into())
}

fn said(statement: Statement) -> (Status, String, String) {
    (statement.status, statement.reason, statement.message)
}

#[test]
fn the_bootstrap_config_is_mirrored_or_missed() {
    let of = |config, is_done, is_deleting| {
        said(bootstrap_config_ready(Some(("KubeadmConfig", config)), is_done, is_deleting))
    };
    assert_eq!(said(bootstrap_config_ready(None, false, false)), is(True, "DataSecretProvided", ""));
    let waits = condition("Ready", False, "no control plane");
    assert_eq!(
        of(Related::There { ready: Some(&waits) }, false, false),
        is(False, "Because", "no control plane")
    );
    assert_eq!(of(Related::There { ready: None }, true, false), is(True, "Ready", ""));
    assert_eq!(
        of(Related::There { ready: None }, false, false),
        is(False, "NotReady", "KubeadmConfig status.initialization.dataSecretCreated is false")
    );
    let older = Condition { reason: String::new(), ..condition("Ready", True, "") };
    assert_eq!(of(Related::There { ready: Some(&older) }, true, false), is(True, "Ready", ""));
    assert_eq!(
        of(Related::Invalid { why: "no text" }, true, false),
        is(Unknown, "InvalidConditionReported", "no text")
    );
    assert_eq!(of(Related::Unknown, true, false), is(Unknown, "InternalError", SEE_LOG));
    let missing = is(False, "ObjectDoesNotExist", "KubeadmConfig does not exist");
    for (is_done, is_deleting) in [(false, false), (true, false), (false, true)] {
        assert_eq!(of(Related::Missing, is_done, is_deleting), missing);
    }
    assert_eq!(
        of(Related::Missing, true, true),
        is(False, "ObjectDeleted", "KubeadmConfig has been deleted")
    );
}

#[test]
fn an_infrastructure_machine_that_goes_away_is_missed_more() {
    let of = |is_done, is_deleting| {
        said(infrastructure_ready("LibvirtMachine", Related::Missing, is_done, is_deleting))
    };
    assert_eq!(of(false, false), is(False, "ObjectDoesNotExist", "LibvirtMachine does not exist"));
    assert_eq!(of(false, true), is(False, "ObjectDoesNotExist", "LibvirtMachine does not exist"));
    assert_eq!(
        of(true, false),
        is(False, "ObjectDeleted", "LibvirtMachine has been deleted while the Machine still exists")
    );
    assert_eq!(of(true, true), is(False, "ObjectDeleted", "LibvirtMachine has been deleted"));
    let ready = condition("Ready", True, "");
    let of = infrastructure_ready("LibvirtMachine", Related::There { ready: Some(&ready) }, true, false);
    assert_eq!(of.since, Some(5), "since the infrastructure machine was ready");
}

const OWNER: NodeOwner<'_> = NodeOwner {
    node: None,
    provider_id: None,
    infrastructure_kind: "LibvirtMachine",
    is_deleting: false,
    has_conditions: false,
};
const CLUSTER: ClusterState = ClusterState { is_provisioned: true, control_plane_initialized: Some(0) };
const PROBE: Probe = Probe { last_success: Some(NOW - 10), failures: 0, grace: Duration::from_secs(300) };

fn both(
    owner: &NodeOwner<'_>,
    cluster: &ClusterState,
    probe: &Probe,
    node: ObservedNode<'_>,
) -> Option<(Status, String, String)> {
    let [ready, healthy] = node_conditions(owner, cluster, probe, node, NOW)?;
    assert_eq!(ready, healthy);
    Some(said(ready))
}

#[test]
fn a_machine_says_what_its_node_waits_for() {
    let of = |owner: &NodeOwner<'_>, cluster: &ClusterState| {
        both(owner, cluster, &PROBE, ObservedNode::Missing).expect("new")
    };
    assert_eq!(
        of(&OWNER, &ClusterState { is_provisioned: false, ..CLUSTER }),
        is(
            Unknown,
            "InspectionFailed",
            "Waiting for Cluster status.initialization.infrastructureProvisioned to be true"
        )
    );
    assert_eq!(
        of(&OWNER, &ClusterState { control_plane_initialized: None, ..CLUSTER }),
        is(Unknown, "InspectionFailed", "Waiting for Cluster control plane to be initialized")
    );
    assert_eq!(
        of(&OWNER, &CLUSTER),
        is(Unknown, "InspectionFailed", "Waiting for LibvirtMachine to report spec.providerID")
    );
    assert_eq!(
        of(&NodeOwner { provider_id: Some("libvirt:///1"), ..OWNER }, &CLUSTER),
        is(Unknown, "InspectionFailed", "Waiting for a Node with spec.providerID libvirt:///1 to exist")
    );
    let joined = NodeOwner { node: Some("one"), provider_id: Some("libvirt:///1"), ..OWNER };
    assert_eq!(
        of(&joined, &CLUSTER),
        is(False, "NodeDeleted", "Node one has been deleted while the Machine still exists")
    );
    assert_eq!(
        of(&NodeOwner { is_deleting: true, ..joined }, &CLUSTER),
        is(False, "NodeDeleted", "Node one has been deleted")
    );
    assert_eq!(
        of(&NodeOwner { is_deleting: true, ..OWNER }, &CLUSTER),
        is(Unknown, "NodeDoesNotExist", "Node does not exist")
    );
}

#[test]
fn a_cluster_out_of_reach_says_nothing_new_for_a_while() {
    let known = NodeOwner { has_conditions: true, ..OWNER };
    let never = Probe { last_success: None, failures: 4, ..PROBE };
    assert_eq!(
        both(&OWNER, &CLUSTER, &never, ObservedNode::NotConnected),
        Some(is(Unknown, "ConnectionDown", "Remote connection not established yet"))
    );
    assert_eq!(both(&known, &CLUSTER, &never, ObservedNode::NotConnected), None);
    let down = Some(is(Unknown, "ConnectionDown", ""));
    let five = Probe { failures: 5, ..never };
    assert_eq!(both(&known, &CLUSTER, &five, ObservedNode::NotConnected), down);
    let initialized = ClusterState { control_plane_initialized: Some(NOW - 300), ..CLUSTER };
    assert_eq!(
        both(&known, &initialized, &five, ObservedNode::NotConnected),
        None,
        "in its first five minutes"
    );

    let last = Some(is(Unknown, "ConnectionDown", "Last successful probe at 1970-01-12T13:41:40Z"));
    let silent = Probe { last_success: Some(NOW - 300), failures: 30, ..PROBE };
    assert_eq!(both(&known, &CLUSTER, &silent, ObservedNode::NotConnected), None);
    assert_eq!(both(&OWNER, &CLUSTER, &silent, ObservedNode::NotConnected), last);
    let [ready, _] =
        node_conditions(&known, &CLUSTER, &silent, ObservedNode::NotConnected, NOW + 1).expect("too long");
    assert_eq!(Some(said(ready)), last);
    assert_eq!(
        both(&known, &CLUSTER, &PROBE, ObservedNode::Unknown),
        Some(is(Unknown, "InternalError", SEE_LOG))
    );
}

fn of_node(conditions: &[Condition]) -> [(Status, String, String); 2] {
    let node = ObservedNode::There { conditions };
    node_conditions(&OWNER, &CLUSTER, &PROBE, node, NOW).expect("the Node says").map(said)
}

#[test]
fn a_node_is_healthy_when_it_is_ready_and_has_room() {
    let pressures = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    let all = |ready: Status, pressure: Status, message: &str| {
        let ready = [condition("Ready", ready, message)];
        ready.into_iter().chain(pressures.map(|kind| condition(kind, pressure, message))).collect::<Vec<_>>()
    };
    assert_eq!(of_node(&all(True, False, "fine")), [is(True, "NodeReady", ""), is(True, "NodeHealthy", "")]);
    assert_eq!(
        of_node(&all(Unknown, Unknown, "Kubelet stopped posting node status.")),
        [
            is(Unknown, "NodeReadyUnknown", "* Node.Ready: Kubelet stopped posting node status."),
            is(Unknown, "NodeHealthyUnknown", "* Node.AllConditions: Kubelet stopped posting node status.")
        ]
    );
    let mut one = all(True, False, "");
    one[2] = condition("DiskPressure", True, "");
    assert_eq!(
        of_node(&one),
        [is(True, "NodeReady", ""), is(False, "NodeNotHealthy", "* Node.DiskPressure: Condition is True")]
    );
    assert_eq!(
        of_node(&[condition("Ready", False, "no network"), condition("PIDPressure", Unknown, "?")]),
        [
            is(False, "NodeNotReady", "* Node.Ready: no network"),
            is(
                False,
                "NodeNotHealthy",
                "* Node.Ready: no network\n* Node.MemoryPressure: Condition not yet reported\n\
                 * Node.DiskPressure: Condition not yet reported\n* Node.PIDPressure: ?"
            )
        ]
    );
    assert_eq!(of_node(&[])[0], is(Unknown, "NodeReadyUnknown", "* Node.Ready: Condition not yet reported"));
}

/// Those of a Machine that is ready.
fn good() -> Vec<Condition> {
    vec![
        condition("Deleting", False, ""),
        condition("Updating", False, ""),
        condition("BootstrapConfigReady", True, ""),
        condition("InfrastructureReady", True, ""),
        condition("NodeHealthy", True, ""),
    ]
}

fn with(changes: &[Condition]) -> Vec<Condition> {
    let kept = good().into_iter().filter(|one| changes.iter().all(|change| change.kind != one.kind));
    kept.chain(changes.iter().cloned()).collect()
}

#[test]
fn a_machine_is_ready_when_nothing_is_wrong() {
    let of = |conditions: &[Condition]| said(ready(conditions, &[], None, NOW));
    assert_eq!(of(&good()), is(True, "Ready", ""));
    assert_eq!(
        of(&with(&[
            condition("HealthCheckSucceeded", False, "too old"),
            condition("NodeHealthy", Unknown, "?")
        ])),
        is(False, "NotReady", "* NodeHealthy: ?\n* HealthCheckSucceeded: too old")
    );
    let gates = [
        Gate { kind: "Licensed", polarity: Polarity::Positive },
        Gate { kind: "Burning", polarity: Polarity::Negative },
    ];
    let of = |conditions: &[Condition]| said(ready(conditions, &gates, None, NOW));
    assert_eq!(
        of(&good()),
        is(
            Unknown,
            "ReadyUnknown",
            "* Licensed: Condition not yet reported\n* Burning: Condition not yet reported"
        )
    );
    assert_eq!(
        of(&with(&[condition("Licensed", True, ""), condition("Burning", False, "")])),
        is(True, "Ready", "")
    );
    assert_eq!(
        of(&with(&[condition("Licensed", True, ""), condition("Burning", True, "hot")])),
        is(False, "NotReady", "* Burning: hot")
    );
}

#[test]
fn components_of_a_control_plane_that_say_the_same_are_one_line() {
    let kinds = [
        "APIServerPodHealthy",
        "ControllerManagerPodHealthy",
        "SchedulerPodHealthy",
        "EtcdPodHealthy",
        "EtcdMemberHealthy",
    ];
    let gates = kinds.map(|kind| Gate { kind, polarity: Polarity::Positive });
    let of = |messages: [&str; 5]| {
        let all: Vec<_> =
            kinds.iter().zip(messages).map(|(kind, message)| condition(kind, Unknown, message)).collect();
        said(ready(&with(&all), &gates, None, NOW)).2
    };
    assert_eq!(of(["no Node"; 5]), "* Control plane components: no Node\n* EtcdMemberHealthy: no Node");
    assert_eq!(
        of(["no Node", "no Node", "other", "no Node", "no Node"]).lines().count(),
        5,
        "each for itself where they differ"
    );
    let one = [condition("SchedulerPodHealthy", False, "it crashed")];
    assert_eq!(said(ready(&with(&one), &gates[2..3], None, NOW)).2, "* SchedulerPodHealthy: it crashed");
}

#[test]
fn a_deletion_is_said_in_few_words() {
    let deletion = Deletion {
        since: NOW - 900,
        stage: "DrainingNode",
        message: "Pod a: cannot evict pod as it would violate the pod's disruption budget.",
        drain_since: Some(NOW - 301),
    };
    let of =
        |deletion: &Deletion<'_>, conditions: &[Condition]| said(ready(conditions, &[], Some(deletion), NOW));
    let all = with(&[condition("Deleting", True, deletion.message)]);
    assert_eq!(
        of(&deletion, &all),
        is(False, "NotReady", "* Deleting: Machine deletion in progress, stage: DrainingNode")
    );
    let long = Deletion { since: NOW - 901, ..deletion };
    let since = "* Deleting: Machine deletion in progress since more than 15m, stage: DrainingNode";
    assert_eq!(of(&long, &all).2, format!("{since}, delay likely due to PodDisruptionBudgets"));
    let both = "failed to evict Pod b; Pod c: waiting for completion";
    assert_eq!(
        of(&Deletion { message: both, ..long }, &all).2,
        format!("{since}, delay likely due to Pod eviction errors, Pods not completed yet")
    );
    for quiet in [
        Deletion { message: "", ..long },
        Deletion { drain_since: None, ..long },
        Deletion { drain_since: Some(NOW - 300), ..long },
    ] {
        assert_eq!(of(&quiet, &all).2, since);
    }
    // What is gone already is not missed.
    let gone =
        |kind: &str, reason: &str| Condition { reason: reason.into(), ..condition(kind, False, "gone") };
    let late = with(&[
        condition("Deleting", True, ""),
        gone("BootstrapConfigReady", "ObjectDoesNotExist"),
        gone("InfrastructureReady", "ObjectDeleted"),
        gone("NodeHealthy", "NodeDeleted"),
    ]);
    let waits = Deletion { stage: "WaitingForInfrastructureDeletion", since: NOW, ..deletion };
    assert_eq!(
        of(&waits, &late).2,
        "* Deleting: Machine deletion in progress, stage: WaitingForInfrastructureDeletion"
    );
    assert_eq!(said(ready(&late, &[], None, NOW)).2.lines().count(), 4, "they are, of a Machine that stays");
    assert_eq!(said(deleting(Some(&waits))), is(True, "WaitingForInfrastructureDeletion", waits.message));
    assert_eq!(said(deleting(None)), is(False, "NotDeleting", ""));
}

#[test]
fn a_machine_is_available_after_its_time() {
    let of = |since, seconds| {
        let Availability { statement, again } = available(since, seconds, NOW);
        (statement.status, statement.reason, again.map(|again| again.as_secs()))
    };
    assert_eq!(of(None, 0), (False, "NotReady".into(), None));
    assert_eq!(of(Some(NOW), 0), (True, "Available".into(), None));
    assert_eq!(of(Some(NOW - 9), 10), (False, "WaitingForMinReadySeconds".into(), Some(1)));
    assert_eq!(of(Some(NOW - 10), 10), (True, "Available".into(), None));
}

#[test]
fn the_phase_follows_the_progress() {
    let mut progress = Progress::default();
    assert_eq!(phase(&progress, None), Phase::Pending);
    progress.has_bootstrap_data = true;
    assert_eq!(phase(&progress, Some(Phase::Pending)), Phase::Provisioning);
    progress.is_provisioned = true;
    assert_eq!(phase(&progress, Some(Phase::Provisioning)), Phase::Provisioning, "nothing else is known");
    progress.has_provider_id = true;
    assert_eq!(phase(&progress, Some(Phase::Provisioning)), Phase::Provisioned);
    progress.has_node = true;
    assert_eq!(phase(&progress, Some(Phase::Provisioned)), Phase::Running);
    progress.is_updating = true;
    assert_eq!(phase(&progress, Some(Phase::Running)), Phase::Updating);
    progress.is_deleting = true;
    assert_eq!(phase(&progress, Some(Phase::Running)), Phase::Deleting);
    assert_eq!(Phase::Provisioned.to_string(), "Provisioned");
}

#[test]
fn a_machine_is_up_to_date_with_its_template_and_its_kubelet() {
    let good = UpToDateInputs {
        differences: &[],
        is_before_rollout: false,
        updating: None,
        kubelet_version: Some("v1.37.1"),
        version: "v1.37.1",
    };
    let of = |machine: &UpToDateInputs<'_>| said(up_to_date(machine));
    assert_eq!(of(&good), is(True, "UpToDate", ""));
    assert_eq!(of(&UpToDateInputs { kubelet_version: None, ..good }), is(True, "UpToDate", ""));
    let differences = ["Version v1.36.0, v1.37.1 required".to_owned()];
    let old =
        UpToDateInputs { differences: &differences, is_before_rollout: true, updating: Some("x"), ..good };
    assert_eq!(
        of(&old),
        is(
            False,
            "NotUpToDate",
            "* Version v1.36.0, v1.37.1 required\n* MachineDeployment spec.rolloutAfter expired"
        )
    );
    assert_eq!(
        of(&UpToDateInputs { updating: Some(""), ..good }),
        is(False, "Updating", "* In-place update in progress")
    );
    assert_eq!(of(&UpToDateInputs { updating: Some("step 2"), ..good }), is(False, "Updating", "* step 2"));
    assert_eq!(
        of(&UpToDateInputs { kubelet_version: Some("v1.36.0"), ..good }),
        is(False, "Updating", "* Node.status.nodeInfo.kubeletVersion v1.36.0, v1.37.1 required")
    );
}
