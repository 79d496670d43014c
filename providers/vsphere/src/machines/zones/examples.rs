//! Zones for tests.

use cloudprovider::machines::{AuxiliaryObject, Objects};
use serde_json::{Value, json};

use crate::machines::kinds::{DEPLOYMENT_ZONE_KIND, FAILURE_DOMAIN_KIND};

/// The spec of a zone in a failure domain.
pub(crate) fn zone(domain: &str) -> Value {
    json!({"server": "vc.example.org", "failureDomain": domain, "placementConstraint": {}})
}

/// The spec of a failure domain that is a cluster of hosts.
pub(crate) fn domain(cluster: &str) -> Value {
    json!({
        "region": {"name": "region-1", "type": "Datacenter", "tagCategory": "k8s-region"},
        "zone": {"name": "zone-1", "type": "ComputeCluster", "tagCategory": "k8s-zone"},
        "topology": {"datacenter": "DC0", "computeCluster": cluster},
    })
}

/// An API with these zones and failure domains.
pub(crate) fn objects<const N: usize, const M: usize>(
    zones: [(&str, Value); N],
    domains: [(&str, Value); M],
) -> Objects {
    let zones = zones.map(|(name, spec)| (DEPLOYMENT_ZONE_KIND, AuxiliaryObject::new(name).with_spec(spec)));
    let domains =
        domains.map(|(name, spec)| (FAILURE_DOMAIN_KIND, AuxiliaryObject::new(name).with_spec(spec)));
    Objects::of(zones.into_iter().chain(domains))
}
