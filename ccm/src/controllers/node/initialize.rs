//! Decides what to write to complete a new Node, or why that cannot be done yet. Pure functions.

use std::{collections::BTreeMap, time::Duration};

use cloudprovider::{
    Error, ErrorKind, InstanceLookup, NodeAddress, ProvidedNodeIpError, apply_provided_node_ip,
};
use controller_kit::{
    conditions::{INITIALIZED, WantedCondition, reason_word},
    nodes::{Node, NodePatch},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    PROVIDED_NODE_IP, UNINITIALIZED_TAINT,
    addresses::{addresses_patch, wanted_addresses},
    labels::{ForeignValue, LabelChanges, label_changes},
};

/// The writes that complete a Node, in order. The last one removes the taint, so a Node without the taint is complete.
#[derive(Debug, PartialEq)]
pub(super) struct Initialization {
    /// Addresses and condition. `None` where they are right already.
    pub status: Option<NodePatch>,
    /// Provider ID, labels and the removal of the taint, for a Node that no other client has written since.
    /// The patch is guarded by the resource version. `None` if the taints that stay cannot be written back
    /// unchanged.
    pub quick_main: Option<NodePatch>,
    addresses: Vec<NodeAddress>,
    /// The provider ID to write. `None` if the Node has one.
    provider_id: Option<String>,
    labels: LabelChanges,
}

impl Initialization {
    /// The same write as `quick_main`, for a Node that other clients write as well. It is a JSON Patch, whose
    /// `test` operations guard exactly what matters. The kubelet's heartbeats change the resource version all
    /// the time and do not disturb it. The patch fails if another Node has the name by now, or if the taint
    /// has moved in the list.
    pub(super) fn guarded_main(&self, node: &Node) -> NodePatch {
        let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": node.identity.uid})];
        if !self.addresses.is_empty() {
            // The first write has put it there, and nobody has changed it since.
            operations.push(json!({"op": "test", "path": "/status/addresses", "value": self.addresses}));
        }
        let ours: Vec<usize> = node
            .taints
            .iter()
            .enumerate()
            .filter(|(_, t)| t.key == UNINITIALIZED_TAINT)
            .map(|(i, _)| i)
            .collect();
        for index in &ours {
            operations.push(
                json!({"op": "test", "path": format!("/spec/taints/{index}/key"), "value": UNINITIALIZED_TAINT}),
            );
        }
        if let Some(provider_id) = &self.provider_id {
            operations.push(json!({"op": "add", "path": "/spec/providerID", "value": provider_id}));
        }
        let LabelChanges { labels, annotations, .. } = &self.labels;
        set_in_map(&mut operations, "/metadata/labels", &node.identity.labels, labels);
        set_in_map(&mut operations, "/metadata/annotations", &node.identity.annotations, annotations);
        // In descending order, so that the remaining indices stay valid.
        for index in ours.iter().rev() {
            operations.push(json!({"op": "remove", "path": format!("/spec/taints/{index}")}));
        }
        NodePatch::Json(Value::Array(operations))
    }

    /// The warnings, for the log.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.labels.warnings
    }
}

/// The reason where the API server refused a write.
pub(super) const WRITE_FAILED: &str = "WriteFailed";

/// Why a Node stays uninitialised for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotInitialized {
    /// A CamelCase word for condition and metric.
    pub reason: &'static str,
    /// A sentence for people, in the provider's words.
    pub message: String,
    /// How long to wait before the next try, if the provider says so.
    pub retry_after: Option<Duration>,
    /// Whether the problem is expected to end by itself shortly, so that no event is due yet.
    pub in_progress: bool,
    /// Whether only a change of the cloud, the Node or the configuration can help.
    pub hopeless: bool,
}

impl NotInitialized {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None, in_progress: false, hopeless: false }
    }

    fn from_error(error: &Error) -> Self {
        Self {
            reason: reason_word(error.kind()),
            message: error.report(),
            retry_after: error.retry_after(),
            in_progress: error.kind() == ErrorKind::InProgress,
            hopeless: !error.is_retryable(),
        }
    }

    /// A write that the API server refused.
    pub(super) fn write_failed(message: String) -> Self {
        Self { in_progress: true, ..Self::new(WRITE_FAILED, message) }
    }
}

