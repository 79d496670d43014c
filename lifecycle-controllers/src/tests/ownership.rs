//! Who owns what, and what a reference reaches.

use std::time::Duration;

use cluster_api::Machine;
use kube::api::PostParams;
use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::world::{World, nodes, until};
use crate::engine::object::Stored;

const GROUP: &str = "cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

fn reference(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": name})
}

fn machine(name: &str, labels: Value, infrastructure: Value) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": name, "labels": labels},
        "spec": {
            "clusterName": "c", "version": "v1.37.1", "bootstrap": {"dataSecretName": "data"},
            "infrastructureRef": infrastructure,
        },
    })
}

fn set(replicas: i32, template: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "metadata": {"name": "s"},
        "spec": {
            "clusterName": "c", "replicas": replicas, "selector": {"matchLabels": {"pool": "s"}},
            "template": {
                "metadata": {"labels": {"pool": "s"}},
                "spec": {
                    "clusterName": "c", "version": "v1.37.1",
                    "bootstrap": {"configRef": reference(BOOTSTRAP, "FakeConfigTemplate", "t")},
                    "infrastructureRef": reference(INFRASTRUCTURE, template, "t"),
                },
            },
        },
    })
}

async fn fake_machine(world: &World, name: &str) {
    let object = json!({
        "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "FakeMachine", "metadata": {"name": name}, "spec": {},
    });
    world.create(INFRASTRUCTURE, "FakeMachine", object).await;
}

async fn owners(world: &World, group: &str, kind: &str, name: &str) -> Vec<(String, String, bool)> {
    let object = world.get(group, kind, name).await.unwrap_or_default();
    let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    owners.iter().map(|one| (text(&one["kind"]), text(&one["name"]), one["controller"] == true)).collect()
}

async fn says(world: &World, kind: &str, name: &str, condition: &str) -> String {
    let object = world.get(GROUP, kind, name).await.unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().find(|one| one["type"] == condition).map(Value::to_string).unwrap_or_default()
}

async fn until_says(world: &World, kind: &str, name: &str, condition: &str, words: &str) {
    world.until(words, async || says(world, kind, name, condition).await.contains(words)).await;
}

