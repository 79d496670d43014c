//! The fields of the API server's messages that are read, and their form in JSON.
//!
//! Numbers and meanings of the fields are those of Kubernetes' `generated.proto` files (`k8s.io/api/core/v1`,
//! `k8s.io/apimachinery/pkg/apis/meta/v1`, `k8s.io/apimachinery/pkg/runtime`). Strings are bytes here,
//! because Go also writes strings that are not UTF-8. In JSON they get replacement characters, as from the
//! API server itself.

use std::hash::{Hash, Hasher};

use bytes::Bytes;
use jiff::{
    SignedDuration,
    civil::{Date, DateTime},
};
use prost::Message;
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::given::{GivenNodes, VersionedNode};

/// The prefix of each object from the API server.
const MAGIC: &[u8] = b"k8s\0";

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadableMessage {
    #[error("the API server's answer does not begin as an object in protobuf does")]
    NoMagic,
    #[error("the API server's answer holds {kind:?} where Nodes were asked for")]
    Kind { kind: String },
    #[error("the API server's answer cannot be read as protobuf: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("the API server's answer cannot be said in JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Converts a list of Nodes, or an error, to JSON.
pub(super) fn object_in_json(bytes: Bytes, given: &mut GivenNodes) -> Result<Vec<u8>, UnreadableMessage> {
    let object = read_object(bytes)?;
    if let Content::NodeList(list) = &object.content {
        list.items.iter().for_each(|node| given.note(node));
    }
    Ok(serde_json::to_vec(&object)?)
}

/// An event of a watch as a line of JSON. Where only the version of a Node differs from `given`, the line contains nothing
/// else.
pub(super) fn event_in_json(bytes: Bytes, given: &mut GivenNodes) -> Result<Vec<u8>, UnreadableMessage> {
    let WatchEvent { event_type, object: raw } = WatchEvent::decode(bytes)?;
    let mut object = read_object(raw.unwrap_or_default().raw)?;
    if let Content::Node(node) = &object.content {
        match &*event_type {
            b"MODIFIED" if given.has(node) => object.content = Content::NodeVersion(node.into()),
            b"ADDED" | b"MODIFIED" => given.note(node),
            b"DELETED" => given.forget(node),
            // A bookmark looks like a Node, but is none.
            _ => {}
        }
    }
    let mut json = serde_json::to_vec(&Event { event_type, object })?;
    json.push(b'\n');
    Ok(json)
}

fn read_object(bytes: Bytes) -> Result<Object, UnreadableMessage> {
    if !bytes.starts_with(MAGIC) {
        return Err(UnreadableMessage::NoMagic);
    }
    let Unknown { type_meta, raw } = Unknown::decode(bytes.slice(MAGIC.len()..))?;
    let TypeMeta { api_version, kind } = type_meta.unwrap_or_default();
    let content = match &*kind {
        b"Node" => Content::Node(Node::decode(raw)?),
        b"NodeList" => Content::NodeList(NodeList::decode(raw)?),
        b"Status" => Content::Status(Status::decode(raw)?),
        _ => return Err(UnreadableMessage::Kind { kind: String::from_utf8_lossy(&kind).into_owned() }),
    };
    Ok(Object { api_version, kind, content })
}

/// An event in JSON.
#[derive(Serialize)]
struct Event {
    #[serde(rename = "type", serialize_with = "text")]
    event_type: Bytes,
    object: Object,
}

/// An object with its kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    #[serde(serialize_with = "text")]
    api_version: Bytes,
    #[serde(serialize_with = "text")]
    kind: Bytes,
    #[serde(flatten)]
    content: Content,
}

/// The kinds of objects that are read.
#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Node(Node),
    NodeVersion(NodeVersion),
    NodeList(NodeList),
    Status(Status),
}

/// A Node of which nothing but the version changed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeVersion {
    metadata: VersionMetadata,
    only_version_changed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionMetadata {
    #[serde(serialize_with = "text")]
    name: Bytes,
    #[serde(serialize_with = "text")]
    resource_version: Bytes,
}

impl From<&Node> for NodeVersion {
    fn from(node: &Node) -> Self {
        let (name, resource_version) = node
            .metadata
            .as_ref()
            .map(|metadata| (metadata.name.clone(), metadata.resource_version.clone()))
            .unwrap_or_default();
        Self { metadata: VersionMetadata { name, resource_version }, only_version_changed: true }
    }
}

/// `runtime.Unknown`, the envelope of each object.
#[derive(Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// `runtime.TypeMeta`
#[derive(Message)]
struct TypeMeta {
    #[prost(bytes = "bytes", tag = "1")]
    api_version: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    kind: Bytes,
}

/// `meta.v1.WatchEvent`
#[derive(Message)]
struct WatchEvent {
    #[prost(bytes = "bytes", tag = "1")]
    event_type: Bytes,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

/// `runtime.RawExtension`: an object in its envelope.
#[derive(Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

/// `core.v1.NodeList`
#[derive(Message, Serialize)]
struct NodeList {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<Node>,
}

/// `meta.v1.ListMeta`
#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text")]
    resource_version: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(rename = "continue", serialize_with = "text", skip_serializing_if = "Bytes::is_empty")]
    continue_: Bytes,
}

