use cluster_api::{
    ClusterResourceSet as Set, ClusterResourceSetBinding, ClusterResourceSetStrategy as Strategy, Condition,
    ConditionStatus, ResourceBinding,
};
use sandbox::{Action, Fault, Matcher, Sandbox};
use serde_json::{Value, json};

use super::*;
use crate::{
    core::workload_key,
    testing::{NAMESPACE, Stage, create, definition, delete, get, object, patch},
};

const ADDONS: &str = "addons.cluster.x-k8s.io/v1beta2";

async fn cluster(stage: &Stage, name: &str) {
    stage
        .create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"cni": "x"}, "finalizers": ["test/hold"]},
            "spec": {},
        }))
        .await;
}

async fn set(stage: &Stage, name: &str, strategy: &str, resources: &[(&str, &str)]) {
    let resources: Vec<_> =
        resources.iter().map(|(kind, name)| json!({"kind": kind, "name": name})).collect();
    stage
        .create(json!({
            "apiVersion": ADDONS, "kind": "ClusterResourceSet",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterSelector": {"matchLabels": {"cni": "x"}}, "strategy": strategy, "resources": resources},
        }))
        .await;
}

async fn config_map(stage: &Stage, name: &str, text: &str) {
    let mut map = object("v1", "ConfigMap", name);
    map["data"] = json!({"objects.yaml": text});
    stage.create(map).await;
}

async fn secret(stage: &Stage, name: &str, type_: &str, text: &str) {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let mut secret = object("v1", "Secret", name);
    secret["type"] = type_.into();
    secret["data"] = json!({"objects.yaml": BASE64_STANDARD.encode(text)});
    stage.create(secret).await;
}

/// A `ConfigMap` of a workload cluster, with this value.
fn applied(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  value: '{value}'\n")
}

fn start(stage: &Stage) {
    let controller = ClusterResourceSetController::new(stage.core.clone());
    let sources = controller.sources(&stage.sandbox.client());
    stage.run(controller, sources);
    let controller = ClusterResourceSetBindingController::new(stage.core.clone());
    let sources = controller.sources();
    stage.run(controller, sources);
}

fn condition_of(set: &Set) -> Option<&Condition> {
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "ResourcesApplied")
}

/// Waits until `ResourcesApplied` has this reason and this in its message, and gives the message.
async fn says(stage: &Stage, name: &str, reason: &str, words: &str) -> String {
    let sets = &stage.core.stores.cluster_resource_sets;
    let set = stage
        .until(sets, name, |set| {
            condition_of(set).is_some_and(|one| one.reason == reason && one.message.contains(words))
        })
        .await;
    let condition = condition_of(&set).expect("it is there");
    assert_eq!(condition.status == ConditionStatus::True, reason == "Applied");
    condition.message.clone()
}

/// What a set has applied to a Cluster.
fn resources_of(binding: &ClusterResourceSetBinding, set: &str) -> Vec<ResourceBinding> {
    let found = binding.spec.bindings.iter().find(|part| part.cluster_resource_set_name == set);
    found.map(|part| part.resources.clone()).unwrap_or_default()
}

async fn value(workload: &Sandbox, name: &str) -> Value {
    let found = get(workload, &object("v1", "ConfigMap", name)).await;
    found.map(|map| map["data"]["value"].clone()).unwrap_or_default()
}

/// Waits until a `ConfigMap` of a workload cluster has this value.
async fn until_value(stage: &Stage, workload: &Sandbox, name: &str, expected: &str) {
    let bindings = &stage.core.stores.cluster_resource_set_bindings;
    let mut changes = bindings.subscribe();
    while value(workload, name).await != expected {
        let changed = tokio::time::timeout(std::time::Duration::from_secs(3600), changes.next()).await;
        assert!(changed.is_ok(), "{name} does not become {expected}: {:?}", bindings.all());
    }
}

