//! Deletions.

use kube::ResourceExt as _;

use super::*;

/// An object that does not go before its finalizer does.
fn held(mut of: Value) -> Value {
    of["metadata"]["finalizers"] = json!(["test/held"]);
    of
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_deleted_in_order() {
    let stage = stage().await;
    let uid = create(&stage, full()).await;
    for of in [held(infrastructure()), held(control_plane())] {
        stage.create(of).await;
    }
    stage.create(held(owned(machine_deployment("md"), &uid))).await;
    stage.create(held(machine("m", false))).await;
    stage.create(held(machine("p1", true))).await;
    let missing = |cluster: &Cluster| said(cluster, "WorkersAvailable").1 == "AvailableUnknown";
    until(&stage, missing).await;
    until(&stage, |cluster| said(cluster, "ControlPlaneInitialized").1 == "NotInitialized").await;
    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;

    // The Machine is not the Cluster's own: its MachineSet would delete it.
    let workers = "* MachineDeployments: md\n* Worker Machines: m";
    let expected = is(ConditionStatus::True, "WaitingForWorkersDeletion", workers);
    let cluster = until(&stage, |cluster| said(cluster, "Deleting") == expected).await;
    assert_eq!(phase(&cluster), Some(ClusterPhase::Deleting));
    let deployment = object(CORE, "MachineDeployment", "md");
    assert!(is_deleting(&stage, &deployment).await);
    for of in [infrastructure(), control_plane(), machine("m", false), machine("p1", true)] {
        assert!(!is_deleting(&stage, &of).await, "{of}");
    }

    let_go(&stage, &deployment).await;
    let_go(&stage, &machine("m", false)).await;
    delete(&stage.sandbox, &machine("m", false)).await;
    let waits = "Waiting for FakeControlPlane to be deleted";
    let expected = is(ConditionStatus::True, "WaitingForControlPlaneDeletion", waits);
    until(&stage, |cluster| said(cluster, "Deleting") == expected).await;
    assert!(is_deleting(&stage, &control_plane()).await);
    assert!(!is_deleting(&stage, &machine("p1", true)).await);

    let_go(&stage, &control_plane()).await;
    let left = "* Control plane Machines: p1";
    until(&stage, |cluster| said(cluster, "Deleting").2 == left).await;
    assert!(is_deleting(&stage, &machine("p1", true)).await);
    assert!(!is_deleting(&stage, &infrastructure()).await);

    let_go(&stage, &machine("p1", true)).await;
    let waits = "Waiting for FakeInfrastructure to be deleted";
    let expected = is(ConditionStatus::True, "WaitingForInfrastructureDeletion", waits);
    let cluster = until(&stage, |cluster| said(cluster, "Deleting") == expected).await;
    assert_eq!(said(&cluster, "ControlPlaneAvailable").1, "ObjectDoesNotExist");
    assert!(is_deleting(&stage, &infrastructure()).await);

    let_go(&stage, &infrastructure()).await;
    stage.until_gone(&stage.core.stores.clusters, "c").await;
    let deleted = ("Deleted".to_owned(), "Cluster c has been deleted".to_owned());
    assert!(stage.events().await.contains(&deleted));
}

#[tokio::test(start_paused = true)]
async fn what_a_cache_does_not_show_holds_the_deletion() {
    let stage = stage().await;
    create(&stage, json!({"infrastructureRef": infrastructure_ref()})).await;
    stage.create(infrastructure()).await;
    until(&stage, |cluster| said(cluster, "InfrastructureReady").1 == "NotReady").await;
    // The label says that it is the Cluster's, and the cache has it under another name.
    let mut unknown = machine("m", false);
    unknown["spec"]["clusterName"] = json!("other");
    stage.create(unknown.clone()).await;
    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
    until(&stage, |cluster| said(cluster, "Deleting").2 == "* Worker Machines: m").await;
    assert!(!is_deleting(&stage, &infrastructure()).await);
    delete(&stage.sandbox, &unknown).await;
    stage.until_gone(&stage.core.stores.clusters, "c").await;
    assert_eq!(crate::testing::get(&stage.sandbox, &infrastructure()).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_holds_the_deletion() {
    let see_log = is(ConditionStatus::True, "InternalError", "Please check controller logs for errors");
    for (verb, resource) in [("get", "fakeinfrastructures"), ("list", "machinesets")] {
        let stage = stage().await;
        create(&stage, json!({"infrastructureRef": infrastructure_ref()})).await;
        until(&stage, |cluster| said(cluster, "InfrastructureReady").1 == "ObjectDoesNotExist").await;
        let fault = Fault::new(Matcher::any().verb(verb).resource(resource), Action::InternalError);
        stage.sandbox.faults().inject(fault);
        delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
        until(&stage, |cluster| said(cluster, "Deleting") == see_log).await;
        stage.sandbox.faults().clear();
        stage.until_gone(&stage.core.stores.clusters, "c").await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_cluster_uses_stays() {
    let stage = stage().await;
    let mut other = object(CORE, "Cluster", "other");
    other["spec"] = json!({"infrastructureRef": infrastructure_ref()});
    stage.create(other).await;
    stage.create(infrastructure()).await;
    let not_ready = |cluster: &Cluster| said(cluster, "InfrastructureReady").1 == "NotReady";
    stage.until(&stage.core.stores.clusters, "other", not_ready).await;
    create(&stage, json!({"infrastructureRef": infrastructure_ref()})).await;
    until(&stage, |cluster| said(cluster, "InfrastructureReady").1 == "InternalError").await;
    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
    stage.until_gone(&stage.core.stores.clusters, "c").await;
    assert!(!is_deleting(&stage, &infrastructure()).await);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_let_go_costs_nothing_while_others_hold_it() {
    let stage = stage().await;
    create(&stage, json!({})).await;
    stage
        .patch(
            CORE,
            "Cluster",
            "c",
            &json!({"status": {"initialization": {"infrastructureProvisioned": true}}}),
        )
        .await;
    let is_followed = |cluster: &Cluster| said(cluster, "RemoteConnectionProbe").1 == "ProbeFailed";
    until(&stage, is_followed).await;
    let cluster = stage.core.stores.clusters.get("default/c").expect("it");
    let mut finalizers = cluster.finalizers().to_vec();
    finalizers.push("test/held".to_owned());
    stage.patch(CORE, "Cluster", "c", &json!({"metadata": {"finalizers": finalizers}})).await;
    delete(&stage.sandbox, &object(CORE, "Cluster", "c")).await;
    until(&stage, |cluster| cluster.finalizers() == ["test/held"]).await;
    stage.sandbox.reset_requests();
    // A pass that made the next one would leave no time for the clock.
    for _ in 0..20_000 {
        tokio::task::yield_now().await;
    }
    let requests = stage.sandbox.requests_matching(&Matcher::any()).len();
    assert!(requests < 50, "{requests}");
}
