use std::{collections::VecDeque, convert::Infallible};

use futures::stream;
use http::StatusCode;
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Value, json};

use super::{
    super::node::{Node, WireNode},
    *,
};
use crate::cache::Watched as _;

/// A field with bytes (wire type 2): the number, the length, the content.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut bytes = Vec::new();
    encode_key(number.into(), WireType::LengthDelimited, &mut bytes);
    encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

fn number(number: u8, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(number.into(), WireType::Varint, &mut bytes);
    encode_varint(value, &mut bytes);
    bytes
}

/// An object in its envelope.
fn object(kind: &str, content: Vec<u8>) -> Vec<u8> {
    let type_meta = [field(1, "v1"), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, type_meta), field(2, content), field(3, ""), field(4, "")].concat()
}

/// An event of a watch with its length before it.
fn event(kind: &str, object: Vec<u8>) -> Vec<u8> {
    let event = [field(1, kind), field(2, field(1, object))].concat();
    [u32::try_from(event.len()).expect("short").to_be_bytes().to_vec(), event].concat()
}

fn entry(key: &str, value: &str) -> Vec<u8> {
    [field(1, key), field(2, value)].concat()
}

/// A Node with fields that are read and others that are not.
fn node(name: &str) -> Vec<u8> {
    let metadata = [
        field(1, name),
        field(2, "not read"),
        field(5, "u"),
        field(6, "7"),
        number(7, 300),
        field(8, [number(1, 1_767_323_045), number(2, 0)].concat()),
        field(11, entry("a", "b")),
        field(11, entry("e", "")),
        field(12, entry("c", "d")),
        field(17, field(1, "kubelet")),
    ];
    let no_end = field(4, [number(1, 253_402_300_799), number(2, 0)].concat());
    let eternal = [field(1, "e"), field(2, "v"), field(3, "NoExecute"), no_end].concat();
    let old =
        [field(1, "o"), field(2, ""), field(3, "NoExecute"), field(4, [number(1, 0), number(2, 0)].concat())];
    let taint = [field(1, "k"), field(2, ""), field(3, "NoSchedule"), field(4, number(1, 1_767_323_045))];
    let spec = [
        field(1, "10.0.0.0/24"),
        field(3, "test://1"),
        number(4, 1),
        field(5, taint.concat()),
        field(5, eternal),
        field(5, old.concat()),
        field(7, "10.0.0.0/24"),
        field(7, "fd00::/64"),
    ];
    let condition = |kind: &str, message: &[u8]| {
        [field(1, kind), field(2, "True"), field(3, number(1, 5)), field(5, "R"), field(6, message)].concat()
    };
    let status = [
        field(1, entry("cpu", "2")),
        field(4, condition("NetworkUnavailable", b"not kept")),
        field(4, condition("CloudProviderInitialized", b"bad \xff byte")),
        field(4, condition("DiskPressure", b"x")),
        field(5, [field(1, "InternalIP"), field(2, "10.0.0.1")].concat()),
        field(7, [field(1, "m"), field(2, "s"), field(3, "boot")].concat()),
        field(8, [field(1, "registry/x:1"), number(2, 9)].concat()),
    ];
    [field(1, metadata.concat()), field(2, spec.concat()), field(3, status.concat())].concat()
}

/// A client that gets this response to every request.
fn answering(status: u16, content_type: &'static str, parts: Vec<Vec<u8>>) -> Client {
    let answer = move |request: Request<Body>| {
        assert_eq!(request.headers()[header::ACCEPT], ACCEPTED);
        let frames =
            parts.clone().into_iter().map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
        let mut answer = Response::new(StreamBody::new(stream::iter(frames)));
        *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        async { Ok::<_, Infallible>(answer) }
    };
    client(Client::new(tower::service_fn(answer), "default"))
}

async fn listed(content_type: &'static str, body: Vec<u8>) -> kube::Result<(Option<String>, Vec<Node>)> {
    let list =
        Api::<WireNode>::all(answering(200, content_type, vec![body])).list(&ListParams::default()).await?;
    Ok((list.metadata.continue_, list.items.into_iter().map(Node::from).collect()))
}

