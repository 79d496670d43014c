//! The parts that run for each Node or machine: nanoseconds and allocations of each. Run by
//! `make microbench`.

#![allow(clippy::expect_used, reason = "a program for developers")]

use std::{convert::Infallible, sync::Arc, time::Duration};

use ccm::controllers::node::{ForeignValue, plan};
use cloudprovider::{
    CloudProvider, FactoryInput, Instance, InstanceLookup, InstanceMetadata, NodeAddress, NodeIdentity,
    PowerState, ProviderId, StartContext,
};
use cloudprovider_libvirt as libvirt;
use cloudprovider_vsphere as vsphere;
use controller_kit::nodes::{
    Node,
    protobuf::{self, PROTOBUF},
    read_nodes,
};
use divan::{AllocProfiler, Bencher, black_box};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use kube::{Client, client::Body};
use sandbox::kubelet;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const UUID: &str = "4220a0f5-7a32-7d7c-3f5e-6f9d0f3a4b2c";

fn main() {
    divan::main();
}

#[divan::bench]
fn provider_id_of_libvirt(bencher: Bencher<'_, '_>) {
    let id = format!("libvirt:///{UUID}");
    bencher.bench(|| libvirt::parse_provider_id(black_box(&id)));
}

#[divan::bench]
fn provider_id_of_vsphere(bencher: Bencher<'_, '_>) {
    let id = format!("vsphere://{UUID}");
    bencher.bench(|| vsphere::parse_provider_id(black_box(&id)));
}

/// A response with this many machines, from the text to the inventory.
#[divan::bench(args = [1, 500])]
fn decode_soap(bencher: Bencher<'_, '_>, machines: usize) {
    const MACHINE: &str = include_str!("machine.xml");
    let machine = |number: usize| MACHINE.replace("NUMBER", &format!("{number:04}"));
    let envelope = format!(
        "<Envelope xmlns='http://schemas.xmlsoap.org/soap/envelope/' xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'>\
         <Body><RetrievePropertiesExResponse xmlns='urn:vim25'><returnval>{}</returnval></RetrievePropertiesExResponse>\
         </Body></Envelope>",
        (0..machines).map(machine).collect::<Vec<_>>().concat()
    );
    assert_eq!(vsphere::measured::read_machines(envelope.as_bytes()), Ok(machines));
    bencher
        .counter(divan::counter::BytesCount::of_slice(envelope.as_bytes()))
        .bench(|| vsphere::measured::read_machines(black_box(envelope.as_bytes())));
}

/// A Node of real size, with 50 images, as a watch event brings it.
#[divan::bench]
fn decode_node(bencher: Bencher<'_, '_>) {
    let json = node_json();
    bencher
        .counter(divan::counter::BytesCount::of_slice(json.as_bytes()))
        .bench(|| serde_json::from_str::<Node>(black_box(&json)));
}

/// A page of the list of Nodes in protobuf, from the body of the response to the Nodes.
#[divan::bench(args = [1, 250])]
fn read_nodes_in_protobuf(bencher: Bencher<'_, '_>, nodes: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let body = kubelet::list_of_real_size_in_protobuf(nodes);
    let client = runtime.block_on(async { protobuf::client(answering(PROTOBUF, &body)) });
    bencher.counter(divan::counter::BytesCount::of_slice(&body)).bench_local(|| {
        let read = runtime.block_on(read_nodes(client.clone())).expect("a list");
        assert_eq!(read.len(), nodes);
    });
}

/// A watch with this many heartbeats of one Node, none of which changes a field that is read.
#[divan::bench(args = [250])]
fn heartbeats_in_protobuf(bencher: Bencher<'_, '_>, heartbeats: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let body = kubelet::changes_of_real_size_in_protobuf(heartbeats);
    let client = runtime.block_on(async {
        protobuf::client(answering("application/vnd.kubernetes.protobuf;stream=watch", &body))
    });
    bencher.counter(divan::counter::BytesCount::of_slice(&body)).bench_local(|| {
        let watch = http::Request::get("/api/v1/nodes?watch=true&resourceVersion=0").body(Body::empty());
        let events = runtime.block_on(async {
            client.send(watch.expect("a request")).await.expect("a watch").into_body().collect().await
        });
        assert!(!events.expect("events").to_bytes().is_empty());
    });
}

/// An API server that sends this response to every request.
fn answering(content_type: &'static str, body: &[u8]) -> Client {
    let body = bytes::Bytes::copy_from_slice(body);
    let answer = move |_: http::Request<Body>| {
        let answer = http::Response::builder().header(http::header::CONTENT_TYPE, content_type);
        let answer = answer.body(Full::new(body.clone())).expect("an answer");
        async { Ok::<_, Infallible>(answer) }
    };
    Client::new(tower::service_fn(answer), "default")
}

