//! How deployments replace Machines.

use std::{collections::BTreeSet, time::Duration};

use kube::api::{Patch, PatchParams};
use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::{
    bounds::Bounds,
    world::{World, nodes},
};
use crate::machine_set::scale_down::AUTOSCALER_TAINT;

const GROUP: &str = "cluster.x-k8s.io";

async fn complete(replicas: usize, strategy: Value) -> (World, Bounds) {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_templates_named("t2").await;
    world.create_deployment(i32::try_from(replicas).expect("a number")).await;
    world.patch_deployment(json!({"rollout": {"strategy": strategy}})).await;
    let bounds = Bounds::new(&world.management);
    world.start().await;
    world.until_complete(replicas, "v1.37.1").await;
    (world, bounds)
}

fn rolling(surge: &Value, unavailable: &Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn version(version: &str) -> Value {
    json!({"template": {"spec": {"version": version}}})
}

async fn names(world: &World) -> BTreeSet<String> {
    world.names(GROUP, "Machine").await.into_iter().collect()
}

/// `spec.replicas` of the sets, those of the older template first.
async fn sizes(world: &World) -> Vec<i64> {
    let mut sets = world.all("MachineSet").await;
    sets.sort_by_key(|set| set["spec"]["template"]["spec"]["version"].to_string());
    sets.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap_or_default()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_rollout_stays_in_its_bounds() {
    for (surge, unavailable, most, least) in [
        (json!(0), json!(0), 4, 3),
        (json!(0), json!(1), 4, 3),
        (json!(0), json!(2), 4, 2),
        (json!(1), json!(0), 5, 4),
        (json!(1), json!(1), 5, 3),
        (json!(1), json!(2), 5, 2),
        (json!(2), json!(0), 6, 4),
        (json!(2), json!(1), 6, 3),
        (json!(2), json!(2), 6, 2),
        (json!("30%"), json!("30%"), 6, 3),
    ] {
        let what = format!("{surge} {unavailable}");
        let (world, bounds) = complete(4, rolling(&surge, &unavailable)).await;
        bounds.set(most, least);
        let first = names(&world).await;
        world.patch_deployment(version("v1.37.2")).await;
        world.until_complete(4, "v1.37.2").await;
        assert!(first.is_disjoint(&names(&world).await), "{what}");
        // Other templates of the same version.
        let before = names(&world).await;
        let spec = json!({"infrastructureRef": {"name": "t2"}, "bootstrap": {"configRef": {"name": "t2"}}});
        world.patch_deployment(json!({"template": {"spec": spec}})).await;
        world.until("new Machines", async || before.is_disjoint(&names(&world).await)).await;
        world.until_complete(4, "v1.37.2").await;
        bounds.check(&what);
        let deployment = world.get(GROUP, "MachineDeployment", "d").await.expect("it");
        let revision = &deployment["metadata"]["annotations"]["machinedeployment.clusters.x-k8s.io/revision"];
        assert_eq!(revision, "3", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn machines_are_replaced_when_the_time_has_come() {
    let (world, bounds) = complete(2, rolling(&json!(1), &json!(0))).await;
    let before = names(&world).await;
    bounds.set(3, 2);
    let begins = |at: jiff::Timestamp| json!({"rollout": {"after": at.to_string()}});
    world.patch_deployment(begins(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1))).await;
    world.settle().await;
    assert_eq!(names(&world).await, before, "not yet");
    // Times in objects are of the real clock and have whole seconds: the next one is after the creation of the set.
    let next = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + 1).expect("a time");
    while jiff::Timestamp::now() < next {
        std::thread::sleep(Duration::from_millis(50));
    }
    world.patch_deployment(begins(next)).await;
    world.until("new Machines", async || before.is_disjoint(&names(&world).await)).await;
    world.until_complete(2, "v1.37.1").await;
    let after = names(&world).await;
    world.settle().await;
    assert_eq!(names(&world).await, after, "once");
    bounds.check("rollout.after");
}

#[tokio::test(start_paused = true)]
async fn on_delete_a_user_decides() {
    let (world, bounds) = complete(3, json!({"type": "OnDelete"})).await;
    let before = names(&world).await;
    bounds.set(3, 0);
    world.patch_deployment(version("v1.37.2")).await;
    world.until("the new set", async || sizes(&world).await.len() == 2).await;
    world.settle().await;
    assert_eq!(names(&world).await, before);
    assert_eq!(sizes(&world).await, [3, 0]);
    for name in &before {
        world.delete(GROUP, "Machine", name).await;
        world
            .until("its successor", async || {
                let all = names(&world).await;
                all.len() == 3 && !all.contains(name)
            })
            .await;
    }
    world.until_complete(3, "v1.37.2").await;
    bounds.check("OnDelete");
}

#[tokio::test(start_paused = true)]
async fn machines_that_an_autoscaler_chose_go_whichever_set_has_them() {
    let (world, bounds) = complete(4, rolling(&json!(1), &json!(0))).await;
    let before = names(&world).await;
    bounds.set(5, 3);
    world.play.holds.send_replace(true);
    world.patch_deployment(version("v1.37.2")).await;
    world.until("a new Machine", async || names(&world).await.len() == 5).await;
    world.settle().await;
    let chosen = names(&world).await.difference(&before).next().cloned().expect("the new one");
    let mark = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}});
    world.patch(GROUP, "Machine", &chosen, mark).await;
    world.patch_deployment(json!({"replicas": 3})).await;
    world.until("its end", async || !names(&world).await.contains(&chosen)).await;
    world.settle().await;
    assert_eq!(names(&world).await.intersection(&before).count(), 3);
    world.play.holds.send_replace(false);
    world.until_complete(3, "v1.37.2").await;
    bounds.check("marked");
}

