//! Explains what this controller would do about one Node now. Pure functions.

use std::fmt;

use cloudprovider::{InstanceLookup, NodeAddress};
use controller_kit::nodes::Node;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    UNINITIALIZED_TAINT,
    addresses::wanted_addresses,
    initialize::initialize,
    labels::{ForeignValue, label_changes},
    repair::{repair, untold},
};

/// A field that differs from what the cloud reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field, as in `label topology.kubernetes.io/zone`.
    pub field: String,
    /// What the Node has.
    pub node: String,
    /// What it should have.
    pub cloud: String,
}

/// What the controller finds about a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePlan {
    /// Whether the Node has no uninitialized taint.
    pub initialized: bool,
    /// Why it is initialised or not.
    pub why: String,
    /// The fields that differ from what the cloud reports.
    pub differences: Vec<Difference>,
    /// What would be done next.
    pub next: Vec<String>,
}

/// What the controller would do, from what the cloud answers.
pub fn plan(
    node: &Node,
    answer: &InstanceLookup,
    provider: &str,
    foreign: ForeignValue,
    now: Timestamp,
) -> NodePlan {
    let initialized = !node.has_taint(UNINITIALIZED_TAINT);
    let mut plan = NodePlan {
        initialized,
        why: String::new(),
        differences: differences(node, answer, foreign),
        next: Vec::new(),
    };
    if initialized {
        plan.why = format!("it has no taint {UNINITIALIZED_TAINT}");
        match answer {
            InstanceLookup::Present(instance) => {
                let repair = repair(node, &instance.metadata, foreign, now);
                plan.next.extend(repair.warnings.iter().map(|warning| format!("leave alone: {warning}")));
                if !repair.patches.is_empty() {
                    plan.next.push(
                        "bring the Node to what the cloud says, in the next period at the latest".to_owned(),
                    );
                }
            }
            InstanceLookup::Absent => {}
            InstanceLookup::Unknown(_) => {
                plan.next.push("leave addresses and labels as they are until the cloud can tell".to_owned());
            }
        }
        let said = untold(node, answer).map(|untold| format!("say in an event: {}", untold.message));
        plan.next.extend(said);
        return plan;
    }
    match initialize(node, answer, provider, now) {
        Ok(initialization) => {
            plan.why = String::from("it waits for the daemon: nothing stands in the way");
            plan.next.extend(
                initialization.into_warnings().iter().map(|warning| format!("leave alone: {warning}")),
            );
            plan.next.push(
                "initialise it: write what differs, and remove the taint with the last write".to_owned(),
            );
        }
        Err(not) => {
            plan.why = format!("{}: {}", not.reason, not.message);
            plan.next.push(match (not.hopeless, not.retry_after) {
                (true, _) => "wait for a change of the cloud, of the Node or of the configuration".to_owned(),
                (false, Some(after)) => format!("try again in {after:?}, as the cloud asks"),
                (false, None) => "try again, after at most 30s".to_owned(),
            });
        }
    }
    plan
}

fn differences(node: &Node, answer: &InstanceLookup, foreign: ForeignValue) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut add = |field: String, node: String, cloud: String| {
        differences.push(Difference { field, node, cloud });
    };
    if let InstanceLookup::Present(instance) = answer {
        if let Some(id) = &instance.provider_id
            && node.identity.provider_id.as_deref() != Some(id.as_str())
        {
            let now = node.identity.provider_id.clone();
            add("provider ID".to_owned(), shown(now), id.as_str().to_owned());
        }
        if let Ok(addresses) = wanted_addresses(node, &instance.metadata.addresses)
            && addresses != node.identity.addresses
        {
            add("addresses".to_owned(), list(&node.identity.addresses), list(&addresses));
        }
        if let Ok(changes) = label_changes(node, &instance.metadata, foreign) {
            for (key, value) in changes.labels {
                let now = node.identity.labels.get(&key).cloned();
                add(format!("label {key}"), shown(now), shown(value));
            }
        }
        if instance.incomplete.is_none() && node.has_taint(UNINITIALIZED_TAINT) {
            add(format!("taint {UNINITIALIZED_TAINT}"), "there".to_owned(), "to be removed".to_owned());
        }
    }
    differences
}

fn shown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "none".to_owned())
}

fn list(addresses: &[NodeAddress]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    let one = |address: &NodeAddress| format!("{}={}", address.address_type, address.address);
    addresses.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.field, self.node, self.cloud)
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{Error, ErrorKind, Instance, InstanceMetadata, PowerState, ProviderId};
    use serde_json::json;

    use super::*;

    fn present() -> InstanceLookup {
        let id: ProviderId = "x:///1".parse().expect("an ID");
        let metadata = InstanceMetadata {
            zone: Some("z".into()),
            addresses: vec![NodeAddress::internal_ip("10.0.0.1")],
            ..InstanceMetadata::default()
        };
        Instance::new(id, PowerState::Running).with_metadata(metadata).into()
    }

    fn plan_of(node: serde_json::Value, answer: &InstanceLookup) -> NodePlan {
        plan(&Node::from_json(node), answer, "x", ForeignValue::Stays, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_new_node_shows_what_it_will_get() {
        let node = json!({
            "metadata": {"name": "n", "uid": "u"},
            "spec": {"taints": [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}]},
            "status": {"addresses": [{"type": "Hostname", "address": "n"}]},
        });
        let plan = plan_of(node.clone(), &present());
        assert!(!plan.initialized && plan.next[0].starts_with("initialise it"), "{plan:?}");
        let shown: Vec<String> = plan.differences.iter().map(ToString::to_string).collect();
        assert_eq!(shown[0], "provider ID: none -> x:///1");
        assert_eq!(shown[1], "addresses: Hostname=n -> InternalIP=10.0.0.1, Hostname=n");
        assert!(shown.contains(&"label topology.kubernetes.io/zone: none -> z".to_owned()), "{shown:?}");

        let unknown = Error::new(ErrorKind::Unavailable, "kvm1 is away").into();
        let plan = plan_of(node.clone(), &unknown);
        assert!(plan.why.starts_with("ProviderUnavailable: kvm1 is away"), "{plan:?}");
        assert!(plan_of(node, &InstanceLookup::Absent).why.starts_with("InstanceNotFound"));
    }

    #[test]
    fn a_node_that_is_right_has_nothing_to_do() {
        let node = json!({
            "metadata": {"name": "n", "uid": "u", "labels": {
                "topology.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/zone": "z",
            }},
            "spec": {"providerID": "x:///1"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        });
        let plan = plan_of(node, &present());
        assert!(plan.initialized && plan.differences.is_empty() && plan.next.is_empty(), "{plan:?}");
    }
}
