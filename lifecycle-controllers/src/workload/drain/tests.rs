use std::sync::Arc;

use cluster_api::{MachineDrainRule, MachineDrainRuleSpec};
use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use sandbox::{ResourceKind, Sandbox};
use serde_json::{Value, json};

use super::*;
use crate::workload::{
    Taint,
    testing::{answering, over},
    volumes,
};

/// A workload cluster whose API server evicts: Pods with the name `guarded...` have a disruption budget, `slow...` are deleted
/// and stay, others are gone at once.
struct Workload {
    sandbox: Sandbox,
    /// Evictions in their order, with their bodies.
    evictions: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Workload {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.register(ResourceKind::new("apps", "v1", "DaemonSet", "daemonsets").namespaced());
        sandbox.register(ResourceKind::new("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments"));
        sandbox.register(ResourceKind::new("", "v1", "PersistentVolume", "persistentvolumes"));
        Self { sandbox, evictions: Arc::default() }
    }

    async fn create(&self, path: &str, object: Value) {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .expect("a request");
        self.sandbox.client().request::<Value>(request).await.expect("created");
    }

    /// A Pod on the Node `n`, with these fields on top.
    async fn pod(&self, name: &str, more: Value) {
        let (namespace, name) = name.split_once('/').expect("a namespace");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        });
        for part in ["metadata", "spec"] {
            for (key, value) in more[part].as_object().into_iter().flatten() {
                pod[part][key] = value.clone();
            }
        }
        self.create(&format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    }

    async fn namespace(&self, name: &str, labels: Value) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.create("/api/v1/namespaces", namespace).await;
    }

    fn cluster(&self) -> WorkloadCluster {
        let (client, evictions) = (self.sandbox.client(), self.evictions.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, evictions) = (client.clone(), evictions.clone());
            async move {
                match request.uri().path().strip_suffix("/eviction").map(str::to_owned) {
                    Some(pod) => Ok::<_, kube::Error>(evict(client, &evictions, &pod, request).await),
                    None => client.send(request).await,
                }
            }
        });
        over(Client::new(service, "default"))
    }

    fn evicted(&self) -> Vec<String> {
        self.evictions.lock().drain(..).map(|(pod, _)| pod).collect()
    }

    async fn pass(&self, rules: &DrainRules) -> Progress {
        pass(&self.cluster(), &node(), rules, "T").await.expect("a pass")
    }
}

async fn evict(
    client: Client,
    evictions: &Mutex<Vec<(String, Value)>>,
    path: &str,
    request: Request<Body>,
) -> Response<Body> {
    let body = request.into_body().collect_bytes().await.expect("a body");
    let parts: Vec<&str> = path.split('/').collect();
    let (namespace, name) = (parts[4], parts[6]);
    evictions.lock().push((format!("{namespace}/{name}"), serde_json::from_slice(&body).expect("JSON")));
    let (code, status) = match name {
        name if name.starts_with("guarded") => (
            429,
            json!({"status": "Failure", "code": 429, "reason": "TooManyRequests",
                "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods"}]}}),
        ),
        name if name.starts_with("leaving") => (
            403,
            json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": format!("pods {name} is forbidden"),
                "details": {"causes": [{"reason": "NamespaceTerminating", "message": "it is being terminated"}]}}),
        ),
        name if name.starts_with("vanished") => {
            (404, json!({"status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"}))
        }
        _ => {
            let request = Request::delete(path).body(Vec::new()).expect("a request");
            client.request::<Value>(request).await.expect("deleted");
            (201, json!({"status": "Success"}))
        }
    };
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = StatusCode::from_u16(code).expect("a status");
    answer
}

fn node() -> Node {
    Node { name: "n".to_owned(), uid: "u".to_owned(), unschedulable: true, ..Node::default() }
}

/// A Node that no kubelet answers for.
fn silent() -> Node {
    let ready = lifecycle::conditions::Condition {
        kind: "Ready".to_owned(),
        status: lifecycle::conditions::Status::Unknown,
        reason: String::new(),
        message: String::new(),
        since: 0,
    };
    Node { conditions: vec![ready], taints: vec![Taint::default()], ..node() }
}

fn rule(name: &str, spec: Value) -> MachineDrainRule {
    let spec: MachineDrainRuleSpec = serde_json::from_value(spec).expect("a rule");
    MachineDrainRule::new(name, spec)
}