async fn watched(parts: Vec<Vec<u8>>) -> Vec<kube::Result<WatchEvent<WireNode>>> {
    let api = Api::<WireNode>::all(answering(200, "application/vnd.kubernetes.protobuf;stream=watch", parts));
    let events = api.watch(&WatchParams::default(), "0").await.expect("a watch");
    events.collect().await
}

#[tokio::test]
async fn a_list_is_what_it_is_in_json() {
    let metadata = [field(2, "70"), field(3, "more")].concat();
    let list = [field(1, metadata), field(2, node("n1")), field(2, node("n2"))].concat();
    let (more, nodes) = listed(PROTOBUF, object("NodeList", list)).await.expect("a list");
    assert_eq!(more.as_deref(), Some("more"));
    let in_json = |name: &str| {
        Node::from_json(json!({
            "metadata": {
                "name": name, "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"a": "b", "e": ""}, "annotations": {"c": "d"},
            },
            "spec": {
                "podCIDR": "10.0.0.0/24",
                "podCIDRs": ["10.0.0.0/24", "fd00::/64"],
                "providerID": "test://1",
                "taints": [
                    {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"},
                    {"key": "e", "value": "v", "effect": "NoExecute", "timeAdded": "9999-12-31T23:59:59Z"},
                    {"key": "o", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"},
                ],
            },
            "status": {
                "conditions": [
                    {"type": "NetworkUnavailable", "status": "True", "reason": "R"},
                    {
                        "type": "CloudProviderInitialized", "status": "True", "reason": "R",
                        "message": "bad \u{fffd} byte",
                    },
                ],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"machineID": "m", "systemUUID": "s"},
            },
        }))
    };
    assert_eq!(nodes, [in_json("n1"), in_json("n2")]);
}

#[tokio::test]
async fn the_last_page_has_no_token_and_a_bare_node_is_read() {
    let deleting = field(1, [field(1, "n"), field(8, ""), field(9, number(1, 5))].concat());
    let list = [field(1, [field(2, "70"), field(3, "")].concat()), field(2, deleting), field(2, "")].concat();
    let (more, nodes) = listed(PROTOBUF, object("NodeList", list)).await.expect("a list");
    assert_eq!(more, None);
    assert!(nodes[0].deleting && nodes[0].created.is_none());
    assert_eq!(nodes[1], Node::default());
}

#[tokio::test]
async fn json_is_understood() {
    let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "n"}}]});
    let (_, nodes) = listed("application/json", list.to_string().into_bytes()).await.expect("a list");
    assert_eq!(nodes[0].name(), "n");
}

