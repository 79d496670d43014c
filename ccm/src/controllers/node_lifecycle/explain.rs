//! Explains what this controller would do about one Node now. Pure functions.

use std::time::Duration;

use cloudprovider::InstanceLookup;
use controller_kit::nodes::{Node, ReadyStatus};

use super::{
    ALLOW_DELETION, SHUTDOWN_TAINT,
    decide::{condition_for, is_allowed, is_excluded, is_held_by_breaker, shutdown_taint_patch},
};

/// The next actions: empty if there is nothing to do.
///
/// `grace` and `unseen` are the two grace periods. The daemon's past observations are not available here.
pub(super) fn plan(
    node: &Node,
    answer: &InstanceLookup,
    grace: Duration,
    unseen: Duration,
    minimum_age: Duration,
) -> Vec<String> {
    let mut next = Vec::new();
    if node.identity.provider_id.is_none() {
        return next;
    }
    if shutdown_taint_patch(node, answer).is_some() {
        let is_there = node.taints.iter().any(|t| t.key == SHUTDOWN_TAINT && t.effect == "NoSchedule");
        let verb = match node.ready() {
            ReadyStatus::True => "remove",
            ReadyStatus::False | ReadyStatus::Unknown if is_there => "take the value off",
            ReadyStatus::False | ReadyStatus::Unknown => "add",
        };
        next.push(format!("{verb} the taint {SHUTDOWN_TAINT}"));
    }
    if let Some(condition) = condition_for(node, answer, false) {
        next.push(format!("write the condition {}={}", condition.condition_type, condition.status));
    }
    if matches!(answer, InstanceLookup::Absent) {
        next.push(deletion(node, grace, unseen, minimum_age));
    }
    next
}

fn deletion(node: &Node, grace: Duration, unseen: Duration, minimum_age: Duration) -> String {
    if node.deleting {
        return "nothing: the Node is being deleted already".to_owned();
    }
    if is_excluded(node) {
        return format!("keep the Node: it has the label {}", super::EXCLUDE_LABEL);
    }
    if is_held_by_breaker(node) && !is_allowed(node) {
        return format!(
            "keep the Node until its instance is back: too many Nodes vanished at once; if that is right, set the annotation {ALLOW_DELETION}=true on it"
        );
    }
    let kubelet = match node.ready() {
        ReadyStatus::True => "its kubelet's lease in kube-node-lease is there and not renewed any more",
        ReadyStatus::False | ReadyStatus::Unknown => {
            "its kubelet's lease in kube-node-lease is not renewed any more"
        }
    };
    let others = if is_allowed(node) {
        ""
    } else {
        ", while the API server answers and other kubelets are heard, and not too many Nodes vanish at once"
    };
    let longer = if is_allowed(node) || unseen == grace {
        String::new()
    } else {
        format!(" ({unseen:?} where the daemon has never seen the instance)")
    };
    format!(
        "delete the Node, once the cloud has said so for {grace:?}{longer}, it is at least {minimum_age:?} old, {kubelet}{others}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::unseen::unseen_grace_period, *};

    fn plan_of(node: serde_json::Value) -> Vec<String> {
        let (grace, age) = (Duration::from_secs(5), Duration::from_secs(10));
        plan(&Node::from_json(node), &InstanceLookup::Absent, grace, unseen_grace_period(None, grace), age)
    }

    #[test]
    fn what_is_gone_is_deleted_unless_something_keeps_it() {
        let node = |labels: serde_json::Value| json!({"metadata": {"name": "n", "labels": labels}, "spec": {"providerID": "x:///1"}});
        assert!(
            plan_of(node(json!({})))[0]
                .starts_with("delete the Node, once the cloud has said so for 5s (120s where")
        );
        let kept = plan_of(node(json!({"node.kubernetes.io/exclude-from-lifecycle-management": ""})));
        assert!(kept[0].starts_with("keep the Node"), "{kept:?}");
        let mut held = node(json!({}));
        held["status"]["conditions"] =
            json!([{"type": "CloudProviderInstanceExists", "status": "False", "reason": "BreakerOpen"}]);
        let kept = plan_of(held.clone());
        assert!(kept[0].starts_with("keep the Node until its instance is back"), "{kept:?}");
        held["metadata"]["annotations"] = json!({ALLOW_DELETION: "true"});
        assert!(plan_of(held)[0].starts_with("delete the Node"));
        assert!(plan_of(json!({"metadata": {"name": "n"}})).is_empty(), "it never had an instance");
    }
}
