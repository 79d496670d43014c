//! Failed Machines that are kept to be looked at.

use std::time::Duration;

use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::{
    bounds::Bounds,
    line::Side,
    world::{BOOTSTRAP, INFRASTRUCTURE, World, in_time, nodes},
};
use crate::kept::{KEEP_FAILED_FOR, KEPT_OF, KEPT_UNTIL};

const GROUP: &str = "cluster.x-k8s.io";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {key: value.into()}}})
}

/// A deployment of so many Machines that asks to keep failed ones, and a health check. Nothing runs yet.
async fn prepared(replicas: i32) -> World {
    let world = World::new().await;
    world.create_templates().await;
    world.create_deployment(replicas).await;
    world.patch(GROUP, "MachineDeployment", "d", annotated(KEEP_FAILED_FOR, "2h")).await;
    let check = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": "h"},
        "spec": {
            "clusterName": "c", "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "c"}},
            "checks": {"unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 300}]},
        },
    });
    world.create(GROUP, "MachineHealthCheck", check).await;
    world
}

/// The same with Nodes.
async fn running(replicas: i32) -> World {
    let mut world = prepared(replicas).await;
    world.start().await;
    let count = usize::try_from(replicas).expect("a number");
    world.until("a complete deployment", async || is_complete(&world, count).await).await;
    world
}

async fn patch_node(world: &World, name: &str, patch: Value) {
    let (nodes, patch) = (nodes(&world.workload.client()), kube::api::Patch::Merge(patch));
    nodes.patch(name, &kube::api::PatchParams::default(), &patch).await.expect("patched");
}

/// The Node has been not Ready for long.
async fn fail(world: &World, name: &str) {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "",
        "lastHeartbeatTime": LONG_AGO, "lastTransitionTime": LONG_AGO,
    });
    let patch = kube::api::Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let nodes = nodes(&world.workload.client());
    nodes.patch_status(name, &kube::api::PatchParams::default(), &patch).await.expect("patched");
}

pub(super) fn name(of: &Value) -> &str {
    of["metadata"]["name"].as_str().unwrap_or_default()
}

fn owners(machine: &Value) -> Vec<(&str, bool)> {
    let owners = machine["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.map(|owner| (owner["kind"].as_str().unwrap_or_default(), owner["controller"] == true)).collect()
}

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default()
}

fn is_kept(machine: &Value) -> bool {
    machine["metadata"]["labels"][KEPT_OF].is_string()
        && machine["metadata"]["deletionTimestamp"].is_null()
        && owners(machine) == [("Cluster", false)]
}

/// Whether the deployment has so many Machines, each with its Node, whatever is kept beside them.
async fn is_complete(world: &World, replicas: usize) -> bool {
    let mut machines = world.all("Machine").await;
    machines.retain(|machine| !is_kept(machine));
    let deployment = world.get(GROUP, "MachineDeployment", "d").await.unwrap_or_default();
    let counts = ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"];
    machines.len() == replicas
        && machines.iter().all(|machine| machine["status"]["phase"] == "Running")
        && counts.iter().all(|field| deployment["status"][field] == replicas)
}

/// A Machine of a deployment of so many that failed and is kept, as it is once all is settled.
pub(super) async fn kept(replicas: i32) -> (World, Value) {
    let world = running(replicas).await;
    let failed = world.names(GROUP, "Machine").await.remove(0);
    fail(&world, &failed).await;
    let count = usize::try_from(replicas).expect("a number");
    let machine = async || world.get(GROUP, "Machine", &failed).await.unwrap_or_default();
    world.until("it is kept", async || is_kept(&machine().await) && is_complete(&world, count).await).await;
    world.settle().await;
    let machine = machine().await;
    (world, machine)
}

async fn is_gone(world: &World, name: &str) -> bool {
    world.get(GROUP, "Machine", name).await.is_none()
        && world.get(INFRASTRUCTURE, "FakeMachine", name).await.is_none()
        && world.get(BOOTSTRAP, "FakeConfig", name).await.is_none()
        && !world.nodes().await.contains_key(name)
}