#[tokio::test]
async fn what_is_no_list_is_an_error() {
    for (body, words) in [
        (b"{}".to_vec(), "does not begin as an object in protobuf does"),
        (object("PodList", Vec::new()), "holds \"PodList\" where Nodes were asked for"),
        (object("NodeList", vec![0x0a, 0x7f]), "cannot be read as protobuf"),
    ] {
        let error = listed(PROTOBUF, body).await.expect_err("no list");
        assert!(component::api_client::describe(&error).contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_is_told() {
    let cause = [field(1, "Why"), field(2, "so"), field(3, "limit")].concat();
    let details = [field(3, "nodes"), field(4, cause), number(5, 3)].concat();
    let status =
        [field(2, "Failure"), field(3, "no, n"), field(4, "Expired"), field(5, details), number(6, 410)];
    let refused = answering(410, PROTOBUF, vec![object("Status", status.concat())]);
    let error = Api::<WireNode>::all(refused).list(&ListParams::default()).await.expect_err("refused");
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    assert_eq!((status.code, &*status.message, &*status.reason), (410, "no, n", "Expired"));
    let details = status.details.expect("details");
    assert_eq!((details.retry_after_seconds, &*details.causes[0].field), (3, "limit"));
}

#[tokio::test]
async fn a_watch_in_whatever_pieces_it_comes() {
    let metadata = [field(6, "99"), field(12, entry("k8s.io/initial-events-end", "true"))].concat();
    let refusal = [field(2, "Failure"), field(3, "too old"), field(4, "Expired"), number(6, 410)].concat();
    let stream = [
        event("ADDED", object("Node", node("n1"))),
        event("MODIFIED", object("Node", node("n2"))),
        event("DELETED", object("Node", node("n3"))),
        event("BOOKMARK", object("Node", field(1, metadata))),
        event("ERROR", object("Status", refusal)),
    ]
    .concat();
    for size in [1, 3, 1000, stream.len()] {
        let events = watched(stream.chunks(size).map(<[u8]>::to_vec).collect()).await;
        let told: Vec<Value> = events.iter().map(|event| told(event.as_ref().expect("an event"))).collect();
        assert_eq!(
            told,
            [
                json!(["added", "n1"]),
                json!(["modified", "n2"]),
                json!(["deleted", "n3"]),
                json!("99"),
                json!(410)
            ],
            "in pieces of {size}"
        );
    }
}

/// The Node `n` with this version and label, and with a time that differs in each heartbeat.
fn heartbeat(version: &str, label: &str, second: u64) -> Vec<u8> {
    let metadata = [field(1, "n"), field(5, "u"), field(6, version), field(11, entry("label", label))];
    let ready = [field(1, "Ready"), field(2, "True"), field(3, number(1, second))].concat();
    [field(1, metadata.concat()), field(3, field(4, ready))].concat()
}

/// A watch that begins after a version.
struct Watch {
    after: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

/// A watch in protobuf: the kind of each event, the version of `n` and its label.
fn watch(after: &'static str, events: &[(&str, &str, &str)]) -> Watch {
    let events = (0..).zip(events).flat_map(|(second, (kind, version, label))| {
        event(kind, object("Node", heartbeat(version, label, second)))
    });
    Watch { after, content_type: "application/vnd.kubernetes.protobuf;stream=watch", body: events.collect() }
}

/// What a client passes on of `n` in these watches, one after the other, after a list in which `n` has
/// version 5 and the label `old`: for each event the version, and the label if it is passed on.
async fn said(watches: Vec<Watch>) -> Vec<(String, Option<String>)> {
    let list = [field(1, field(2, "6")), field(2, heartbeat("5", "old", 0))].concat();
    let versions: Vec<_> = watches.iter().map(|watch| watch.after).collect();
    let bodies = watches.into_iter().map(|watch| (watch.content_type, watch.body));
    let bodies: VecDeque<_> = std::iter::once((PROTOBUF, object("NodeList", list))).chain(bodies).collect();
    let bodies = Mutex::new(bodies);
    let answer = move |_: Request<Body>| {
        let (content_type, body) = bodies.lock().pop_front().expect("an answer");
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        async { Ok::<_, Infallible>(answer) }
    };
    let api = Api::<WireNode>::all(client(Client::new(tower::service_fn(answer), "default")));
    api.list(&ListParams::default()).await.expect("a list");
    let mut said = Vec::new();
    for after in versions {
        let events: Vec<_> =
            api.watch(&WatchParams::default(), after).await.expect("a watch").collect().await;
        for event in events {
            let (WatchEvent::Added(node) | WatchEvent::Modified(node) | WatchEvent::Deleted(node)) =
                event.expect("an event")
            else {
                panic!("neither a Node nor its end")
            };
            said.push(match node.as_version() {
                Some((name, version)) => {
                    assert_eq!(name, "n");
                    (version.to_owned(), None)
                }
                None => {
                    let node = Node::from(node);
                    (node.resource_version, node.identity.labels.get("label").cloned())
                }
            });
        }
    }
    said
}

fn all(version: &str, label: &str) -> (String, Option<String>) {
    (version.to_owned(), Some(label.to_owned()))
}

fn only(version: &str) -> (String, Option<String>) {
    (version.to_owned(), None)
}

#[tokio::test]
async fn of_a_heartbeat_only_the_version_is_said() {
    let events = [
        ("MODIFIED", "7", "old"),
        ("MODIFIED", "8", "new"),
        ("MODIFIED", "9", "new"),
        ("MODIFIED", "10", "old"),
        ("DELETED", "11", "old"),
        ("MODIFIED", "12", "old"),
        ("ADDED", "13", "old"),
        ("MODIFIED", "14", "old"),
    ];
    assert_eq!(
        said(vec![watch("6", &events)]).await,
        [
            only("7"),
            all("8", "new"),
            only("9"),
            all("10", "old"),
            all("11", "old"),
            // An API server would not send this one.
            all("12", "old"),
            all("13", "old"),
            only("14"),
        ]
    );
}

#[tokio::test]
async fn what_may_have_been_lost_is_said_again() {
    let new = |version: &'static str| ("MODIFIED", version, "new");
    // Everything up to version 8 has arrived, since the next watch begins there.
    let goes_on = vec![watch("6", &[new("8"), new("9")]), watch("8", &[new("9"), new("10")])];
    assert_eq!(said(goes_on).await, [all("8", "new"), only("9"), only("9"), only("10")]);
    for after in ["7", "opaque"] {
        let back = vec![watch("6", &[new("8")]), watch(after, &[new("8"), new("9")])];
        assert_eq!(said(back).await, [all("8", "new"), all("8", "new"), only("9")], "{after}");
    }
    let opaque = vec![watch("6", &[new("opaque"), ("MODIFIED", "9", "old"), ("MODIFIED", "10", "old")])];
    assert_eq!(said(opaque).await, [all("opaque", "new"), all("9", "old"), only("10")]);
}

#[tokio::test]
async fn what_was_said_in_json_is_not_known() {
    let line = json!({"type": "MODIFIED", "object": {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "8", "labels": {"label": "new"}},
    }});
    let in_json =
        Watch { after: "6", content_type: "application/json", body: format!("{line}\n").into_bytes() };
    let back = watch("8", &[("MODIFIED", "9", "old")]);
    assert_eq!(said(vec![in_json, back]).await, [all("8", "new"), all("9", "old")]);
}

fn told(event: &WatchEvent<WireNode>) -> Value {
    let name = |node: &WireNode| Node::from(node.clone()).name().to_owned();
    match event {
        WatchEvent::Added(node) => json!(["added", name(node)]),
        WatchEvent::Modified(node) => json!(["modified", name(node)]),
        WatchEvent::Deleted(node) => json!(["deleted", name(node)]),
        WatchEvent::Bookmark(bookmark) => json!(bookmark.metadata.resource_version),
        WatchEvent::Error(status) => json!(status.code),
    }
}

#[tokio::test]
async fn a_refusal_that_cannot_be_read_has_its_status() {
    let refused = answering(503, PROTOBUF, vec![b"?".to_vec()]);
    let error = Api::<WireNode>::all(refused).list(&ListParams::default()).await.expect_err("refused");
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 503), "{error:?}");
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_the_last_one() {
    let (first, last) =
        (event("ADDED", object("Node", node("n1"))), event("ADDED", object("Node", node("n2"))));
    let events = watched(vec![[first, event("ADDED", b"what?".to_vec()), last].concat()]).await;
    assert!(events[0].is_ok() && events.len() == 2, "{events:?}");
    assert!(matches!(events[1], Err(kube::Error::SerdeError(_))), "{events:?}");
    // Longer than an event may be.
    let events = watched(vec![vec![0xff; 100]]).await;
    assert!(matches!(events[..], [Err(kube::Error::SerdeError(_))]), "{events:?}");
}

/// The label of `n` in the store, after lists at version 5 with the label `first` and at version 9 with the
/// label `second`. The first watch is this one, and the next ones have no events.
async fn label_after(first_watch: (u16, &'static str, Vec<u8>)) -> Option<String> {
    const EVENTS: &str = "application/vnd.kubernetes.protobuf;stream=watch";
    let list = |version: &str, label: &str| {
        object("NodeList", [field(1, field(2, version)), field(2, heartbeat(version, label, 0))].concat())
    };
    let lists = Mutex::new(VecDeque::from([list("5", "first"), list("9", "second")]));
    let watches = Mutex::new(VecDeque::from([first_watch]));
    let answer = move |request: Request<Body>| {
        let (status, content_type, body) = if request.uri().query().unwrap_or_default().contains("watch=") {
            watches.lock().pop_front().unwrap_or((200, EVENTS, Vec::new()))
        } else {
            (200, PROTOBUF, lists.lock().pop_front().expect("two lists"))
        };
        let frames = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(body)))]);
        // An open watch without events.
        let silence = (content_type == EVENTS).then(stream::pending::<Result<_, Infallible>>);
        let frames = frames.chain(stream::iter(silence).flatten());
        let mut answer = Response::new(StreamBody::new(frames));
        *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        async { Ok::<_, Infallible>(answer) }
    };
    let (store, stop) = (super::super::NodeStore::new(), tokio_util::sync::CancellationToken::new());
    let client = client(Client::new(tower::service_fn(answer), "default"));
    let watching = tokio::spawn(super::super::watch_nodes(client, store.clone(), stop.clone()));
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    stop.cancel();
    watching.await.expect("it ends");
    store.get("n")?.identity.labels.get("label").cloned()
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_may_have_missed_is_listed() {
    let events =
        |events: &[Vec<u8>]| (200, "application/vnd.kubernetes.protobuf;stream=watch", events.concat());
    let label = |version: &str, label: &str| event("MODIFIED", object("Node", heartbeat(version, label, 0)));
    assert_eq!(label_after(events(&[label("6", "told")])).await.as_deref(), Some("told"), "nothing is wrong");
    let refusal = [field(2, "Failure"), field(3, "too old"), field(4, "Expired"), number(6, 410)].concat();
    let refused = object("Status", refusal);
    for (what, first_watch) in [
        ("an event that cannot be read", events(&[event("MODIFIED", b"what?".to_vec()), label("7", "told")])),
        ("an event that is too long", events(&[vec![0xff; 100], label("7", "told")])),
        ("an error", events(&[event("ERROR", refused.clone()), label("7", "told")])),
        ("a refusal", (410, PROTOBUF, refused)),
        ("a refusal in JSON", (410, "application/json", json!({"code": 410}).to_string().into_bytes())),
        ("a refusal by a proxy", (410, "text/html", b"<h1>Gone</h1>".to_vec())),
    ] {
        assert_eq!(label_after(first_watch).await.as_deref(), Some("second"), "{what}");
    }
}