fn rules(all: &[MachineDrainRule]) -> DrainRules {
    DrainRules::of(all, &BTreeMap::new(), &BTreeMap::new()).expect("rules")
}

fn held() -> Value {
    json!({"metadata": {"finalizers": ["test/held"]}})
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_until_none_is_left() {
    let workload = Workload::new();
    assert_eq!(workload.pass(&DrainRules::default()).await, Progress::Done);
    workload.pod("default/a", json!({})).await;
    workload.pod("default/slow", held()).await;
    workload.pod("kube-system/b", json!({})).await;
    workload.pod("default/elsewhere", json!({"spec": {"nodeName": "other"}})).await;
    let Progress::Waiting { message, after } = workload.pass(&DrainRules::default()).await else {
        panic!("pods")
    };
    assert_eq!(
        message,
        "Drain not completed yet (started at T):\n\
         * Pods default/a, default/slow, kube-system/b: deletionTimestamp set, but still not removed from the Node"
    );
    assert_eq!(after, SOON);
    let evictions = workload.evictions.lock().clone();
    let mut pods: Vec<&str> = evictions.iter().map(|(pod, _)| pod.as_str()).collect();
    pods.sort_unstable();
    assert_eq!(pods, ["default/a", "default/slow", "kube-system/b"]);
    for (_, body) in &evictions {
        let options = &body["deleteOptions"];
        assert!(
            options["preconditions"]["uid"].is_string() && options["gracePeriodSeconds"].is_null(),
            "{body}"
        );
    }
    workload.evicted();
    let Progress::Waiting { message, after } = workload.pass(&DrainRules::default()).await else {
        panic!("slow")
    };
    assert!(
        message.ends_with("* Pod default/slow: deletionTimestamp set, but still not removed from the Node")
    );
    assert_eq!((after, workload.evicted()), (SOON, vec![]), "it is not evicted again");
}

#[tokio::test(start_paused = true)]
async fn refusals_are_named_by_pod_and_budget() {
    let workload = Workload::new();
    for name in ["default/guarded-2", "default/guarded-1", "kube-system/leaving"] {
        workload.pod(name, json!({})).await;
    }
    let Progress::Waiting { message, after } = workload.pass(&DrainRules::default()).await else {
        panic!("pods")
    };
    assert_eq!(
        message,
        "Drain not completed yet (started at T):\n\
         * Pods default/guarded-1, default/guarded-2: cannot evict pod as it would violate the pod's disruption budget. The \
         disruption budget b needs 2 healthy pods\n\
         * Pod kube-system/leaving: failed to evict Pod, Cannot evict pod from terminating namespace: unable to create eviction \
         (kube-controller-manager should set deletionTimestamp)"
    );
    assert_eq!(after, LATER, "nothing is on its way");
    let gone = Workload::new();
    gone.pod("default/vanished", json!({})).await;
    assert_eq!(
        gone.pass(&DrainRules::default()).await,
        Progress::Done,
        "the API server says that it does not exist"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_would_come_again_or_are_waited_for_stay() {
    let workload = Workload::new();
    let owned = |set: &str| {
        json!({"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": set, "uid": "x", "controller": true}]})
    };
    workload.create("/apis/apps/v1/namespaces/default/daemonsets", json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "there", "namespace": "default"},
    })).await;
    workload.pod("default/of-daemon-set", json!({"metadata": owned("there")})).await;
    workload.pod("default/orphan", json!({"metadata": owned("gone")})).await;
    workload
        .pod("default/mirror", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}))
        .await;
    workload
        .pod("default/skipped", json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "skip"}}}))
        .await;
    workload
        .pod("default/job", json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "wait-completed"}}}))
        .await;
    let Progress::Waiting { message, after } = workload.pass(&DrainRules::default()).await else {
        panic!("pods")
    };
    assert!(message.ends_with("* Pod default/job: waiting for completion"), "{message}");
    assert_eq!((workload.evicted(), after), (vec!["default/orphan".to_owned()], SOON));
    let Progress::Waiting { after, .. } = workload.pass(&DrainRules::default()).await else {
        panic!("the job")
    };
    assert_eq!(after, LATER);
    let fault =
        sandbox::Fault::new(sandbox::Matcher::any().resource("daemonsets"), sandbox::Action::InternalError);
    workload.sandbox.faults().inject(fault);
    let error = pass(&workload.cluster(), &node(), &DrainRules::default(), "T").await.expect_err("unknown");
    assert!(error.to_string().starts_with("DaemonSet default/there cannot be read"), "{error}");
    assert!(workload.evicted().is_empty(), "nothing is evicted on unknown");
}

