//! Nodes of workload clusters: the fields that are read.

use std::collections::BTreeMap;

use cloudprovider::dns;
use controller_kit::of_kind;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{NodeAddress, NodeSystemInfo},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use lifecycle::conditions::{Condition, Status};
use serde::{Deserialize, Serialize};

/// A Node in the cache. What a real one has beyond this, such as 10 kB of image names, is skipped when it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// `metadata.name`, which is a DNS name: others are passed over.
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.deletionTimestamp`
    pub deleting: Option<Timestamp>,
    /// `metadata.labels`
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`
    pub annotations: BTreeMap<String, String>,
    /// `spec.providerID`, if a Machine can have it: it has 1 to 512 bytes.
    pub provider_id: Option<String>,
    /// `spec.unschedulable`
    pub unschedulable: bool,
    /// `spec.taints`, in order.
    pub taints: Vec<Taint>,
    /// `status.conditions`, without the times of heartbeats.
    pub conditions: Vec<Condition>,
    /// `status.addresses`
    pub addresses: Vec<NodeAddress>,
    /// `status.nodeInfo`, each text of at most 256 characters.
    pub node_info: Option<NodeSystemInfo>,
    /// The names in `status.volumesAttached`.
    pub volumes_attached: Vec<String>,
}

/// One entry of `spec.taints`. Every field may be missing on the wire, since one odd Node must not end the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// `key`
    pub key: String,
    /// `value`, often empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `effect`: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// `timeAdded`, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl Taint {
    /// Whether both are one taint for Kubernetes: key and effect are the same, whatever the values.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        (&self.key, &self.effect) == (&other.key, &other.effect)
    }
}

impl Node {
    /// Whether no kubelet of it answers: its condition `Ready` is `Unknown`.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.conditions.iter().any(|one| one.kind == "Ready" && one.status == Status::Unknown)
    }

    /// Whether everything but the version is the same.
    pub(super) fn same_content(&self, other: &Self) -> bool {
        let version = self.resource_version.clone();
        *self == Self { resource_version: version, ..other.clone() }
    }

    /// About how many bytes it takes in memory.
    pub(super) fn size(&self) -> usize {
        const EACH: usize = 64;
        let pairs = |map: &BTreeMap<String, String>| {
            map.iter().map(|(key, value)| EACH + key.len() + value.len()).sum::<usize>()
        };
        let taints = self.taints.iter().map(|taint| {
            let time = taint.time_added.as_ref().map_or(0, String::len);
            EACH + taint.key.len() + taint.value.len() + taint.effect.len() + time
        });
        let conditions =
            self.conditions.iter().map(|one| EACH + one.kind.len() + one.reason.len() + one.message.len());
        let addresses = self.addresses.iter().map(|one| EACH + one.address.len() + one.type_.len());
        let volumes = self.volumes_attached.iter().map(|name| EACH + name.len());
        let info = self.node_info.as_ref().map_or(0, |info| {
            let texts = [
                &info.architecture,
                &info.boot_id,
                &info.container_runtime_version,
                &info.kernel_version,
                &info.kube_proxy_version,
                &info.kubelet_version,
                &info.machine_id,
                &info.operating_system,
                &info.os_image,
                &info.system_uuid,
            ];
            texts.into_iter().map(|text| EACH + text.len()).sum()
        });
        let own = [&self.name, &self.uid, &self.resource_version].map(String::len);
        8 * EACH
            + self.provider_id.as_ref().map_or(0, String::len)
            + own.iter().sum::<usize>()
            + pairs(&self.labels)
            + pairs(&self.annotations)
            + taints.sum::<usize>()
            + conditions.sum::<usize>()
            + addresses.sum::<usize>()
            + volumes.sum::<usize>()
            + info
    }
}

/// The longest text of `status.nodeInfo`, in characters. The status of a Machine has them too.
const LONGEST_INFO: usize = 256;

fn cut(mut info: NodeSystemInfo) -> NodeSystemInfo {
    for text in [
        &mut info.architecture,
        &mut info.boot_id,
        &mut info.container_runtime_version,
        &mut info.kernel_version,
        &mut info.kube_proxy_version,
        &mut info.kubelet_version,
        &mut info.machine_id,
        &mut info.operating_system,
        &mut info.os_image,
        &mut info.system_uuid,
    ] {
        if let Some((end, _)) = text.char_indices().nth(LONGEST_INFO) {
            text.truncate(end);
        }
    }
    info
}

/// The longest `spec.providerID` of a Machine, by the contract of infrastructure providers.
const LONGEST_PROVIDER_ID: usize = 512;

