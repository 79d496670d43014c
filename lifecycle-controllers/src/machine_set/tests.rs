use std::{sync::Arc, time::Duration};

use sandbox::{Action, Fault, Matcher};
use serde_json::{Value, json};

use super::*;
use crate::{
    engine::object::Meta as _,
    kept::{KEEP_FAILED_FOR, KEPT_OF},
    testing::{NAMESPACE, Stage, delete, object},
};

const CORE: &str = "cluster.x-k8s.io/v1beta2";

fn reference(group: &str, kind: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": "x"})
}

/// A Cluster with a control plane of this kind, and a set `s` of so many Machines, with its templates.
async fn stage(control_plane: Option<&str>, replicas: usize) -> Stage {
    let stage = Stage::new().await;
    for kind in ["Box", "BoxTemplate", "Config", "ConfigTemplate"] {
        stage.serve("infra.example", kind, true).await;
    }
    for kind in ["BoxTemplate", "ConfigTemplate"] {
        stage
            .create(json!({
                "apiVersion": "infra.example/v1", "kind": kind, "metadata": {"name": "x", "namespace": NAMESPACE},
                "spec": {"template": {"spec": {}}},
            }))
            .await;
    }
    let reference_to = |kind| reference("control.example", kind);
    stage
        .create(json!({
            "apiVersion": CORE, "kind": "Cluster", "metadata": {"name": "c", "namespace": NAMESPACE},
            "spec": {"controlPlaneRef": control_plane.map(reference_to)},
        }))
        .await;
    stage
        .create(json!({
            "apiVersion": CORE, "kind": "MachineSet", "metadata": {"name": "s", "namespace": NAMESPACE},
            "spec": {
                "clusterName": "c", "replicas": replicas, "selector": {"matchLabels": {"pool": "s"}},
                "template": {
                    "metadata": {"labels": {"pool": "s"}},
                    "spec": {
                        "clusterName": "c", "version": "v1.37.1",
                        "bootstrap": {"configRef": reference("infra.example", "ConfigTemplate")},
                        "infrastructureRef": reference("infra.example", "BoxTemplate"),
                    },
                },
            },
        }))
        .await;
    stage.until(&stage.core.stores.machine_sets, "s", |_| true).await;
    stage.until(&stage.core.stores.clusters, "c", |_| true).await;
    stage
}

/// A Machine that the set selects. Nothing controls it.
async fn machine(stage: &Stage, name: &str, cluster: &str, metadata: Value, conditions: Value) {
    let mut machine = json!({
        "apiVersion": CORE, "kind": "Machine",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": {"pool": "s", "cluster.x-k8s.io/cluster-name": cluster},
        },
        "spec": {
            "clusterName": cluster, "bootstrap": {"dataSecretName": "s"},
            "infrastructureRef": {"apiGroup": "infra.example", "kind": "Box", "name": name},
        },
        "status": {"conditions": conditions},
    });
    for (field, value) in metadata.as_object().into_iter().flatten() {
        machine["metadata"][field] = value.clone();
    }
    stage.create(machine).await;
    stage.until(&stage.core.stores.machines, name, |machine| machine.status.is_some()).await;
}

async fn pass(stage: &Stage) -> Result<Then, FailedPass> {
    MachineSetController::new(Arc::clone(&stage.core)).reconcile(&format!("{NAMESPACE}/s")).await
}

/// The condition of this type of an object.
async fn says(stage: &Stage, kind: &str, name: &str, condition: &str) -> Value {
    let object = stage.get(CORE, kind, name).await.unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|one| one["type"] == condition).unwrap_or_default()
}

fn contains(condition: &Value, words: &str) -> bool {
    condition["message"].as_str().is_some_and(|message| message.contains(words))
}

