use cluster_api::{Condition, ConditionStatus, Machine, names::conditions as types};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use sandbox::{Action, Fault, Matcher, Sandbox, kubelet};
use serde_json::{Value, json};

use super::*;
use crate::testing::{NAMESPACE, Stage, delete, object};

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const REMEDIATION: &str = "remediation.example";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Because", "message": "", "lastTransitionTime": LONG_AGO})
}

async fn cluster(stage: &Stage, conditions: &[&str]) {
    let conditions: Vec<_> = conditions.iter().map(|kind| condition(kind, "True")).collect();
    stage
        .create(json!({
            "apiVersion": CORE, "kind": "Cluster", "metadata": {"name": "c", "namespace": NAMESPACE},
            "spec": {}, "status": {"conditions": conditions},
        }))
        .await;
}

async fn machine(stage: &Stage, name: &str, node: Option<&str>, annotations: Value) -> Value {
    let mut status = json!({"conditions": [condition("InfrastructureReady", "True")]});
    if let Some(node) = node {
        status["nodeRef"] = json!({"name": node});
    }
    stage
        .create(json!({
            "apiVersion": CORE, "kind": "Machine",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "annotations": annotations,
                "labels": {"cluster.x-k8s.io/cluster-name": "c", "pool": "a"},
            },
            "spec": {
                "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
                "infrastructureRef": {"apiGroup": "infra.example", "kind": "Box", "name": name},
            },
            "status": status,
        }))
        .await
}

/// A Node whose `Ready` has had this status for long.
async fn node(workload: &Sandbox, name: &str, ready: &str) {
    kubelet::register(&workload.client(), &kubelet::node(name, name)).await.expect("registered");
    set_ready(workload, name, ready).await;
}

async fn set_ready(workload: &Sandbox, name: &str, ready: &str) {
    let api: Api<Node> = Api::all(workload.client());
    let patch = Patch::Merge(json!({"status": {"conditions": [condition("Ready", ready)]}}));
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}

async fn check(stage: &Stage, remediation: Value) {
    stage
        .create(json!({
            "apiVersion": CORE, "kind": "MachineHealthCheck",
            "metadata": {"name": "check", "namespace": NAMESPACE},
            "spec": {
                "clusterName": "c", "selector": {"matchLabels": {"pool": "a"}},
                "checks": {"unhealthyNodeConditions": [
                    {"type": "Ready", "status": "False", "timeoutSeconds": 300},
                    {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300},
                ]},
                "remediation": remediation,
            },
        }))
        .await;
}

fn start(stage: &Stage) {
    let controller = MachineHealthCheckController::new(stage.core.clone());
    let sources = controller.sources();
    stage.run(controller, sources);
}

/// A ready Cluster, connected, with Machines of these names, each with a Node of its name and this status of `Ready`.
async fn ready_stage(machines: &[(&str, &str)]) -> (Stage, Sandbox) {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, &["ControlPlaneInitialized", "InfrastructureReady"]).await;
    for (name, ready) in machines {
        node(&workload, name, ready).await;
        machine(&stage, name, Some(name), json!({})).await;
    }
    (stage, workload)
}

fn condition_of<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn of_machine<'a>(machine: &'a Machine, kind: &str) -> Option<(ConditionStatus, &'a str)> {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition_of(conditions, kind).map(|one| (one.status, one.reason.as_str()))
}