/// A Node as it comes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireNode {
    metadata: ObjectMeta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    conditions: Option<Vec<WireCondition>>,
    addresses: Option<Vec<NodeAddress>>,
    node_info: Option<NodeSystemInfo>,
    volumes_attached: Option<Vec<WireVolume>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireVolume {
    name: String,
}

impl WireNode {
    /// The Node, unless its name is none that a Node can have.
    pub(super) fn read(self) -> Option<Node> {
        let Self { metadata, spec, status } = self;
        let name = metadata.name.filter(|name| dns::is_subdomain(name))?;
        Some(Node {
            name,
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.map(|Time(time)| time),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            provider_id: spec.provider_id.filter(|id| (1..=LONGEST_PROVIDER_ID).contains(&id.len())),
            unschedulable: spec.unschedulable.unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            conditions: status.conditions.unwrap_or_default().into_iter().map(Condition::from).collect(),
            addresses: status.addresses.unwrap_or_default(),
            node_info: status.node_info.map(cut),
            volumes_attached: status
                .volumes_attached
                .unwrap_or_default()
                .into_iter()
                .map(|one| one.name)
                .collect(),
        })
    }
}

impl From<WireCondition> for Condition {
    fn from(wire: WireCondition) -> Self {
        Self {
            kind: wire.kind,
            status: Status::from_text(&wire.status),
            reason: wire.reason.unwrap_or_default(),
            message: wire.message.unwrap_or_default(),
            since: wire.last_transition_time.map_or(0, |Time(time)| time.as_second()),
        }
    }
}

of_kind!(WireNode, k8s_openapi::api::core::v1::Node);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_needed_is_read() {
        let wire = json!({
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "managedFields": [{"manager": "kubelet"}], "deletionTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"providerID": "x://1", "unschedulable": true, "podCIDR": "10.0.0.0/24",
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}]},
            "status": {"images": [{"names": ["big"]}], "volumesAttached": [{"name": "v", "devicePath": "/dev/x"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "silent",
                    "lastHeartbeatTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "1970-01-01T00:01:00Z"}]},
        });
        let read = |wire: &serde_json::Value| {
            serde_json::from_value::<WireNode>(wire.clone()).expect("a Node").read()
        };
        let node = read(&wire).expect("a Node");
        assert_eq!((&*node.name, &*node.uid, &*node.resource_version), ("n1", "u", "7"));
        assert_eq!(node.provider_id.as_deref(), Some("x://1"));
        assert_eq!(node.deleting.map(|time| time.to_string()).as_deref(), Some("2026-01-02T03:04:05Z"));
        assert!(node.unschedulable && node.is_unreachable());
        assert_eq!((node.conditions[0].since, &*node.conditions[0].message), (60, "silent"));
        assert_eq!(
            (node.taints[0].key.as_str(), node.volumes_attached.as_slice()),
            ("k", &["v".to_owned()][..])
        );
        assert!(node.size() > 500 && node.size() < 2000, "{}", node.size());
        let mut beat = wire.clone();
        beat["metadata"]["resourceVersion"] = json!("8");
        beat["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-02T03:09:05Z");
        assert!(node.same_content(&read(&beat).expect("a Node")), "a heartbeat");
        let mut long = wire.clone();
        long["spec"]["providerID"] = json!("x".repeat(LONGEST_PROVIDER_ID + 1));
        assert_eq!(read(&long).expect("a Node").provider_id, None);
        let info = |text: &str| {
            let mut wire = wire.clone();
            wire["status"]["nodeInfo"] = json!({
                "architecture": text, "bootID": text, "containerRuntimeVersion": text, "kernelVersion": text,
                "kubeProxyVersion": text, "kubeletVersion": text, "machineID": text, "operatingSystem": text,
                "osImage": text, "systemUUID": text,
            });
            read(&wire).expect("a Node").node_info
        };
        assert_eq!(info(&"ä".repeat(LONGEST_INFO + 1)), info(&"ä".repeat(LONGEST_INFO)));
        assert_ne!(info(&"ä".repeat(LONGEST_INFO)), info(&"ä".repeat(LONGEST_INFO - 1)));
        for name in [json!(null), json!(""), json!("../x"), json!("a/b"), json!("A b")] {
            let mut bad = wire.clone();
            bad["metadata"]["name"] = name;
            assert_eq!(read(&bad), None);
        }
        let bare = read(&json!({"metadata": {"name": "n"}, "spec": {"taints": null}})).expect("a Node");
        assert_eq!(bare, Node { name: "n".to_owned(), ..Node::default() });
    }
}
