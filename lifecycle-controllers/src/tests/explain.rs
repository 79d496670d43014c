//! What the controllers would do, said and not done.

use std::{sync::Arc, time::Duration};

use sandbox::{Action, Fault, Matcher};
use serde_json::json;

use super::{
    line::Line,
    world::{BOOTSTRAP, Same, World},
};
use crate::{
    explain::{ExplainedCondition, ExplainedKind, LifecyclePlan, explain_through},
    kept::KEPT_UNTIL,
    options::{LifecycleOptions, Patterns},
};

const LIMIT: Duration = Duration::from_secs(20);

fn options() -> LifecycleOptions {
    LifecycleOptions {
        namespace: None,
        watch_filter: None,
        sync_period: Duration::from_secs(600),
        additional_machine_labels: Patterns::default(),
        additional_machine_annotations: Patterns::default(),
        bootstrap_token_ttl: Duration::from_secs(900),
        workload_networks: None,
    }
}

async fn explained(world: &World, kind: ExplainedKind, name: &str) -> Option<LifecyclePlan> {
    let options = options();
    let line = Line::default();
    let workload = Arc::new(Same(line.client(&world.workload)));
    let client = line.client(&world.management);
    let explained = explain_through(workload, &client, &options, kind, ("team", name), LIMIT).await;
    assert_eq!(line.writes(), 0, "an explanation writes nothing");
    explained.expect("an explanation")
}

#[tokio::test(start_paused = true)]
async fn what_would_be_written_is_said_and_not_sent() {
    let world = World::new().await;
    world.create_templates().await;
    world.create_deployment(2).await;
    let before = world.get("cluster.x-k8s.io", "MachineDeployment", "d").await;
    assert_eq!(explained(&world, ExplainedKind::MachineDeployment, "none").await, None);
    let plan = explained(&world, ExplainedKind::MachineDeployment, "d").await.expect("it");
    assert_eq!(plan.workload_cluster, "connected");
    assert!(plan.next.iter().any(|next| next.starts_with("patch machinedeployments/d")), "{plan:?}");
    assert_eq!(world.get("cluster.x-k8s.io", "MachineDeployment", "d").await, before, "it was written");
    assert!(world.all("MachineSet").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_is_not_waited_for() {
    let world = World::new().await;
    let lists = Matcher::any().verb("list").resource("clusters");
    world.management.faults().inject(Fault::new(lists, Action::InternalError));
    let (workload, client) = (Arc::new(Same(world.workload.client())), world.management.client());
    let of = ("team", "c");
    let refused = explain_through(workload, &client, &options(), ExplainedKind::Cluster, of, LIMIT).await;
    let why = refused.expect_err("it is refused");
    assert!(why.starts_with("Clusters of namespace team cannot be listed: "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn of_settled_objects_nothing_would_be_written() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(1).await;
    world.start().await;
    world.until_complete(1, "v1.37.1").await;
    world.settle().await;
    let machine = world.names("cluster.x-k8s.io", "Machine").await.remove(0);
    let set = world.names("cluster.x-k8s.io", "MachineSet").await.remove(0);
    for (kind, name) in [
        (ExplainedKind::Cluster, "c"),
        (ExplainedKind::MachineDeployment, "d"),
        (ExplainedKind::MachineSet, &set),
        (ExplainedKind::Machine, &machine),
    ] {
        let plan = explained(&world, kind, name).await.expect("it");
        assert_eq!(plan.next, ["write nothing until something changes"], "{plan:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_says_its_next_step() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_deployment(1).await;
    world.start().await;
    world.until_complete(1, "v1.37.1").await;
    let machine = world.names("cluster.x-k8s.io", "Machine").await.remove(0);
    let hook =
        json!({"metadata": {"annotations": {"pre-drain.delete.hook.machine.cluster.x-k8s.io/x": "me"}}});
    world.patch("cluster.x-k8s.io", "Machine", &machine, hook).await;
    world.delete("cluster.x-k8s.io", "Machine", &machine).await;
    world.settle().await;
    let plan = explained(&world, ExplainedKind::Machine, &machine).await.expect("it");
    assert_eq!(plan.phase.as_deref(), Some("Deleting"));
    let waits =
        |one: &ExplainedCondition| one.to_string().starts_with("Deleting True WaitingForPreDrainHook");
    assert!(plan.conditions.iter().any(waits), "{plan:?}");
    assert!(plan.next[0].starts_with("write nothing"), "{plan:?}");
    // The Node is what the next step would change.
    let none =
        json!({"metadata": {"annotations": {"pre-drain.delete.hook.machine.cluster.x-k8s.io/x": null}}});
    world.play.holds.send_replace(true);
    world.stop_controllers().await;
    world.patch("cluster.x-k8s.io", "Machine", &machine, none).await;
    let plan = explained(&world, ExplainedKind::Machine, &machine).await.expect("it");
    assert!(plan.next.iter().any(|next| next.starts_with("patch nodes/")), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_kept_says_until_when() {
    let (world, machine) = super::kept::kept(1).await;
    let until = json!({"metadata": {"annotations": {KEPT_UNTIL: "2999-01-01T00:00:00Z"}}});
    world.patch("cluster.x-k8s.io", "Machine", super::kept::name(&machine), until).await;
    world.settle().await;
    let plan = explained(&world, ExplainedKind::Machine, super::kept::name(&machine)).await.expect("it");
    let words = "OwnerRemediated True MachineKept MachineSet d-";
    let says = |one: &ExplainedCondition| {
        one.to_string().starts_with(words) && one.message.contains("until 2999-01-01T00:00:00Z")
    };
    assert!(plan.conditions.iter().any(says), "{plan:?}");
    let next = &plan.next[0];
    assert!(next.starts_with("write nothing, and look again after ") && next.ends_with('d'), "{plan:?}");
}

#[tokio::test(start_paused = true)]
async fn health_checks_and_bootstrap_configs_are_explained_too() {
    let mut world = World::new().await;
    world.create_templates().await;
    world.create_kubeadm_template().await;
    world.create_deployment_of("KubeadmConfigTemplate", 1).await;
    world.start().await;
    world.until("a config", async || !world.names(BOOTSTRAP, "KubeadmConfig").await.is_empty()).await;
    world.settle().await;
    let config = world.names(BOOTSTRAP, "KubeadmConfig").await.remove(0);
    let plan = explained(&world, ExplainedKind::KubeadmConfig, &config).await.expect("it");
    assert_eq!((plan.kind, plan.workload_cluster.as_str()), ("KubeadmConfig", "connected"));
    assert!(plan.next[0].starts_with("create secrets/bootstrap-token-"), "{plan:?}");

    let check = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": "h"},
        "spec": {"clusterName": "c", "selector": {"matchLabels": {"pool": "d"}}},
    });
    world.stop_controllers().await;
    world.create("cluster.x-k8s.io", "MachineHealthCheck", check).await;
    let plan = explained(&world, ExplainedKind::MachineHealthCheck, "h").await.expect("it");
    assert!(plan.next[0].starts_with("patch machinehealthchecks/h"), "{plan:?}");
}