async fn stays(world: &World, name: &str) -> bool {
    world.settle().await;
    tokio::time::sleep(Duration::from_secs(7200)).await;
    let machine = world.get(GROUP, "Machine", name).await.unwrap_or_default();
    machine["metadata"]["deletionTimestamp"].is_null() && world.nodes().await.contains_key(name)
}

#[tokio::test(start_paused = true)]
async fn a_failed_machine_is_replaced_and_stays_until_its_time() {
    let (world, machine) = kept(2).await;
    let labels = &machine["metadata"]["labels"];
    for gone in
        ["pool", "machine-template-hash", "cluster.x-k8s.io/set-name", "cluster.x-k8s.io/deployment-name"]
    {
        assert!(labels[gone].is_null(), "{labels}");
    }
    assert_eq!(labels["node.cluster.x-k8s.io/pool"], "d", "its Node keeps it");
    assert_eq!(labels[KEPT_OF], name(&world.all("MachineSet").await[0]));
    let until = machine["metadata"]["annotations"][KEPT_UNTIL].as_str().expect("a time");
    let left =
        until.parse::<jiff::Timestamp>().expect("RFC 3339").as_second() - jiff::Timestamp::now().as_second();
    assert!((1..=7200).contains(&left), "{until}");
    let said = condition(&machine, "OwnerRemediated");
    assert_eq!((&said["status"], &said["reason"]), (&json!("True"), &json!("MachineKept")));
    let words = said["message"].as_str().expect("words");
    assert!(
        words.contains(until) && words.contains("Condition Ready on Node is reporting status False"),
        "{words}"
    );
    let node = &world.nodes().await[name(&machine)];
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["metadata"]["labels"]["node.cluster.x-k8s.io/pool"], "d");

    // It is looked after by no health check, and counted by nothing.
    let check = world.get(GROUP, "MachineHealthCheck", "h").await.expect("it");
    assert_eq!(
        (&check["status"]["expectedMachines"], &check["status"]["currentHealthy"]),
        (&json!(2), &json!(2))
    );
    let cluster = world.get(GROUP, "Cluster", "c").await.expect("it");
    assert_eq!(cluster["status"]["workers"]["replicas"], 2);
    assert_eq!(condition(&cluster, "WorkerMachinesReady")["status"], "True", "{cluster}");
    assert_eq!(condition(&cluster, "Remediating")["message"], "", "{cluster}");

    // A health check leaves it alone without the annotation too.
    let annotation = annotated("cluster.x-k8s.io/skip-remediation", Value::Null);
    world.patch(GROUP, "Machine", name(&machine), annotation).await;
    world.settle().await;
    assert_eq!(
        world.get(GROUP, "MachineHealthCheck", "h").await.expect("it")["status"]["expectedMachines"],
        2
    );

    // A scale-down does not take it, and nothing is written once all is settled.
    world.patch_deployment(json!({"replicas": 1})).await;
    world.until("one Machine", async || is_complete(&world, 1).await).await;
    world.settle().await;
    let writes = world.line.writes();
    assert!(stays(&world, name(&machine)).await);
    assert_eq!(world.line.writes(), writes);

    world.patch(GROUP, "Machine", name(&machine), annotated(KEPT_UNTIL, LONG_AGO)).await;
    world.until("its end", async || is_gone(&world, name(&machine)).await).await;
    world.settle().await;
    assert!(is_complete(&world, 1).await && world.all("Machine").await.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn another_one_that_fails_meanwhile_is_deleted() {
    let (world, first) = kept(2).await;
    let second =
        world.names(GROUP, "Machine").await.into_iter().find(|other| other != name(&first)).expect("a name");
    fail(&world, &second).await;
    world.until("its end", async || is_gone(&world, &second).await && is_complete(&world, 2).await).await;
    assert!(stays(&world, name(&first)).await);
    // The first one goes, and the next one is kept.
    world.delete(GROUP, "Machine", name(&first)).await;
    world.until("the end of the first one", async || is_gone(&world, name(&first)).await).await;
    let third = world.names(GROUP, "Machine").await.remove(0);
    fail(&world, &third).await;
    let machine = async || world.get(GROUP, "Machine", &third).await.unwrap_or_default();
    world
        .until("the third is kept", async || is_kept(&machine().await) && is_complete(&world, 2).await)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_user_says_how_long_it_stays() {
    let (world, machine) = kept(1).await;
    let name = name(&machine);
    let message = async || {
        let machine = world.get(GROUP, "Machine", name).await.unwrap_or_default();
        condition(&machine, "OwnerRemediated")["message"].as_str().unwrap_or_default().to_owned()
    };
    for (until, words) in [
        (json!(null), "until it is deleted, since it has no annotation"),
        (json!("tomorrow"), "kept-until is \"tomorrow\", and no time such as 2026-01-31T18:00:00Z"),
        (json!("2999-01-01T00:00:00Z"), "until 2999-01-01T00:00:00Z"),
    ] {
        world.patch(GROUP, "Machine", name, annotated(KEPT_UNTIL, until)).await;
        world.until(words, async || message().await.contains(words)).await;
        assert!(stays(&world, name).await, "{words}");
        let unschedulable = &world.nodes().await[name]["spec"]["unschedulable"];
        assert_eq!(unschedulable, true, "{words}");
    }
    world.delete(GROUP, "Machine", name).await;
    world.until("its end", async || is_gone(&world, name).await).await;
    assert!(is_complete(&world, 1).await);
}

#[tokio::test(start_paused = true)]
async fn its_node_is_cordoned_as_soon_as_that_can_be_and_stays_so() {
    let world = running(1).await;
    let failed = world.names(GROUP, "Machine").await.remove(0);
    // The workload cluster is away, and the check of another program asks for the remediation.
    world.delete(GROUP, "MachineHealthCheck", "h").await;
    world.workload.faults().inject(Fault::new(Matcher::any(), Action::ServiceUnavailable));
    world.workload.faults().drop_watches();
    world.settle().await;
    let machine = world.get(GROUP, "Machine", &failed).await.expect("it");
    let mut conditions = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|one| one["type"] != "HealthCheckSucceeded");
    conditions.extend(["HealthCheckSucceeded", "OwnerRemediated"].map(|kind| {
        json!({"type": kind, "status": "False", "reason": "Test", "message": "", "lastTransitionTime": LONG_AGO})
    }));
    world.patch_status(GROUP, "Machine", &failed, json!({"status": {"conditions": conditions}})).await;
    let is_one = async || is_kept(&world.get(GROUP, "Machine", &failed).await.unwrap_or_default());
    world.until("it is kept", is_one).await;
    world.settle().await;
    world.workload.faults().clear();
    let is_cordoned = async || world.nodes().await[&failed]["spec"]["unschedulable"] == true;
    world.until("it is cordoned", is_cordoned).await;
    patch_node(&world, &failed, json!({"spec": {"unschedulable": false}})).await;
    world.until("it is cordoned again", is_cordoned).await;
}

#[tokio::test(start_paused = true)]
async fn it_goes_with_its_deployment_or_its_cluster() {
    for kind in ["MachineDeployment", "MachineSet", "Cluster"] {
        let (mut world, machine) = kept(1).await;
        let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/x";
        world.patch(GROUP, "Machine", name(&machine), annotated(hook, "test")).await;
        world.patch(GROUP, "Cluster", "c", json!({"metadata": {"finalizers": ["test/x"]}})).await;
        let set = name(&world.all("MachineSet").await[0]).to_owned();
        let of = match kind {
            "Cluster" => "c",
            "MachineSet" => &set,
            _ => "d",
        };
        world.delete(GROUP, kind, of).await;
        world.settle().await;
        // The deletion waits for it, also when another daemon goes on.
        world.restart().await;
        world.settle().await;
        assert!(world.get(GROUP, "MachineSet", &set).await.is_some(), "{kind}");
        let began = tokio::time::Instant::now();
        world.patch(GROUP, "Machine", name(&machine), annotated(hook, Value::Null)).await;
        let is_left = async |group, kind, name| world.get(group, kind, name).await.is_some();
        world
            .until("the end of both", async || {
                !is_left(GROUP, "MachineSet", &set).await
                    && !is_left(GROUP, "Machine", name(&machine)).await
                    && !is_left(INFRASTRUCTURE, "FakeMachine", name(&machine)).await
            })
            .await;
        // Of the paused clock: before all is looked at again.
        assert!(began.elapsed() < Duration::from_secs(120), "{kind}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn its_set_stays_with_it_through_a_rollout() {
    let (world, machine) = kept(1).await;
    let before = name(&world.all("MachineSet").await[0]).to_owned();
    world.patch_deployment(json!({"template": {"spec": {"version": "v1.37.2"}}})).await;
    let is_new = async || {
        let machines = world.all("Machine").await;
        machines.iter().any(|machine| machine["spec"]["version"] == "v1.37.2") && is_complete(&world, 1).await
    };
    world.until("the rollout", is_new).await;
    assert!(stays(&world, name(&machine)).await);
    assert!(world.names(GROUP, "MachineSet").await.contains(&before));
    let began = tokio::time::Instant::now();
    world.patch(GROUP, "Machine", name(&machine), annotated(KEPT_UNTIL, LONG_AGO)).await;
    world
        .until("the end of the set", async || !world.names(GROUP, "MachineSet").await.contains(&before))
        .await;
    assert!(is_gone(&world, name(&machine)).await && is_complete(&world, 1).await);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_while_it_is_paused() {
    for is_cluster in [true, false] {
        let (world, machine) = kept(1).await;
        let pause = async |is_paused: bool| {
            if is_cluster {
                world.patch(GROUP, "Cluster", "c", json!({"spec": {"paused": is_paused}})).await;
            } else {
                let value = if is_paused { json!("") } else { json!(null) };
                world
                    .patch(GROUP, "Machine", name(&machine), annotated("cluster.x-k8s.io/paused", value))
                    .await;
            }
        };
        pause(true).await;
        world.settle().await;
        world.patch(GROUP, "Machine", name(&machine), annotated(KEPT_UNTIL, LONG_AGO)).await;
        assert!(stays(&world, name(&machine)).await);
        pause(false).await;
        world.until("its end", async || is_gone(&world, name(&machine)).await).await;
    }
}

/// Waits until something holds. The daemon that is dead by then has a successor.
async fn until(world: &mut World, what: &str, mut holds: impl AsyncFnMut(&World) -> bool) {
    for _ in 0..3000 {
        if world.line.is_cut() {
            world.restart().await;
        }
        if holds(world).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    in_time(world, what, std::future::pending()).await;
}

/// A Machine fails, is kept, and goes. Returns the number of the first write after it failed, and of that which deletes it in time.
async fn history(cut: Option<(usize, Side)>) -> (usize, usize) {
    let mut world = running(2).await;
    let bounds = Bounds::new(&world.management);
    world.settle().await;
    let first = world.line.writes();
    if let Some((write, side)) = cut {
        world.line.cut_at(write, side);
    }
    // Two of the set, and the one that is kept.
    bounds.set(3, 1);
    let failed = world.names(GROUP, "Machine").await.remove(0);
    fail(&world, &failed).await;
    until(&mut world, "a kept Machine and its replacement", async |world| {
        let machine = world.get(GROUP, "Machine", &failed).await.unwrap_or_default();
        assert!(machine["metadata"]["deletionTimestamp"].is_null(), "it is deleted and not kept: {cut:?}");
        is_kept(&machine)
            && condition(&machine, "OwnerRemediated")["reason"] == "MachineKept"
            && world.nodes().await[&failed]["spec"]["unschedulable"] == true
            && is_complete(world, 2).await
    })
    .await;
    world.settle().await;
    let last = world.line.writes();
    world.patch(GROUP, "Machine", &failed, annotated(KEPT_UNTIL, LONG_AGO)).await;
    until(&mut world, "its end", async |world| is_gone(world, &failed).await && is_complete(world, 2).await)
        .await;
    world.settle().await;
    assert!(is_complete(&world, 2).await && world.all("Machine").await.len() == 2, "{cut:?}");
    bounds.check(&format!("{cut:?}"));
    (first, last)
}

#[tokio::test(start_paused = true)]
async fn whenever_a_daemon_dies_the_machine_is_kept_and_replaced_once() {
    let (first, last) = history(None).await;
    assert!(last - first > 12, "{first}..={last}");
    for write in first..=last {
        for side in [Side::Before, Side::After] {
            history(Some((write, side))).await;
        }
    }
}
