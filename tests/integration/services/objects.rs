//! What the scenarios read from Services.

use cloudprovider::default_load_balancer_name;
use k8s_openapi::api::core::v1::Service;

pub(super) const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
pub(super) const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
pub(super) const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

pub(super) fn name_of(service: &Service) -> String {
    service.metadata.name.clone().unwrap_or_default()
}

/// The name of its load balancer in the fake cloud.
pub(super) fn load_balancer_name(service: &Service) -> String {
    default_load_balancer_name(service.metadata.uid.as_deref().unwrap_or_default())
}

/// The addresses in its status.
pub(super) fn ingress(service: &Service) -> Vec<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.clone()).unwrap_or_default();
    ingress.into_iter().filter_map(|one| one.ip.or(one.hostname)).collect()
}

pub(super) fn has_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|one| one == CLEANUP)
}