#[tokio::test(start_paused = true)]
async fn machines_and_sets_stand_alone_and_are_adopted() {
    let mut world = World::new().await;
    world.create_templates().await;
    fake_machine(&world, "m").await;
    let alone = machine("m", json!({"pool": "s"}), reference(INFRASTRUCTURE, "FakeMachine", "m"));
    world.create(GROUP, "Machine", alone).await;
    world.start().await;
    world.until_running(1).await;
    let of = |kind: &str, name: &str, controls| (kind.to_owned(), name.to_owned(), controls);
    assert_eq!(owners(&world, GROUP, "Machine", "m").await, [of("Cluster", "c", false)]);
    assert_eq!(owners(&world, INFRASTRUCTURE, "FakeMachine", "m").await, [of("Machine", "m", true)]);

    world.create(GROUP, "MachineSet", set(2, "FakeMachineTemplate")).await;
    world.until_running(2).await;
    world.settle().await;
    let names = world.names(GROUP, "Machine").await;
    assert!(names.len() == 2 && names.contains(&"m".to_owned()), "one is adopted, one is created: {names:?}");
    assert!(owners(&world, GROUP, "Machine", "m").await.contains(&of("MachineSet", "s", true)));
    assert_eq!(owners(&world, GROUP, "MachineSet", "s").await, [of("Cluster", "c", false)]);

    // Creation is forbidden: one that goes is not replaced.
    let annotation =
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/disable-machine-create": "true"}}});
    world.patch(GROUP, "MachineSet", "s", annotation).await;
    world.delete(GROUP, "Machine", "m").await;
    world.until("its end", async || world.names(GROUP, "Machine").await.len() == 1).await;
    world.settle().await;
    assert_eq!(world.names(GROUP, "Machine").await.len(), 1);
    world.delete(GROUP, "MachineSet", "s").await;
    world.until_running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_gets_no_infrastructure_of_another() {
    let mut world = World::new().await;
    fake_machine(&world, "m").await;
    let infrastructure = || reference(INFRASTRUCTURE, "FakeMachine", "m");
    world.create(GROUP, "Machine", machine("m", json!({}), infrastructure())).await;
    world.start().await;
    world.until_running(1).await;
    world.create(GROUP, "Machine", machine("thief", json!({}), infrastructure())).await;
    until_says(&world, "Machine", "thief", "InfrastructureReady", "Machine m controls it").await;
    let thief = world.get(GROUP, "Machine", "thief").await.expect("it");
    assert!(thief["spec"]["providerID"].is_null() && thief["status"]["nodeRef"].is_null(), "{thief}");
    // It goes without what is not its own.
    world.delete(GROUP, "Machine", "thief").await;
    world.until("its end", async || world.names(GROUP, "Machine").await == ["m"]).await;
    world.settle().await;
    let kept = world.get(INFRASTRUCTURE, "FakeMachine", "m").await.expect("it stays");
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    assert!(world.nodes().await.contains_key("m"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_no_providers_is_refused_with_words() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_foreign_kind("OtherTemplate").await;
    let other = set(1, "OtherTemplate");
    world.create(GROUP, "MachineSet", other).await;
    let odd = machine("odd", json!({}), reference(GROUP, "Cluster", "c"));
    world.create(GROUP, "Machine", odd).await;
    world.start().await;
    until_says(&world, "Machine", "odd", "InfrastructureReady", "is of Cluster API itself").await;
    until_says(&world, "MachineSet", "s", "ScalingUp", "has no label cluster.x-k8s.io/v1beta2").await;
    world.settle().await;
    assert!(owners(&world, GROUP, "Cluster", "c").await.is_empty());
    world.delete(GROUP, "Machine", "odd").await;
    world.until("its end", async || world.names(GROUP, "Machine").await.is_empty()).await;
    let cluster = world.get(GROUP, "Cluster", "c").await.expect("it stays");
    assert!(cluster["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_said_and_its_coming_is_an_event() {
    let mut world = World::new().await;
    world.create_deployment(1).await;
    world.start().await;
    until_says(&world, "MachineDeployment", "d", "ScalingUp", "FakeMachineTemplate do not exist").await;
    world.settle().await;
    assert!(world.names(GROUP, "Machine").await.is_empty());
    // The control plane is upgraded first.
    let status = |version: &str| json!({"status": {"version": version}});
    let of_control_plane = ("controlplane.cluster.x-k8s.io", "FakeControlPlane");
    world.patch_status(of_control_plane.0, of_control_plane.1, "cp", status("v1.36.0")).await;
    world.create_templates().await;
    world.until("the set", async || world.names(GROUP, "MachineSet").await.len() == 1).await;
    let name = world.names(GROUP, "MachineSet").await.remove(0);
    until_says(&world, "MachineSet", &name, "ScalingUp", "is upgrading").await;
    world.settle().await;
    assert!(world.names(GROUP, "Machine").await.is_empty());
    world.patch_status(of_control_plane.0, of_control_plane.1, "cp", status("v1.37.1")).await;
    let before = tokio::time::Instant::now();
    world.until("the Machine", async || !world.names(GROUP, "Machine").await.is_empty()).await;
    assert!(before.elapsed() < std::time::Duration::from_secs(1), "by the event");
    world.until_complete(1, "v1.37.1").await;
}

/// A Machine `m` without a set, with its infrastructure machine.
async fn lone_machine(world: &World) {
    fake_machine(world, "m").await;
    let machine = machine("m", json!({}), reference(INFRASTRUCTURE, "FakeMachine", "m"));
    world.create(GROUP, "Machine", machine).await;
}

async fn create_node(world: &World, name: &str, provider_id: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": provider_id},
    });
    let node = serde_json::from_value(node).expect("a Node");
    nodes(&world.workload.client()).create(&PostParams::default(), &node).await.expect("it is created");
}

fn refused_patches(of: &str) -> Fault {
    Fault::new(Matcher::any().verb("patch").resource(of).subresource(""), Action::InternalError)
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_owned_is_named_and_holds_no_deletion() {
    let mut world = World::new().await;
    lone_machine(&world).await;
    world.management.faults().inject(refused_patches("fakemachines"));
    world.start().await;
    until_says(&world, "Machine", "m", "InfrastructureReady", "FakeMachine m cannot be owned by the Machine")
        .await;
    world.delete(GROUP, "Machine", "m").await;
    world.until("its end", async || world.names(GROUP, "Machine").await.is_empty()).await;
    assert!(world.names(INFRASTRUCTURE, "FakeMachine").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_that_is_refused_is_said_and_holds_the_infrastructure() {
    let mut world = World::new().await;
    lone_machine(&world).await;
    world.play.holds.send_replace(true);
    world.start().await;
    until_says(&world, "Machine", "m", "InfrastructureReady", "FakeMachine").await;
    world.management.faults().inject(refused_patches("machines"));
    world.play.holds.send_replace(false);
    until_says(&world, "Machine", "m", "InfrastructureReady", "cannot be written to the Machine").await;
    world.delete(GROUP, "Machine", "m").await;
    until_says(&world, "Machine", "m", "Deleting", "cannot be written to the Machine").await;
    assert_eq!(world.names(INFRASTRUCTURE, "FakeMachine").await, ["m"], "its Node would stay");
    world.management.faults().clear();
    world.until("its end", async || world.names(GROUP, "Machine").await.is_empty()).await;
    assert!(world.nodes().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_right_after_its_creation_takes_its_node_along() {
    let mut world = World::new().await;
    lone_machine(&world).await;
    world.play.holds.send_replace(true);
    world.start().await;
    until_says(&world, "Machine", "m", "InfrastructureReady", "FakeMachine").await;
    world.patch(GROUP, "Cluster", "c", json!({"spec": {"paused": true}})).await;
    // The Node is there before the machine is called provisioned, and the Machine goes before it has a provider ID.
    world.patch(INFRASTRUCTURE, "FakeMachine", "m", json!({"spec": {"providerID": "fake:///m"}})).await;
    create_node(&world, "m", "fake:///m").await;
    world.delete(GROUP, "Machine", "m").await;
    world.patch(GROUP, "Cluster", "c", json!({"spec": {"paused": false}})).await;
    world.until("its end", async || world.names(GROUP, "Machine").await.is_empty()).await;
    assert!(world.nodes().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_not_connected_yet_looks_for_the_node_later() {
    let mut world = World::new().await;
    let mut machine = machine("m", json!({}), reference(INFRASTRUCTURE, "FakeMachine", "m"));
    machine["metadata"]["finalizers"] = json!(["machine.cluster.x-k8s.io"]);
    machine["spec"]["providerID"] = json!("fake:///m");
    world.create(GROUP, "Machine", machine).await;
    world.delete(GROUP, "Machine", "m").await;
    create_node(&world, "n", "fake:///m").await;
    world.start().await;
    world.until("its end", async || world.names(GROUP, "Machine").await.is_empty()).await;
    assert!(world.nodes().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_that_no_machine_may_have_holds_no_deletion() {
    let mut world = World::new().await;
    fake_machine(&world, "m").await;
    let id = json!({"spec": {"providerID": "x".repeat(513)}});
    world.patch(INFRASTRUCTURE, "FakeMachine", "m", id).await;
    world
        .create(GROUP, "Machine", machine("m", json!({}), reference(INFRASTRUCTURE, "FakeMachine", "m")))
        .await;
    world.play.holds.send_replace(true);
    world.start().await;
    until_says(&world, "Machine", "m", "InfrastructureReady", "FakeMachine").await;
    world.delete(GROUP, "Machine", "m").await;
    world.until("its end", async || world.names(GROUP, "Machine").await.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_get_its_finalizer_says_so() {
    let mut world = World::new().await;
    lone_machine(&world).await;
    world.management.faults().inject(refused_patches("machines"));
    world.start().await;
    until_says(&world, "Machine", "m", "Ready", "the Machine cannot be changed: ").await;
    assert!(owners(&world, INFRASTRUCTURE, "FakeMachine", "m").await.is_empty(), "nothing is done for it");
    world.management.faults().clear();
    world.until_running(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_is_written_though_the_name_of_the_data_is_refused() {
    let mut world = World::new().await;
    let cluster = world.get(GROUP, "Cluster", "c").await.expect("it exists");
    let mut machine = machine(
        "m",
        json!({"cluster.x-k8s.io/cluster-name": "c"}),
        reference(INFRASTRUCTURE, "FakeMachine", "m"),
    );
    machine["spec"]["bootstrap"] = json!({"configRef": reference(BOOTSTRAP, "FakeConfig", "m")});
    machine["metadata"]["finalizers"] = json!(["machine.cluster.x-k8s.io"]);
    machine["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": cluster["metadata"]["uid"],
    }]);
    fake_machine(&world, "m").await;
    let config = json!({"apiVersion": format!("{BOOTSTRAP}/v1beta2"), "kind": "FakeConfig", "metadata": {"name": "m"}});
    world.create(BOOTSTRAP, "FakeConfig", config).await;
    let has_data =
        json!({"status": {"dataSecretName": "data", "initialization": {"dataSecretCreated": true}}});
    world.patch_status(BOOTSTRAP, "FakeConfig", "m", has_data).await;
    world.patch(INFRASTRUCTURE, "FakeMachine", "m", json!({"spec": {"providerID": "fake:///m"}})).await;
    let provisioned = json!({"status": {"initialization": {"provisioned": true}}});
    world.patch_status(INFRASTRUCTURE, "FakeMachine", "m", provisioned).await;
    world.play.holds.send_replace(true);
    world.create(GROUP, "Machine", machine).await;
    // The first of the two.
    world.management.faults().inject(refused_patches("machines").times(1));
    world.start().await;
    let has_id =
        |machine: Option<&Stored<Machine>>| machine.is_some_and(|one| one.spec.provider_id.is_some());
    let machine = until(&world.core.stores.machines, "team/m", has_id).await.expect("it exists");
    assert_eq!(machine.spec.bootstrap.data_secret_name, None);
    let has_data = |machine: Option<&Stored<Machine>>| {
        machine.is_some_and(|one| one.spec.bootstrap.data_secret_name.is_some())
    };
    until(&world.core.stores.machines, "team/m", has_data).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_cannot_be_owned_is_said_by_its_deployment() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(1).await;
    world.management.faults().inject(refused_patches("fakemachinetemplates"));
    world.start().await;
    let words = "FakeMachineTemplate t: it cannot be owned";
    until_says(&world, "MachineDeployment", "d", "ScalingUp", words).await;
    world.management.faults().clear();
    world.until_complete(1, "v1.37.1").await;
}

/// A pass that decides on an object without its new owner would write that again, and be refused.
#[tokio::test(start_paused = true)]
async fn an_owner_is_written_once_though_its_watch_is_late() {
    let mut world = World::new().await;
    world.play.holds.send_replace(true);
    for name in ["first", "m"] {
        fake_machine(&world, name).await;
    }
    let of = |name: &str| machine(name, json!({}), reference(INFRASTRUCTURE, "FakeMachine", name));
    world.create(GROUP, "Machine", of("first")).await;
    world.start().await;
    let is_owned = async |name: &str| !owners(&world, INFRASTRUCTURE, "FakeMachine", name).await.is_empty();
    world.until("the kind to be watched", async || is_owned("first").await).await;

    let faults = world.management.faults();
    let watch = Matcher::any().verb("watch").resource("fakemachines");
    faults.inject(Fault::new(watch, Action::Delay(Duration::from_secs(30))));
    faults.drop_watches();
    world.create(GROUP, "Machine", of("m")).await;
    world.until("an owner", async || is_owned("m").await).await;
    // Another pass has its reason before the watch shows it.
    world.patch(GROUP, "Machine", "m", json!({"metadata": {"labels": {"a": "b"}}})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let patches = Matcher::any().verb("patch").resource("fakemachines").name("m");
    assert_eq!(world.management.requests_matching(&patches).len(), 1);
}
