//! The controller of Clusters on a sandbox, alone: no other controller touches the objects.

mod deletion;
mod together;

use std::{sync::Arc, time::Duration};

use cluster_api::{Cluster, ClusterPhase, ConditionStatus};
use futures::{FutureExt as _, StreamExt as _};
use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::{ClusterController, ClusterOptions};
use crate::{
    engine::object::Stored,
    testing::{NAMESPACE, Stage, delete, object},
    workload::{ClusterKey, Connection},
};

pub(super) const CORE: &str = "cluster.x-k8s.io/v1beta2";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";

/// A management cluster with the controller and the kinds of a provider.
pub(super) async fn stage() -> Stage {
    let stage = Stage::new().await;
    run(&stage).await;
    stage
}

async fn run(stage: &Stage) {
    stage.serve(INFRASTRUCTURE, "FakeInfrastructure", true).await;
    stage.serve(CONTROL_PLANE, "FakeControlPlane", true).await;
    let controller = ClusterController::new(Arc::clone(&stage.core), ClusterOptions::default());
    let sources = controller.sources();
    stage.run(controller, sources);
}

fn infrastructure() -> Value {
    object(&format!("{INFRASTRUCTURE}/v1"), "FakeInfrastructure", "i")
}

fn control_plane() -> Value {
    object(&format!("{CONTROL_PLANE}/v1"), "FakeControlPlane", "p")
}

fn infrastructure_ref() -> Value {
    json!({"apiGroup": INFRASTRUCTURE, "kind": "FakeInfrastructure", "name": "i"})
}

fn control_plane_ref() -> Value {
    json!({"apiGroup": CONTROL_PLANE, "kind": "FakeControlPlane", "name": "p"})
}

/// A Cluster `c` with this specification. Gives its UID.
pub(super) async fn create(stage: &Stage, spec: Value) -> String {
    let mut cluster = object(CORE, "Cluster", "c");
    cluster["spec"] = spec;
    stage.create(cluster).await["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn full() -> Value {
    json!({"infrastructureRef": infrastructure_ref(), "controlPlaneRef": control_plane_ref()})
}

/// Both parts of a condition that people read, behind its status.
fn said(cluster: &Cluster, kind: &str) -> (ConditionStatus, String, String) {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == kind).cloned().unwrap_or_default();
    (found.status, found.reason, found.message)
}

fn is(status: ConditionStatus, reason: &str, message: &str) -> (ConditionStatus, String, String) {
    (status, reason.to_owned(), message.to_owned())
}

pub(super) async fn until(stage: &Stage, expected: impl Fn(&Cluster) -> bool) -> Arc<Stored<Cluster>> {
    stage.until(&stage.core.stores.clusters, "c", expected).await
}

fn phase(cluster: &Cluster) -> Option<ClusterPhase> {
    cluster.status.as_ref().and_then(|status| status.phase)
}

fn key() -> ClusterKey {
    ClusterKey::new(NAMESPACE, "c")
}

/// Adds the Cluster `c` to the owners of an object.
fn owned(mut of: Value, uid: &str) -> Value {
    of["metadata"]["ownerReferences"] =
        json!([{"apiVersion": CORE, "kind": "Cluster", "name": "c", "uid": uid}]);
    of
}

async fn let_go(stage: &Stage, of: &Value) {
    let patch = json!({"metadata": {"finalizers": []}});
    crate::testing::patch(&stage.sandbox, of, &patch).await;
}

async fn is_deleting(stage: &Stage, of: &Value) -> bool {
    let found = crate::testing::get(&stage.sandbox, of).await.expect("it exists");
    !found["metadata"]["deletionTimestamp"].is_null()
}

fn machine(name: &str, is_control_plane: bool) -> Value {
    let mut machine = object(CORE, "Machine", name);
    machine["spec"] = json!({
        "clusterName": "c", "bootstrap": {}, "version": "v1.37.1",
        "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "FakeMachine", "name": name},
    });
    machine["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c"});
    if is_control_plane {
        machine["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = json!("");
    }
    machine
}

