//! Acts on the API as a kubelet does: registers a Node, reports its conditions, renews its Lease.
//!
//! All functions work with any `kube::Client`, so that the same helper acts on the sandbox and on a real API
//! server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec,
            NodeStatus, NodeSystemInfo, Taint,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, Time},
    },
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Taint of a Node that the cloud-controller-manager has not initialised yet.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taint of a Node whose kubelet is not ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Namespace of the Leases that kubelets renew.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The most images that a kubelet lists.
const IMAGES: usize = 50;

/// The Node that a kubelet with `--cloud-provider=external` creates: tainted as uninitialised and not ready,
/// with one Hostname address, labels for architecture, operating system and hostname, and its system UUID.
pub fn node(name: &str, system_uuid: &str) -> Node {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = BTreeMap::from([
        label("beta.kubernetes.io/arch", "amd64"),
        label("beta.kubernetes.io/os", "linux"),
        label("kubernetes.io/arch", "amd64"),
        label("kubernetes.io/hostname", name),
        label("kubernetes.io/os", "linux"),
    ]);
    let taint = |key: &str, value: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let amount = |key: &str, value: &str| (key.to_owned(), Quantity(value.to_owned()));
    let capacity = BTreeMap::from([
        amount("cpu", "4"),
        amount("ephemeral-storage", "41043928Ki"),
        amount("hugepages-1Gi", "0"),
        amount("hugepages-2Mi", "0"),
        amount("memory", "8145396Ki"),
        amount("pods", "110"),
    ]);
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([label(
                "volumes.kubernetes.io/controller-managed-attach-detach",
                "true",
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(vec![taint(UNINITIALIZED_TAINT, Some("true")), taint(NOT_READY_TAINT, None)]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vec![NodeAddress { type_: "Hostname".to_owned(), address: name.to_owned() }]),
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            conditions: Some(conditions(false)),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }),
            }),
            node_info: Some(NodeSystemInfo {
                architecture: "amd64".to_owned(),
                boot_id: "00000000-0000-4000-8000-000000000000".to_owned(),
                container_runtime_version: "containerd://2.4.2".to_owned(),
                kernel_version: "6.12.0".to_owned(),
                kube_proxy_version: String::new(),
                kubelet_version: "v1.37.1".to_owned(),
                machine_id: system_uuid.replace('-', ""),
                operating_system: "linux".to_owned(),
                os_image: "Debian GNU/Linux 13 (trixie)".to_owned(),
                system_uuid: system_uuid.to_owned(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

/// The same Node with the most images that a kubelet reports (50, two names each): about 12 kB.
pub fn node_of_real_size(name: &str, system_uuid: &str) -> Node {
    let mut node = node(name, system_uuid);
    let image = |n: usize| {
        let repository = format!("registry.example.com/platform/component-{n:02}");
        ContainerImage {
            names: Some(vec![
                format!(
                    "{repository}@sha256:{:064x}",
                    0x9e37_79b9_7f4a_7c15_u128.wrapping_mul(n as u128 + 1)
                ),
                format!("{repository}:v1.{n}.0"),
            ]),
            size_bytes: Some(10_000_000 + 1_000_000 * i64::try_from(n).unwrap_or_default()),
        }
    };
    node.status.get_or_insert_default().images = Some((0..IMAGES).map(image).collect());
    node
}

/// A `core.v1.Node` of that size, initialised by a cloud-controller-manager, as kube-apiserver 1.36 encodes
/// it in protobuf: the response to a GET of the Node, without the envelope.
const NODE_IN_PROTOBUF: &[u8] = include_bytes!("kubelet/node.pb");

/// A list of such Nodes in protobuf: the body of a kube-apiserver's response to a client that accepts
/// `application/vnd.kubernetes.protobuf`. All are called `node-1`.
pub fn list_of_real_size_in_protobuf(nodes: usize) -> Vec<u8> {
    let list = [field(1, &[]), field(2, NODE_IN_PROTOBUF).repeat(nodes)].concat();
    in_envelope(b"NodeList", &list)
}

/// This number of equal changes of such a Node in protobuf: the body of a kube-apiserver's response to a
/// watch.
pub fn changes_of_real_size_in_protobuf(changes: usize) -> Vec<u8> {
    let node = in_envelope(b"Node", NODE_IN_PROTOBUF);
    let event = [field(1, b"MODIFIED"), field(2, &field(1, &node))].concat();
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes();
    [length.to_vec(), event].concat().repeat(changes)
}

/// `runtime.Unknown` with the kind and the object.
fn in_envelope(kind: &[u8], object: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, b"v1"), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, object)].concat()
}

/// A field of a protobuf message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    // Wire type 2 means a field with a length. The length is in groups of seven bits, lowest first.
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
    bytes.extend(content);
    bytes
}

fn conditions(ready: bool) -> Vec<NodeCondition> {
    let now = Time(Timestamp::now());
    let condition = |type_: &str, status: bool, reason: &str, message: &str| NodeCondition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    let (reason, message) = if ready {
        ("KubeletReady", "kubelet is posting ready status")
    } else {
        ("KubeletNotReady", "container runtime network not ready")
    };
    vec![
        condition(
            "MemoryPressure",
            false,
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        condition("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        condition("Ready", ready, reason, message),
    ]
}

/// Creates the Node, as a kubelet does when it starts.
///
/// # Errors
/// Those of the create, including 409 `AlreadyExists`.
pub async fn register(client: &Client, node: &Node) -> kube::Result<Node> {
    Api::all(client.clone()).create(&PostParams::default(), node).await
}

/// Reports the Node's conditions, all with the current time as heartbeat: a strategic merge patch of its
/// status.
///
/// The transition time of `Ready` changes only if its status does.
///
/// # Errors
/// Those of the reads and writes, including 404 `NotFound` if the Node is gone.
pub async fn heartbeat(client: &Client, name: &str, ready: bool) -> kube::Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let before = nodes.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
    let mut conditions = conditions(ready);
    for condition in &mut conditions {
        if let Some(old) =
            before.iter().find(|old| old.type_ == condition.type_ && old.status == condition.status)
        {
            condition.last_transition_time.clone_from(&old.last_transition_time);
        }
    }
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await
}

/// Renews or creates the Node's Lease, as a kubelet does every ten seconds. Its duration is 40 s and its
/// holder is the Node's name.
///
/// # Errors
/// Those of the reads and writes.
pub async fn renew_lease(client: &Client, name: &str) -> kube::Result<Lease> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(40),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    if let Some(mut lease) = leases.get_opt(name).await? {
        lease.spec = Some(spec);
        return leases.replace(name, &PostParams::default(), &lease).await;
    }
    let lease = Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(spec),
    };
    leases.create(&PostParams::default(), &lease).await
}