/// Decides what to write to a Node that has the uninitialized taint.
pub(super) fn initialize(
    node: &Node,
    answer: &InstanceLookup,
    provider: &str,
    now: Timestamp,
) -> Result<Initialization, NotInitialized> {
    let instance = match answer {
        InstanceLookup::Present(instance) => instance,
        InstanceLookup::Absent => {
            return Err(NotInitialized::new(
                "InstanceNotFound",
                format!("cloud provider {provider} has no instance for this node"),
            ));
        }
        InstanceLookup::Unknown(error) => return Err(NotInitialized::from_error(error)),
    };
    if let Some(error) = &instance.incomplete {
        return Err(NotInitialized::from_error(error));
    }
    // Upstream's gate counts for initialised Nodes alone.
    let labels = label_changes(node, &instance.metadata, ForeignValue::Stays)
        .map_err(|error| NotInitialized::new("InvalidLabel", error.to_string()))?;
    let addresses = addresses(node, &instance.metadata.addresses)?;
    let provider_id = match (&node.identity.provider_id, &instance.provider_id) {
        (Some(_), _) => None,
        (None, Some(id)) => Some(id.as_str().to_owned()),
        // Upstream's rule: an instance's type cannot be added to the Node later.
        (None, None) => {
            return Err(NotInitialized::new(
                "ProviderIDMissing",
                format!(
                    "cloud provider {provider} gives this node's instance no provider ID, and the node has none"
                ),
            ));
        }
    };
    Ok(Initialization {
        status: status_patch(node, &addresses, now),
        quick_main: quick_main_patch(node, provider_id.as_deref(), &labels),
        addresses,
        provider_id,
        labels,
    })
}

fn addresses(node: &Node, from_cloud: &[NodeAddress]) -> Result<Vec<NodeAddress>, NotInitialized> {
    let mismatch = |error: ProvidedNodeIpError| {
        NotInitialized::new("ProvidedNodeIPMismatch", format!("annotation {PROVIDED_NODE_IP}: {error}"))
    };
    // Upstream checks the annotation even where the cloud reports no address at all.
    if from_cloud.is_empty()
        && let Some(value) = node.identity.annotations.get(PROVIDED_NODE_IP)
    {
        apply_provided_node_ip(value, from_cloud).map_err(mismatch)?;
    }
    wanted_addresses(node, from_cloud).map_err(mismatch)
}

fn status_patch(node: &Node, addresses: &[NodeAddress], now: Timestamp) -> Option<NodePatch> {
    let condition = WantedCondition::new(
        INITIALIZED,
        "True",
        "Initialized",
        "the cloud provider has filled this node in",
    );
    let mut status = serde_json::Map::new();
    if addresses != node.identity.addresses {
        status.insert("addresses".into(), addresses_patch(node, addresses));
    }
    if !condition.is_on(node) {
        status.insert("conditions".into(), json!([condition.to_json(node, now)]));
    }
    (!status.is_empty())
        .then(|| NodePatch::Status(json!({"metadata": {"uid": node.identity.uid}, "status": status})))
}

/// A strategic merge patch. It costs the API server less than a JSON Patch, for which the API server encodes
/// the whole Node as JSON, images included, and decodes it again. It replaces the list of taints, so it must
/// apply to one version of the Node only.
fn quick_main_patch(node: &Node, provider_id: Option<&str>, labels: &LabelChanges) -> Option<NodePatch> {
    let stay: Vec<_> = node.taints.iter().filter(|taint| taint.key != UNINITIALIZED_TAINT).collect();
    if stay.iter().any(|taint| taint.key.is_empty() || taint.effect.is_empty()) {
        return None;
    }
    let mut spec = json!({"taints": stay});
    if let Some(provider_id) = provider_id {
        spec["providerID"] = provider_id.into();
    }
    let mut metadata = json!({"uid": node.identity.uid});
    for (name, changes) in [("labels", &labels.labels), ("annotations", &labels.annotations)] {
        if !changes.is_empty() {
            metadata[name] = json!(changes);
        }
    }
    Some(NodePatch::Strategic(json!({"metadata": metadata, "spec": spec})))
}