/// `core.v1.Node`
#[derive(Message, Serialize)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<NodeStatus>,
}

impl VersionedNode for Node {
    fn name(&self) -> &[u8] {
        self.metadata.as_ref().map_or(&[], |metadata| &metadata.name)
    }

    fn version(&self) -> Option<u64> {
        let version = &self.metadata.as_ref()?.resource_version;
        std::str::from_utf8(version).ok()?.parse().ok()
    }

    fn hash_content(&self, hasher: &mut impl Hasher) {
        let Self { metadata, spec, status } = self;
        (spec, status).hash(hasher);
        if let Some(metadata) = metadata {
            let ObjectMeta {
                name,
                uid,
                resource_version: _,
                creation_timestamp,
                deletion_timestamp,
                labels,
                annotations,
            } = metadata;
            (name, uid, creation_timestamp, deletion_timestamp, labels, annotations).hash(hasher);
        }
    }
}

/// `meta.v1.ObjectMeta`
#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(serialize_with = "text")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    #[serde(serialize_with = "text")]
    uid: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    #[serde(serialize_with = "text")]
    resource_version: Bytes,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(message, repeated, tag = "11")]
    #[serde(serialize_with = "map")]
    labels: Vec<Entry>,
    #[prost(message, repeated, tag = "12")]
    #[serde(serialize_with = "map")]
    annotations: Vec<Entry>,
}

/// An entry of a map of strings.
#[derive(Hash, Message)]
struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `meta.v1.Time`
#[derive(Hash, Message)]
struct Time {
    /// Missing in the zero time, which stands for no time.
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
}

/// `core.v1.NodeSpec`
#[derive(Hash, Message, Serialize)]
struct NodeSpec {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(rename = "podCIDR", serialize_with = "text")]
    pod_cidr: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(rename = "providerID", serialize_with = "text")]
    provider_id: Bytes,
    #[prost(message, repeated, tag = "5")]
    taints: Vec<Taint>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    #[serde(rename = "podCIDRs", serialize_with = "texts")]
    pod_cidrs: Vec<Bytes>,
}

/// `core.v1.Taint`
#[derive(Hash, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Taint {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(serialize_with = "text")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text")]
    value: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(serialize_with = "text")]
    effect: Bytes,
    #[prost(message, optional, tag = "4")]
    time_added: Option<Time>,
}

/// `core.v1.NodeStatus`
#[derive(Hash, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[prost(message, repeated, tag = "4")]
    conditions: Vec<NodeCondition>,
    #[prost(message, repeated, tag = "5")]
    addresses: Vec<NodeAddress>,
    #[prost(message, optional, tag = "7")]
    node_info: Option<NodeSystemInfo>,
}

/// `core.v1.NodeCondition`
#[derive(Hash, Message, Serialize)]
struct NodeCondition {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(rename = "type", serialize_with = "text")]
    condition_type: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text")]
    status: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    #[serde(serialize_with = "text")]
    reason: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    #[serde(serialize_with = "text")]
    message: Bytes,
}

/// `core.v1.NodeAddress`
#[derive(Hash, Message, Serialize)]
struct NodeAddress {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(rename = "type", serialize_with = "text")]
    address_type: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text")]
    address: Bytes,
}

/// `core.v1.NodeSystemInfo`
#[derive(Hash, Message, Serialize)]
struct NodeSystemInfo {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(rename = "machineID", serialize_with = "text")]
    machine_id: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(rename = "systemUUID", serialize_with = "text")]
    system_uuid: Bytes,
}

/// `meta.v1.Status`, an error.
#[derive(Message, Serialize)]
#[expect(clippy::struct_field_names, reason = "the API's name")]
struct Status {
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text", skip_serializing_if = "Bytes::is_empty")]
    status: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(serialize_with = "text")]
    message: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    #[serde(serialize_with = "text")]
    reason: Bytes,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    code: i32,
}

/// `meta.v1.StatusDetails`
#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusDetails {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(serialize_with = "text")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text")]
    group: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(serialize_with = "text")]
    kind: Bytes,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<StatusCause>,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

/// `meta.v1.StatusCause`
#[derive(Message, Serialize)]
struct StatusCause {
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(serialize_with = "text")]
    reason: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(serialize_with = "text")]
    message: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(serialize_with = "text")]
    field: Bytes,
}

fn text<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

fn texts<S: Serializer>(list: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(|bytes| String::from_utf8_lossy(bytes)))
}

fn map<S: Serializer>(entries: &[Entry], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for Entry { key, value } in entries {
        map.serialize_entry(&String::from_utf8_lossy(key), &String::from_utf8_lossy(value))?;
    }
    map.end()
}

impl Serialize for Time {
    /// As the API server writes times in JSON: to the second, in UTC, and null for no time.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let after = |seconds| {
            DateTime::from(Date::constant(1970, 1, 1)).checked_add(SignedDuration::from_secs(seconds))
        };
        match self.seconds.map(after) {
            Some(Ok(time)) => serializer.collect_str(&format_args!("{time}Z")),
            // Times in JSON have no years beyond 9999. Go writes none either.
            Some(Err(_)) | None => serializer.serialize_none(),
        }
    }
}
