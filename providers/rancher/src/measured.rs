//! What benchmarks and fuzz targets call. No part of the interface.

#[cfg(feature = "cattle")]
use crate::cattle::{events, model};
use crate::{management, norman::pages::Collection};

/// Decodes a page of hosts, and an event.
#[cfg(feature = "cattle")]
pub fn decode(bytes: &[u8]) -> (bool, bool) {
    let page = serde_json::from_slice::<model::Collection<model::ListedHost>>(bytes);
    let exists = page.is_ok_and(|page| {
        page.data.iter().flat_map(|host| &host.0).any(|host| host.exists() && host.agent_ip().is_some())
    });
    (exists, events::decode(bytes).is_some())
}

/// Decodes a page of load balancers.
#[cfg(feature = "cattle")]
pub fn decode_load_balancers(bytes: &[u8]) -> usize {
    let page = serde_json::from_slice::<model::Collection<model::LoadBalancerService>>(bytes);
    page.map_or(0, |page| page.data.len())
}

/// Decodes what Rancher 2.x answers: a page of nodes, a node, a cluster, and a Machine. Returns how much of
/// it is known.
pub fn decode_management(bytes: &[u8]) -> usize {
    let nodes = serde_json::from_slice::<Collection<management::nodes::ListedNode>>(bytes);
    let nodes = nodes.map_or(0, |page| management::nodes::machines(page.data, "local").machines.len());
    let cluster = serde_json::from_slice::<management::cluster::Cluster>(bytes);
    let object = management::node_objects::decode(bytes);
    nodes
        + usize::from(object)
        + usize::from(cluster.is_ok_and(|cluster| cluster.is_active()))
        + management::objects::decode(bytes)
}
