//! Addresses at which API servers of workload clusters may be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cloudprovider::leads_to;
use ipnet::IpNet;

/// Which addresses a kubeconfig may lead to. A name is permitted if all its addresses are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedAddresses {
    /// `None`: what [`is_harmless`] says.
    networks: Option<Vec<IpNet>>,
}

impl AllowedAddresses {
    /// The networks of a flag. `None`: the default.
    pub fn of_flag(networks: Option<Vec<IpNet>>) -> Self {
        networks.map_or_else(Self::default, Self::only)
    }

    /// Exactly these networks, whatever else is said of their addresses.
    pub fn only(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self { networks: Some(networks.into_iter().collect()) }
    }

    /// Whether a connection may go to this address. An address that leads to one of IPv4 is judged as that one.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        let target = leads_to(address);
        match &self.networks {
            Some(networks) => {
                let has = |address: IpAddr| networks.iter().any(|network| network.contains(&address));
                // An operator may list the network of NAT64 itself.
                has(target) || has(address)
            }
            None => is_harmless(target),
        }
    }
}

/// Services of clouds for the machine that asks, with its credentials, at addresses that are not link-local.
const METADATA: [IpAddr; 7] = [
    // Alibaba Cloud
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // EC2: metadata, and the credentials of Pods
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    // Google Cloud
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    // Oracle Cloud
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    // Scaleway
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// Whether an address leads neither to this machine nor to what only its neighbours reach, such as a cloud's metadata.
/// Private networks are harmless: that is where workload clusters are.
fn is_harmless(address: IpAddr) -> bool {
    if METADATA.contains(&address) {
        return false;
    }
    match address {
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            // Of the IETF's own protocols, and of one cloud for its metadata.
            let is_of_protocols = (first, second, third) == (192, 0, 0);
            let is_special = address.is_loopback() || address.is_link_local() || address.is_multicast();
            // 0.0.0.0/8 is this machine for some kernels, 240.0.0.0/4 is reserved, with the broadcast address in it.
            !(is_special || is_of_protocols || first == 0 || first >= 240)
        }
        IpAddr::V6(address) => {
            let is_special = address.is_loopback() || address.is_unspecified() || address.is_multicast();
            !(is_special || address.is_unicast_link_local() || has_hidden_v4(address))
        }
    }
}

/// Whether an address of IPv4 may be in this one at a place that is not known: `::/64` with the IPv4-compatible and the
/// IPv4-translated ones, the local range of NAT64, Teredo, and IPv6's old site-local range.
fn has_hidden_v4(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] => true,
        [first, ..] => first & 0xffc0 == 0xfec0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_is_near_the_daemon_is_refused_in_every_form() {
        let rules = AllowedAddresses::default();
        for text in [
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "192.0.0.192",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::127.0.0.1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "100.100.100.200",
            "::ffff:100.100.100.200",
            "64:ff9b::100.100.100.200",
            "2002:6464:64c8::1",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
        ] {
            assert!(!rules.allows(address(text)), "{text}");
        }
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "192.0.1.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.201",
            "fd00:ec2::255",
            "203.0.113.9",
            "169.253.0.1",
            "fd00::1",
            "2001:db8::1",
            "2606:4700::1",
            "64:ff9b::10.0.0.1",
            "::ffff:10.0.0.1",
        ] {
            assert!(rules.allows(address(text)), "{text}");
        }
    }

    #[test]
    fn the_operators_list_is_the_whole_rule() {
        let networks =
            ["10.1.0.0/16", "127.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("a network"));
        let rules = AllowedAddresses::only(networks);
        for (text, allowed) in [
            ("10.1.2.3", true),
            ("10.2.0.1", false),
            ("127.0.0.1", true),
            ("::ffff:10.1.0.1", true),
            ("fd00::1", true),
            ("2001:db8::1", false),
            ("64:ff9b::10.1.0.1", true),
            ("64:ff9b::10.2.0.1", false),
            ("1.1.1.1", false),
        ] {
            assert_eq!(rules.allows(address(text)), allowed, "{text}");
        }
        let metadata = AllowedAddresses::only(["100.64.0.0/10".parse().expect("a network")]);
        assert!(
            metadata.allows(address("100.100.100.200"))
                && metadata.allows(address("64:ff9b::100.100.100.200"))
        );
        assert!(!AllowedAddresses::only([]).allows(address("1.1.1.1")), "an empty list allows nothing");
    }
}