/// An autoscaler marks a Machine and scales right after. Here the mark comes with the later one of two watches.
#[tokio::test(start_paused = true)]
async fn a_mark_counts_whose_watch_is_late() {
    let (world, _bounds) = complete(3, rolling(&json!(1), &json!(0))).await;
    let mut left = names(&world).await;
    // Without a mark, the first one by name would go.
    let chosen = left.pop_last().expect("a Machine");
    let faults = world.management.faults();
    let watch = Matcher::any().verb("watch").resource("machines");
    faults.inject(Fault::new(watch, Action::Delay(Duration::from_secs(30))));
    faults.drop_watches();
    let mark = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}});
    world.patch(GROUP, "Machine", &chosen, mark).await;
    world.patch_deployment(json!({"replicas": 2})).await;
    world.until("the end of one", async || names(&world).await.len() == 2).await;
    assert_eq!(names(&world).await, left);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_is_turned_back_scaled_and_paused() {
    let (world, bounds) = complete(4, rolling(&json!(2), &json!(0))).await;
    let before = names(&world).await;
    bounds.set(6, 4);
    // The new Machines get no Nodes, so the rollout stays where it is.
    world.play.holds.send_replace(true);
    world.patch_deployment(version("v1.37.2")).await;
    world.until("two new Machines", async || sizes(&world).await == [4, 2]).await;
    world.settle().await;
    assert_eq!(names(&world).await.len(), 6);
    world.patch_deployment(version("v1.37.1")).await;
    world.until_complete(4, "v1.37.1").await;
    assert_eq!(names(&world).await, before, "the Machines of the old template stay");

    world.patch_deployment(version("v1.37.2")).await;
    world.until("two new Machines", async || sizes(&world).await == [4, 2]).await;
    world.settle().await;
    bounds.check("back");
    // Scaled meanwhile: the new ones grow.
    bounds.set(8, 4);
    world.patch_deployment(json!({"replicas": 6})).await;
    world.until("four new Machines", async || sizes(&world).await == [4, 4]).await;
    world.settle().await;
    // Paused, both grow in proportion to 12 and the surge.
    bounds.set(14, 4);
    world.patch_deployment(json!({"paused": true})).await;
    world.patch_deployment(json!({"replicas": 12})).await;
    world.until("both grow", async || sizes(&world).await == [7, 7]).await;
    world.play.holds.send_replace(false);
    world.until("all run", async || world.core.stores.machines.len() == 14).await;
    world.settle().await;
    assert_eq!(sizes(&world).await, [7, 7], "paused");
    bounds.set(14, 4);
    world.patch_deployment(json!({"paused": false})).await;
    world.until_complete(12, "v1.37.2").await;
    // Scaled down in the middle of a rollout.
    bounds.set(14, 5);
    world.play.holds.send_replace(true);
    world.patch_deployment(version("v1.37.3")).await;
    world.until("two new Machines", async || sizes(&world).await == [12, 2]).await;
    world.patch_deployment(json!({"replicas": 5})).await;
    world.settle().await;
    assert_eq!(names(&world).await.len(), 7);
    world.play.holds.send_replace(false);
    world.until_complete(5, "v1.37.3").await;
    bounds.check("scaled");
}

/// A pause makes an old set no owner that replaces what the user deletes.
#[tokio::test(start_paused = true)]
async fn on_delete_and_paused_the_old_template_makes_no_machine() {
    let (world, bounds) = complete(2, json!({"type": "OnDelete"})).await;
    let before = names(&world).await;
    bounds.set(2, 0);
    world.patch_deployment(version("v1.37.2")).await;
    world.until("the new set", async || sizes(&world).await == [2, 0]).await;
    world.patch_deployment(json!({"paused": true})).await;
    world.settle().await;
    let gone = before.first().expect("a Machine");
    world.delete(GROUP, "Machine", gone).await;
    world.until("its end", async || !names(&world).await.contains(gone)).await;
    world.settle().await;
    assert_eq!(names(&world).await.len(), 1);
    world.patch_deployment(json!({"paused": false})).await;
    world.until("its successor", async || names(&world).await.len() == 2).await;
    bounds.check("paused");
}