fn machine_deployment(name: &str) -> Value {
    let mut deployment = object(CORE, "MachineDeployment", name);
    deployment["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "c"});
    let template = machine("x", false)["spec"].clone();
    deployment["spec"] = json!({
        "clusterName": "c", "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": template},
    });
    deployment
}

#[tokio::test(start_paused = true)]
async fn a_cluster_follows_its_infrastructure_and_its_control_plane() {
    let stage = stage().await;
    let uid = create(&stage, full()).await;
    let cluster = until(&stage, |cluster| phase(cluster) == Some(ClusterPhase::Provisioning)).await;
    assert_eq!(cluster.metadata.finalizers.as_deref(), Some(&["cluster.cluster.x-k8s.io".to_owned()][..]));
    let missing = is(ConditionStatus::False, "ObjectDoesNotExist", "FakeInfrastructure does not exist");
    assert_eq!(said(&cluster, "InfrastructureReady"), missing);
    assert_eq!(said(&cluster, "ControlPlaneAvailable").2, "FakeControlPlane does not exist");
    assert_eq!(said(&cluster, "WorkersAvailable").1, "NoWorkers");
    assert_eq!(said(&cluster, "RemoteConnectionProbe").2, "Remote connection not established yet");
    assert_eq!(said(&cluster, "Paused").1, "NotPaused");
    assert_eq!(cluster.status.as_ref().and_then(|status| status.observed_generation), Some(1));

    stage.create(infrastructure()).await;
    stage.create(control_plane()).await;
    let not_yet = "FakeInfrastructure status.initialization.provisioned is false";
    until(&stage, |cluster| said(cluster, "InfrastructureReady").2 == not_yet).await;
    until(&stage, |cluster| said(cluster, "ControlPlaneInitialized").1 == "NotInitialized").await;
    for of in [infrastructure(), control_plane()] {
        let found = crate::testing::get(&stage.sandbox, &of).await.expect("it exists");
        let owner = json!([{"apiVersion": CORE, "kind": "Cluster", "name": "c", "uid": uid}]);
        assert_eq!(found["metadata"]["ownerReferences"], owner, "an owner, and not the controller");
        assert_eq!(found["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "c");
    }

    let patch = json!({"spec": {"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}}});
    crate::testing::patch(&stage.sandbox, &infrastructure(), &patch).await;
    let status = json!({"status": {
        "initialization": {"provisioned": true},
        "failureDomains": [{"name": "a", "controlPlane": true, "attributes": {"k": "v"}}, {"name": "a"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Fine", "message": ""}],
    }});
    crate::testing::patch(&stage.sandbox, &infrastructure(), &status).await;
    let cluster = until(&stage, |cluster| phase(cluster) == Some(ClusterPhase::Provisioned)).await;
    let endpoint = &cluster.spec.control_plane_endpoint;
    assert_eq!((endpoint.host.as_deref(), endpoint.port), (Some("10.0.0.1"), Some(6443)));
    let status = cluster.status.as_ref().expect("a status");
    assert_eq!(status.initialization.infrastructure_provisioned, Some(true));
    assert_eq!(status.initialization.control_plane_initialized, None);
    assert_eq!(status.failure_domains.len(), 1, "each name once");
    assert_eq!(said(&cluster, "InfrastructureReady"), is(ConditionStatus::True, "Fine", ""));

    let counts = json!({"status": {
        "initialization": {"controlPlaneInitialized": true},
        "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 3,
        "versions": [{"version": "v1.37.1", "replicas": 3}, {"version": "v1.36.0", "replicas": 0}],
    }});
    crate::testing::patch(&stage.sandbox, &control_plane(), &json!({"spec": {"replicas": 3}})).await;
    crate::testing::patch(&stage.sandbox, &control_plane(), &counts).await;
    let cluster = until(&stage, |cluster| said(cluster, "ControlPlaneInitialized").1 == "Initialized").await;
    let status = cluster.status.as_ref().expect("a status");
    assert_eq!(status.initialization.control_plane_initialized, Some(true));
    let of = &status.control_plane;
    let counts =
        [of.desired_replicas, of.replicas, of.ready_replicas, of.available_replicas, of.up_to_date_replicas];
    assert_eq!(counts, [Some(3), Some(3), Some(2), Some(1), Some(3)]);
    let versions: Vec<_> = of.versions.iter().map(|one| (one.version.as_str(), one.replicas)).collect();
    assert_eq!(versions, [("v1.37.1", Some(3)), ("v1.36.0", None)]);
    assert_eq!(said(&cluster, "ControlPlaneAvailable"), is(ConditionStatus::True, "Available", ""));

    let events = stage.events().await;
    for (reason, message) in [
        ("Provisioning", "Cluster c is Provisioning"),
        ("Provisioned", "Cluster c is Provisioned"),
        ("InfrastructureReady", "Cluster c InfrastructureProvisioned is now True"),
        ("ControlPlaneInitialized", "Cluster c ControlPlaneInitialized is now True"),
    ] {
        assert!(events.contains(&(reason.to_owned(), message.to_owned())), "{reason}: {events:?}");
    }
}

/// `clusterctl move` takes it away from the Cluster that it has paused, and deletes that.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_paused_gets_no_other_finalizer() {
    let stage = stage().await;
    create(&stage, json!({})).await;
    let finalizers = |cluster: &Cluster| cluster.metadata.finalizers.clone().unwrap_or_default();
    until(&stage, |cluster| finalizers(cluster) == ["cluster.cluster.x-k8s.io"]).await;
    let cluster = object(CORE, "Cluster", "c");
    crate::testing::patch(&stage.sandbox, &cluster, &json!({"spec": {"paused": true}})).await;
    until(&stage, |cluster| said(cluster, "Paused").1 == "Paused").await;
    let_go(&stage, &cluster).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(finalizers(&stage.core.stores.clusters.get("default/c").expect("the Cluster")).is_empty());
    crate::testing::patch(&stage.sandbox, &cluster, &json!({"spec": {"paused": false}})).await;
    until(&stage, |cluster| !finalizers(cluster).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn workers_are_counted_and_their_conditions_gathered() {
    let stage = stage().await;
    let uid = create(&stage, json!({"controlPlaneRef": control_plane_ref()})).await;
    let cluster = until(&stage, |cluster| phase(cluster) == Some(ClusterPhase::Provisioning)).await;
    let status = cluster.status.as_ref().expect("a status");
    assert_eq!(status.initialization.infrastructure_provisioned, Some(true), "nothing is missing");
    assert_eq!(said(&cluster, "InfrastructureReady"), is(ConditionStatus::True, "Ready", ""));

    let condition = |kind: &str, status: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": "Because", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let mut deployment = owned(machine_deployment("md"), &uid);
    deployment["status"] = json!({
        "replicas": 2, "readyReplicas": 1, "versions": [{"version": "v1.37.1", "replicas": 2}],
        "conditions": [condition("Available", "False", "1 of 3"), condition("ScalingUp", "True", "from 2 to 3")],
    });
    stage.create(deployment).await;
    let mut worker = owned(machine("w", false), &uid);
    worker["status"] =
        json!({"conditions": [condition("Ready", "True", ""), condition("UpToDate", "True", "")]});
    stage.create(worker).await;
    let mut pooled = owned(machine("pooled", false), &uid);
    pooled["metadata"]["labels"]["cluster.x-k8s.io/pool-name"] = json!("pool");
    stage.create(pooled).await;
    // Each status comes after its object.
    let is_counted = |cluster: &Cluster| {
        let workers = cluster.status.as_ref().map(|status| &status.workers);
        workers.is_some_and(|of| of.ready_replicas == Some(2) && of.up_to_date_replicas == Some(1))
    };
    let cluster = until(&stage, is_counted).await;
    let of = &cluster.status.as_ref().expect("a status").workers;
    assert_eq!([of.desired_replicas, of.replicas, of.available_replicas], [Some(4), Some(3), None]);
    let versions: Vec<_> = of.versions.iter().map(|one| (one.version.as_str(), one.replicas)).collect();
    assert_eq!(versions, [("v1.37.1", Some(3))]);
    let expected = is(ConditionStatus::False, "NotAvailable", "* MachineDeployment md: 1 of 3");
    assert_eq!(said(&cluster, "WorkersAvailable"), expected);
    let expected = is(ConditionStatus::True, "ScalingUp", "* MachineDeployment md: from 2 to 3");
    assert_eq!(said(&cluster, "ScalingUp"), expected);
    assert_eq!(said(&cluster, "WorkerMachinesReady").1, "Ready");
    assert_eq!(said(&cluster, "ControlPlaneMachinesReady").1, "NoReplicas");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_owned_is_said_with_its_reason() {
    let stage = stage().await;
    let of = Matcher::any().verb("patch").resource("fakeinfrastructures");
    stage.sandbox.faults().inject(Fault::new(of, Action::InternalError));
    stage.create(infrastructure()).await;
    create(&stage, full()).await;
    let cluster = until(&stage, |cluster| said(cluster, "InfrastructureReady").1 == "InternalError").await;
    assert_eq!(said(&cluster, "ControlPlaneAvailable").1, "ObjectDoesNotExist", "the rest is right");
    let events = stage.events().await;
    let is_reason = |(reason, message): &(String, String)| {
        reason == "ReferenceNotUsable" && message.starts_with("FakeInfrastructure i: it cannot be owned: ")
    };
    assert!(events.iter().any(is_reason), "{events:?}");
    stage.sandbox.faults().clear();
    until(&stage, |cluster| said(cluster, "InfrastructureReady").1 == "NotReady").await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_left_alone() {
    let stage = stage().await;
    let mut spec = full();
    spec["paused"] = json!(true);
    create(&stage, spec).await;
    stage.create(infrastructure()).await;
    let cluster = until(&stage, |cluster| said(cluster, "Paused").1 == "Paused").await;
    assert_eq!(said(&cluster, "Paused").2, "Cluster spec.paused is set to true");
    assert_eq!(cluster.status.as_ref().map(|status| status.conditions.len()), Some(1));
    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
    let is_deleted = |cluster: &Cluster| cluster.metadata.deletion_timestamp.is_some();
    until(&stage, is_deleted).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!is_deleting(&stage, &infrastructure()).await);
    stage.patch(CORE, "Cluster", "c", &json!({"spec": {"paused": null}})).await;
    stage.until_gone(&stage.core.stores.clusters, "c").await;
    assert_eq!(crate::testing::get(&stage.sandbox, &infrastructure()).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_topology_is_said_to_have_no_effect() {
    let stage = stage().await;
    create(&stage, json!({"topology": {"version": "v1.37.1", "classRef": {"name": "class"}}})).await;
    let cluster = until(&stage, |cluster| said(cluster, "TopologyReconciled").1 == "ReconcileFailed").await;
    let waiting = "Waiting for cluster topology to be reconciled";
    assert_eq!(said(&cluster, "InfrastructureReady").2, waiting);
    let status = cluster.status.as_ref().expect("a status");
    assert_eq!(status.initialization.infrastructure_provisioned, None);
    assert_eq!(status.phase, Some(ClusterPhase::Pending));
    assert!(said(&cluster, "Available").2.contains("* TopologyReconciled: ClusterClass is not supported"));
    let reasons: Vec<_> = stage.events().await.into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons.iter().filter(|reason| *reason == "TopologyNotReconciled").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provisioned_cluster_is_connected_until_it_is_gone() {
    let stage = Stage::new().await;
    let _workload = stage.workload("c").await;
    run(&stage).await;
    let is_followed = || match stage.core.workload.connection(&key()) {
        Connection::NotConnected(why) => why.reason != "the Cluster is not followed",
        Connection::Connected { .. } => true,
    };
    create(&stage, json!({"infrastructureRef": infrastructure_ref()})).await;
    until(&stage, |cluster| said(cluster, "InfrastructureReady").1 == "ObjectDoesNotExist").await;
    assert!(!is_followed(), "one of this name that was there before");
    let mut infrastructure = infrastructure();
    infrastructure["status"] = json!({"initialization": {"provisioned": true}});
    stage.create(infrastructure.clone()).await;
    until(&stage, |cluster| said(cluster, "RemoteConnectionProbe").1 == "ProbeSucceeded").await;
    assert!(is_followed());
    // It vanishes without its controller, as in a move.
    let mut changes = stage.core.workload.changes();
    let_go(&stage, &object(CORE, "Cluster", "c")).await;
    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
    while is_followed() {
        changes.next().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_said_after_its_grace_period() {
    let stage = Stage::new().await;
    let _workload = stage.workload("c").await;
    run(&stage).await;
    create(&stage, json!({"controlPlaneRef": control_plane_ref()})).await;
    until(&stage, |cluster| said(cluster, "RemoteConnectionProbe").1 == "ProbeSucceeded").await;
    let lost = tokio::time::Instant::now();
    delete(&stage.sandbox, &object("v1", "Secret", "c-kubeconfig")).await;
    let cluster = until(&stage, |cluster| said(cluster, "RemoteConnectionProbe").1 == "ProbeFailed").await;
    // The last success may be as old as the pause between two probes.
    let after = lost.elapsed();
    assert!(after > Duration::from_secs(35) && after < Duration::from_secs(60), "{after:?}");
    let message = said(&cluster, "RemoteConnectionProbe").2;
    assert!(message.starts_with("Remote connection probe failed, probe last succeeded at 20"), "{message}");
    assert!(message.ends_with(": Secret c-kubeconfig does not exist"), "{message}");
    assert!(said(&cluster, "Available").2.contains(&message));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_never_connected_says_what_is_missing() {
    let stage = Stage::new().await;
    run(&stage).await;
    create(&stage, json!({"controlPlaneRef": control_plane_ref()})).await;
    let begins = tokio::time::Instant::now();
    let expected = "Remote connection not established yet: Secret c-kubeconfig does not exist";
    until(&stage, |cluster| said(cluster, "RemoteConnectionProbe").2 == expected).await;
    assert!(begins.elapsed() < Duration::from_secs(5), "after the first attempt");
    let expected = "Remote connection probe failed: Secret c-kubeconfig does not exist";
    until(&stage, |cluster| said(cluster, "RemoteConnectionProbe").2 == expected).await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_stand_alone_initialize_their_cluster() {
    let stage = stage().await;
    create(&stage, json!({"infrastructureRef": infrastructure_ref()})).await;
    let mut control_plane = machine("p1", true);
    stage.create(control_plane.clone()).await;
    let waiting = "Waiting for the first control plane machine to have status.nodeRef set";
    until(&stage, |cluster| said(cluster, "ControlPlaneInitialized").2 == waiting).await;
    control_plane["status"] = json!({"nodeRef": {"name": "node"}});
    crate::testing::patch(&stage.sandbox, &control_plane, &json!({"status": control_plane["status"]})).await;
    let cluster = until(&stage, |cluster| said(cluster, "ControlPlaneInitialized").1 == "Initialized").await;
    let status = cluster.status.as_ref().expect("a status");
    assert_eq!(status.initialization.control_plane_initialized, Some(true));
    assert_eq!((status.control_plane.replicas, status.control_plane.ready_replicas), (Some(1), None));
    assert_eq!(said(&cluster, "ControlPlaneAvailable").2, "No control plane Machine is available");
}

#[tokio::test(start_paused = true)]
async fn changes_of_descendants_gather() {
    let stage = Stage::new().await;
    let mut source = super::sources::machines(&stage.core);
    stage.create(machine("a", false)).await;
    stage.until(&stage.core.stores.machines, "a", |_| true).await;
    let expected = [format!("{NAMESPACE}/c")].into();
    assert_eq!(source.next().await, Some(expected));
    // Nothing that a status of a Cluster is made of.
    stage.patch(CORE, "Machine", "a", &json!({"status": {"phase": "Running"}})).await;
    for name in ["b", "d"] {
        stage.create(machine(name, false)).await;
    }
    stage.until(&stage.core.stores.machines, "d", |_| true).await;
    let before = tokio::time::Instant::now();
    assert!(source.next().await.is_some());
    assert!(before.elapsed() <= Duration::from_secs(1));
    assert!(source.next().now_or_never().is_none());
    delete(&stage.sandbox, &machine("a", false)).await;
    assert!(source.next().await.is_some(), "the Cluster of one that is gone");
}
