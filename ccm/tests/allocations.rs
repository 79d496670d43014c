//! How much is allocated for one Node, counted: thousands of them are read and compared all the time.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test, and a measurement is for a person")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    convert::Infallible,
    hint::black_box,
};

use bytes::Bytes;
use ccm::{
    controllers::node::plan,
    nodes::{Node, protobuf, read_nodes},
};
use cloudprovider::{Instance, InstanceLookup, InstanceMetadata, NodeAddress, PowerState, ProviderId};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use kube::{Client, client::Body};
use sandbox::kubelet;
use tokio::runtime::Runtime;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocations<T>(work: impl FnOnce() -> T) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    drop(black_box(work()));
    ALLOCATIONS.with(Cell::get) - before
}

fn json(node: &k8s_openapi::api::core::v1::Node) -> String {
    serde_json::to_string(node).expect("JSON")
}

/// Its 50 images, with two names each, cost nothing.
#[test]
fn decoding_a_node() {
    let bare = json(&kubelet::node("node-1", "u"));
    let real = json(&kubelet::node_of_real_size("node-1", "u"));
    let decode = |json: &str| allocations(|| serde_json::from_str::<Node>(json).expect("a Node"));
    let (of_bare, of_real) = (decode(&bare), decode(&real));
    println!("allocations: {of_real}");
    assert_eq!(of_bare, of_real);
    assert!(of_real <= MOST_TO_DECODE, "{of_real}");
}

/// A client for Nodes in protobuf to which everything is answered with this.
fn answering(content_type: &'static str, body: Vec<u8>) -> (Runtime, Client) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let body = Bytes::from(body);
    let answer = move |_: http::Request<Body>| {
        let answer = http::Response::builder().header(http::header::CONTENT_TYPE, content_type);
        let answer = answer.body(Full::new(body.clone())).expect("an answer");
        async { Ok::<_, Infallible>(answer) }
    };
    let client =
        runtime.block_on(async { protobuf::client(Client::new(tower::service_fn(answer), "default")) });
    (runtime, client)
}

/// As the daemon reads a page of the list. What the request itself takes counts for one Node more.
#[test]
fn reading_nodes_in_protobuf() {
    const NODES: usize = 250;
    let (runtime, client) = answering(protobuf::PROTOBUF, kubelet::list_of_real_size_in_protobuf(NODES));
    let mut read = Vec::new();
    let count = allocations(|| read = runtime.block_on(read_nodes(client)).expect("a list"));
    assert_eq!(read.len(), NODES);
    println!("allocations: {}", count / NODES);
    assert!(count <= MOST_TO_READ * (NODES + 1), "{count}");
}

/// Heartbeats in which nothing changes that is read, after an event that is read whole.
#[test]
fn heartbeats_in_protobuf() {
    const HEARTBEATS: usize = 250;
    let content_type = "application/vnd.kubernetes.protobuf;stream=watch";
    let (runtime, client) =
        answering(content_type, kubelet::changes_of_real_size_in_protobuf(1 + HEARTBEATS));
    let watch = http::Request::get("/api/v1/nodes?watch=true&resourceVersion=0").body(Body::empty());
    let watch = watch.expect("a request");
    let mut said = Bytes::new();
    let count = allocations(|| {
        said = runtime.block_on(async {
            let answer = client.send(watch).await.expect("a watch");
            answer.into_body().collect().await.expect("events").to_bytes()
        });
    });
    let lengths: Vec<usize> = said.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
    assert_eq!(lengths.len(), 1 + HEARTBEATS);
    assert!(lengths[1..].iter().all(|length| *length < 200), "{lengths:?}");
    println!("allocations: {}", count / HEARTBEATS);
    assert!(count <= MOST_FOR_A_HEARTBEAT * HEARTBEATS + 200, "{count}");
}

#[test]
fn comparing_a_settled_node() {
    let mut node: Node = serde_json::from_str(&json(&kubelet::node("node-1", "u"))).expect("a Node");
    let id = ProviderId::new("test", "/1");
    let metadata = InstanceMetadata {
        addresses: vec![NodeAddress::internal_ip("10.0.0.1"), NodeAddress::hostname("node-1")],
        ..InstanceMetadata::default()
    };
    node.taints.clear();
    node.identity.provider_id = Some(id.as_str().to_owned());
    node.identity.addresses.clone_from(&metadata.addresses);
    let answer: InstanceLookup = Instance::new(id, PowerState::Running).with_metadata(metadata).into();
    let count = allocations(|| plan(&node, &answer, "test", Timestamp::UNIX_EPOCH));
    println!("allocations: {count}");
    assert!(count <= MOST_TO_COMPARE, "{count}");
}

/// Strings and maps of labels, annotations, taints, addresses and conditions.
const MOST_TO_DECODE: usize = 50;
/// The same, and the messages on the way.
const MOST_TO_READ: usize = 90;
/// The messages alone.
const MOST_FOR_A_HEARTBEAT: usize = 15;
const MOST_TO_COMPARE: usize = 12;