/// Users change their minds, the provider takes its time, and the API server loses writes.
#[tokio::test(start_paused = true)]
async fn bounds_hold_in_random_histories() {
    let seeds = match std::env::var("CCM_ROLLOUT_SEEDS").ok().and_then(|text| text.parse().ok()) {
        Some(seeds) => 0..seeds,
        None => 0..4,
    };
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (2, 1)][random.usize(..4)];
        let (world, bounds) = complete(4, rolling(&json!(surge), &json!(unavailable))).await;
        bounds.set(4 + surge, 4 - unavailable);
        world.line.make_noisy(seed);
        *world.play.pause.lock() = Duration::from_millis(random.u64(..4000));
        let mut last = String::new();
        for _ in 0..12 {
            last = format!("v1.37.{}", random.u8(1..4));
            world.patch_deployment(version(&last)).await;
            tokio::time::sleep(Duration::from_millis(random.u64(..40_000))).await;
            if random.u8(..4) == 0 {
                world.play.holds.send_modify(|holds| *holds = !*holds);
            }
        }
        world.play.holds.send_replace(false);
        world.until_complete(4, &last).await;
        bounds.check(&format!("seed {seed}, {surge} {unavailable}"));
        // What was created in vain goes.
        world.settle().await;
        let machines = world.names(GROUP, "Machine").await;
        assert_eq!(
            world.names("infrastructure.cluster.x-k8s.io", "FakeMachine").await,
            machines,
            "seed {seed}"
        );
        assert_eq!(world.names("bootstrap.cluster.x-k8s.io", "FakeConfig").await, machines, "seed {seed}");
        // A kubelet may have registered in the moment in which its Machine went: the cloud's node lifecycle controller deletes that Node.
        let mut nodes = world.nodes().await;
        nodes.retain(|_, node| node["metadata"]["annotations"]["cluster.x-k8s.io/machine"].is_string());
        assert_eq!(nodes.into_keys().collect::<Vec<_>>(), machines, "seed {seed}");
    }
}

/// What cluster-autoscaler's provider for Cluster API does in the middle of rollouts: it taints the Node of a machine that it does not
/// need, marks the Machine, and takes one replica away. `CCM_AUTOSCALER_ROUNDS` says how often.
#[tokio::test(start_paused = true)]
async fn an_autoscaler_in_rollouts_loses_what_it_chose_and_nothing_else() {
    const MOST: usize = 6;
    let rounds = std::env::var("CCM_AUTOSCALER_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let mut random = fastrand::Rng::with_seed(4);
    let (surge, unavailable) = (2, 1);
    let (world, bounds) = complete(MOST, rolling(&json!(surge), &json!(unavailable))).await;
    for round in 0..rounds {
        bounds.set(MOST + surge, 0);
        let next = format!("v1.37.{}", 2 + round % 2);
        // Machines come up without Nodes, so the rollout stays where it is.
        world.play.holds.send_replace(true);
        let before = names(&world).await;
        world.patch_deployment(version(&next)).await;
        world.until("new Machines", async || !names(&world).await.is_subset(&before)).await;
        world.settle().await;
        let mut running = names(&world).await;
        let have_nodes: BTreeSet<_> = world.nodes().await.into_keys().collect();
        let mut replicas = MOST;
        for _ in 0..random.usize(1..4) {
            let candidates: Vec<_> = running.intersection(&have_nodes).cloned().collect();
            let chosen = candidates[random.usize(..candidates.len())].clone();
            let taint = json!({"key": AUTOSCALER_TAINT, "value": "1", "effect": "NoSchedule"});
            let taint = Patch::Merge(json!({"spec": {"taints": [taint]}}));
            let of_workload = nodes(&world.workload.client());
            of_workload.patch(&chosen, &PatchParams::default(), &taint).await.expect("a Node");
            world.settle().await;
            // The taint decides where the autoscaler ended before it marked the Machine.
            if random.bool() {
                let mark = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "now"}}});
                world.patch(GROUP, "Machine", &chosen, mark).await;
            }
            replicas -= 1;
            world.patch_deployment(json!({"replicas": replicas})).await;
            running.remove(&chosen);
            world.settle().await;
            assert_eq!(names(&world).await, running, "round {round}: {chosen} was chosen");
        }
        world.play.holds.send_replace(false);
        world.until_complete(replicas, &next).await;
        world.patch_deployment(json!({"replicas": MOST})).await;
        world.until_complete(MOST, &next).await;
    }
    bounds.check("an autoscaler");
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_creation_was_not_answered_is_not_made_again() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.start().await;
    world.settle().await;
    world.line.hold_watches(Some("machinesets"));
    let creation = Matcher::any().verb("patch").resource("machinesets").subresource("");
    world.management.faults().inject(Fault::new(creation, Action::LoseResponse).times(1));
    world.create_deployment(1).await;
    world.settle().await;
    assert_eq!(world.names(GROUP, "MachineSet").await.len(), 1, "each attempt would give another name");
    world.line.hold_watches(None);
    world.until_complete(1, "v1.37.1").await;
    assert_eq!(world.names(GROUP, "MachineSet").await.len(), 1);
}
