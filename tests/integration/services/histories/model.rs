//! What the objects ask for, and how that differs from what is there.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::testing::FakeLoadBalancer;
use k8s_openapi::api::core::v1::{Node, Service};

use super::super::objects::{EXCLUDED, TO_BE_DELETED, has_finalizer, ingress, load_balancer_name, name_of};

/// Whether a load balancer may send packets to this Node.
fn is_backend(node: &Node) -> bool {
    let excluded = node.metadata.labels.as_ref().and_then(|labels| labels.get(EXCLUDED));
    let is_false = |value: &str| ["false", "False", "FALSE", "f", "F", "0"].contains(&value);
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_none()
        && excluded.is_none_or(|value| is_false(value))
        && !taints.into_iter().any(|taint| taint.key == TO_BE_DELETED)
}

fn wants_load_balancer(service: &Service) -> bool {
    let spec = service.spec.clone().unwrap_or_default();
    service.metadata.deletion_timestamp.is_none()
        && spec.type_.as_deref() == Some("LoadBalancer")
        && spec.load_balancer_class.is_none()
}

/// The first thing that is not as the objects ask for.
pub(super) fn difference(
    services: &[Service],
    nodes: &[Node],
    cloud: &BTreeMap<String, FakeLoadBalancer>,
) -> Option<String> {
    let nodes: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| is_backend(node))
        .filter_map(|node| node.metadata.name.as_deref())
        .collect();
    let mut wanted = BTreeSet::new();
    for service in services {
        let name = name_of(service);
        if service.metadata.deletion_timestamp.is_some() {
            return Some(format!("{name} is still being deleted"));
        }
        if !wants_load_balancer(service) {
            // With a class the finalizer may be that of another controller
            let has_class = service.spec.as_ref().is_some_and(|spec| spec.load_balancer_class.is_some());
            if has_finalizer(service) && !has_class {
                return Some(format!("{name} has a finalizer"));
            }
            if !ingress(service).is_empty() {
                return Some(format!("{name} has an address"));
            }
            continue;
        }
        let key = load_balancer_name(service);
        let Some(one) = cloud.get(&key) else { return Some(format!("{name} has no load balancer")) };
        if !has_finalizer(service) {
            return Some(format!("{name} has no finalizer"));
        }
        let known: BTreeSet<&str> = one.nodes.iter().map(String::as_str).collect();
        if known != nodes || known.len() != one.nodes.len() {
            return Some(format!("{name} has back ends {known:?} instead of {nodes:?}"));
        }
        let addresses: Vec<String> = one.status.ingress.iter().filter_map(|one| one.ip.clone()).collect();
        if ingress(service) != addresses {
            return Some(format!("{name} has addresses {:?} instead of {addresses:?}", ingress(service)));
        }
        if one.service.annotations != service.metadata.annotations.clone().unwrap_or_default() {
            return Some(format!("the cloud has old annotations of {name}"));
        }
        let ports = service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
        if !one.service.ports.iter().map(|port| i32::from(port.port)).eq(ports.iter().map(|port| port.port)) {
            return Some(format!("the cloud has old ports of {name}"));
        }
        wanted.insert(key);
    }
    let extra: Vec<String> = cloud
        .iter()
        .filter(|(key, _)| !wanted.contains(*key))
        .map(|(_, one)| format!("{} (UID {})", one.service.name, one.service.uid))
        .collect();
    (!extra.is_empty()).then(|| format!("nobody asks for the load balancers of {extra:?}"))
}
