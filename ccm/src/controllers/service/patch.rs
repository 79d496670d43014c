//! Patches of Services: strategic merge patches of `services/status`, which is all that a Go cloud-controller-manager may
//! patch. Through this subresource the finalizers can be changed too. They are a merge list, so those of others stay.

use cloudprovider::LoadBalancerStatus;
use controller_kit::services::{LOAD_BALANCER_CLEANUP_FINALIZER, Service};
use serde_json::{Value, json};

use super::status;

/// Adds the finalizer behind those of others, if the Service is still as it is here: by now it may have another class.
pub(super) fn add_finalizer(service: &Service) -> Value {
    let others = service.finalizers.iter().map(String::as_str);
    let others = others.filter(|finalizer| *finalizer != LOAD_BALANCER_CLEANUP_FINALIZER);
    let order: Vec<&str> = others.chain([LOAD_BALANCER_CLEANUP_FINALIZER]).collect();
    let order = if service.has_finalizer() { json!(service.finalizers) } else { json!(order) };
    json!({"metadata": {
        "resourceVersion": service.resource_version,
        "finalizers": [LOAD_BALANCER_CLEANUP_FINALIZER],
        "$setElementOrder/finalizers": order,
    }})
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
pub(super) fn repair(service: &Service, status: Option<&LoadBalancerStatus>) -> Option<Value> {
    let lacks_finalizer = !service.has_finalizer();
    let mut body = status.map_or_else(|| json!({}), set_status);
    if lacks_finalizer {
        body["metadata"] = add_finalizer(service)["metadata"].take();
    }
    (lacks_finalizer || status.is_some()).then_some(body)
}

#[cfg(test)]
mod tests {
    use cloudprovider::LoadBalancerIngress;

    use super::*;

    #[test]
    fn patches_touch_only_what_is_ours() {
        let finalizer = "service.kubernetes.io/load-balancer-cleanup";
        let service = |finalizers: &[&str]| Service {
            resource_version: "7".to_owned(),
            finalizers: finalizers.iter().map(|one| (*one).to_owned()).collect(),
            ..Service::default()
        };
        let added = |order: &[&str]| {
            json!({"metadata": {
                "resourceVersion": "7", "finalizers": [finalizer], "$setElementOrder/finalizers": order,
            }})
        };
        let (without, with) = (service(&[]), service(&[finalizer]));
        let removed = json!({"$deleteFromPrimitiveList/finalizers": [finalizer]});
        let cleared = json!({"loadBalancer": {"ingress": null}});
        let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".into()), ..LoadBalancerIngress::default() };
        let status = LoadBalancerStatus { ingress: vec![ingress] };
        let set = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        assert_eq!(nothing(), json!({}));
        assert_eq!(add_finalizer(&without), added(&[finalizer]));
        assert_eq!(add_finalizer(&service(&["a/b", "c/d"])), added(&["a/b", "c/d", finalizer]));
        assert_eq!(add_finalizer(&service(&[finalizer, "c/d"])), added(&[finalizer, "c/d"]));
        assert_eq!(set_status(&status), json!({"status": set}));
        assert_eq!(clear_status(), json!({"status": cleared}));
        assert_eq!(clean_up(false, false), None);
        assert_eq!(clean_up(true, false), Some(json!({"metadata": removed})));
        assert_eq!(clean_up(false, true), Some(json!({"status": cleared})));
        assert_eq!(clean_up(true, true), Some(json!({"metadata": removed, "status": cleared})));
        assert_eq!(repair(&with, None), None);
        assert_eq!(repair(&without, None), Some(added(&[finalizer])));
        assert_eq!(repair(&with, Some(&status)), Some(json!({"status": set})));
        let both = json!({"metadata": added(&[finalizer])["metadata"], "status": set});
        assert_eq!(repair(&without, Some(&status)), Some(both));
    }
}
