//! What follows without new Machines, and what holds everything.

use serde_json::{Value, json};

use super::world::World;
use crate::core::CoreOptions;

const GROUP: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

async fn running(options: CoreOptions) -> World {
    let mut world = World::with(options).await;
    world.create_templates().await;
    world.create_deployment(1).await;
    world.start().await;
    world
}

#[tokio::test(start_paused = true)]
async fn labels_annotations_taints_and_timeouts_follow_the_deployment() {
    let world = running(CoreOptions::default()).await;
    world.until_complete(1, "v1.37.1").await;
    let name = world.names(GROUP, "Machine").await.remove(0);
    let taint =
        json!({"key": "example.com/t", "value": "v", "effect": "NoSchedule", "propagation": "Always"});
    let template = json!({"template": {
        "metadata": {"labels": {"node.cluster.x-k8s.io/new": "x"}, "annotations": {"example.com/a": "y"}},
        "spec": {
            "taints": [taint], "minReadySeconds": 1,
            "deletion": {"nodeDrainTimeoutSeconds": 7, "nodeDeletionTimeoutSeconds": 8, "nodeVolumeDetachTimeoutSeconds": 9},
        },
    }});
    world.patch_deployment(template).await;
    world
        .until("the Node", async || {
            let node = &world.nodes().await[&name];
            node["metadata"]["labels"]["node.cluster.x-k8s.io/new"] == "x"
                && node["spec"]["taints"].to_string().contains("example.com/t")
        })
        .await;
    world.settle().await;
    assert_eq!(world.names(GROUP, "Machine").await, std::slice::from_ref(&name), "no Machine is replaced");
    for (group, kind) in [(GROUP, "Machine"), (INFRASTRUCTURE, "FakeMachine"), (BOOTSTRAP, "FakeConfig")] {
        let object = world.get(group, kind, &name).await.expect("it");
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["node.cluster.x-k8s.io/new"], "x", "{kind}");
        assert_eq!(metadata["annotations"]["example.com/a"], "y", "{kind}");
        assert_eq!(metadata["labels"]["cluster.x-k8s.io/deployment-name"], "d", "{kind}");
    }
    let machine = world.get(GROUP, "Machine", &name).await.expect("it");
    let expected = json!({"nodeDrainTimeoutSeconds": 7, "nodeDeletionTimeoutSeconds": 8, "nodeVolumeDetachTimeoutSeconds": 9});
    assert_eq!((&machine["spec"]["deletion"], &machine["spec"]["minReadySeconds"]), (&expected, &json!(1)));
    world.patch_deployment(json!({"template": {"spec": {"taints": null}}})).await;
    world
        .until("the Node without the taint", async || {
            !world.nodes().await[&name]["spec"]["taints"].to_string().contains("example.com/t")
        })
        .await;
}

async fn versions(world: &World) -> Vec<Value> {
    let mut versions = Vec::new();
    for kind in ["Machine", "MachineSet", "MachineDeployment"] {
        versions.extend(world.all(kind).await.iter().map(|one| one["metadata"]["resourceVersion"].clone()));
    }
    versions
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_changes_and_deletions() {
    let world = running(CoreOptions::default()).await;
    world.until_complete(1, "v1.37.1").await;
    let name = world.names(GROUP, "Machine").await.remove(0);
    world.patch(GROUP, "Cluster", "c", json!({"spec": {"paused": true}})).await;
    world
        .until("the word", async || {
            let machine = world.get(GROUP, "Machine", &name).await.expect("it");
            machine["status"]["conditions"].to_string().contains("Cluster spec.paused is set to true")
        })
        .await;
    world.patch_deployment(json!({"replicas": 3, "template": {"spec": {"version": "v1.37.2"}}})).await;
    world.delete(GROUP, "Machine", &name).await;
    world.settle().await;
    assert_eq!(world.names(GROUP, "Machine").await, std::slice::from_ref(&name));
    assert_eq!(world.names(GROUP, "MachineSet").await.len(), 1);
    let before = versions(&world).await;
    world.settle().await;
    assert_eq!(versions(&world).await, before);
    // One of them alone.
    let annotation = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    world.patch(GROUP, "Machine", &name, annotation(json!("true"))).await;
    world.patch(GROUP, "Cluster", "c", json!({"spec": {"paused": false}})).await;
    world.until("the new ones", async || world.names(GROUP, "Machine").await.len() == 4).await;
    world.settle().await;
    assert!(world.get(GROUP, "Machine", &name).await.is_some(), "its deletion waits");
    world.patch(GROUP, "Machine", &name, annotation(Value::Null)).await;
    world.until_complete(3, "v1.37.2").await;
}

#[tokio::test(start_paused = true)]
async fn objects_without_the_label_of_the_watch_filter_are_left_alone() {
    let options = CoreOptions { watch_filter: Some("ours".to_owned()), ..CoreOptions::default() };
    let world = running(options).await;
    let before = versions(&world).await;
    world.settle().await;
    assert_eq!(versions(&world).await, before);
    assert!(world.names(GROUP, "MachineSet").await.is_empty());
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/watch-filter": "ours"}}});
    world.patch(GROUP, "MachineDeployment", "d", label).await;
    world.until("the set", async || !world.names(GROUP, "MachineSet").await.is_empty()).await;
}
