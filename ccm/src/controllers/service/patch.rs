//! Patches of Services: strategic merge patches of `services/status`, which is all that a Go cloud-controller-manager may
//! patch. Through this subresource the finalizers can be changed too. They are a merge list, so those of others stay, and
//! no version is needed.

use cloudprovider::LoadBalancerStatus;
use serde_json::{Value, json};

use super::status;
use crate::services::LOAD_BALANCER_CLEANUP_FINALIZER;

/// Adds the finalizer.
pub(super) fn add_finalizer() -> Value {
    json!({"metadata": {"finalizers": [LOAD_BALANCER_CLEANUP_FINALIZER]}})
}

/// Changes nothing. The answer is the Service as it is now.
pub(super) fn nothing() -> Value {
    json!({})
}

/// Sets the status.
pub(super) fn set_status(status: &LoadBalancerStatus) -> Value {
    json!({"status": {"loadBalancer": status::to_json(status)}})
}

/// Clears the status.
pub(super) fn clear_status() -> Value {
    set_status(&LoadBalancerStatus::default())
}

/// Removes the finalizer, and with `clears_status` the status in the same write. `None`: there is nothing to write.
pub(super) fn clean_up(removes_finalizer: bool, clears_status: bool) -> Option<Value> {
    let mut body = json!({});
    if removes_finalizer {
        body["metadata"] = json!({"$deleteFromPrimitiveList/finalizers": [LOAD_BALANCER_CLEANUP_FINALIZER]});
    }
    if clears_status {
        body["status"] = clear_status()["status"].take();
    }
    (removes_finalizer || clears_status).then_some(body)
}

/// Brings back what somebody removed or changed: the finalizer, the status. `None`: nothing is to be brought back.
pub(super) fn repair(finalizer: bool, status: Option<&LoadBalancerStatus>) -> Option<Value> {
    let mut body = status.map_or_else(|| json!({}), set_status);
    if finalizer {
        body["metadata"] = add_finalizer()["metadata"].take();
    }
    (finalizer || status.is_some()).then_some(body)
}

#[cfg(test)]
mod tests {
    use cloudprovider::LoadBalancerIngress;

    use super::*;

    #[test]
    fn patches_touch_only_what_is_ours() {
        let finalizer = "service.kubernetes.io/load-balancer-cleanup";
        let added = json!({"metadata": {"finalizers": [finalizer]}});
        let removed = json!({"$deleteFromPrimitiveList/finalizers": [finalizer]});
        let cleared = json!({"loadBalancer": {"ingress": null}});
        let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".into()), ..LoadBalancerIngress::default() };
        let status = LoadBalancerStatus { ingress: vec![ingress] };
        let set = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        assert_eq!(nothing(), json!({}));
        assert_eq!(add_finalizer(), added);
        assert_eq!(set_status(&status), json!({"status": set}));
        assert_eq!(clear_status(), json!({"status": cleared}));
        assert_eq!(clean_up(false, false), None);
        assert_eq!(clean_up(true, false), Some(json!({"metadata": removed})));
        assert_eq!(clean_up(false, true), Some(json!({"status": cleared})));
        assert_eq!(clean_up(true, true), Some(json!({"metadata": removed, "status": cleared})));
        assert_eq!(repair(false, None), None);
        assert_eq!(repair(true, None), Some(added.clone()));
        assert_eq!(repair(false, Some(&status)), Some(json!({"status": set})));
        assert_eq!(repair(true, Some(&status)), Some(json!({"metadata": added["metadata"], "status": set})));
    }
}
