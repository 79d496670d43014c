use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};

use component::leader_election::Fence;
use controller_kit::writes::WriteError;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::{
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use sandbox::{Matcher, kubelet};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::workload::{
    ClusterChange,
    node_sync::NodePatch,
    testing::{Mode, Server, Stage, answering, kubeconfig, workload},
};

const SECOND: Duration = Duration::from_secs(1);

fn key(name: &str) -> ClusterKey {
    ClusterKey::new("default", name)
}

/// A stage with one cluster that is connected.
async fn one(nodes: &[&str]) -> (Stage, Server, ClusterKey) {
    let stage = Stage::new();
    let server = Server::new(workload(nodes).await);
    stage.hosts.set("one.example", server.client());
    stage.kubeconfig(&key("one"), "one.example").await;
    stage.clusters.follow(&key("one"), "uid");
    stage.connected(&key("one")).await;
    (stage, server, key("one"))
}

/// A Node without a provider ID.
async fn register(server: &Server, name: &str) {
    kubelet::register(&server.sandbox.client(), &kubelet::node(name, name)).await.expect("registered");
}

async fn patch_node(server: &Server, name: &str, patch: Value) {
    let api: Api<Node> = Api::all(server.sandbox.client());
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
}

/// The Nodes that are reported next.
async fn changed(changes: &mut Changes, cluster: &ClusterKey) -> Vec<(String, BTreeSet<String>)> {
    match changes.next().await.remove(cluster) {
        Some(ClusterChange::Nodes(nodes)) => nodes.into_iter().collect(),
        other => panic!("{other:?}"),
    }
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_known_and_their_changes_reported() {
    let (stage, server, cluster) = one(&["a", "b"]).await;
    let connected = stage.clusters.get(&cluster).expect("connected");
    assert_eq!(connected.nodes().len(), 2);
    let found = connected.nodes().by_provider_id("x://a").expect("one").expect("a Node");
    assert_eq!(found.name, "a");
    let probe = stage.clusters.probe(&cluster);
    assert!(probe.last_success.is_some() && probe.failures == 0 && probe.grace == 300 * SECOND);
    let mut changes = stage.clusters.changes();
    patch_node(&server, "a", json!({"metadata": {"labels": {"l": "1"}}})).await;
    assert_eq!(changed(&mut changes, &cluster).await, [("a".to_owned(), ids(&["x://a"]))]);
    register(&server, "c").await;
    assert_eq!(changed(&mut changes, &cluster).await, [("c".to_owned(), ids(&[]))]);
    patch_node(&server, "c", json!({"spec": {"providerID": "x://b"}})).await;
    assert_eq!(changed(&mut changes, &cluster).await, [("c".to_owned(), ids(&["x://b"]))]);
    assert!(connected.nodes().by_provider_id("x://b").is_err(), "two have it");
    let nodes: Api<Node> = Api::all(server.sandbox.client());
    nodes.delete("b", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(changed(&mut changes, &cluster).await, [("b".to_owned(), ids(&["x://b"]))]);
    let found = connected.nodes().by_provider_id("x://b").expect("one").expect("a Node");
    assert_eq!(found.name, "c");
}

#[tokio::test(start_paused = true)]
async fn why_there_is_no_connection_is_said_and_a_secret_that_comes_is_used_at_once() {
    let stage = Stage::new();
    let cluster = key("one");
    assert_eq!(stage.not_connected(&cluster, "").await, "the Cluster is not followed");
    stage.clusters.follow(&cluster, "uid");
    assert_eq!(stage.not_connected(&cluster, "Secret").await, "Secret one-kubeconfig does not exist");
    stage.secret(&cluster, "hunter2: [").await;
    let reason = stage.not_connected(&cluster, "no kubeconfig").await;
    assert!(
        reason.starts_with("the kubeconfig in Secret one-kubeconfig is not used")
            && !reason.contains("hunter2")
    );
    stage.kubeconfig(&cluster, "nobody.example").await;
    stage.not_connected(&cluster, "no such host").await;
    let server = Server::new(workload(&["a"]).await);
    server.set(Mode::Refuses);
    stage.hosts.set("one.example", server.client());
    stage.kubeconfig(&cluster, "one.example").await;
    stage.not_connected(&cluster, "refused").await;
    assert!(
        stage.clusters.probe(&cluster).failures >= 4 && stage.clusters.probe(&cluster).last_success.is_none()
    );
    server.set(Mode::Serves);
    // The wait for the next attempt ends with a change of the Secret.
    let began = Instant::now();
    stage.secret(&cluster, &format!("{} ", kubeconfig("one.example"))).await;
    stage.connected(&cluster).await;
    assert!(began.elapsed() <= 3 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn of_one_namespace_no_other_is_read() {
    let options = Options { namespace: Some("default".to_owned()), ..Options::default() };
    let stage = Stage::with(crate::gate::PartFence::default(), options);
    stage.clusters.follow(&key("one"), "uid");
    stage.not_connected(&key("one"), "does not exist").await;
    let server = Server::new(workload(&["a"]).await);
    stage.hosts.set("one.example", server.client());
    stage.kubeconfig(&key("one"), "one.example").await;
    stage.connected(&key("one")).await;
    let secrets = Matcher::any().resource("secrets");
    let requests = stage.management.requests_matching(&secrets);
    assert!(requests.iter().any(|request| request.verb == "watch"), "{requests:?}");
    assert!(requests.iter().all(|request| request.namespace == "default"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_kubeconfig_replaces_the_connection_and_the_same_one_does_not() {
    let (stage, _server, cluster) = one(&["a"]).await;
    let other = Server::new(workload(&["b"]).await);
    stage.hosts.set("two.example", other.client());
    let connects = || stage.hosts.connects.load(Ordering::Relaxed);
    assert_eq!(connects(), 1);
    let labels = json!({"metadata": {"labels": {"more": "labels"}}});
    let secrets: Api<Secret> = Api::namespaced(stage.management.client(), "default");
    secrets.patch("one-kubeconfig", &PatchParams::default(), &Patch::Merge(labels)).await.expect("patched");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(connects(), 1, "the same kubeconfig");
    let mut changes = stage.clusters.changes();
    stage.kubeconfig(&cluster, "two.example").await;
    while stage.clusters.get(&cluster).expect("never without a connection").nodes().get("b").is_none() {
        changes.next().await;
    }
    assert_eq!(connects(), 2);
    assert!(stage.clusters.get(&cluster).expect("connected").nodes().get("a").is_none());
    secrets.delete("one-kubeconfig", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(stage.not_connected(&cluster, "").await, "Secret one-kubeconfig does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_not_written_again_before_the_watch_shows_the_last_write() {
    let (stage, server, cluster) = one(&["a", "b"]).await;
    let connected = stage.clusters.get(&cluster).expect("connected");
    connected.nodes().wrote("a", u64::MAX.to_string());
    let labels = [("l".to_owned(), Some("1".to_owned()))].into();
    let patch = NodePatch { labels, ..NodePatch::default() };
    for name in ["a", "b"] {
        let node = connected.nodes().get(name).expect("a Node");
        connected.patch_node(&node, &patch).await.expect("no error");
    }
    let written = server.sandbox.requests_matching(&Matcher::any().verb("patch").resource("nodes"));
    assert_eq!(written.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_shows_after_some_probes_and_ends_by_itself() {
    for (mode, words) in [(Mode::Refuses, "refused"), (Mode::Hangs, "within 5s")] {
        let (stage, server, cluster) = one(&["a"]).await;
        let mut changes = stage.clusters.changes();
        server.set(mode);
        let began = Instant::now();
        stage.not_connected(&cluster, words).await;
        let took = began.elapsed();
        assert!(took >= 10 * SECOND && took <= 60 * SECOND, "{mode:?}: {took:?}");
        assert_eq!(changes.next().await.remove(&cluster), Some(ClusterChange::Everything));
        let probe = stage.clusters.probe(&cluster);
        assert!(probe.failures >= 3 && probe.last_success.is_some());
        tokio::time::sleep(3600 * SECOND).await;
        server.set(Mode::Serves);
        register(&server, "b").await;
        patch_node(&server, "b", json!({"spec": {"providerID": "x://new"}})).await;
        let back = Instant::now();
        let connected = stage.connected(&cluster).await;
        assert!(back.elapsed() <= 80 * SECOND, "{:?}", back.elapsed());
        assert!(connected.nodes().by_provider_id("x://new").expect("one").is_some());
        assert_eq!(stage.clusters.probe(&cluster).failures, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn one_lost_probe_is_no_outage_and_refused_credentials_are_one_at_once() {
    let (stage, server, cluster) = one(&["a"]).await;
    let mut changes = stage.clusters.changes();
    server.set(Mode::Refuses);
    while stage.clusters.probe(&cluster).failures == 0 {
        tokio::time::sleep(SECOND).await;
    }
    server.set(Mode::Serves);
    tokio::time::sleep(60 * SECOND).await;
    assert!(changes.take().is_empty() && stage.clusters.get(&cluster).is_ok());
    server.set(Mode::Unauthorized);
    let began = Instant::now();
    stage.not_connected(&cluster, "refuses the credentials (401)").await;
    assert!(began.elapsed() <= 13 * SECOND, "with the next probe: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_forgotten_or_replaced() {
    let (stage, server, cluster) = one(&["a"]).await;
    stage.clusters.follow(&cluster, "uid");
    assert_eq!(stage.hosts.connects.load(Ordering::Relaxed), 1, "it is followed already");
    stage.clusters.follow(&cluster, "another");
    stage.connected(&cluster).await;
    assert_eq!(stage.hosts.connects.load(Ordering::Relaxed), 2);
    stage.clusters.forget(&cluster);
    assert!(stage.clusters.get(&cluster).is_err());
    tokio::time::sleep(60 * SECOND).await;
    server.sandbox.reset_requests();
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!(server.sandbox.requests(), sandbox::Counts::default(), "nothing is asked any more");
}

fn answer(text: &Value) -> Response<Body> {
    Response::new(Body::from(text.to_string().into_bytes()))
}

/// An API server that is alive and gives this page of Nodes for each list, and more after each.
fn lists(page: impl Fn(usize) -> Value + Clone + Send + 'static, asked: &Arc<AtomicUsize>) -> Client {
    let asked = asked.clone();
    answering(move |request: Request<Body>| {
        let page = if request.uri().path().contains("nodes") {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1", "continue": "more"},
                "items": page(number)})
        } else {
            json!("ok")
        };
        std::future::ready(answer(&page))
    })
}

#[tokio::test(start_paused = true)]
async fn hostile_api_servers_cost_their_own_cluster_alone() {
    let stage = Stage::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let node = |name: String, text: usize| json!({"metadata": {"name": name, "annotations": {"a": "x".repeat(text)}}});
    let hostile: [(&str, Client, &str); 8] = [
        (
            "hangs",
            answering(|_| std::future::pending::<Response<Body>>()),
            "no answer from the API server within 5s",
        ),
        ("endless-pages", lists(|_| json!([]), &asked), "Nodes could not be listed within 60s"),
        (
            "many-nodes",
            lists(move |page| (0..100).map(|at| node(format!("n{page}-{at}"), 0)).collect(), &asked),
            "more than 10000 Nodes",
        ),
        (
            "many-items",
            lists(|_| vec![json!({}); 10_001].into(), &asked),
            "the answer has more than 10000 items",
        ),
        (
            "large-nodes",
            lists(move |page| json!([node(format!("n{page}"), 1 << 20)]), &asked),
            "more than 10000 Nodes, or more than 16 MiB",
        ),
        (
            "large-page",
            lists(move |_| json!([node("n".to_owned(), 17 << 20)]), &asked),
            "more than 16777216 bytes",
        ),
        (
            "no-json",
            answering(|_| std::future::ready(Response::new(Body::from(vec![b'{'; 100])))),
            "Nodes cannot be listed",
        ),
        (
            "redirects",
            answering(|_| {
                let mut answer = Response::new(Body::empty());
                *answer.status_mut() = http::StatusCode::FOUND;
                answer
                    .headers_mut()
                    .insert("location", "https://169.254.169.254/".parse().expect("a header"));
                std::future::ready(answer)
            }),
            "",
        ),
    ];
    for (name, client, _) in &hostile {
        stage.hosts.set(&format!("{name}.example"), client.clone());
        stage.kubeconfig(&key(name), &format!("{name}.example")).await;
        stage.clusters.follow(&key(name), name);
    }
    let good = Server::new(workload(&["a"]).await);
    stage.hosts.set("good.example", good.client());
    stage.kubeconfig(&key("good"), "good.example").await;
    stage.clusters.follow(&key("good"), "good");
    let began = Instant::now();
    let connected = stage.connected(&key("good")).await;
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
    for (name, _, words) in &hostile {
        let reason = stage.not_connected(&key(name), words).await;
        assert!(reason.chars().count() <= 300, "{name}: {reason}");
        assert!(stage.clusters.get(&key(name)).is_err(), "{name}");
    }
    // Each page counts 16 KiB, and 4 MiB may come in a second after the first 64. Each attempt takes a minute at most.
    let before = asked.load(Ordering::Relaxed);
    tokio::time::sleep(120 * SECOND).await;
    let pages = asked.load(Ordering::Relaxed) - before;
    assert!(pages < 2 * 120 * 256, "{pages}");
    assert!(stage.clusters.get(&key("good")).is_ok() && connected.nodes().get("a").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_is_written_only_if_it_is_the_one_and_only_within_the_term() {
    let (stage, server, cluster) = one(&["a", "b"]).await;
    let connected = stage.clusters.get(&cluster).expect("connected");
    let node = connected.read_node("a").await.expect("read").expect("a Node");
    assert_eq!(connected.read_node("../secrets").await.expect("no name"), None);
    connected.cordon(&node).await.expect("cordoned");
    let now = connected.read_node("a").await.expect("read").expect("a Node");
    assert!(now.unschedulable);
    let other = crate::workload::Node { uid: "another".to_owned(), unschedulable: false, ..now.clone() };
    assert!(matches!(connected.cordon(&other).await, Err(WriteError::Gone)));
    let nodes: Api<Node> = Api::all(server.sandbox.client());
    connected.delete_node(&other).await.expect("it does not exist any more");
    assert!(nodes.get_opt("a").await.expect("read").is_some(), "another one has the name");
    connected.delete_node(&now).await.expect("deleted");
    assert!(nodes.get_opt("a").await.expect("read").is_none());
    connected.delete_node(&now).await.expect("gone already");

    let stage = Stage::with(Fence::default().into(), Options::default());
    stage.hosts.set("one.example", server.client());
    stage.kubeconfig(&cluster, "one.example").await;
    stage.clusters.follow(&cluster, "uid");
    let connected = stage.connected(&cluster).await;
    let node = connected.nodes().get("b").expect("reads go on");
    server.sandbox.reset_requests();
    let refused = [
        connected.cordon(&node).await.expect_err("the term is over").to_string(),
        connected.delete_node(&node).await.expect_err("the term is over").to_string(),
    ];
    assert!(refused.iter().all(|why| why.contains("does not lead any more")), "{refused:?}");
    assert!(
        nodes
            .get_opt("b")
            .await
            .expect("read")
            .is_some_and(|node| node.spec.and_then(|spec| spec.unschedulable) != Some(true))
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_that_panics_is_that_of_one_cluster() {
    let stage = Stage::new();
    stage.hosts.set("one.example", Server::new(workload(&["a"]).await).client());
    stage.hosts.panics.store(true, Ordering::Relaxed);
    stage.kubeconfig(&key("one"), "one.example").await;
    stage.clusters.follow(&key("one"), "uid");
    stage.not_connected(&key("one"), "internal error").await;
    stage.connected(&key("one")).await;
}
