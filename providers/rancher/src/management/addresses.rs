//! The addresses of a Node. Pure rules.

use std::net::IpAddr;

use cloudprovider::{NodeAddress, NodeAddressType, NodeIdentity, append_missing_addresses};
use ipnet::IpNet;

use super::machine::KnownAddresses;
use crate::config::AddressRules;

/// The annotation that a kubelet with `--node-ip` writes.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The addresses of the Node of a machine. No address has two types.
///
/// What the kubelet was started with comes first: Rancher itself wrote it. Then what Rancher knows of the
/// machine. If Rancher knows nothing, the Node's own addresses stay, for Rancher copies its addresses from
/// the Node: were both to wait for each other, the Node would never get any.
///
/// The rules leave nothing out that the kubelet was started with: it works with that.
pub(super) fn node_addresses(
    node: &NodeIdentity,
    known: &KnownAddresses,
    rules: &AddressRules,
) -> Vec<NodeAddress> {
    let known = &by_rules(known, rules);
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
        let is_left_out =
            |ip: &str| ip.parse::<IpAddr>().is_ok_and(|ip| is_in(&rules.excluded, &ip.to_canonical()));
        append_missing_addresses(
            &mut addresses,
            node.addresses.iter().filter(|own| !has(&own.address) && !is_left_out(&own.address)).cloned(),
        );
    }
    addresses
}

/// What Rancher knows, by the rules of the configuration.
fn by_rules(known: &KnownAddresses, rules: &AddressRules) -> KnownAddresses {
    let kept = |list: &[IpAddr]| -> Vec<_> {
        list.iter().copied().filter(|ip| !is_in(&rules.excluded, ip)).collect()
    };
    let (internal, external) = (kept(&known.internal), kept(&known.external));
    if rules.internal.is_empty() {
        return KnownAddresses { internal, external };
    }
    let (internal, external) =
        internal.into_iter().chain(external).partition(|ip| is_in(&rules.internal, ip));
    KnownAddresses { internal, external }
}

fn is_in(networks: &[IpNet], ip: &IpAddr) -> bool {
    networks.iter().any(|network| network.contains(ip))
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
        by(&AddressRules::default(), node, internal, external)
    }

    fn by(rules: &AddressRules, node: &NodeIdentity, internal: &[&str], external: &[&str]) -> Vec<String> {
        let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().expect("an IP")).collect();
        let known = KnownAddresses { internal: ips(internal), external: ips(external) };
        let addresses = node_addresses(node, &known, rules);
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
        assert!(!has_ip(&node_addresses(
            &node("", &own[2..]),
            &KnownAddresses::default(),
            &AddressRules::default()
        )));
        assert_eq!(shown(&node("10.0.0.1", &[]), &[], &[]), ["InternalIP 10.0.0.1"]);
    }

    fn rules(internal: &[&str], excluded: &[&str]) -> AddressRules {
        let networks = |list: &[&str]| list.iter().map(|one| one.parse().expect("a network")).collect();
        AddressRules { internal: networks(internal), excluded: networks(excluded) }
    }

    #[test]
    fn networks_choose_what_is_internal() {
        let none = NodeIdentity::default();
        let rules = rules(&["10.0.0.0/8", "fd00::/8"], &[]);
        assert_eq!(
            by(&rules, &none, &["192.0.2.1", "10.0.0.1"], &["fd00::1", "2001:db8::1"]),
            ["InternalIP 10.0.0.1", "InternalIP fd00::1", "ExternalIP 192.0.2.1", "ExternalIP 2001:db8::1"]
        );
        // What the kubelet was started with is never left out.
        assert_eq!(by(&rules, &node("192.0.2.9", &[]), &["192.0.2.9"], &[]), ["ExternalIP 192.0.2.9"]);
        assert_eq!(by(&rules, &node("192.0.2.9", &[]), &[], &[]), ["InternalIP 192.0.2.9"]);
    }

    #[test]
    fn networks_leave_addresses_out() {
        let rules = rules(&[], &["10.42.0.0/16", "192.0.2.0/24"]);
        assert_eq!(
            by(&rules, &NodeIdentity::default(), &["10.42.0.1", "10.0.0.1"], &["192.0.2.1"]),
            ["InternalIP 10.0.0.1"]
        );
        let own = [
            NodeAddress::internal_ip("10.42.0.1"),
            NodeAddress::internal_ip("10.0.0.1"),
            NodeAddress::hostname("node-1"),
        ];
        assert_eq!(
            by(&rules, &node("", &own), &["10.42.0.1"], &[]),
            ["InternalIP 10.0.0.1", "Hostname node-1"]
        );
        assert_eq!(by(&rules, &node("10.42.0.9", &[]), &["10.0.0.1"], &[])[0], "InternalIP 10.42.0.9");
    }
}
