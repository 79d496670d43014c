//! A Service in the cache.

use std::borrow::Cow;

use cloudprovider::LoadBalancerService;
use component::events::EventObject;

use crate::cache::CachedObject;

/// The finalizer that keeps a Service until its load balancer is gone (KEP-980).
pub const LOAD_BALANCER_CLEANUP_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// `spec.type` of a Service with a load balancer.
const LOAD_BALANCER: &str = "LoadBalancer";

/// A Service in the cache.
///
/// Of a Service that neither is of type `LoadBalancer` nor has our finalizer, only name, UID, version, type and external IPs are kept.
/// Most Services are such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// What a provider sees. `status` in it is the one on the object.
    pub content: LoadBalancerService,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `spec.type`.
    pub service_type: String,
    /// `spec.loadBalancerClass`.
    pub load_balancer_class: Option<String>,
}

impl Service {
    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        &self.content.uid
    }

    /// Whether `spec.type` is `LoadBalancer`.
    pub fn is_load_balancer(&self) -> bool {
        self.service_type == LOAD_BALANCER
    }

    /// Whether it is to have a load balancer of this cloud. With any `loadBalancerClass` it is somebody else's.
    pub fn wants_load_balancer(&self) -> bool {
        self.is_load_balancer() && self.load_balancer_class.is_none()
    }

    /// Whether it waits for its load balancer to be deleted.
    pub fn needs_cleanup(&self) -> bool {
        self.has_finalizer() && (self.deleting || !self.is_load_balancer())
    }

    /// Whether the finalizer of load balancers is there.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == LOAD_BALANCER_CLEANUP_FINALIZER)
    }

    /// Whether all fields are kept of it, and not only a few.
    pub fn is_whole(&self) -> bool {
        self.is_load_balancer() || self.has_finalizer()
    }

    /// The Service as the object of an event.
    pub fn event_object(&self) -> EventObject {
        EventObject {
            api_version: "v1".into(),
            kind: "Service",
            namespace: self.content.namespace.clone(),
            name: self.content.name.clone(),
            uid: self.content.uid.clone(),
        }
    }

    /// Drops what is not needed of a Service that cannot have a load balancer of ours.
    pub(super) fn without_needless(self) -> Self {
        if self.is_whole() {
            return self;
        }
        let LoadBalancerService { namespace, name, uid, external_ips, .. } = self.content;
        let content =
            LoadBalancerService { namespace, name, uid, external_ips, ..LoadBalancerService::default() };
        let Self { resource_version, deleting, service_type, .. } = self;
        Self { content, resource_version, deleting, service_type, ..Self::default() }
    }
}

impl CachedObject for Service {
    fn key(&self) -> Cow<'_, str> {
        Cow::Owned(format!("{}/{}", self.content.namespace, self.content.name))
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn set_resource_version(&mut self, version: &str) {
        version.clone_into(&mut self.resource_version);
    }

    fn same_content(&self, other: &Self) -> bool {
        self.content == other.content
            && self.deleting == other.deleting
            && self.finalizers == other.finalizers
            && self.service_type == other.service_type
            && self.load_balancer_class == other.load_balancer_class
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            let found = (service.wants_load_balancer(), service.needs_cleanup());
            assert_eq!(found, (wants, cleanup), "{service:?}");
        }
    }
}
