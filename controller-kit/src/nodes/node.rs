//! The fields of a Node that the controllers read, and how they are decoded.

use std::{borrow::Cow, collections::BTreeMap};

use cloudprovider::{CHECK_NODE_NAME, NodeAddress, NodeIdentity};
use component::events::EventObject;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize};

use super::condition_types;
use crate::cache::CachedObject;

/// A Node in the cache.
///
/// A real Node has 10 to 20 kB of image names, managed fields and capacities that are not needed here. They
/// are skipped during parsing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WireNode")]
pub struct Node {
    /// The fields that a provider sees.
    pub identity: NodeIdentity,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    /// `spec.podCIDRs`, or `spec.podCIDR` where only that is set. As they are written, one for each address family.
    pub pod_cidrs: Vec<String>,
    /// The entries of `status.conditions` with a type of [`condition_types::KEPT`].
    pub conditions: Vec<Condition>,
}

/// One entry of `spec.taints`. Every field may be missing on the wire, since one odd Node must not end the watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// `key`
    #[serde(default)]
    pub key: String,
    /// `value`, often empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `effect`: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(default)]
    pub effect: String,
    /// `timeAdded`, kept as it is so that a taint list can be written back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// One entry of `status.conditions`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Condition {
    /// `type`
    #[serde(rename = "type", default)]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// A CamelCase word.
    #[serde(default)]
    pub reason: String,
    /// A sentence for people. It is not kept for `Ready`, where it changes often, and for `NetworkUnavailable` only if a route
    /// was not made: nobody reads it otherwise.
    #[serde(default)]
    pub message: String,
}

/// The status of the `Ready` condition. A missing condition counts as `Unknown`, as upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyStatus {
    /// The kubelet says it is ready.
    True,
    /// The kubelet says it is not ready.
    False,
    /// The kubelet has been silent for long, or has never reported.
    Unknown,
}

impl Node {
    /// A Node that does not exist, with a system UUID of its own. A provider that says that its instance is absent can see all
    /// of its machines.
    pub fn of_nobody() -> Self {
        let identity = NodeIdentity {
            name: CHECK_NODE_NAME.to_owned(),
            system_uuid: Some(uuid::Uuid::new_v4().to_string()),
            ..NodeIdentity::default()
        };
        Self { identity, ..Self::default() }
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// The Node as the object of an event.
    pub fn event_object(&self) -> EventObject {
        EventObject {
            api_version: "v1".into(),
            kind: "Node",
            namespace: String::new(),
            name: self.identity.name.clone(),
            uid: self.identity.uid.clone(),
        }
    }

    /// Whether two versions of a Node are the same Node with the same instance, as far as the Node itself can tell. If so, the
    /// cloud's answer about one of them holds for the other.
    pub fn is_same_instance(&self, other: &Self) -> bool {
        let (a, b) = (&self.identity, &other.identity);
        a.uid == b.uid
            && a.provider_id == b.provider_id
            && a.system_uuid == b.system_uuid
            && a.machine_id == b.machine_id
    }

    /// The status of the `Ready` condition.
    pub fn ready(&self) -> ReadyStatus {
        match self.condition(condition_types::READY).map(|c| c.status.as_str()) {
            Some("True") => ReadyStatus::True,
            Some("False") => ReadyStatus::False,
            _ => ReadyStatus::Unknown,
        }
    }

    /// The condition of this type.
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.condition_type == condition_type)
    }

    /// Whether a taint with this key is there, whatever its value and effect.
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|t| t.key == key)
    }
}

impl CachedObject for Node {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.identity.name)
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn set_resource_version(&mut self, version: &str) {
        version.clone_into(&mut self.resource_version);
    }

    fn same_content(&self, other: &Self) -> bool {
        self.identity == other.identity
            && self.created == other.created
            && self.deleting == other.deleting
            && self.taints == other.taints
            && self.pod_cidrs == other.pod_cidrs
            && self.conditions == other.conditions
    }
}

/// The parts of a Node on the wire that are parsed. Each field here is also one in `protobuf/messages.rs`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireNode {
    #[serde(default, deserialize_with = "needed_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
    /// Set by `protobuf/messages.rs` where only the version has changed since the last event. All else is left out then.
    #[serde(default)]
    only_version_changed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    taints: Option<Vec<Taint>>,
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
}

impl WireSpec {
    /// API servers fill in both fields. A Node of an older one may only have the first.
    fn take_pod_cidrs(&mut self) -> Vec<String> {
        let all = self.pod_cidrs.take().filter(|all| !all.is_empty());
        let mut all = all.unwrap_or_else(|| self.pod_cidr.take().into_iter().collect());
        all.retain(|cidr| !cidr.is_empty());
        all
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<Condition>>,
    node_info: Option<WireNodeInfo>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireNodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: String,
    #[serde(rename = "machineID")]
    machine_id: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

fn needed_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let wire = WireMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: wire.name,
        uid: wire.uid,
        resource_version: wire.resource_version,
        creation_timestamp: wire.creation_timestamp,
        deletion_timestamp: wire.deletion_timestamp,
        labels: wire.labels,
        annotations: wire.annotations,
        ..ObjectMeta::default()
    })
}

crate::of_kind!(WireNode, k8s_openapi::api::core::v1::Node);

impl WireNode {
    /// Name and version, where nothing else has changed and all else was left out.
    pub(super) fn only_version(&self) -> Option<(&str, &str)> {
        let (name, version) = (self.metadata.name.as_ref()?, self.metadata.resource_version.as_ref()?);
        self.only_version_changed.then_some((name, version))
    }
}

