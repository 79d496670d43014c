//! Which addresses a Node gets.

use std::net::IpAddr;

use cloudprovider::{NodeAddress, append_missing_addresses};

use crate::config::AddressTypes;

/// The addresses of a Node whose host has these IP addresses and this name. Each address appears once, unless
/// the operator wants both types as rancher-cloud-controller-manager had them.
pub(crate) fn node_addresses(
    ips: &[IpAddr],
    hostname: Option<&str>,
    types: AddressTypes,
) -> Vec<NodeAddress> {
    let mut addresses = Vec::new();
    for ip in ips {
        // The order of the old manager: external first.
        if matches!(types, AddressTypes::Both | AddressTypes::External) {
            append_missing_addresses(&mut addresses, [NodeAddress::external_ip(ip)]);
        }
        if matches!(types, AddressTypes::Both | AddressTypes::Internal) {
            append_missing_addresses(&mut addresses, [NodeAddress::internal_ip(ip)]);
        }
    }
    append_missing_addresses(&mut addresses, hostname.map(NodeAddress::hostname));
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_type_unless_both_are_wanted() {
        let ips = ["10.0.0.1".parse().expect("an IP"), "fd00::1".parse().expect("an IP")];
        let shown = |types| {
            let addresses = node_addresses(&ips, Some("node-1.example.org"), types);
            addresses.iter().map(|a| format!("{} {}", a.address_type, a.address)).collect::<Vec<_>>()
        };
        let hostname = "Hostname node-1.example.org";
        assert_eq!(shown(AddressTypes::Internal), ["InternalIP 10.0.0.1", "InternalIP fd00::1", hostname]);
        assert_eq!(shown(AddressTypes::External), ["ExternalIP 10.0.0.1", "ExternalIP fd00::1", hostname]);
        assert_eq!(
            shown(AddressTypes::Both),
            [
                "ExternalIP 10.0.0.1",
                "InternalIP 10.0.0.1",
                "ExternalIP fd00::1",
                "InternalIP fd00::1",
                hostname
            ]
        );
    }
}