#[tokio::test(start_paused = true)]
async fn resources_are_applied_to_every_cluster_that_is_selected() {
    let stage = Stage::new().await;
    let (one, two) = (stage.workload("one").await, stage.workload("two").await);
    cluster(&stage, "one").await;
    cluster(&stage, "two").await;
    let namespaced = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: inner, namespace: team}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
    config_map(&stage, "maps", &format!("{}---\n{namespaced}", applied("a", "1"))).await;
    secret(&stage, "secrets", "addons.cluster.x-k8s.io/resource-set", &applied("b", "2")).await;
    set(&stage, "set", "ApplyOnce", &[("ConfigMap", "maps"), ("Secret", "secrets")]).await;
    start(&stage);
    says(&stage, "set", "Applied", "").await;
    for (workload, name) in [(&one, "one"), (&two, "two")] {
        assert_eq!((value(workload, "a").await, value(workload, "b").await), (json!("1"), json!("2")));
        let inner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inner", "namespace": "team"}});
        assert!(get(workload, &inner).await.is_some(), "its Namespace came first");
        let bindings = &stage.core.stores.cluster_resource_set_bindings;
        let is_done = |binding: &ClusterResourceSetBinding| {
            let resources = resources_of(binding, "set");
            resources.len() == 2 && resources.iter().all(|one| one.applied && one.last_applied_time.is_some())
        };
        let binding = stage.until(bindings, name, is_done).await;
        assert_eq!(binding.spec.cluster_name, name);
        let hashes: Vec<_> = resources_of(&binding, "set").into_iter().filter_map(|one| one.hash).collect();
        assert!(hashes.len() == 2 && hashes.iter().all(|hash| hash.starts_with("sha256:")), "{hashes:?}");
        let owners = binding.metadata.owner_references.clone().unwrap_or_default();
        assert_eq!(owners.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), ["set"]);
    }
    for (kind, name) in [("ConfigMap", "maps"), ("Secret", "secrets")] {
        let resource = stage.get("v1", kind, name).await.expect("it is there");
        assert_eq!(resource["metadata"]["ownerReferences"][0]["name"], "set");
    }
    let set = stage.get(ADDONS, "ClusterResourceSet", "set").await.expect("it is there");
    assert_eq!(set["metadata"]["finalizers"], json!(["addons.cluster.x-k8s.io"]));
}

