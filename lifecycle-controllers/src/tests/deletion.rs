//! What holds the deletion of a Machine, and what does not.

use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::world::World;

const GROUP: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// A deployment of one Machine, which is being deleted after `before` is written to it. Returns its name.
async fn deleted(world: &mut World, before: Value) -> String {
    world.create_templates().await;
    world.create_deployment(1).await;
    world.start().await;
    world.until_complete(1, "v1.37.1").await;
    let name = world.names(GROUP, "Machine").await.remove(0);
    // Nothing comes in its place.
    world.patch(GROUP, "Machine", &name, before).await;
    name
}

async fn delete(world: &World, name: &str) {
    world.delete(GROUP, "Machine", name).await;
}

async fn deleting(world: &World, name: &str) -> (String, String) {
    let machine = world.get(GROUP, "Machine", name).await.unwrap_or_default();
    let conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == "Deleting" && one["status"] == "True").cloned();
    let found = found.unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

async fn until_reason(world: &World, name: &str, reason: &str, words: &str) {
    world
        .until(reason, async || {
            let (now, message) = deleting(world, name).await;
            now == reason && message.contains(words)
        })
        .await;
    // It stays there.
    world.settle().await;
    let (now, message) = deleting(world, name).await;
    assert!(now == reason && message.contains(words), "{now}: {message}, and not {reason}: {words}");
}

async fn until_gone(world: &World, name: &str) {
    world.until("the end of the Machine", async || world.get(GROUP, "Machine", name).await.is_none()).await;
    assert_eq!(world.get(INFRASTRUCTURE, "FakeMachine", name).await, None);
    assert_eq!(world.get("bootstrap.cluster.x-k8s.io", "FakeConfig", name).await, None);
    assert!(!world.nodes().await.contains_key(name));
}

async fn infrastructure_stays(world: &World, name: &str) -> bool {
    let found = world.get(INFRASTRUCTURE, "FakeMachine", name).await;
    found.is_some_and(|found| found["metadata"]["deletionTimestamp"].is_null())
}

async fn is_cordoned(world: &World, name: &str) -> bool {
    world.nodes().await[name]["spec"]["unschedulable"] == true
}

#[tokio::test(start_paused = true)]
async fn hooks_and_the_finalizers_of_others_hold_it() {
    let mut world = World::new().await;
    let (drain, end) = (
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/a",
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/b",
    );
    let name = deleted(&mut world, json!({"metadata": {"annotations": {drain: "x", end: "y"}}})).await;
    world
        .patch(INFRASTRUCTURE, "FakeMachine", &name, json!({"metadata": {"finalizers": ["others/x"]}}))
        .await;
    delete(&world, &name).await;
    until_reason(&world, &name, "WaitingForPreDrainHook", drain).await;
    assert!(!is_cordoned(&world, &name).await);
    world.patch(GROUP, "Machine", &name, json!({"metadata": {"annotations": {drain: null}}})).await;
    until_reason(&world, &name, "WaitingForPreTerminateHook", end).await;
    assert!(is_cordoned(&world, &name).await && infrastructure_stays(&world, &name).await);
    world.patch(GROUP, "Machine", &name, json!({"metadata": {"annotations": {end: null}}})).await;
    until_reason(&world, &name, "WaitingForInfrastructureDeletion", "FakeMachine").await;
    assert!(world.nodes().await.contains_key(&name), "the Node goes after its machine");
    assert!(world.get("bootstrap.cluster.x-k8s.io", "FakeConfig", &name).await.is_some());
    world.patch(INFRASTRUCTURE, "FakeMachine", &name, json!({"metadata": {"finalizers": []}})).await;
    until_gone(&world, &name).await;
}

