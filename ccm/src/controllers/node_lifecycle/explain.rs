//! What this controller would do about one Node now, for people. Pure.

use std::time::Duration;

use cloudprovider::InstanceLookup;

use super::{
    SHUTDOWN_TAINT,
    decide::{condition_for, is_allowed, is_excluded, shutdown_taint_patch},
};
use crate::nodes::{Node, ReadyStatus};

/// What would be done next: nothing for a Node that is right.
pub fn plan(node: &Node, answer: &InstanceLookup, grace: Duration, minimum_age: Duration) -> Vec<String> {
    let mut next = Vec::new();
    if node.identity.provider_id.is_none() {
        return next;
    }
    if shutdown_taint_patch(node, answer).is_some() {
        let there = node.has_taint(SHUTDOWN_TAINT);
        next.push(format!("{} the taint {SHUTDOWN_TAINT}", if there { "remove" } else { "add" }));
    }
    if let Some(condition) = condition_for(node, answer) {
        next.push(format!("write the condition {}={}", condition.condition_type, condition.status));
    }
    if matches!(answer, InstanceLookup::Absent) {
        next.push(deletion(node, grace, minimum_age));
    }
    next
}

fn deletion(node: &Node, grace: Duration, minimum_age: Duration) -> String {
    if node.deleting {
        return "nothing: the Node is being deleted already".to_owned();
    }
    if is_excluded(node) {
        return format!("keep the Node: it has the label {}", super::EXCLUDE_LABEL);
    }
    let kubelet = match node.ready() {
        ReadyStatus::True => "its kubelet's lease in kube-node-lease is there and not renewed any more",
        ReadyStatus::False | ReadyStatus::Unknown => {
            "its kubelet's lease in kube-node-lease is not renewed any more"
        }
    };
    let breaker =
        if is_allowed(node) { String::new() } else { ", and not too many Nodes vanish at once".to_owned() };
    format!(
        "delete the Node, once the cloud has said so for {grace:?}, it is at least {minimum_age:?} old, {kubelet}{breaker}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan_of(node: serde_json::Value) -> Vec<String> {
        let (grace, age) = (Duration::from_secs(5), Duration::from_secs(10));
        plan(&Node::from_json(node), &InstanceLookup::Absent, grace, age)
    }

    #[test]
    fn what_is_gone_is_deleted_unless_something_keeps_it() {
        let node = |labels: serde_json::Value| json!({"metadata": {"name": "n", "labels": labels}, "spec": {"providerID": "x:///1"}});
        assert!(
            plan_of(node(json!({})))[0].starts_with("delete the Node, once the cloud has said so for 5s")
        );
        let kept = plan_of(node(json!({"node.kubernetes.io/exclude-from-lifecycle-management": ""})));
        assert!(kept[0].starts_with("keep the Node"), "{kept:?}");
        assert!(plan_of(json!({"metadata": {"name": "n"}})).is_empty(), "it never had an instance");
    }
}
