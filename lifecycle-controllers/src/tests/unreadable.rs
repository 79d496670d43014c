//! Objects that are not of the form of our types.

use sandbox::ResourceKind;
use serde_json::json;

use super::world::{World, until};

const GROUP: &str = "cluster.x-k8s.io";

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_read_does_not_stop_the_others() {
    let mut world = World::new().await;
    // A definition of another version lets more through.
    let loose = ResourceKind::new(GROUP, "v1beta2", "Machine", "machines").namespaced().with_status();
    world.management.register(loose);
    world.create_templates().await;
    let bad = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "bad"},
        "spec": {"clusterName": "c", "bootstrap": [], "infrastructureRef": {}},
    });
    world.create(GROUP, "Machine", bad.clone()).await;
    world.create_deployment(2).await;
    world.start().await;
    world.until_running(2).await;

    // One that was read before is not taken for what it was.
    let name = world.core.stores.machines.all()[0].metadata.name.clone().expect("a name");
    world.patch(GROUP, "Machine", &name, json!({"spec": {"minReadySeconds": "soon"}})).await;
    until(&world.core.stores.machines, &format!("team/{name}"), |found| found.is_none()).await;
    world.patch(GROUP, "Machine", &name, json!({"spec": {"minReadySeconds": 1}})).await;
    until(&world.core.stores.machines, &format!("team/{name}"), |found| found.is_some()).await;
    world.delete(GROUP, "Machine", "bad").await;
    world.settle().await;
}
