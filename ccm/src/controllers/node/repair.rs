//! Decides what to write to keep an initialised Node up to date. Pure functions.

use cloudprovider::{ErrorKind, InstanceLookup, InstanceMetadata, ProvidedNodeIpError};
use controller_kit::{
    conditions::{INITIALIZED, WantedCondition, reason_word},
    nodes::{Node, NodePatch},
};
use jiff::Timestamp;
use serde_json::json;

use super::{
    addresses::{addresses_patch, wanted_addresses},
    labels::{ForeignValue, label_changes},
};

/// The writes that bring a Node back to what the cloud reports. Empty for a Node that is up to date.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Repair {
    /// The patches, in order.
    pub patches: Vec<NodePatch>,
    /// What cannot be written to the Node and is left unchanged, for the log.
    pub warnings: Vec<String>,
}

/// Compares an initialised Node with what the cloud reports.
///
/// The comparison is exact: it covers all addresses and their order. So a Node that is up to date costs no
/// write. What the cloud does not report is left unchanged. What cannot be followed is a warning here and not
/// an error, since the Node works.
pub(super) fn repair(
    node: &Node,
    metadata: &InstanceMetadata,
    foreign: ForeignValue,
    now: Timestamp,
) -> Repair {
    let mut repair = Repair::default();
    let mut status = serde_json::Map::new();
    match wanted_addresses(node, &metadata.addresses) {
        Ok(addresses) if addresses != node.identity.addresses => {
            status.insert("addresses".into(), addresses_patch(node, &addresses));
        }
        Ok(_) => {}
        Err(error) => repair.warnings.push(no_match(&error)),
    }
    // Another client removed the taint of a Node that we could not initialise.
    if node.condition(INITIALIZED).is_some_and(|condition| condition.status != "True") {
        let done =
            WantedCondition::new(INITIALIZED, "True", "Initialized", "the node has no uninitialized taint");
        status.insert("conditions".into(), json!([done.to_json(node, now)]));
    }
    if !status.is_empty() {
        repair
            .patches
            .push(NodePatch::Status(json!({"metadata": {"uid": node.identity.uid}, "status": status})));
    }
    match label_changes(node, metadata, foreign) {
        Ok(changes) => {
            if !changes.is_empty() {
                let mut metadata = json!({"uid": node.identity.uid});
                if !changes.labels.is_empty() {
                    metadata["labels"] = json!(changes.labels);
                }
                if !changes.annotations.is_empty() {
                    metadata["annotations"] = json!(changes.annotations);
                }
                repair.patches.push(NodePatch::Merge(json!({"metadata": metadata})));
            }
            repair.warnings.extend(changes.warnings);
        }
        Err(error) => repair.warnings.push(error.to_string()),
    }
    repair
}

/// The condition of a Node that we could not initialise and whose taint another client removed.
pub(super) fn no_longer_waiting(node: &Node) -> Option<WantedCondition> {
    let waits = node.condition(INITIALIZED).is_some_and(|condition| condition.status != "True");
    waits.then(|| {
        WantedCondition::new(INITIALIZED, "True", "Initialized", "the node has no uninitialized taint")
    })
}

/// What is said in an event about an initialised Node that is not followed: a reason and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Untold {
    pub reason: &'static str,
    pub message: String,
}

/// What is to be said about an initialised Node that has no instance in the cloud, or one of several. A Node without a provider ID is never
/// deleted, so nothing else would say that it has none.
pub(super) fn untold(node: &Node, answer: &InstanceLookup) -> Option<Untold> {
    match answer {
        InstanceLookup::Absent if node.identity.provider_id.is_none() => Some(Untold {
            reason: reason_word(ErrorKind::NotFound),
            message: "the cloud provider has no instance for this node. Since the node has no provider ID, it is never deleted: delete \
                      it if its machine is gone"
                .to_owned(),
        }),
        InstanceLookup::Unknown(error) if error.kind() == ErrorKind::Ambiguous => Some(Untold {
            reason: reason_word(error.kind()),
            message: format!("addresses and labels are not followed: {}", error.report()),
        }),
        InstanceLookup::Present(_) | InstanceLookup::Absent | InstanceLookup::Unknown(_) => None,
    }
}