/// The plan of what to write to a new Node.
#[divan::bench]
fn plan_new_node(bencher: Bencher<'_, '_>) {
    let (node, answer) = (node(), answer());
    bencher.bench(|| {
        plan(black_box(&node), black_box(&answer), "ideal", ForeignValue::Stays, Timestamp::UNIX_EPOCH)
    });
}

/// The comparison of an initialised Node with the cloud, in which nothing differs.
#[divan::bench]
fn plan_settled_node(bencher: Bencher<'_, '_>) {
    let (mut node, answer) = (node(), answer());
    let InstanceLookup::Present(instance) = &answer else { unreachable!() };
    let InstanceMetadata { addresses, instance_type, zone, region, .. } = &instance.metadata;
    node.taints.clear();
    node.identity.provider_id = instance.provider_id.as_ref().map(ToString::to_string);
    node.identity.addresses.clone_from(addresses);
    for (keys, value) in [
        (["node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"], instance_type),
        (["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"], zone),
        (["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"], region),
    ] {
        for key in keys {
            node.identity.labels.insert(key.to_owned(), value.clone().unwrap_or_default());
        }
    }
    bencher.bench(|| {
        plan(black_box(&node), black_box(&answer), "ideal", ForeignValue::Stays, Timestamp::UNIX_EPOCH)
    });
}

/// One look-up of all Nodes among this many domains of libvirt's own test driver.
#[divan::bench(args = [100, 1000])]
fn match_libvirt_domains(bencher: Bencher<'_, '_>, domains: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let (provider, nodes) = runtime.block_on(libvirt_with(folder.path(), domains));
    let nodes: Vec<&NodeIdentity> = nodes.iter().collect();
    let instances = provider.instances().expect("instances");
    bencher.bench_local(|| {
        let answers = runtime.block_on(instances.lookup(black_box(&nodes)));
        assert!(answers.iter().all(|answer| matches!(answer, InstanceLookup::Present(_))));
    });
}

async fn libvirt_with(
    folder: &std::path::Path,
    domains: usize,
) -> (Arc<dyn CloudProvider>, Vec<NodeIdentity>) {
    let uuid = |number: usize| format!("5a3c0de0-0000-4000-8000-{number:012x}");
    let domain = |number: usize| {
        let uuid = uuid(number);
        format!(
            "<domain type='test'><name>node-{number}</name><uuid>{uuid}</uuid><memory>1048576</memory>\
             <vcpu>2</vcpu><os><type>hvm</type></os></domain>"
        )
    };
    let xml = format!("<node>{}</node>", (0..domains).map(domain).collect::<Vec<_>>().concat());
    let path = folder.join("test.xml");
    std::fs::write(&path, xml).expect("written");
    let config = format!("hypervisors:\n- name: kvm1\n  uri: test://{}\n", path.display());
    let provider = libvirt::factory(&FactoryInput::new(config)).expect("a provider");
    provider.start(StartContext::new(CancellationToken::new(), "kubernetes")).await.expect("started");
    let nodes: Vec<NodeIdentity> = (0..domains)
        .map(|number| NodeIdentity {
            name: format!("node-{number}"),
            uid: number.to_string(),
            system_uuid: Some(uuid(number)),
            ..NodeIdentity::default()
        })
        .collect();
    let all: Vec<&NodeIdentity> = nodes.iter().collect();
    let instances = provider.instances().expect("instances");
    let listed = async {
        while !instances.lookup(&all).await.iter().all(|answer| matches!(answer, InstanceLookup::Present(_)))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listed).await.expect("all machines are listed");
    (provider, nodes)
}

fn node_json() -> String {
    serde_json::to_string(&kubelet::node_of_real_size("node-1", UUID)).expect("JSON")
}

fn node() -> Node {
    serde_json::from_str(&node_json()).expect("a Node")
}

fn answer() -> InstanceLookup {
    Instance::new(ProviderId::new("ideal", "/node-1"), PowerState::Running)
        .with_metadata(InstanceMetadata {
            instance_type: Some("4c-8g".to_owned()),
            addresses: vec![NodeAddress::internal_ip("10.0.0.1"), NodeAddress::hostname("node-1")],
            zone: Some("zone-1".to_owned()),
            region: Some("region-1".to_owned()),
            ..InstanceMetadata::default()
        })
        .into()
}