/// Waits until the check has looked, so that `healthy` of `expected` Machines are.
async fn looked(
    stage: &Stage,
    expected: i32,
    healthy: i32,
) -> Arc<crate::engine::object::Stored<cluster_api::MachineHealthCheck>> {
    let checks = &stage.core.stores.machine_health_checks;
    stage
        .until(checks, "check", |check| {
            check.status.as_ref().is_some_and(|status| {
                status.expected_machines == Some(expected) && status.current_healthy == Some(healthy)
            })
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_an_unhealthy_machine_is_asked_once() {
    let (stage, workload) = ready_stage(&[("good", "True"), ("bad", "False")]).await;
    check(&stage, json!({})).await;
    start(&stage);
    let looked_at = looked(&stage, 2, 1).await;
    let machines = &stage.core.stores.machines;
    let is_asked = |machine: &Machine| of_machine(machine, types::OWNER_REMEDIATED).is_some();
    let bad = stage.until(machines, "bad", is_asked).await;
    assert_eq!(
        of_machine(&bad, types::OWNER_REMEDIATED),
        Some((ConditionStatus::False, "WaitingForRemediation"))
    );
    assert_eq!(
        of_machine(&bad, types::HEALTH_CHECK_SUCCEEDED),
        Some((ConditionStatus::False, "UnhealthyNode"))
    );
    let good = stage.until(machines, "good", |one| of_machine(one, types::HEALTH_CHECK_SUCCEEDED).is_some());
    let good = good.await;
    let succeeded = Some((ConditionStatus::True, "HealthCheckSucceeded"));
    assert_eq!(of_machine(&good, types::HEALTH_CHECK_SUCCEEDED), succeeded);
    assert_eq!(of_machine(&good, types::OWNER_REMEDIATED), None);
    let status = looked_at.status.clone().unwrap_or_default();
    assert_eq!((status.remediations_allowed, status.targets), (Some(1), vec!["bad".into(), "good".into()]));
    let allowed = condition_of(&status.conditions, types::REMEDIATION_ALLOWED).expect("it is there");
    assert_eq!((allowed.status, allowed.reason.as_str()), (ConditionStatus::True, "RemediationAllowed"));
    assert_eq!(looked_at.metadata.owner_references.as_ref().map(|owners| owners[0].name.as_str()), Some("c"));
    assert_eq!(
        looked_at.metadata.labels.as_ref().map(|all| all["cluster.x-k8s.io/cluster-name"].as_str()),
        Some("c")
    );
    // The owner has answered. The condition is its own from now on.
    let deferred = json!({"status": {"conditions": [
        condition(types::HEALTH_CHECK_SUCCEEDED, "False"),
        {"type": types::OWNER_REMEDIATED, "status": "False", "reason": "RemediationDeferred", "message": "", "lastTransitionTime": LONG_AGO},
    ]}});
    stage.patch(CORE, "Machine", "bad", &deferred).await;
    let is_judged_again = |machine: &Machine| {
        let reason = |kind| of_machine(machine, kind).map(|(_, reason)| reason);
        reason(types::HEALTH_CHECK_SUCCEEDED) == Some("UnhealthyNode")
            && reason(types::OWNER_REMEDIATED) == Some("RemediationDeferred")
    };
    stage.until(machines, "bad", is_judged_again).await;
    set_ready(&workload, "bad", "True").await;
    looked(&stage, 2, 2).await;
    let marked = "Machine default/bad has been marked as unhealthy by default/check".to_owned();
    assert_eq!(stage.events().await, [("MachineMarkedUnhealthy".to_owned(), marked)]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remediated_while_too_many_are_unhealthy() {
    let (stage, workload) = ready_stage(&[("a", "False"), ("b", "False"), ("d", "True")]).await;
    check(&stage, json!({"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}})).await;
    start(&stage);
    let looked_at = looked(&stage, 3, 1).await;
    let status = looked_at.status.clone().unwrap_or_default();
    assert_eq!(status.remediations_allowed, Some(0));
    let allowed = condition_of(&status.conditions, types::REMEDIATION_ALLOWED).expect("it is there");
    assert_eq!((allowed.status, allowed.reason.as_str()), (ConditionStatus::False, "TooManyUnhealthy"));
    for name in ["a", "b"] {
        let machine = stage.core.stores.machines.get(&format!("default/{name}")).expect("a Machine");
        let unhealthy = Some((ConditionStatus::False, "UnhealthyNode"));
        assert_eq!(of_machine(&machine, types::HEALTH_CHECK_SUCCEEDED), unhealthy);
        assert_eq!(of_machine(&machine, types::OWNER_REMEDIATED), None);
    }
    let restricted = ("RemediationRestricted".to_owned(), allowed.message.clone());
    assert_eq!(stage.events().await, [restricted]);
    set_ready(&workload, "a", "True").await;
    let is_asked = |machine: &Machine| of_machine(machine, types::OWNER_REMEDIATED).is_some();
    stage.until(&stage.core.stores.machines, "b", is_asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_gone_when_its_cluster_says_so() {
    let (stage, workload) = ready_stage(&[("a", "True")]).await;
    check(&stage, json!({})).await;
    start(&stage);
    looked(&stage, 1, 1).await;
    let reads = Matcher::any().verb("get").resource("nodes");
    workload.faults().inject(Fault::new(reads.clone(), Action::InternalError).times(3));
    let nodes: Api<Node> = Api::all(workload.client());
    nodes.delete("a", &DeleteParams::default()).await.expect("deleted");
    let machines = &stage.core.stores.machines;
    let is_asked = |machine: &Machine| of_machine(machine, types::OWNER_REMEDIATED).is_some();
    let gone = stage.until(machines, "a", is_asked).await;
    let deleted = Some((ConditionStatus::False, "NodeDeleted"));
    assert_eq!(of_machine(&gone, types::HEALTH_CHECK_SUCCEEDED), deleted);
    assert_eq!(workload.requests_matching(&reads).len(), 4, "three failed, and one confirmed it");
}

#[tokio::test(start_paused = true)]
async fn users_take_machines_out_and_ask_for_remediation() {
    let (stage, workload) = ready_stage(&[]).await;
    let annotated = [
        ("asked", json!({"cluster.x-k8s.io/remediate-machine": ""})),
        ("paused", json!({"cluster.x-k8s.io/paused": ""})),
        (
            "skipped",
            json!({"cluster.x-k8s.io/skip-remediation": "", "cluster.x-k8s.io/remediate-machine": ""}),
        ),
    ];
    for (name, annotations) in annotated {
        node(&workload, name, "True").await;
        machine(&stage, name, Some(name), annotations).await;
    }
    check(&stage, json!({})).await;
    start(&stage);
    let looked_at = looked(&stage, 1, 0).await;
    assert_eq!(
        looked_at.status.as_ref().map(|status| status.targets.clone()),
        Some(vec!["asked".to_owned()])
    );
    let is_asked = |machine: &Machine| of_machine(machine, types::OWNER_REMEDIATED).is_some();
    let asked = stage.until(&stage.core.stores.machines, "asked", is_asked).await;
    let reason = of_machine(&asked, types::HEALTH_CHECK_SUCCEEDED).map(|(_, reason)| reason);
    assert_eq!(reason, Some("HasRemediateAnnotation"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_check_says_so_and_does_nothing() {
    let (stage, _workload) = ready_stage(&[("a", "False")]).await;
    check(&stage, json!({})).await;
    stage.patch(CORE, "Cluster", "c", &json!({"spec": {"paused": true}})).await;
    stage.until(&stage.core.stores.clusters, "c", |cluster| cluster.spec.paused == Some(true)).await;
    start(&stage);
    let checks = &stage.core.stores.machine_health_checks;
    let says = |status: ConditionStatus| {
        move |check: &cluster_api::MachineHealthCheck| {
            let conditions =
                check.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            condition_of(conditions, types::PAUSED).is_some_and(|paused| paused.status == status)
        }
    };
    let paused = stage.until(checks, "check", says(ConditionStatus::True)).await;
    assert_eq!(paused.status.as_ref().and_then(|status| status.expected_machines), None);
    stage.patch(CORE, "Cluster", "c", &json!({"spec": {"paused": null}})).await;
    stage.until(checks, "check", says(ConditionStatus::False)).await;
    let is_asked = |machine: &Machine| of_machine(machine, types::OWNER_REMEDIATED).is_some();
    stage.until(&stage.core.stores.machines, "a", is_asked).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_nothing_is_checked() {
    let stage = Stage::new().await;
    cluster(&stage, &["ControlPlaneInitialized", "InfrastructureReady"]).await;
    machine(&stage, "a", Some("a"), json!({})).await;
    check(&stage, json!({})).await;
    start(&stage);
    let checks = &stage.core.stores.machine_health_checks;
    let looked_at = stage.until(checks, "check", |check| check.status.is_some()).await;
    assert_eq!(looked_at.status.as_ref().and_then(|status| status.expected_machines), None);
    // The connection is a reason for a pass. The Node is not there.
    stage.workload("c").await;
    looked(&stage, 1, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_came_is_waited_for_until_its_limit() {
    let (stage, _workload) = ready_stage(&[]).await;
    machine(&stage, "new", None, json!({})).await;
    check(&stage, json!({})).await;
    let stores = &stage.core.stores;
    stage.until(&stores.machine_health_checks, "check", |_| true).await;
    let then = pass::reconcile(&stage.core, "default/check").await.expect("a pass");
    let Then::After(wait) = then else { panic!("{then:?}") };
    assert!(wait.as_secs() > 500 && wait.as_secs() <= 601, "{wait:?}");
    let machine = stage.until(&stores.machines, "new", |_| true).await;
    assert_eq!(of_machine(&machine, types::HEALTH_CHECK_SUCCEEDED), None);
}

async fn template(stage: &Stage) {
    stage
        .create(json!({
            "apiVersion": "remediation.example/v1", "kind": "RebootTemplate",
            "metadata": {"name": "t", "namespace": NAMESPACE},
            "spec": {"template": {
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "x", "namespace": "kube-system", "labels": {"l": "1"}, "finalizers": ["f"]},
                "spec": {"tries": 3}, "data": {"a": "b"},
            }},
        }))
        .await;
}

fn with_template(kind: &str) -> Value {
    json!({"templateRef": {"apiVersion": "remediation.example/v7", "kind": kind, "name": "t"}})
}

#[tokio::test(start_paused = true)]
async fn another_controller_is_asked_by_an_object_with_the_machines_name() {
    let (stage, workload) = ready_stage(&[("bad", "False"), ("worse", "False")]).await;
    stage.serve(REMEDIATION, "Reboot", true).await;
    stage.serve(REMEDIATION, "RebootTemplate", true).await;
    template(&stage).await;
    check(&stage, with_template("RebootTemplate")).await;
    start(&stage);
    let machines = &stage.core.stores.machines;
    let is_asked = |machine: &Machine| of_machine(machine, types::EXTERNALLY_REMEDIATED).is_some();
    for name in ["bad", "worse"] {
        let machine = stage.until(machines, name, is_asked).await;
        assert_eq!(
            of_machine(&machine, types::EXTERNALLY_REMEDIATED),
            Some((ConditionStatus::False, "WaitingForRemediation"))
        );
        assert_eq!(of_machine(&machine, types::OWNER_REMEDIATED), None);
        let made = stage.get("remediation.example/v1", "Reboot", name).await.expect("it was made");
        assert_eq!((&made["spec"], &made["data"]), (&json!({"tries": 3}), &Value::Null));
        let metadata = &made["metadata"];
        assert_eq!(metadata["labels"], json!({"l": "1", "cluster.x-k8s.io/cluster-name": "c"}));
        assert_eq!(metadata["finalizers"], Value::Null);
        let owner = &metadata["ownerReferences"][0];
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        assert_eq!(
            (&owner["kind"], &owner["uid"], &owner["controller"]),
            (&json!("Machine"), &json!(uid), &Value::Null)
        );
        assert_eq!(
            metadata["annotations"]["cluster.x-k8s.io/cloned-from-groupkind"],
            "RebootTemplate.remediation.example"
        );
    }
    assert_eq!(stage.get("v1", "Secret", "bad").await, None);
    set_ready(&workload, "bad", "True").await;
    looked(&stage, 2, 1).await;
    assert_eq!(stage.get("remediation.example/v1", "Reboot", "bad").await, None, "it is not needed any more");
    assert!(stage.get("remediation.example/v1", "Reboot", "worse").await.is_some());
    // One that is gone before its time is made again.
    let of = crate::engine::external::GroupKind { group: REMEDIATION.into(), kind: "Reboot".into() };
    let kind = stage.core.externals.of(&of).await.expect("a kind");
    let before = kind.get(NAMESPACE, "worse").and_then(|object| object.metadata.uid.clone());
    delete(&stage.sandbox, &object("remediation.example/v1", "Reboot", "worse")).await;
    let is_new = |object: Option<&crate::engine::external::External>| {
        object.is_some_and(|object| object.metadata.uid != before)
    };
    let made = kind.objects.until("default/worse", is_new);
    tokio::time::timeout(std::time::Duration::from_secs(3600), made).await.expect("it is made again");
}

#[tokio::test(start_paused = true)]
async fn only_kinds_of_providers_are_made_and_only_requests_deleted() {
    let (stage, workload) = ready_stage(&[("bad", "False")]).await;
    // A kind without the label of the contract is nobody's to make.
    stage.serve(REMEDIATION, "Reboot", false).await;
    stage.serve(REMEDIATION, "RebootTemplate", true).await;
    template(&stage).await;
    check(&stage, with_template("RebootTemplate")).await;
    start(&stage);
    let machines = &stage.core.stores.machines;
    let reason = |machine: &Machine| {
        of_machine(machine, types::EXTERNALLY_REMEDIATED).map(|(_, reason)| reason.to_owned())
    };
    stage.until(machines, "bad", |one| reason(one).as_deref() == Some("RemediationTemplateNotFound")).await;
    assert_eq!(stage.get("remediation.example/v1", "Reboot", "bad").await, None);
    // An object of the Machine's name that was not made from the template belongs to another.
    stage.serve(REMEDIATION, "Own", true).await;
    stage.serve(REMEDIATION, "OwnTemplate", true).await;
    let mut own = object("remediation.example/v1", "Own", "bad");
    let uid = machines.get("default/bad").and_then(|one| one.metadata.uid.clone()).unwrap_or_default();
    own["metadata"]["ownerReferences"] =
        json!([{"apiVersion": CORE, "kind": "Machine", "name": "bad", "uid": uid, "controller": true}]);
    stage.create(own).await;
    stage
        .patch(
            CORE,
            "MachineHealthCheck",
            "check",
            &json!({"spec": {"remediation": with_template("OwnTemplate")}}),
        )
        .await;
    set_ready(&workload, "bad", "True").await;
    looked(&stage, 1, 1).await;
    assert!(stage.get("remediation.example/v1", "Own", "bad").await.is_some());
}