/// A Pod on the Node that cannot be evicted.
async fn guard(world: &World, node: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guarded", "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
    });
    let request =
        http::Request::post("/api/v1/namespaces/default/pods").header("content-type", "application/json");
    let request = request.body(pod.to_string().into_bytes()).expect("a request");
    world.workload.client().request::<Value>(request).await.expect("created");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_go_holds_it_until_a_user_says_otherwise() {
    for way in ["evicted", "excluded", "timeout"] {
        let mut world = World::new().await;
        let name = deleted(&mut world, json!({})).await;
        guard(&world, &name).await;
        delete(&world, &name).await;
        until_reason(
            &world,
            &name,
            "DrainingNode",
            "default/guarded: cannot evict pod as it would violate the pod's disruption budget",
        )
        .await;
        assert!(infrastructure_stays(&world, &name).await);
        match way {
            "evicted" => {
                let request = http::Request::delete("/api/v1/namespaces/default/pods/guarded");
                let request = request.body(Vec::new()).expect("a request");
                world.workload.client().request::<Value>(request).await.expect("deleted");
            }
            "excluded" => {
                let annotation = json!({"machine.cluster.x-k8s.io/exclude-node-draining": ""});
                world.patch(GROUP, "Machine", &name, json!({"metadata": {"annotations": annotation}})).await;
            }
            _ => {
                // The set writes it to the Machine that goes.
                let deletion = json!({"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 1}}}});
                world.patch_deployment(deletion).await;
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        until_gone(&world, &name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn volumes_are_waited_for() {
    for is_excluded in [false, true] {
        let mut world = World::new().await;
        let name = deleted(&mut world, json!({})).await;
        let attachment = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "v"},
            "spec": {"attacher": "x", "nodeName": name, "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": true},
        });
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
            "spec": {"csi": {"driver": "x", "volumeHandle": "h"}},
        });
        let request =
            http::Request::post("/api/v1/persistentvolumes").header("content-type", "application/json");
        let request = request.body(volume.to_string().into_bytes()).expect("a request");
        world.workload.client().request::<Value>(request).await.expect("created");
        let path = "/apis/storage.k8s.io/v1/volumeattachments";
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(attachment.to_string().into_bytes()).expect("a request");
        world.workload.client().request::<Value>(request).await.expect("created");
        delete(&world, &name).await;
        let words = "\n* PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim: pv";
        until_reason(&world, &name, "WaitingForVolumeDetach", words).await;
        assert!(infrastructure_stays(&world, &name).await);
        if is_excluded {
            let annotation = json!({"machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach": ""});
            world.patch(GROUP, "Machine", &name, json!({"metadata": {"annotations": annotation}})).await;
        } else {
            let request = http::Request::delete(format!("{path}/v")).body(Vec::new()).expect("a request");
            world.workload.client().request::<Value>(request).await.expect("deleted");
        }
        until_gone(&world, &name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_cluster_that_is_away_holds_it_until_the_cluster_goes() {
    let mut world = World::new().await;
    let name = deleted(&mut world, json!({})).await;
    world.patch(GROUP, "Cluster", "c", json!({"metadata": {"finalizers": ["test/x"]}})).await;
    world.workload.faults().inject(Fault::new(Matcher::any(), Action::ServiceUnavailable));
    world.workload.faults().drop_watches();
    world.settle().await;
    world.settle().await;
    delete(&world, &name).await;
    until_reason(&world, &name, "DrainingNode", "Error draining Node: ").await;
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert!(infrastructure_stays(&world, &name).await, "nothing is deleted on unknown");
    world.delete(GROUP, "Cluster", "c").await;
    world.until("the end of the Machine", async || world.get(GROUP, "Machine", &name).await.is_none()).await;
    assert_eq!(world.get(INFRASTRUCTURE, "FakeMachine", &name).await, None);
}

#[tokio::test(start_paused = true)]
async fn infrastructure_that_is_gone_is_said_and_holds_nothing() {
    let mut world = World::new().await;
    let name = deleted(&mut world, json!({})).await;
    world.delete(INFRASTRUCTURE, "FakeMachine", &name).await;
    world
        .until("the word", async || {
            let machine = world.get(GROUP, "Machine", &name).await.unwrap_or_default();
            machine["status"]["conditions"].to_string().contains("FakeMachine has been deleted")
        })
        .await;
    delete(&world, &name).await;
    until_gone(&world, &name).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_cannot_be_read_holds_no_machine_without_a_node() {
    for is_of_cluster in [true, false] {
        let mut world = World::new().await;
        world.create_foreign_kind("ForeignControlPlane").await;
        let name = if is_of_cluster {
            deleted(&mut world, json!({})).await
        } else {
            world.play.holds.send_replace(true);
            world.create_templates().await;
            world.create_deployment(1).await;
            world.start().await;
            world.until("a Machine", async || world.names(GROUP, "Machine").await.len() == 1).await;
            world.names(GROUP, "Machine").await.remove(0)
        };
        let reference = json!({"apiGroup": INFRASTRUCTURE, "kind": "ForeignControlPlane", "name": "cp"});
        let cluster = json!({
            "metadata": {"finalizers": ["test/x"]}, "spec": {"controlPlaneRef": reference},
        });
        world.patch(GROUP, "Cluster", "c", cluster).await;
        world.settle().await;
        delete(&world, &name).await;
        if is_of_cluster {
            until_reason(&world, &name, "InternalError", "").await;
            world.delete(GROUP, "Cluster", "c").await;
        }
        let gone = async || world.get(GROUP, "Machine", &name).await.is_none();
        world.until("the end of the Machine", gone).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_has_not_shown_goes_with_its_machine() {
    let mut world = World::new().await;
    world.play.holds.send_replace(true);
    world.create_templates().await;
    world.create_deployment(1).await;
    world.start().await;
    world.until("a Machine", async || world.names(GROUP, "Machine").await.len() == 1).await;
    world.settle().await;
    let name = world.names(GROUP, "Machine").await.remove(0);
    world.line.hold_watches(Some("nodes"));
    world.play.holds.send_replace(false);
    world.until("its Node", async || world.nodes().await.contains_key(&name)).await;
    world.settle().await;
    let machine = world.get(GROUP, "Machine", &name).await.unwrap_or_default();
    assert!(machine["spec"]["providerID"].is_string() && machine["status"]["nodeRef"].is_null(), "{machine}");
    delete(&world, &name).await;
    until_gone(&world, &name).await;
}