fn no_match(error: &ProvidedNodeIpError) -> String {
    format!("addresses are left as they are: annotation {}: {error}", super::PROVIDED_NODE_IP)
}

#[cfg(test)]
mod tests {
    use cloudprovider::NodeAddress;
    use serde_json::Value;

    use super::*;

    fn node(addresses: Value, labels: Value) -> Node {
        Node::from_json(json!({
            "metadata": {"name": "n", "uid": "u", "labels": labels},
            "status": {"addresses": addresses},
        }))
    }

    #[test]
    fn what_nothing_else_says_of_a_node() {
        let node = |id: Value| {
            Node::from_json(json!({"metadata": {"name": "n", "uid": "u"}, "spec": {"providerID": id}}))
        };
        let (with, without) = (node(json!("x://1")), node(Value::Null));
        let ambiguous = InstanceLookup::from(cloudprovider::Error::new(ErrorKind::Ambiguous, "a and b"));
        let away = InstanceLookup::from(cloudprovider::Error::new(ErrorKind::Unavailable, "away"));
        for (node, answer, expected) in [
            (&without, &InstanceLookup::Absent, Some("InstanceNotFound")),
            (&with, &InstanceLookup::Absent, None),
            (&with, &ambiguous, Some("InstanceAmbiguous")),
            (&without, &ambiguous, Some("InstanceAmbiguous")),
            (&without, &away, None),
        ] {
            assert_eq!(untold(node, answer).map(|untold| untold.reason), expected, "{answer:?}");
        }
        assert!(untold(&with, &ambiguous).is_some_and(|untold| untold.message.contains("a and b")));
    }

    fn patches(node: &Node, metadata: &InstanceMetadata) -> Vec<NodePatch> {
        repair(node, metadata, ForeignValue::Stays, Timestamp::UNIX_EPOCH).patches
    }

    #[test]
    fn a_dual_stack_node_that_is_right_costs_nothing() {
        let addresses = [NodeAddress::internal_ip("10.0.0.1"), NodeAddress::internal_ip("fd00::1")];
        let metadata = InstanceMetadata { addresses: addresses.to_vec(), ..InstanceMetadata::default() };
        assert_eq!(patches(&node(json!(addresses), json!({})), &metadata), []);
        let swapped = [addresses[1].clone(), addresses[0].clone()];
        assert_eq!(patches(&node(json!(swapped), json!({})), &metadata).len(), 1);
        assert_eq!(patches(&node(json!(addresses), json!({})), &InstanceMetadata::default()), []);
    }

    #[test]
    fn labels_are_a_merge_patch_for_this_very_node() {
        let metadata = InstanceMetadata { zone: Some("b".into()), ..InstanceMetadata::default() };
        let labels =
            json!({"topology.kubernetes.io/zone": "a", "failure-domain.beta.kubernetes.io/zone": "b"});
        assert_eq!(
            patches(&node(json!([]), labels), &metadata),
            [NodePatch::Merge(
                json!({"metadata": {"uid": "u", "labels": {"topology.kubernetes.io/zone": "b"}}})
            )]
        );
    }

    #[test]
    fn an_annotation_that_does_not_match_is_a_warning() {
        let mut node = node(json!([{"type": "InternalIP", "address": "10.0.0.1"}]), json!({}));
        node.identity.annotations.insert(super::super::PROVIDED_NODE_IP.into(), "10.0.0.1".into());
        let metadata = InstanceMetadata {
            addresses: vec![NodeAddress::internal_ip("10.0.0.2")],
            ..InstanceMetadata::default()
        };
        let repair = repair(&node, &metadata, ForeignValue::Stays, Timestamp::UNIX_EPOCH);
        assert_eq!(repair.patches, []);
        assert_eq!(repair.warnings.len(), 1);
    }
}