impl From<WireNode> for Node {
    fn from(mut wire: WireNode) -> Self {
        let mut pod_cidrs = wire.spec.take_pod_cidrs();
        let node_info = wire.status.node_info.unwrap_or_default();
        let mut conditions = wire.status.conditions.unwrap_or_default();
        conditions.retain(|c| condition_types::KEPT.contains(&c.condition_type.as_str()));
        for condition in &mut conditions {
            match &*condition.condition_type {
                condition_types::READY => {
                    condition.reason = String::new();
                    condition.message = String::new();
                }
                condition_types::NETWORK_UNAVAILABLE
                    if condition.reason != condition_types::NO_ROUTE_CREATED =>
                {
                    condition.message = String::new();
                }
                _ => {}
            }
        }
        let mut addresses = wire.status.addresses.unwrap_or_default();
        let mut taints = wire.spec.taints.unwrap_or_default();
        // Lists of one or two were read into space for four. With thousands of Nodes that adds up.
        addresses.shrink_to_fit();
        conditions.shrink_to_fit();
        taints.shrink_to_fit();
        pod_cidrs.shrink_to_fit();
        Self {
            identity: NodeIdentity {
                name: wire.metadata.name.unwrap_or_default(),
                uid: wire.metadata.uid.unwrap_or_default(),
                created: wire.metadata.creation_timestamp.as_ref().map(|time| time.0.into()),
                provider_id: wire.spec.provider_id.filter(|id| !id.is_empty()),
                system_uuid: Some(node_info.system_uuid).filter(|uuid| !uuid.is_empty()),
                machine_id: Some(node_info.machine_id).filter(|id| !id.is_empty()),
                addresses,
                labels: wire.metadata.labels.unwrap_or_default(),
                annotations: wire.metadata.annotations.unwrap_or_default(),
            },
            resource_version: wire.metadata.resource_version.unwrap_or_default(),
            created: wire.metadata.creation_timestamp.map(|time| time.0),
            deleting: wire.metadata.deletion_timestamp.is_some(),
            taints,
            pod_cidrs,
            conditions,
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Node {
    /// Reads a Node as the watch does, for tests.
    ///
    /// # Panics
    /// If it is none.
    #[allow(clippy::expect_used, reason = "a test gives it")]
    pub fn from_json(json: serde_json::Value) -> Self {
        serde_json::from_value(json).expect("a Node")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_what_is_read_and_nothing_else() {
        let node = Node::from_json(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"a": "b"}, "annotations": {"c": "d"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {"providerID": "", "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"], "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": "n"}],
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x", "lastHeartbeatTime": "2026-01-02T03:04:05Z"},
                    {"type": "DiskPressure", "status": "False"},
                    {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": "x"},
                ],
                "nodeInfo": {"systemUUID": "s", "machineID": "", "kernelVersion": "6"},
                "images": [{"names": ["registry/x:1"], "sizeBytes": 1}],
                "capacity": {"cpu": "2"},
            },
        }));
        assert_eq!(node.identity.provider_id, None);
        assert_eq!(node.identity.system_uuid.as_deref(), Some("s"));
        assert_eq!(node.identity.machine_id, None);
        assert_eq!(node.ready(), ReadyStatus::True);
        assert_eq!(node.conditions.len(), 2);
        assert_eq!(node.conditions[0].reason, "");
        let network = node.condition(condition_types::NETWORK_UNAVAILABLE).expect("kept");
        assert_eq!((&*network.status, &*network.reason, &*network.message), ("False", "RouteCreated", ""));
        assert_eq!(node.pod_cidrs, ["10.244.1.0/24", "fd00:1::/64"]);
        assert_eq!(node.taints[0].time_added.as_deref(), Some("2026-01-02T03:04:05Z"));
        assert_eq!(node.created.map(Timestamp::as_second), Some(1_767_323_045));
    }

    #[test]
    fn nulls_and_missing_parts_are_empty() {
        let node = Node::from_json(
            json!({"metadata": {"name": "n", "labels": null}, "spec": {"taints": null}, "status": {"addresses": null}}),
        );
        assert_eq!(node.ready(), ReadyStatus::Unknown);
        assert!(
            node.taints.is_empty() && node.identity.labels.is_empty() && node.identity.addresses.is_empty()
        );
        let bare = Node::from_json(json!({"metadata": {"name": "n"}}));
        assert_eq!(bare.identity.name, "n");
    }

    #[test]
    fn pod_cidrs_are_those_of_either_field() {
        let of = |spec: serde_json::Value| {
            Node::from_json(json!({"metadata": {"name": "n"}, "spec": spec})).pod_cidrs
        };
        assert_eq!(of(json!({"podCIDR": "10.0.0.0/24"})), ["10.0.0.0/24"]);
        assert_eq!(of(json!({"podCIDR": "10.0.0.0/24", "podCIDRs": null})), ["10.0.0.0/24"]);
        assert_eq!(of(json!({"podCIDRs": ["fd00::/64"]})), ["fd00::/64"]);
        assert!(of(json!({"podCIDR": ""})).is_empty() && of(json!({})).is_empty());
        let node = |cidr: &str| Node { pod_cidrs: vec![cidr.to_owned()], ..Node::default() };
        assert!(!node("10.0.0.0/24").same_content(&node("10.0.1.0/24")));
    }

    #[test]
    fn versions_compare_as_numbers() {
        let node = |version: &str| Node { resource_version: version.into(), ..Node::default() };
        assert!(node("9").is_older_than("10"));
        assert!(!node("10").is_older_than("10"));
        assert!(!node("opaque").is_older_than("10"));
    }
}