#[tokio::test(start_paused = true)]
async fn rules_order_and_skip_by_labels_of_pods_and_namespaces() {
    let workload = Workload::new();
    workload.namespace("storage", json!({"kind": "storage"})).await;
    workload.pod("default/first", json!({"metadata": {"labels": {"app": "first"}}})).await;
    workload.pod("default/plain", json!({})).await;
    workload.pod("storage/disk", json!({})).await;
    workload.pod("storage/skip", json!({"metadata": {"labels": {"app": "skip"}}})).await;
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    let storage = json!({"matchExpressions": [{"key": "kind", "operator": "In", "values": ["storage"]}]});
    let all = rules(&[
        rule(
            "b",
            json!({"drain": {"behavior": "Drain", "order": 10}, "pods": [{"namespaceSelector": storage}]}),
        ),
        rule(
            "a",
            json!({"drain": {"behavior": "Skip"}, "pods": [{"selector": app("skip"), "namespaceSelector": storage}]}),
        ),
        rule(
            "c",
            json!({"drain": {"behavior": "Drain", "order": -5}, "pods": [{"selector": app("first")}, {"selector": app("other")}]}),
        ),
    ]);
    let mut order = Vec::new();
    while let Progress::Waiting { message, .. } = workload.pass(&all).await {
        if order.is_empty() {
            assert!(
                message.contains("following Pods will be evicted: default/plain, storage/disk"),
                "{message}"
            );
        }
        order.push(workload.evicted());
    }
    assert_eq!(order, [["default/first"], ["default/plain"], ["storage/disk"]]);
}