fn set_in_map(
    operations: &mut Vec<Value>,
    path: &str,
    now: &BTreeMap<String, String>,
    changes: &BTreeMap<String, Option<String>>,
) {
    if now.is_empty() {
        // A path into a missing map is an error, and so is a removal from it.
        let all: serde_json::Map<String, Value> =
            changes.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?.into()))).collect();
        if !all.is_empty() {
            // Adding the map must not overwrite a map that another client has added meanwhile. For the API
            // server a missing member is null.
            operations.push(json!({"op": "test", "path": path, "value": null}));
            operations.push(json!({"op": "add", "path": path, "value": all}));
        }
        return;
    }
    for (key, value) in changes {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        // Somebody else may have set it meanwhile, and it may have to stay. The failed test leads to a new decision.
        operations.push(json!({"op": "test", "path": path, "value": now.get(key)}));
        operations.push(match value {
            Some(value) => json!({"op": "add", "path": path, "value": value}),
            None => json!({"op": "remove", "path": path}),
        });
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{Instance, InstanceMetadata, NodeAddress, PowerState, ProviderId};

    use super::*;

    fn tainted(extra_taint: bool) -> Node {
        let mut taints = vec![json!({"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"})];
        if extra_taint {
            taints.insert(0, json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
            taints.push(json!({"key": UNINITIALIZED_TAINT, "effect": "NoExecute"}));
        }
        Node::from_json(json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"kubernetes.io/hostname": "n"}},
            "spec": {"taints": taints},
            "status": {"addresses": [{"type": "Hostname", "address": "n"}]},
        }))
    }

    fn instance() -> Instance {
        Instance::new(ProviderId::new("test", "/1"), PowerState::Running).with_metadata(InstanceMetadata {
            instance_type: Some("2c-4096m".into()),
            addresses: vec![NodeAddress::internal_ip("10.0.0.1"), NodeAddress::hostname("n")],
            zone: Some("z".into()),
            region: None,
            additional_labels: [("example.com/a".into(), "b".into())].into(),
        })
    }

    fn decide(node: &Node, answer: impl Into<InstanceLookup>) -> Result<Initialization, NotInitialized> {
        initialize(node, &answer.into(), "test", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_new_node_takes_two_writes() {
        let node = tainted(false);
        let plan = decide(&node, instance()).expect("complete");
        let Some(NodePatch::Status(status)) = &plan.status else { panic!("no status patch") };
        assert_eq!(status["metadata"]["uid"], "u");
        assert_eq!(
            status["status"]["addresses"],
            json!([
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"},
                {"$patch": "replace"},
            ])
        );
        assert_eq!(status["status"]["conditions"][0]["status"], "True");
        assert_eq!(
            plan.quick_main,
            Some(NodePatch::Strategic(json!({
                "metadata": {
                    "uid": "u",
                    "labels": {
                        "beta.kubernetes.io/instance-type": "2c-4096m", "example.com/a": "b",
                        "failure-domain.beta.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "2c-4096m",
                        "topology.kubernetes.io/zone": "z",
                    },
                    "annotations": {
                        "node.cloudprovider.kubernetes.io/additional-labels": "{\"example.com/a\":\"b\"}",
                    },
                },
                "spec": {"taints": [], "providerID": "test:///1"},
            })))
        );
        let NodePatch::Json(main) = plan.guarded_main(&node) else { panic!("no JSON patch") };
        assert_eq!(
            main,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/status/addresses", "value": [
                    {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"},
                ]},
                {"op": "test", "path": "/spec/taints/0/key", "value": UNINITIALIZED_TAINT},
                {"op": "add", "path": "/spec/providerID", "value": "test:///1"},
                {"op": "test", "path": "/metadata/labels/beta.kubernetes.io~1instance-type", "value": null},
                {"op": "add", "path": "/metadata/labels/beta.kubernetes.io~1instance-type", "value": "2c-4096m"},
                {"op": "test", "path": "/metadata/labels/example.com~1a", "value": null},
                {"op": "add", "path": "/metadata/labels/example.com~1a", "value": "b"},
                {"op": "test", "path": "/metadata/labels/failure-domain.beta.kubernetes.io~1zone", "value": null},
                {"op": "add", "path": "/metadata/labels/failure-domain.beta.kubernetes.io~1zone", "value": "z"},
                {"op": "test", "path": "/metadata/labels/node.kubernetes.io~1instance-type", "value": null},
                {"op": "add", "path": "/metadata/labels/node.kubernetes.io~1instance-type", "value": "2c-4096m"},
                {"op": "test", "path": "/metadata/labels/topology.kubernetes.io~1zone", "value": null},
                {"op": "add", "path": "/metadata/labels/topology.kubernetes.io~1zone", "value": "z"},
                {"op": "test", "path": "/metadata/annotations", "value": null},
                {"op": "add", "path": "/metadata/annotations",
                 "value": {"node.cloudprovider.kubernetes.io/additional-labels": "{\"example.com/a\":\"b\"}"}},
                {"op": "remove", "path": "/spec/taints/0"},
            ])
        );
    }

    #[test]
    fn every_taint_with_the_key_goes_and_others_stay() {
        let mut node = tainted(true);
        node.identity.provider_id = Some("test:///0".into());
        let plan = decide(&node, instance()).expect("complete");
        let Some(NodePatch::Strategic(quick)) = &plan.quick_main else { panic!("no strategic patch") };
        let spec = json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        assert_eq!(quick["spec"], spec);
        let NodePatch::Json(main) = plan.guarded_main(&node) else { panic!() };
        let operations: Vec<(&str, &str)> = main
            .as_array()
            .expect("a list")
            .iter()
            .map(|o| (o["op"].as_str().expect("op"), o["path"].as_str().expect("path")))
            .filter(|(_, path)| path.starts_with("/spec"))
            .collect();
        assert_eq!(
            operations,
            [
                ("test", "/spec/taints/1/key"),
                ("test", "/spec/taints/2/key"),
                ("remove", "/spec/taints/2"),
                ("remove", "/spec/taints/1"),
            ]
        );
    }

    #[test]
    fn an_odd_taint_is_not_written_back() {
        let mut node = tainted(true);
        node.taints[0].effect = String::new();
        assert_eq!(decide(&node, instance()).expect("complete").quick_main, None);
    }

    #[test]
    fn nothing_is_removed_while_something_is_missing() {
        let node = tainted(false);
        assert_eq!(decide(&node, InstanceLookup::Absent).expect_err("absent").reason, "InstanceNotFound");
        let away = Error::new(ErrorKind::Unavailable, "kvm1 is unreachable");
        let refused = decide(&node, away).expect_err("unknown");
        assert_eq!(
            (refused.reason, refused.message.as_str()),
            ("ProviderUnavailable", "kvm1 is unreachable")
        );
        let no_lease = Error::in_progress(Duration::from_secs(2), "no DHCP lease yet");
        let refused = decide(&node, instance().with_incomplete(no_lease)).expect_err("incomplete");
        assert_eq!((refused.in_progress, refused.retry_after), (true, Some(Duration::from_secs(2))));
        let mut invalid = instance();
        invalid.metadata.zone = Some("a b".into());
        assert_eq!(decide(&node, invalid).expect_err("no label").reason, "InvalidLabel");
    }

    #[test]
    fn an_instance_without_an_id_is_enough_for_a_node_that_has_one() {
        let mut nameless = instance();
        nameless.provider_id = None;
        let refused = decide(&tainted(false), nameless.clone()).expect_err("nobody could add it later");
        assert_eq!((refused.reason, refused.hopeless), ("ProviderIDMissing", false));
        assert!(refused.message.contains("cloud provider test gives"), "{}", refused.message);
        for own in ["test:///0", "without-a-scheme"] {
            let mut node = tainted(false);
            node.identity.provider_id = Some(own.into());
            let plan = decide(&node, nameless.clone()).expect("the node keeps its own");
            assert_eq!(plan.provider_id, None);
        }
    }

    #[test]
    fn a_provided_node_ip_must_be_the_clouds() {
        let mut node = tainted(false);
        node.identity.annotations.insert(PROVIDED_NODE_IP.into(), "10.0.0.9".into());
        assert_eq!(decide(&node, instance()).expect_err("another").reason, "ProvidedNodeIPMismatch");
        let mut silent = instance();
        silent.metadata.addresses.clear();
        assert_eq!(decide(&node, silent).expect_err("none").reason, "ProvidedNodeIPMismatch");
        node.identity.annotations.insert(PROVIDED_NODE_IP.into(), "10.0.0.1".into());
        assert!(decide(&node, instance()).is_ok());
    }

    #[test]
    fn no_addresses_from_the_cloud_leave_the_kubelets() {
        let mut silent = instance();
        silent.metadata.addresses.clear();
        let plan = decide(&tainted(false), silent).expect("as upstream");
        let Some(NodePatch::Status(status)) = &plan.status else { panic!("the condition is written") };
        assert!(status["status"].get("addresses").is_none());
    }
}
