//! Hosts that `image.url` may reach.

use std::{
    fmt,
    iter::Sum,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use cloudprovider::{dns, leads_to};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use provider_kit::{Fields, Findings};

/// The hosts of the configuration, which may be reached whatever their addresses are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageHosts(Vec<HostRule>);

/// A host or a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostRule {
    host: Host,
    /// `None`: every port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    /// A name, in lower case and without a dot at its end.
    Name(String),
    /// An address, or a range of them.
    Network(IpNet),
}

impl ImageHosts {
    /// Reads the key `imageHosts`.
    pub(super) fn read(fields: &mut Fields, problems: &mut Findings) -> Self {
        let what = "a host, a host with a port, or a range of addresses, such as images.example.org, \
                    images.example.org:8443, 10.0.0.7 or 10.1.0.0/16";
        Self(fields.parsed_list("imageHosts", what, HostRule::parse, problems).unwrap_or_default())
    }

    /// Whether the configuration names this host by its name.
    pub(crate) fn has_name(&self, name: &str, port: u16) -> bool {
        let name = plain(name);
        self.0.iter().any(|rule| rule.is_for(port) && rule.host == Host::Name(name.clone()))
    }

    /// Whether the configuration names this address.
    pub(crate) fn has_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        let has = |host: &Host| matches!(host, Host::Network(network) if network.contains(&address));
        self.0.iter().any(|rule| rule.is_for(port) && has(&rule.host))
    }
}

#[cfg(test)]
impl ImageHosts {
    /// Those that the configuration lists as these.
    pub(crate) fn of(rules: &[&str]) -> Self {
        Self(rules.iter().map(|rule| HostRule::parse(rule).expect("a rule")).collect())
    }
}

impl Sum for ImageHosts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        Self(all.flat_map(|hosts| hosts.0).collect())
    }
}

impl HostRule {
    fn parse(text: &str) -> Option<Self> {
        let every_port = |network| Self { host: Host::Network(network), port: None };
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(every_port(network.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(every_port(address.to_canonical().into()));
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            let host = Host::Network(socket.ip().to_canonical().into());
            return Some(Self { host, port: Some(socket.port()).filter(|port| *port > 0) });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok().filter(|port| *port > 0)?)),
            None => (text, None),
        };
        let name = plain(name);
        // What looks like an address is none, such as 10.0.0.256 or 10.0/8.
        let is_name =
            dns::is_subdomain(&name) && !name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_name.then_some(Self { host: Host::Name(name), port })
    }

    fn is_for(&self, port: u16) -> bool {
        self.port.is_none_or(|only| only == port)
    }
}

impl fmt::Display for ImageHosts {
    /// As the configuration may list them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, HostRule { host, port }) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            match (host, port) {
                (Host::Name(name), None) => write!(f, "{comma}{name}")?,
                (Host::Name(name), Some(port)) => write!(f, "{comma}{name}:{port}")?,
                (Host::Network(network), None) => write!(f, "{comma}{network}")?,
                (Host::Network(network), Some(port)) => {
                    write!(f, "{comma}{}", SocketAddr::new(network.addr(), *port))?;
                }
            }
        }
        Ok(())
    }
}

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Whether an address is one of the public internet: no private, local or special one, and no other form of
/// such a one.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match leads_to(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Ranges of IPv4 that are not of the public internet, by IANA's registry of special addresses, and of one
/// cloud.
const SPECIAL_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // what Azure's hosts tell their guests
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // multicast, reserved, broadcast
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The range of IPv6 that global unicast addresses are from.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Ranges in it that are not of the public internet: those of the IETF with Teredo, for documentation.
const SPECIAL_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4
        .iter()
        .any(|(start, length)| Ipv4Net::new(*start, *length).is_ok_and(|network| network.contains(&address)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    is_in(address, &GLOBAL_V6) && !SPECIAL_V6.iter().any(|range| is_in(address, range))
}

fn is_in(address: Ipv6Addr, (start, length): &(Ipv6Addr, u8)) -> bool {
    Ipv6Net::new(*start, *length).is_ok_and(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_is_not_of_the_public_internet_is_known_in_every_form() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::a00:1",
            "2002:a00:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "ff0e::1",
            "100::1",
            "2001:db8::1",
            "4000::1",
            "5f00::1",
        ] {
            assert!(!is_public(address(text)), "{text}");
        }
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
        ] {
            assert!(is_public(address(text)), "{text}");
        }
    }

    #[test]
    fn rules_name_hosts_ports_and_ranges() {
        let rules = ImageHosts::of(&[
            "Images.example.org.",
            "mirror:8080",
            "10.1.0.0/16",
            "[fd00::1]:8443",
            "192.168.0.9",
        ]);
        for (name, port, is_named) in [
            ("images.example.org", 443, true),
            ("IMAGES.example.org.", 80, true),
            ("x.images.example.org", 443, false),
            ("example.org", 443, false),
            ("mirror", 8080, true),
            ("mirror", 80, false),
        ] {
            assert_eq!(rules.has_name(name, port), is_named, "{name}:{port}");
        }
        for (text, port, is_named) in [
            ("10.1.255.1", 1, true),
            ("::ffff:10.1.255.1", 1, true),
            ("10.2.0.1", 1, false),
            ("fd00::1", 8443, true),
            ("fd00::1", 443, false),
            ("fd00::2", 8443, false),
            ("192.168.0.9", 80, true),
            ("192.168.0.10", 80, false),
        ] {
            assert_eq!(rules.has_address(address(text), port), is_named, "{text}:{port}");
        }
    }

    #[test]
    fn what_is_no_host_is_no_rule() {
        for text in [
            "",
            ".",
            "http://a",
            "a/b",
            "*.example.org",
            "a:0",
            "a:65536",
            "a:b:c",
            "10.0.0.256",
            "10.0.0.0/33",
            "a b",
            "10.1",
            "a_b",
            "me@a",
        ] {
            assert_eq!(HostRule::parse(text), None, "{text:?}");
        }
    }
}