#[tokio::test(start_paused = true)]
async fn apply_once_leaves_alone_what_is_there_and_reconcile_follows_the_resource() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    let mut there = object("v1", "ConfigMap", "once");
    there["data"] = json!({"value": "own"});
    create(&workload, there).await;
    config_map(&stage, "once", &applied("once", "1")).await;
    config_map(&stage, "follows", &applied("follows", "1")).await;
    set(&stage, "once", "ApplyOnce", &[("ConfigMap", "once")]).await;
    set(&stage, "follows", "Reconcile", &[("ConfigMap", "follows")]).await;
    start(&stage);
    says(&stage, "once", "Applied", "").await;
    says(&stage, "follows", "Applied", "").await;
    assert_eq!(
        (value(&workload, "once").await, value(&workload, "follows").await),
        (json!("own"), json!("1"))
    );
    for name in ["once", "follows"] {
        let data = json!({"data": {"objects.yaml": applied(name, "2")}});
        stage.patch("v1", "ConfigMap", name, &data).await;
    }
    until_value(&stage, &workload, "follows", "2").await;
    assert_eq!(value(&workload, "once").await, json!("own"));
    // Two sets share the binding.
    let bindings = &stage.core.stores.cluster_resource_set_bindings;
    let has_both = |binding: &ClusterResourceSetBinding| {
        ["once", "follows"].iter().all(|set| resources_of(binding, set).iter().any(|one| one.applied))
    };
    stage.until(bindings, "c", has_both).await;
    // Nothing else is written while nothing changes.
    workload.reset_requests();
    patch(
        &stage.sandbox,
        &object("v1", "ConfigMap", "follows"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    config_map(&stage, "more", &applied("more", "1")).await;
    set(&stage, "more", "Reconcile", &[("ConfigMap", "more")]).await;
    says(&stage, "more", "Applied", "").await;
    let writes =
        |verb: &str| workload.requests_matching(&Matcher::any().verb(verb).resource("configmaps")).len();
    assert_eq!((writes("patch"), writes("create")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_and_waited_for() {
    let stage = Stage::new().await;
    cluster(&stage, "c").await;
    config_map(&stage, "early", &applied("early", "1")).await;
    set(&stage, "set", "ApplyOnce", &[("ConfigMap", "early"), ("ConfigMap", "late")]).await;
    start(&stage);
    let message = says(&stage, "set", "InternalError", "no connection to the workload cluster").await;
    assert!(message.contains("ConfigMap late does not exist"), "{message}");
    let workload = stage.workload("c").await;
    until_value(&stage, &workload, "early", "1").await;
    config_map(&stage, "late", &applied("late", "2")).await;
    says(&stage, "set", "Applied", "").await;
    assert_eq!(value(&workload, "late").await, json!("2"));
}

#[tokio::test(start_paused = true)]
async fn where_all_is_applied_no_connection_is_missed() {
    let stage = Stage::new().await;
    let _workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    config_map(&stage, "map", &applied("a", "1")).await;
    set(&stage, "set", "Reconcile", &[("ConfigMap", "map")]).await;
    start(&stage);
    says(&stage, "set", "Applied", "").await;
    stage.core.workload.forget(&workload_key(NAMESPACE, "c"));
    // A change of the set lets it look again.
    let change = |spec: Value| json!({"spec": spec});
    stage.patch(ADDONS, "ClusterResourceSet", "set", &change(json!({"strategy": "ApplyOnce"}))).await;
    let sets = &stage.core.stores.cluster_resource_sets;
    let is_seen = |set: &Set| {
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        set.spec.strategy == Some(Strategy::ApplyOnce) && observed == set.metadata.generation
    };
    let set = stage.until(sets, "set", is_seen).await;
    assert_eq!(condition_of(&set).map(|one| one.reason.as_str()), Some("Applied"));
    config_map(&stage, "more", &applied("b", "2")).await;
    let resources = json!([{"kind": "ConfigMap", "name": "map"}, {"kind": "ConfigMap", "name": "more"}]);
    stage.patch(ADDONS, "ClusterResourceSet", "set", &change(json!({"resources": resources}))).await;
    says(&stage, "set", "InternalError", "no connection to the workload cluster").await;
}

#[tokio::test(start_paused = true)]
async fn only_secrets_for_sets_reach_a_cluster() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    secret(&stage, "other", "Opaque", &applied("stolen", "1")).await;
    set(&stage, "set", "ApplyOnce", &[("Secret", "other")]).await;
    // The Secret with the kubeconfig of the Cluster is of another type too.
    set(&stage, "kubeconfig", "ApplyOnce", &[("Secret", "c-kubeconfig")]).await;
    // Names that would lead to another namespace.
    set(&stage, "far", "ApplyOnce", &[("ConfigMap", "../../kube-system/configmaps/x")]).await;
    start(&stage);
    assert_eq!(
        says(&stage, "set", "WrongSecretType", "").await,
        "Secret type of resource other is not supported"
    );
    says(&stage, "kubeconfig", "WrongSecretType", "").await;
    says(&stage, "far", "InternalError", "is not the name of an object").await;
    assert_eq!(value(&workload, "stolen").await, Value::Null);
    let other = stage.get("v1", "Secret", "other").await.expect("it is there");
    assert_eq!(other["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_applied_keeps_nothing_else_from_it() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    let unknown = "apiVersion: no.example/v1\nkind: Nothing\nmetadata: {name: hunter2}\n";
    let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd, namespace: ../kube-system}\n";
    let nowhere = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: nowhere}\n";
    let text = [unknown, odd, nowhere, &applied("good", "1")].join("---\n");
    config_map(&stage, "open", &text).await;
    secret(&stage, "closed", "addons.cluster.x-k8s.io/resource-set", &text.replace("good", "fine")).await;
    config_map(&stage, "malformed", "a: [hunter2").await;
    let resources = [("ConfigMap", "malformed"), ("ConfigMap", "open"), ("Secret", "closed")];
    set(&stage, "set", "Reconcile", &resources).await;
    start(&stage);
    let message = says(&stage, "set", "NotApplied", "Secret closed").await;
    assert_eq!((value(&workload, "good").await, value(&workload, "fine").await), (json!("1"), json!("1")));
    for words in [
        "* ConfigMap malformed: data.objects.yaml is neither YAML nor JSON",
        "* Cluster c, ConfigMap open: no.example/v1 Nothing hunter2: the cluster has no such kind",
        "ConfigMap ../kube-system/odd: metadata.namespace is not the name of a namespace",
        "* Cluster c, ConfigMap open: v1 ConfigMap nowhere/x: namespaces \"nowhere\" not found (404)",
        "* Cluster c, Secret closed: data.objects.yaml, object 1: the cluster has no such kind",
        "* Cluster c, Secret closed: data.objects.yaml, object 3: the API server refuses it (404)",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let of_secret = message.lines().filter(|line| line.contains("Secret closed"));
    assert!(
        !of_secret.into_iter().any(|line| line.contains("hunter2") || line.contains("nowhere")),
        "{message}"
    );
    let binding = stage.until(&stage.core.stores.cluster_resource_set_bindings, "c", |binding| {
        resources_of(binding, "set").len() == 3
    });
    let resources = resources_of(&**binding.await, "set");
    assert!(resources.iter().all(|one| !one.applied), "{resources:?}");
    assert_eq!(resources.iter().map(|one| one.hash.is_some()).collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_may_come_with_its_definition() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    let own = object("own.example/v1", "Thing", "t");
    let text = format!("{own}\n---\n{}\n", definition("own.example", "Thing", "things", &json!({})));
    config_map(&stage, "both", &text).await;
    set(&stage, "set", "Reconcile", &[("ConfigMap", "both")]).await;
    start(&stage);
    says(&stage, "set", "Applied", "").await;
    assert!(get(&workload, &own).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_a_time_is_tried_again() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    config_map(&stage, "map", &applied("a", "1")).await;
    let writes = Matcher::any().verb("patch").resource("configmaps");
    workload.faults().inject(Fault::new(writes, Action::InternalError).times(3));
    set(&stage, "set", "Reconcile", &[("ConfigMap", "map")]).await;
    start(&stage);
    says(&stage, "set", "NotApplied", "(500)").await;
    says(&stage, "set", "Applied", "").await;
    assert_eq!(value(&workload, "a").await, json!("1"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_is_asked_once_in_a_pass() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    let text = ["a", "b", "d"].map(|name| applied(name, "1")).join("---\n");
    config_map(&stage, "map", &text).await;
    let writes = Matcher::any().verb("patch").resource("configmaps");
    let slow = Action::Delay(std::time::Duration::from_secs(20));
    workload.faults().inject(Fault::new(writes.clone(), slow).times(2));
    set(&stage, "set", "Reconcile", &[("ConfigMap", "map")]).await;
    start(&stage);
    says(&stage, "set", "NotApplied", "no answer within 10s").await;
    says(&stage, "set", "Applied", "").await;
    assert_eq!(workload.requests_matching(&writes).len(), 5, "two without an answer, and three");
}

#[tokio::test(start_paused = true)]
async fn a_set_has_a_bounded_number_of_resources() {
    let stage = Stage::new().await;
    let _workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    let reads = Matcher::any().verb("get").resource("configmaps");
    set(&stage, "set", "ApplyOnce", &vec![("ConfigMap", "map"); 101]).await;
    start(&stage);
    says(&stage, "set", "InternalError", "spec.resources has more than 100 entries").await;
    assert_eq!(stage.sandbox.requests_matching(&reads).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_goes_leaves_all_bindings_and_what_it_applied() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    for name in ["one", "two"] {
        config_map(&stage, name, &applied(name, "1")).await;
        set(&stage, name, "ApplyOnce", &[("ConfigMap", name)]).await;
    }
    start(&stage);
    for name in ["one", "two"] {
        says(&stage, name, "Applied", "").await;
    }
    let (sets, bindings) =
        (&stage.core.stores.cluster_resource_sets, &stage.core.stores.cluster_resource_set_bindings);
    // The Cluster is not selected any more.
    stage
        .patch("cluster.x-k8s.io/v1beta2", "Cluster", "c", &json!({"metadata": {"labels": {"cni": "y"}}}))
        .await;
    delete(&stage.sandbox, &object(ADDONS, "ClusterResourceSet", "one")).await;
    stage.until_gone(sets, "one").await;
    let binding = stage.until(bindings, "c", |binding| binding.spec.bindings.len() == 1).await;
    let owners = binding.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(owners.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), ["two"]);
    delete(&stage.sandbox, &object(ADDONS, "ClusterResourceSet", "two")).await;
    stage.until_gone(sets, "two").await;
    stage.until_gone(bindings, "c").await;
    assert_eq!(value(&workload, "one").await, json!("1"));
}

#[tokio::test(start_paused = true)]
async fn a_binding_goes_with_its_cluster() {
    let stage = Stage::new().await;
    stage.workload("c").await;
    cluster(&stage, "c").await;
    config_map(&stage, "map", &applied("a", "1")).await;
    set(&stage, "set", "ApplyOnce", &[("ConfigMap", "map")]).await;
    start(&stage);
    says(&stage, "set", "Applied", "").await;
    let bindings = &stage.core.stores.cluster_resource_set_bindings;
    stage.until(bindings, "c", |binding| !binding.spec.bindings.is_empty()).await;
    delete(&stage.sandbox, &object("cluster.x-k8s.io/v1beta2", "Cluster", "c")).await;
    stage.until_gone(bindings, "c").await;
    // One of a Cluster that was never there.
    let mut stray = object(ADDONS, "ClusterResourceSetBinding", "stray");
    stray["spec"] = json!({"clusterName": "stray", "bindings": []});
    stage.create(stray).await;
    stage.until_gone(bindings, "stray").await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_set_does_nothing() {
    let stage = Stage::new().await;
    let workload = stage.workload("c").await;
    cluster(&stage, "c").await;
    config_map(&stage, "map", &applied("a", "1")).await;
    set(&stage, "set", "ApplyOnce", &[("ConfigMap", "map")]).await;
    let paused = |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    stage.patch(ADDONS, "ClusterResourceSet", "set", &paused(json!(""))).await;
    let sets = &stage.core.stores.cluster_resource_sets;
    stage.until(sets, "set", |set| set.metadata.annotations.is_some()).await;
    start(&stage);
    let is_paused = |set: &Set| {
        set.status.as_ref().is_some_and(|status| {
            status.conditions.iter().any(|one| one.type_ == "Paused" && one.status == ConditionStatus::True)
        })
    };
    stage.until(sets, "set", is_paused).await;
    assert_eq!(value(&workload, "a").await, Value::Null);
    stage.patch(ADDONS, "ClusterResourceSet", "set", &paused(Value::Null)).await;
    says(&stage, "set", "Applied", "").await;
}