fn refused(name: &str) -> Fault {
    Fault::new(Matcher::any().verb("patch").resource("machines").name(name), Action::InternalError)
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_written_holds_no_other_one_up() {
    let stage = stage(None, 3).await;
    machine(&stage, "a", "c", json!({}), json!([])).await;
    machine(&stage, "b", "c", json!({}), json!([])).await;
    stage.sandbox.faults().inject(refused("a"));
    pass(&stage).await.expect_err("one is refused");
    let b = stage.get(CORE, "Machine", "b").await.expect("it");
    assert_eq!(b["metadata"]["labels"]["cluster.x-k8s.io/set-name"], "s");
    assert_eq!(b["metadata"]["ownerReferences"][0]["kind"], "MachineSet");
    assert_eq!(stage.core.stores.machines.len(), 3, "the third one is created");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_could_not_be_adopted_is_not_deleted() {
    let stage = stage(None, 0).await;
    machine(&stage, "a", "c", json!({}), json!([])).await;
    machine(&stage, "b", "c", json!({}), json!([])).await;
    stage.sandbox.faults().inject(refused("a"));
    pass(&stage).await.expect_err("one is refused");
    assert!(stage.get(CORE, "Machine", "a").await.is_some(), "another set may have adopted it");
    assert_eq!(stage.get(CORE, "Machine", "b").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_cannot_be_read_is_named_where_machines_wait_for_it() {
    let stage = stage(Some("Plane"), 2).await;
    stage.serve("control.example", "Plane", false).await;
    let unhealthy = ["HealthCheckSucceeded", "OwnerRemediated"].map(|kind| {
        json!({
            "type": kind, "status": "False", "reason": "X", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    });
    machine(&stage, "a", "c", json!({}), json!(unhealthy)).await;
    pass(&stage).await.expect_err("it is tried again");
    // The first status waits for more.
    tokio::time::advance(Duration::from_secs(2)).await;
    pass(&stage).await.expect_err("it is tried again");
    let words = "Plane default/x cannot be read: ";
    let deferred = says(&stage, "Machine", "a", "OwnerRemediated").await;
    assert!(deferred["reason"] == "RemediationDeferred" && contains(&deferred, words), "{deferred}");
    let scaling = says(&stage, "MachineSet", "s", "ScalingUp").await;
    assert!(contains(&scaling, words), "{scaling}");
    assert_eq!(stage.core.stores.machines.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn words_that_wait_are_written_at_their_time_by_a_set_that_fails() {
    let stage = stage(Some("Plane"), 2).await;
    stage.serve("control.example", "Plane", false).await;
    let ready = |message: &str| {
        json!([{
            "type": "Ready", "status": "False", "reason": "X", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }])
    };
    machine(&stage, "a", "c", json!({}), ready("before")).await;
    let controller = MachineSetController::new(Arc::clone(&stage.core));
    let sources = controller.sources();
    stage.run(controller, sources);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let before = says(&stage, "MachineSet", "s", "MachinesReady").await;
    assert!(contains(&before, "before"), "{before}");
    stage.patch(CORE, "Machine", "a", &json!({"status": {"conditions": ready("after")}})).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let after = says(&stage, "MachineSet", "s", "MachinesReady").await;
    assert!(contains(&after, "after"), "{after}");
}

#[tokio::test(start_paused = true)]
async fn a_pass_creates_a_bounded_number_of_machines() {
    let stage = stage(None, 130).await;
    for (count, then) in [(64, Then::After(Duration::ZERO)), (128, Then::After(Duration::ZERO))] {
        assert_eq!(pass(&stage).await.expect("a pass"), then);
        assert_eq!(stage.core.stores.machines.len(), count);
    }
    assert_ne!(pass(&stage).await.expect("a pass"), Then::After(Duration::ZERO));
    assert_eq!(stage.core.stores.machines.len(), 130);
}

#[tokio::test(start_paused = true)]
async fn machines_of_another_cluster_are_none_of_the_set() {
    let stage = stage(None, 1).await;
    let labels = json!({"pool": "s", "cluster.x-k8s.io/cluster-name": "c"});
    machine(&stage, "a", "other", json!({"labels": labels}), json!([])).await;
    pass(&stage).await.expect("a pass");
    let other = stage.get(CORE, "Machine", "a").await.expect("it");
    assert!(other["metadata"]["ownerReferences"].is_null(), "{other}");
    assert_eq!(stage.core.stores.machines.len(), 2, "the set has one of its own");
    let set = stage.get(CORE, "MachineSet", "s").await.expect("it");
    assert_eq!(set["spec"]["selector"]["matchLabels"]["cluster.x-k8s.io/cluster-name"], "c");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_is_adopted_and_replaced_when_it_is_gone() {
    let stage = stage(None, 1).await;
    machine(&stage, "a", "c", json!({"finalizers": ["test/x"]}), json!([])).await;
    delete(&stage.sandbox, &object(CORE, "Machine", "a")).await;
    stage.until(&stage.core.stores.machines, "a", cluster_api::Machine::is_deleting).await;
    let controller = MachineSetController::new(Arc::clone(&stage.core));
    let sources = controller.sources();
    stage.run(controller, sources);
    let is_owned = |machine: &cluster_api::Machine| machine.controller().is_some();
    stage.until(&stage.core.stores.machines, "a", is_owned).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(stage.core.stores.machines.len(), 1, "it counts");
    stage.patch(CORE, "Machine", "a", &json!({"metadata": {"finalizers": []}})).await;
    stage.until_gone(&stage.core.stores.machines, "a").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.core.stores.machines.len(), 1, "another one comes");
}

#[tokio::test(start_paused = true)]
async fn checks_are_skipped_by_the_set_or_else_by_its_bootstrap_template() {
    let key = "machineset.cluster.x-k8s.io/skip-preflight-checks";
    let skip = |checks: Value| json!({"metadata": {"annotations": {key: checks}}});
    for (of_set, of_template, is_held) in [
        (json!(null), json!(null), true),
        (json!("All"), json!(null), false),
        (json!(null), json!("KubernetesVersionSkew"), false),
        (json!(""), json!("All"), false),
        (json!("KubeadmVersionSkew"), json!("All"), true),
    ] {
        let stage = stage(Some("Plane"), 1).await;
        stage.serve("control.example", "Plane", true).await;
        let mut plane = object("control.example/v1", "Plane", "x");
        plane["spec"] = json!({"version": "v1.36.0"});
        plane["status"] = json!({"version": "v1.36.0"});
        stage.create(plane).await;
        stage.patch("infra.example/v1", "ConfigTemplate", "x", &skip(of_template.clone())).await;
        stage.patch(CORE, "MachineSet", "s", &skip(of_set.clone())).await;
        let is_shown = |set: &cluster_api::MachineSet| set.annotation(key) == of_set.as_str();
        stage.until(&stage.core.stores.machine_sets, "s", is_shown).await;
        pass(&stage).await.expect("a pass");
        assert_eq!(stage.core.stores.machines.is_empty(), is_held, "{of_set} {of_template}");
    }
}

/// What a health check has found.
fn unhealthy() -> Value {
    let says = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "False", "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!([says("HealthCheckSucceeded", "UnhealthyNode"), says("OwnerRemediated", "WaitingForRemediation")])
}

#[tokio::test(start_paused = true)]
async fn what_is_not_kept_is_deleted_and_says_why() {
    let keep = |value: &str| json!({"metadata": {"annotations": {KEEP_FAILED_FOR: value}}});
    for (of_set, of_machine, event, words) in [
        ("1h", None, "KeptFailedMachine", "kept until 2"),
        ("soon", Some("1h"), "KeptFailedMachine", "kept until 2"),
        ("1h", Some("0"), "", ""),
        (
            "1h",
            Some("1 h"),
            "FailedMachineNotKept",
            "keep-failed-for is \"1 h\", and no duration such as 90m or 2h",
        ),
        (
            "soon",
            None,
            "FailedMachineNotKept",
            "keep-failed-for is \"soon\", and no duration such as 90m or 2h",
        ),
    ] {
        let stage = stage(None, 1).await;
        stage.patch(CORE, "MachineSet", "s", &keep(of_set)).await;
        let is_shown = |set: &cluster_api::MachineSet| set.annotation(KEEP_FAILED_FOR).is_some();
        stage.until(&stage.core.stores.machine_sets, "s", is_shown).await;
        let annotations = of_machine.map(|value| keep(value)["metadata"]["annotations"].clone());
        machine(&stage, "a", "c", json!({"annotations": annotations}), unhealthy()).await;
        pass(&stage).await.expect("a pass");
        let is_kept = event == "KeptFailedMachine";
        assert_eq!(stage.get(CORE, "Machine", "a").await.is_some(), is_kept, "{of_set} {of_machine:?}");
        let events = stage.events().await;
        let found = events.iter().filter(|(reason, _)| reason.contains("Kept")).cloned().collect::<Vec<_>>();
        let is_said = |(reason, message): &(String, String)| reason == event && message.contains(words);
        assert!(if event.is_empty() { found.is_empty() } else { found.iter().any(is_said) }, "{found:?}");
        tokio::time::advance(Duration::from_secs(2)).await;
        pass(&stage).await.expect("a pass");
        let said = says(&stage, "MachineSet", "s", "Remediating").await;
        let is_wrong = of_set == "soon";
        assert_eq!(
            contains(&said, "Failed Machines are deleted and not kept: annotation "),
            is_wrong,
            "{said}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_kept_may_come_back() {
    let stage = stage(None, 1).await;
    let keep = json!({"annotations": {KEEP_FAILED_FOR: "1h"}});
    machine(&stage, "a", "c", keep, unhealthy()).await;
    pass(&stage).await.expect("a pass");
    let kept = |machine: &cluster_api::Machine| machine.label(KEPT_OF) == Some("s");
    let machines = &stage.core.stores.machines;
    stage.until(machines, "a", kept).await;
    assert_eq!(machines.len(), 2, "another one has come");
    // Its own controller says that it was replaced.
    stage.patch(CORE, "Machine", "a", &json!({"status": {"conditions": []}})).await;
    stage.patch(CORE, "Machine", "a", &json!({"metadata": {"labels": {"pool": "s"}}})).await;
    stage.until(machines, "a", |machine| machine.label("pool") == Some("s")).await;
    pass(&stage).await.expect("a pass");
    let is_free = |machine: &cluster_api::Machine| machine.controller().is_none();
    stage.until(machines, "a", is_free).await;
    stage.patch(CORE, "Machine", "a", &json!({"metadata": {"labels": {KEPT_OF: null}}})).await;
    let is_back = |machine: &cluster_api::Machine| {
        machine.label(KEPT_OF).is_none()
            && machine.status.as_ref().is_none_or(|status| status.conditions.is_empty())
    };
    stage.until(machines, "a", is_back).await;
    stage.patch(CORE, "MachineSet", "s", &json!({"spec": {"replicas": 2}})).await;
    stage.until(&stage.core.stores.machine_sets, "s", |set| set.spec.replicas == Some(2)).await;
    pass(&stage).await.expect("a pass");
    let owners = stage.get(CORE, "Machine", "a").await.expect("it")["metadata"]["ownerReferences"].clone();
    let controls =
        owners.as_array().into_iter().flatten().filter(|owner| owner["controller"] == true).count();
    assert_eq!((controls, machines.len()), (1, 2), "{owners}");
}
