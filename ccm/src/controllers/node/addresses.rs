//! Which addresses a Node gets.

use cloudprovider::{
    NodeAddress, NodeAddressType, ProvidedNodeIpError, append_missing_addresses, apply_provided_node_ip,
};
use controller_kit::nodes::Node;
use serde_json::{Value, json};

use super::PROVIDED_NODE_IP;

/// The addresses that `node` should have, from what the cloud reports.
///
/// Upstream's rules: no addresses from the cloud leave the Node's own alone; where the cloud names no host, the Node
/// keeps its Hostname entries at the end; then `alpha.kubernetes.io/provided-node-ip` decides, if it is there.
///
/// Addresses of one type stand together, at the place of the first one. The API server sorts them like that when it applies
/// [`addresses_patch`]. Any other order would be written again for ever.
///
/// # Errors
/// Where that annotation cannot be followed.
pub(super) fn wanted_addresses(
    node: &Node,
    from_cloud: &[NodeAddress],
) -> Result<Vec<NodeAddress>, ProvidedNodeIpError> {
    if from_cloud.is_empty() {
        return Ok(node.identity.addresses.clone());
    }
    let mut addresses = from_cloud.to_vec();
    if !addresses.iter().any(|a| a.address_type == NodeAddressType::Hostname) {
        let hostnames =
            node.identity.addresses.iter().filter(|a| a.address_type == NodeAddressType::Hostname).cloned();
        append_missing_addresses(&mut addresses, hostnames);
    }
    if let Some(value) = node.identity.annotations.get(PROVIDED_NODE_IP) {
        addresses = apply_provided_node_ip(value, &addresses)?;
    }
    Ok(by_type(addresses))
}

fn by_type(mut addresses: Vec<NodeAddress>) -> Vec<NodeAddress> {
    let mut types: Vec<NodeAddressType> = Vec::new();
    for address in &addresses {
        if !types.contains(&address.address_type) {
            types.push(address.address_type.clone());
        }
    }
    addresses.sort_by_key(|address| types.iter().position(|known| *known == address.address_type));
    addresses
}

/// The value of `status.addresses` in a strategic merge patch that replaces the Node's addresses with
/// `addresses`.
///
/// The API server merges this list by `type`, which is wrong for two addresses of one type. The element
/// `$patch: replace` replaces the whole list. It works only if the Node has a list already.
pub(super) fn addresses_patch(node: &Node, addresses: &[NodeAddress]) -> Value {
    let mut list: Vec<Value> = addresses.iter().map(|address| json!(address)).collect();
    if !node.identity.addresses.is_empty() {
        list.push(json!({"$patch": "replace"}));
    }
    Value::Array(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(addresses: Value, provided: Option<&str>) -> Node {
        let annotations = provided.map_or(json!({}), |ip| json!({PROVIDED_NODE_IP: ip}));
        Node::from_json(json!({
            "metadata": {"name": "n", "annotations": annotations}, "status": {"addresses": addresses},
        }))
    }

    #[test]
    fn the_clouds_addresses_with_the_nodes_hostname() {
        let kubelet =
            json!([{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "9.9.9.9"}]);
        let cloud = [NodeAddress::internal_ip("10.0.0.1"), NodeAddress::internal_ip("fd00::1")];
        let wanted = wanted_addresses(&node(kubelet.clone(), None), &cloud).expect("no annotation");
        assert_eq!(wanted, [cloud[0].clone(), cloud[1].clone(), NodeAddress::hostname("n")]);
        let named = [NodeAddress::internal_ip("10.0.0.1"), NodeAddress::hostname("other")];
        assert_eq!(wanted_addresses(&node(kubelet.clone(), None), &named).expect("no annotation"), named);
        let untouched = wanted_addresses(&node(kubelet.clone(), None), &[]).expect("no annotation");
        assert_eq!(json!(untouched), kubelet);
    }

    #[test]
    fn a_provided_node_ip_decides() {
        let cloud = [NodeAddress::internal_ip("10.0.0.1"), NodeAddress::internal_ip("10.0.0.2")];
        let hostname = json!([{"type": "Hostname", "address": "n"}]);
        let wanted = wanted_addresses(&node(hostname.clone(), Some("10.0.0.2")), &cloud).expect("it matches");
        assert_eq!(wanted, [NodeAddress::internal_ip("10.0.0.2"), NodeAddress::hostname("n")]);
        assert!(wanted_addresses(&node(hostname, Some("10.0.0.9")), &cloud).is_err());
    }

    #[test]
    fn addresses_of_one_type_stand_together() {
        let cloud = [
            NodeAddress::hostname("n"),
            NodeAddress::internal_ip("10.0.0.1"),
            NodeAddress::external_ip("192.0.2.1"),
            NodeAddress::internal_ip("fd00::1"),
            NodeAddress::external_ip("2001:db8::1"),
        ];
        let wanted = wanted_addresses(&node(json!([]), None), &cloud).expect("no annotation");
        let order = [0, 1, 3, 2, 4].map(|index: usize| cloud[index].clone());
        assert_eq!(wanted, order);
        let provided = node(json!([]), Some("fd00::1,10.0.0.1"));
        let wanted = wanted_addresses(&provided, &cloud).expect("both are there");
        let words: Vec<_> = wanted.iter().map(|a| a.address.as_str()).collect();
        assert_eq!(words, ["fd00::1", "10.0.0.1", "n", "192.0.2.1", "2001:db8::1"]);
    }

    #[test]
    fn replacing_needs_something_to_replace() {
        let addresses = [NodeAddress::internal_ip("10.0.0.1")];
        assert_eq!(
            addresses_patch(&node(json!([]), None), &addresses),
            json!([{"type": "InternalIP", "address": "10.0.0.1"}])
        );
        assert_eq!(
            addresses_patch(&node(json!([{"type": "Hostname", "address": "n"}]), None), &addresses),
            json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"$patch": "replace"}])
        );
    }
}