#[tokio::test]
async fn half_an_event_is_no_error() {
    let whole = event("ADDED", object("Node", node("n1")));
    for cut in [3, 4, 5, whole.len() - 1] {
        let events = watched(vec![[whole.clone(), whole[..cut].to_vec()].concat()]).await;
        assert!(events.len() == 1 && events[0].is_ok(), "cut after {cut}");
    }
}

#[tokio::test]
async fn who_asks_for_another_form_gets_it() {
    let answer = |request: Request<Body>| {
        let accepted = request.headers()[header::ACCEPT].to_str().expect("text").to_owned();
        async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(accepted)))) }
    };
    let client = client(Client::new(tower::service_fn(answer), "default"));
    for (path, accepted, sent) in [
        ("/api/v1/nodes?limit=5", "application/json", "application/vnd.kubernetes.protobuf,application/json"),
        ("/api/v1/nodes", "application/json;as=Table", "application/json;as=Table"),
        ("/api/v1/nodes/n", "application/json", "application/json"),
        ("/api/v1/pods", "application/json", "application/json"),
    ] {
        let request =
            Request::get(path).header(header::ACCEPT, accepted).body(Vec::new()).expect("a request");
        assert_eq!(client.request_text(request).await.expect("an answer"), sent, "{path}");
    }
}