#[test]
fn rules_apply_to_machines_by_labels() {
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let chosen = rule(
        "r",
        json!({"drain": {"behavior": "Skip"}, "machines": [
            {"selector": {"matchLabels": {"role": "db"}}, "clusterSelector": {"matchLabels": {"env": "prod"}}},
            {"selector": {"matchLabels": {"role": "any"}}},
        ]}),
    );
    let count = |machine: &[(&str, &str)], cluster: &[(&str, &str)]| {
        DrainRules::of([&chosen], &labels(machine), &labels(cluster)).expect("rules").len()
    };
    assert_eq!(count(&[("role", "db")], &[("env", "prod")]), 1);
    assert_eq!(count(&[("role", "db")], &[]), 0);
    assert_eq!(count(&[("role", "any")], &[]), 1);
    let bad = rule(
        "bad",
        json!({"drain": {"behavior": "Drain"}, "pods": [
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["x"]}]}}]}),
    );
    let error = DrainRules::of([&bad], &labels(&[]), &labels(&[])).expect_err("no operator");
    assert!(error.to_string().starts_with("MachineDrainRule bad: spec.pods[0].selector: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_kubelet_confirms_nothing() {
    let workload = Workload::new();
    workload.pod("default/slow", held()).await;
    let Progress::Waiting { .. } =
        pass(&workload.cluster(), &silent(), &DrainRules::default(), "T").await.expect("a pass")
    else {
        panic!("it is not evicted yet")
    };
    let grace = workload.evictions.lock()[0].1["deleteOptions"]["gracePeriodSeconds"].clone();
    assert_eq!(grace, json!(1));
    let mut old = pods::list(&workload.cluster(), "n", Timestamp::now()).await.expect("pods");
    let later = old.remove(0).judged.deleting_for.expect("it is being deleted") + 2;
    let judged = lifecycle::drain::Pod { deleting_for: Some(later), ..lifecycle::drain::Pod::default() };
    assert_eq!(Behavior::of(&judged, None, true), Behavior::Skip);
}

#[tokio::test(start_paused = true)]
async fn many_pods_take_several_passes_and_few_requests_at_once() {
    let workload = Workload::new();
    for number in 0..30 {
        workload.pod(&format!("default/p{number}"), json!({})).await;
    }
    workload.pod("kube-system/other", json!({})).await;
    // Each eviction takes 5 s, so 8 of them fit into the 10 s of a pass.
    let slow = sandbox::Fault::new(
        sandbox::Matcher::any().verb("delete"),
        sandbox::Action::Delay(Duration::from_secs(5)),
    );
    workload.sandbox.faults().inject(slow);
    let began = tokio::time::Instant::now();
    let Progress::Waiting { message, .. } = workload.pass(&DrainRules::default()).await else {
        panic!("pods")
    };
    assert_eq!(began.elapsed(), EVICTION_TIME);
    assert!(message.contains("eviction timeout of 10s reached, eviction will be retried"), "{message}");
    let evicted = workload.evicted();
    assert!(evicted.len() <= 12 && evicted[..2].contains(&"kube-system/other".to_owned()), "{evicted:?}");
}

const EVICTION_TIME: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn volumes_are_waited_for_but_not_those_of_pods_that_stay() {
    let workload = Workload::new();
    let volume = |name: &str, claim: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"csi": {"driver": "d", "volumeHandle": name},
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}},
        })
    };
    for (name, claim) in [("pv1", "used"), ("pv2", "of-skipped"), ("pv3", "elsewhere")] {
        workload.create("/api/v1/persistentvolumes", volume(name, claim)).await;
    }
    for (name, on, attached) in
        [("pv1", "n", true), ("pv2", "n", true), ("pv3", "other", true), ("pv9", "n", false)]
    {
        workload.create("/apis/storage.k8s.io/v1/volumeattachments", json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": format!("va-{name}")},
            "spec": {"nodeName": on, "attacher": "d", "source": {"persistentVolumeName": name}},
            "status": {"attached": attached},
        })).await;
    }
    let skipped = json!({"metadata": {"labels": {"cluster.x-k8s.io/drain": "skip"}},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "of-skipped"}}]}});
    workload.pod("default/skipped", skipped).await;
    let attached = async |node: &Node| {
        volumes::attached(&workload.cluster(), node, &DrainRules::default()).await.expect("a look")
    };
    let found = attached(&node()).await;
    assert_eq!(found.claims.iter().collect::<Vec<_>>(), ["default/used"]);
    assert!(found.without_volume.is_empty() && found.unknown_to_cluster.is_empty());
    let more =
        Node { volumes_attached: vec!["kubernetes.io/csi/d^pv3".to_owned(), "other".to_owned()], ..node() };
    let found = attached(&more).await;
    assert_eq!(found.claims.iter().collect::<Vec<_>>(), ["default/elsewhere", "default/used"]);
    assert_eq!(found.unknown_to_cluster.iter().collect::<Vec<_>>(), ["other"]);
    assert!(attached(&silent()).await.is_empty(), "nobody there would detach them");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_or_answer_ends_the_pass() {
    let list = |items: Vec<Value>| {
        let page =
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "more"}, "items": items});
        answering(move |_| std::future::ready(Response::new(Body::from(page.to_string().into_bytes()))))
    };
    let pods = |text: usize| {
        let pod = json!({"metadata": {"name": "p", "namespace": "default", "labels": {"l": "x".repeat(text)}},
            "spec": {"nodeName": "n"}});
        list(vec![pod; 100])
    };
    let hangs = answering(|_| std::future::pending::<Response<Body>>());
    for (client, expected) in [
        (pods(0), "too many"),
        (pods(100_000), "too large"),
        (list(vec![json!({}); 10_001]), "more than 10000 items"),
        (hangs, "no answer within 10s"),
    ] {
        let error = pass(&over(client), &node(), &DrainRules::default(), "T").await.expect_err("no end");
        assert!(
            error.to_string().starts_with("Pods cannot be") && error.to_string().contains(expected),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn namespaces_with_names_that_none_has_are_passed_over() {
    let named = |name: Value| json!({"metadata": {"name": name, "labels": {"l": "x"}}});
    let names = [json!("ok"), json!("A"), json!("a.b"), json!(""), json!(null), json!("x".repeat(1 << 20))];
    let page =
        json!({"kind": "NamespaceList", "apiVersion": "v1", "metadata": {}, "items": names.map(named)});
    let client =
        answering(move |_| std::future::ready(Response::new(Body::from(page.to_string().into_bytes()))));
    let found = pods::namespaces(&over(client)).await.expect("Namespaces");
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["ok"]);
}
