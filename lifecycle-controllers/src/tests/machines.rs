//! A deployment from its creation to its end.

use serde_json::json;

use super::world::{World, in_time};

const GROUP: &str = "cluster.x-k8s.io";

#[tokio::test(start_paused = true)]
async fn a_deployment_makes_machines_that_become_nodes() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(3).await;
    world.start().await;
    in_time(&world, "three Machines with Nodes", world.until_running(3)).await;
    let deployment = world
        .until_deployment(|one| {
            one.status.as_ref().is_some_and(|status| status.available_replicas == Some(3))
        })
        .await;
    assert_eq!(deployment.status.as_ref().and_then(|status| status.up_to_date_replicas), Some(3));
    let nodes = world.nodes().await;
    assert_eq!(nodes.len(), 3);
    for (name, node) in nodes {
        assert_eq!(node["metadata"]["annotations"]["cluster.x-k8s.io/machine"], json!(name));
        assert_eq!(node["metadata"]["labels"]["node.cluster.x-k8s.io/pool"], "d");
        // The taint of Nodes without labels is gone. The API server has its own.
        assert!(!node["spec"]["taints"].to_string().contains("node.cluster.x-k8s.io"), "{node}");
    }
    // Templates name no other kinds.
    assert_eq!(world.names("", "Secret").await, ["c-kubeconfig"]);

    world.patch(GROUP, "MachineDeployment", "d", json!({"spec": {"replicas": 1}})).await;
    in_time(&world, "one Machine", world.until_running(1)).await;
    assert_eq!(world.nodes().await.len(), 1);

    world.delete(GROUP, "MachineDeployment", "d").await;
    in_time(&world, "the end of all", world.until_running(0)).await;
    super::world::until(&world.core.stores.machine_deployments, "team/d", |found| found.is_none()).await;
    assert!(world.sets().is_empty());
    for (group, kind) in
        [("infrastructure.cluster.x-k8s.io", "FakeMachine"), ("bootstrap.cluster.x-k8s.io", "FakeConfig")]
    {
        assert_eq!(world.names(group, kind).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_deployment_without_a_selector_gets_one() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(1).await;
    let bare = json!({"spec": {"selector": {"matchLabels": null}, "template": {"metadata": null}}});
    world.patch(GROUP, "MachineDeployment", "d", bare).await;
    world.start().await;
    in_time(&world, "a Machine with a Node", world.until_running(1)).await;
    let deployment = world.get(GROUP, "MachineDeployment", "d").await.expect("it exists");
    let selector = &deployment["spec"]["selector"]["matchLabels"];
    assert_eq!(selector["cluster.x-k8s.io/deployment-name"], "d", "{selector}");
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"], "d");
}

#[tokio::test(start_paused = true)]
async fn a_version_gets_its_v_and_stays_the_same_version() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(1).await;
    let version = |version: &str| json!({"template": {"spec": {"version": version}}});
    world.patch_deployment(version("1.37.1")).await;
    world.start().await;
    world.until_complete(1, "v1.37.1").await;
    let (sets, machines) = (world.names(GROUP, "MachineSet").await, world.names(GROUP, "Machine").await);

    // The manifest is applied again, and one Machine and one MachineSet are written by hand.
    world.patch_deployment(version("1.37.1")).await;
    let of_set = json!({"spec": version("1.37.1")});
    world.patch(GROUP, "MachineSet", &sets[0], of_set).await;
    world.patch(GROUP, "Machine", &machines[0], json!({"spec": {"version": "1.37.1"}})).await;
    let has_v = async |kind: &str, name: &str, pointer: &str| {
        let found = world.get(GROUP, kind, name).await.expect("it exists");
        found.pointer(pointer) == Some(&json!("v1.37.1"))
    };
    let of_template = "/spec/template/spec/version";
    world
        .until("the v of all", async || {
            has_v("MachineDeployment", "d", of_template).await
                && has_v("MachineSet", &sets[0], of_template).await
                && has_v("Machine", &machines[0], "/spec/version").await
        })
        .await;
    world.settle().await;
    assert_eq!(world.names(GROUP, "MachineSet").await, sets, "no rollout");
    assert_eq!(world.names(GROUP, "Machine").await, machines, "no Machine is replaced");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_were_taken_out_stay_between_the_limits_of_the_autoscaler() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(3).await;
    let limits = json!({"metadata": {"annotations": {
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5",
    }}});
    world.patch(GROUP, "MachineDeployment", "d", limits).await;
    world.start().await;
    world.until_complete(3, "v1.37.1").await;
    world.patch_deployment(json!({"replicas": null})).await;
    world.until_deployment(|deployment| deployment.spec.replicas == Some(3)).await;
}
