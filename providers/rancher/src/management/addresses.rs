//! The addresses of a Node. Pure rules.

use std::net::IpAddr;

use cloudprovider::{NodeAddress, NodeAddressType, NodeIdentity, append_missing_addresses};

use super::machine::KnownAddresses;

/// The annotation that a kubelet with `--node-ip` writes.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The addresses of the Node of a machine. No address has two types.
///
/// What the kubelet was started with comes first: Rancher itself wrote it. Then what Rancher knows of the machine. If
/// Rancher knows nothing, the Node's own addresses stay, for Rancher copies its addresses from the Node: were both to wait
/// for each other, the Node would never get any.
pub(super) fn node_addresses(node: &NodeIdentity, known: &KnownAddresses) -> Vec<NodeAddress> {
    let provided = node.annotations.get(PROVIDED_NODE_IP).map_or("", String::as_str);
    let provided = provided.split(',').filter_map(|ip| ip.parse::<IpAddr>().ok());
    let provided = provided.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_unspecified());
    let is_external = |ip: &IpAddr| known.external.contains(ip) && !known.internal.contains(ip);
    let mut internal: Vec<IpAddr> = provided.filter(|ip| !is_external(ip)).collect();
    internal.extend(&known.internal);
    let mut addresses = Vec::new();
    append_missing_addresses(&mut addresses, internal.iter().map(NodeAddress::internal_ip));
    let external = known.external.iter().filter(|ip| !internal.contains(ip));
    append_missing_addresses(&mut addresses, external.map(NodeAddress::external_ip));
    if known.internal.is_empty() && known.external.is_empty() {
        let has = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|ip| internal.contains(&ip.to_canonical()));
        append_missing_addresses(
            &mut addresses,
            node.addresses.iter().filter(|own| !has(&own.address)).cloned(),
        );
    }
    addresses
}

/// Whether there is an IP address among these.
pub(super) fn has_ip(addresses: &[NodeAddress]) -> bool {
    let is_ip =
        |kind: &NodeAddressType| matches!(kind, NodeAddressType::InternalIp | NodeAddressType::ExternalIp);
    addresses.iter().any(|address| is_ip(&address.address_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(node: &NodeIdentity, internal: &[&str], external: &[&str]) -> Vec<String> {
        let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().expect("an IP")).collect();
        let known = KnownAddresses { internal: ips(internal), external: ips(external) };
        let addresses = node_addresses(node, &known);
        addresses.iter().map(|a| format!("{} {}", a.address_type, a.address)).collect()
    }

    fn node(provided: &str, own: &[NodeAddress]) -> NodeIdentity {
        let annotations = [(PROVIDED_NODE_IP.to_owned(), provided.to_owned())].into();
        NodeIdentity { annotations, addresses: own.to_vec(), ..NodeIdentity::default() }
    }

    #[test]
    fn no_address_has_two_types() {
        let none = NodeIdentity::default();
        assert_eq!(
            shown(&none, &["10.0.0.1", "fd00::1"], &["10.0.0.1", "192.0.2.1"]),
            ["InternalIP 10.0.0.1", "InternalIP fd00::1", "ExternalIP 192.0.2.1"]
        );
        assert_eq!(shown(&none, &[], &["192.0.2.1"]), ["ExternalIP 192.0.2.1"]);
        assert_eq!(
            shown(&node("192.0.2.1", &[]), &["10.0.0.1"], &["192.0.2.1"]),
            ["InternalIP 10.0.0.1", "ExternalIP 192.0.2.1"]
        );
    }

    #[test]
    fn what_the_kubelet_was_started_with_comes_first() {
        assert_eq!(
            shown(&node("fd00::1,10.0.0.9", &[]), &["10.0.0.1", "fd00::1"], &[]),
            ["InternalIP fd00::1", "InternalIP 10.0.0.9", "InternalIP 10.0.0.1"]
        );
        for odd in ["", "0.0.0.0", "::", "x", ","] {
            assert_eq!(shown(&node(odd, &[]), &["10.0.0.1"], &[]), ["InternalIP 10.0.0.1"], "{odd:?}");
        }
    }

    /// Rancher waits for the Node's addresses, so the Node must not wait for Rancher's.
    #[test]
    fn where_rancher_knows_none_the_nodes_own_stay() {
        let own = [
            NodeAddress::internal_ip("10.0.0.1"),
            NodeAddress::external_ip("192.0.2.1"),
            NodeAddress::hostname("node-1"),
        ];
        assert_eq!(
            shown(&node("10.0.0.1", &own), &[], &[]),
            ["InternalIP 10.0.0.1", "ExternalIP 192.0.2.1", "Hostname node-1"]
        );
        assert!(!has_ip(&node_addresses(&node("", &own[2..]), &KnownAddresses::default())));
        assert_eq!(shown(&node("10.0.0.1", &[]), &[], &[]), ["InternalIP 10.0.0.1"]);
    }
}
