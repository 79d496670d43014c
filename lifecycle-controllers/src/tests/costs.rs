//! What the controllers write.

use std::{collections::BTreeMap, time::Duration};

use sandbox::Matcher;
use serde_json::json;

use super::world::{INFRASTRUCTURE, World};

const OURS: [&str; 5] = ["machines", "machinesets", "machinedeployments", "fakemachines", "fakeconfigs"];
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// The writes of the controllers, by verb and resource. The provider that is played writes those of its own kinds that have a
/// status, and one patch of the provider ID for each Machine.
fn writes(world: &World, by_provider: usize) -> (usize, BTreeMap<String, usize>) {
    let mut all = BTreeMap::<String, usize>::new();
    for request in world.management.requests_matching(&Matcher::any()) {
        let is_status_of_provider = request.subresource == "status" && request.resource.starts_with("fake");
        if WRITES.contains(&request.verb)
            && OURS.contains(&request.resource.as_str())
            && !is_status_of_provider
        {
            *all.entry(format!("{} {} {}", request.verb, request.resource, request.subresource))
                .or_default() += 1;
        }
    }
    (all.values().sum::<usize>().saturating_sub(by_provider), all)
}

async fn created(count: usize, pause: Duration) -> World {
    let mut world = World::new().await;
    *world.play.pause.lock() = pause;
    world.create_templates().await;
    world.create_deployment(i32::try_from(count).expect("a number")).await;
    world.management.reset_requests();
    world.start().await;
    world.until_complete(count, "v1.37.1").await;
    world
}

#[tokio::test(start_paused = true)]
async fn the_writes_of_a_machine_and_of_its_deletion_have_bounds() {
    for (count, pause, most) in [(3, 0, 11), (30, 0, 9), (3, 7, 17), (30, 7, 15)] {
        let world = created(count, Duration::from_secs(pause)).await;
        world.settle().await;
        let (sum, all) = writes(&world, count);
        assert!(sum <= most * count, "{count} Machines, {pause} s: {sum} writes, {all:#?}");

        // A settled world writes nothing, whatever is looked at again.
        world.management.reset_requests();
        world.management.faults().expire();
        world.management.faults().drop_watches();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let (sum, all) = writes(&world, 0);
        assert_eq!(sum, 0, "{all:#?}");

        world.management.reset_requests();
        world.patch_deployment(json!({"replicas": 0})).await;
        world.until_complete(0, "v1.37.1").await;
        world.settle().await;
        let (sum, all) = writes(&world, 1);
        let of_machines: usize = all
            .iter()
            .filter(|(of, _)| !of.contains("machineset") && !of.contains("machinedep"))
            .map(|(_, n)| n)
            .sum();
        assert!(of_machines <= 5 * count, "{all:#?}");
        assert!(sum <= 6 * count + 4, "{count} Machines, {pause} s: {sum} writes, {all:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_one_second_are_written_together() {
    let mut world = World::new().await;
    world.play.holds.send_replace(true);
    world.create_templates().await;
    world.create_deployment(1).await;
    world.start().await;
    world.settle().await;
    let name = world.names(INFRASTRUCTURE, "FakeMachine").await.pop().expect("an infrastructure machine");
    world.management.reset_requests();
    // It says more and more, and the Node is yet to come.
    let pause = Duration::from_millis(200);
    let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    world
        .patch_status(INFRASTRUCTURE, "FakeMachine", &name, json!({"status": {"conditions": [ready]}}))
        .await;
    tokio::time::sleep(pause).await;
    let id = json!({"spec": {"providerID": format!("fake:///{name}")}});
    world.patch(INFRASTRUCTURE, "FakeMachine", &name, id).await;
    let provisioned = json!({"status": {"initialization": {"provisioned": true}}});
    world.patch_status(INFRASTRUCTURE, "FakeMachine", &name, provisioned).await;
    tokio::time::sleep(pause).await;
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
    world.patch_status(INFRASTRUCTURE, "FakeMachine", &name, addresses).await;
    let written = async || {
        let machine = world.get("cluster.x-k8s.io", "Machine", &name).await.expect("the Machine");
        machine["status"]["addresses"].is_array() && machine["status"]["phase"] == "Provisioned"
    };
    world.until("what the infrastructure says", written).await;
    world.settle().await;
    let (_, all) = writes(&world, 0);
    assert_eq!(all.get("patch machines status"), Some(&1), "{all:#?}");
    assert_eq!(all.get("patch machines "), Some(&1), "the provider ID: {all:#?}");
}
