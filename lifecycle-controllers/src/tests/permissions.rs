//! Kinds of providers that the controllers have no permission for.

use sandbox::{Action, Fault, Matcher};

use super::world::World;

/// The message of a condition of the Cluster.
async fn message(world: &World, kind: &str) -> String {
    let cluster = world.get("cluster.x-k8s.io", "Cluster", "c").await.expect("it exists");
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == kind);
    found.and_then(|one| one["message"].as_str()).unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_permission_is_named_and_used_once_it_is_given() {
    let mut world = World::new().await;
    let lists = Matcher::any().verb("list").resource("fakecontrolplanes");
    world.management.faults().inject(Fault::new(lists, Action::ErrorEvent(403)));
    world.start().await;
    let expected = "the lifecycle controllers have no permission for fakecontrolplanes.controlplane.cluster.x-k8s.io; ask their \
                    operator to give it";
    world.until("the reason", async || message(&world, "ControlPlaneAvailable").await == expected).await;
    let watches = Matcher::any().verb("watch").resource("fakecontrolplanes");
    assert!(world.management.requests_matching(&watches).is_empty(), "no watch is tried in vain");
    world.management.faults().clear();
    world
        .until("the control plane", async || message(&world, "ControlPlaneAvailable").await != expected)
        .await;
}
