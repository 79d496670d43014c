//! Which Services are ours.

use crate::services::Service;

/// Whether a Service is to have a load balancer of this cloud. With any `loadBalancerClass` it is somebody else's.
pub(crate) fn wants_load_balancer(service: &Service) -> bool {
    service.is_load_balancer() && service.load_balancer_class.is_none()
}

/// Whether a Service waits for its load balancer to be deleted.
pub(crate) fn needs_cleanup(service: &Service) -> bool {
    service.has_finalizer() && (service.deleting || !service.is_load_balancer())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::services::LOAD_BALANCER_CLEANUP_FINALIZER;

    #[test]
    fn by_type_class_finalizer_and_deletion() {
        let (ours, other) = (LOAD_BALANCER_CLEANUP_FINALIZER, "x/y");
        // type, class, finalizer, deleting -> wants a load balancer, needs cleanup
        for (service_type, class, finalizer, deleting, wants, cleanup) in [
            ("LoadBalancer", None, None, false, true, false),
            ("LoadBalancer", None, Some(ours), false, true, false),
            ("LoadBalancer", None, Some(other), true, true, false),
            ("LoadBalancer", None, Some(ours), true, true, true),
            ("LoadBalancer", Some("a/b"), None, false, false, false),
            ("LoadBalancer", Some(""), None, false, false, false),
            ("LoadBalancer", Some("a/b"), Some(ours), false, false, false),
            ("LoadBalancer", Some("a/b"), Some(ours), true, false, true),
            ("ClusterIP", None, None, false, false, false),
            ("ClusterIP", None, Some(other), true, false, false),
            ("ClusterIP", None, Some(ours), false, false, true),
            ("NodePort", None, Some(ours), false, false, true),
            ("ExternalName", None, Some(ours), true, false, true),
        ] {
            let deleted = deleting.then_some("2026-01-02T03:04:05Z");
            let service = Service::from_json(json!({
                "metadata": {"name": "a", "finalizers": finalizer.map(|one| [one]), "deletionTimestamp": deleted},
                "spec": {"type": service_type, "loadBalancerClass": class},
            }));
            let found = (wants_load_balancer(&service), needs_cleanup(&service));
            assert_eq!(found, (wants, cleanup), "{service:?}");
        }
    }
}
