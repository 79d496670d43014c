//! How much is allocated for one Node, counted: thousands of them are read and compared all the time.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test, and a measurement is for a person")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    convert::Infallible,
    hint::black_box,
};

use bytes::Bytes;
use ccm::controllers::node::{ForeignValue, plan};
use cloudprovider::{Instance, InstanceLookup, InstanceMetadata, NodeAddress, PowerState, ProviderId};
use controller_kit::nodes::{Node, protobuf, read_nodes};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use kube::{Client, client::Body};
use machine_controller::{
    auxiliary::{PackedAuxiliary, WireAuxiliary},
    object::InfraObject,
    packed::Packed,
};
use sandbox::kubelet;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// How many bytes are allocated and not freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        LIVE.with(|live| live.set(live.get() + layout.size().cast_signed()));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.with(|live| live.set(live.get() - layout.size().cast_signed()));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocations<T>(work: impl FnOnce() -> T) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    drop(black_box(work()));
    ALLOCATIONS.with(Cell::get) - before
}

/// How many bytes there are more as long as this exists.
fn bytes_of<T>(make: impl FnOnce() -> T) -> isize {
    let before = LIVE.with(Cell::get);
    let made = black_box(make());
    let bytes = LIVE.with(Cell::get) - before;
    drop(made);
    bytes
}

/// A machine's condition as it stands in thousands of objects.
fn condition(condition_type: &str) -> Value {
    json!({
        "type": condition_type, "status": "False", "reason": "NotPermitted", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1, "message": "spec.template: \"vm-43\" is not permitted: machines.allow does not list it",
    })
}

#[test]
fn a_machine_is_kept_in_little_more_than_its_text() {
    let conditions = ["Ready", "VirtualMachineProvisioned", "Paused"].map(condition);
    for filler in [0, 16 << 10] {
        let machine = json!({
            "metadata": {"name": "one", "namespace": "team-a", "uid": "u-1", "resourceVersion": "12345"},
            "spec": {
                "template": "vm-43", "datacenter": "DC0", "numCPUs": 2, "memoryMiB": 2048,
                "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
                "customVMXKeys": {"guestinfo.filler": "x".repeat(filler)},
            },
            "status": {"conditions": conditions},
        });
        let text = machine.to_string().len().cast_signed();
        let object = || serde_json::from_value::<InfraObject>(machine.clone()).expect("a machine");
        let (as_tree, kept) = (bytes_of(object), bytes_of(|| Packed::from(object())));
        println!("bytes of a machine: {text} as text, {as_tree} as a tree, {kept} as it is kept");
        assert!(kept <= text + MOST_BESIDE_TEXT, "{kept} bytes, {text} of them text");
    }
}

#[test]
fn what_a_machine_owns_is_kept_in_little_more_than_its_text() {
    let vm = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "VSphereVM",
        "metadata": {
            "name": "one", "namespace": "team-a", "uid": "u-2", "resourceVersion": "12345",
            "ownerReferences": [{"apiVersion": "a/v1", "kind": "VSphereMachine", "name": "one", "uid": "u-1"}],
        },
        "spec": {"template": "vm-43", "customVMXKeys": {"guestinfo.filler": "x".repeat(16 << 10)}},
        "status": {"conditions": [condition("Ready")]},
    });
    let text = vm.to_string().len().cast_signed();
    let read = || serde_json::from_value::<WireAuxiliary>(vm.clone()).expect("an object");
    let kept = bytes_of(|| PackedAuxiliary::from(read()));
    assert!(kept <= text + MOST_BESIDE_TEXT, "{kept} bytes, {text} of them text");
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
    let count = allocations(|| plan(&node, &answer, "test", ForeignValue::Stays, Timestamp::UNIX_EPOCH));
    println!("allocations: {count}");
    assert!(count <= MOST_TO_COMPARE, "{count}");
}

/// Strings and maps of labels, annotations, taints, addresses and conditions.
const MOST_BESIDE_TEXT: isize = 256;
const MOST_TO_DECODE: usize = 50;
/// The same, and the messages on the way.
const MOST_TO_READ: usize = 90;
/// The messages alone.
const MOST_FOR_A_HEARTBEAT: usize = 15;
const MOST_TO_COMPARE: usize = 12;
