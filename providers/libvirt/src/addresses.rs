//! Which addresses of a domain become addresses of its Node. Pure rules, no libvirt.

use std::{
    collections::{BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
};

use cloudprovider::NodeAddress;
use ipnet::IpNet;

use crate::{domain::Nic, mac::Mac};

/// The most addresses of one NIC and family that are reported: a guest may have any number.
const MOST_ADDRESSES: usize = 32;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "ipv4" => Some(Self::Ipv4),
            "ipv6" => Some(Self::Ipv6),
            _ => None,
        }
    }

    fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }
}

/// The operator's rules: the key `addresses` of the configuration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AddressRules {
    /// Networks whose addresses become `InternalIP`. If empty, all addresses that are not external do.
    pub internal: Vec<IpNet>,
    /// Networks whose addresses become `ExternalIP`. Takes precedence over `internal`.
    pub external: Vec<IpNet>,
    /// Networks whose addresses are not reported. Takes precedence over both.
    pub exclude: Vec<IpNet>,
    /// The families that are used, in order of preference. Default IPv4, then IPv6.
    pub families: Vec<Family>,
}

impl Default for AddressRules {
    fn default() -> Self {
        Self {
            internal: Vec::new(),
            external: Vec::new(),
            exclude: Vec::new(),
            families: vec![Family::Ipv4, Family::Ipv6],
        }
    }
}

impl AddressRules {
    /// The rules for machines of any cluster: each address that others could reach counts.
    pub(crate) fn for_machines(&self) -> Self {
        Self { external: self.external.clone(), ..Self::default() }
    }

    fn classify(&self, ip: IpAddr) -> Option<NodeAddress> {
        let within = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&ip));
        if within(&self.exclude) {
            None
        } else if within(&self.external) {
            Some(NodeAddress::external_ip(ip))
        } else if self.internal.is_empty() || within(&self.internal) {
            Some(NodeAddress::internal_ip(ip))
        } else {
            None
        }
    }
}

/// A DHCP lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) ip: IpAddr,
    /// When it ends, in seconds since 1970. `None` if it does not end or its end is not known.
    pub(crate) expires: Option<i64>,
}

/// Leases by network and MAC address. Separate networks may have the same MAC address.
pub(crate) type Leases = HashMap<String, HashMap<Mac, Vec<Lease>>>;

/// The leases of a NIC: those of its own network, or none if it is not on a network of libvirt.
pub(crate) fn leases_of<'a>(nic: &Nic, leases: &'a Leases) -> &'a [Lease] {
    let Some(network) = nic.network() else { return &[] };
    leases.get(network).and_then(|of_network| of_network.get(&nic.mac)).map_or(&[], Vec::as_slice)
}

/// An interface as the guest agent reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentInterface {
    pub(crate) mac: Option<Mac>,
    pub(crate) ips: Vec<IpAddr>,
}

/// The addresses of a domain with these NICs, each once: by NIC in the order of the XML, by family in the
/// order of the rules, then in numerical order.
///
/// For each NIC and family, a lease is preferred to the guest agent's report. Both are found by MAC address:
/// the agent also reports interfaces of pods and bridges, which have MAC addresses of their own. Another
/// interface with the NIC's MAC address, such as a bridge above it, counts as the NIC, since it has the NIC's
/// addresses.
pub(crate) fn select(
    nics: &[Nic],
    leases: &Leases,
    agent: &[AgentInterface],
    rules: &AddressRules,
    now: i64,
) -> Vec<NodeAddress> {
    let mut selected = Vec::new();
    for nic in nics {
        for family in &rules.families {
            for ip in nic_addresses(nic, *family, leases, agent, now) {
                if let Some(address) = rules.classify(ip)
                    && !selected.contains(&address)
                {
                    selected.push(address);
                }
            }
        }
    }
    selected
}

/// The address that the DHCP server of its network has given to a NIC.
pub(crate) fn leased(nic: &Nic, family: Family, leases: &Leases, now: i64) -> Option<IpAddr> {
    // A MAC address can have several leases after its client ID changed. The one that ends last is in use.
    leases_of(nic, leases)
        .iter()
        .filter(|lease| Family::of(lease.ip) == family && is_usable(lease.ip))
        .filter(|lease| lease.expires.is_none_or(|expires| expires > now))
        .max_by_key(|lease| (lease.expires.unwrap_or(i64::MAX), std::cmp::Reverse(lease.ip)))
        .map(|lease| lease.ip)
}

fn nic_addresses(
    nic: &Nic,
    family: Family,
    leases: &Leases,
    agent: &[AgentInterface],
    now: i64,
) -> BTreeSet<IpAddr> {
    if let Some(leased) = leased(nic, family, leases, now) {
        return BTreeSet::from([leased]);
    }
    agent
        .iter()
        .filter(|interface| interface.mac == Some(nic.mac))
        .flat_map(|interface| interface.ips.iter().copied())
        .filter(|ip| Family::of(*ip) == family && is_usable(*ip))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .take(MOST_ADDRESSES)
        .collect()
}

/// Whether other machines can reach the address: it is a unicast address, and not loopback or link-local.
fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !(ip.is_loopback()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || is_mapped(ip))
        }
    }
}

fn is_mapped(ip: Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::NicSource;

    const NOW: i64 = 1000;

    fn mac(last: u8) -> Mac {
        Mac::parse(&format!("52:54:00:00:00:{last:02x}")).expect("valid")
    }

    fn nic(last: u8) -> Nic {
        Nic { mac: mac(last), source: NicSource::Network("default".into()) }
    }

    fn leases(list: &[(u8, &str, Option<i64>)]) -> Leases {
        let mut leases = Leases::new();
        for (last, ip, expires) in list {
            leases
                .entry("default".to_owned())
                .or_default()
                .entry(mac(*last))
                .or_default()
                .push(Lease { ip: ip.parse().expect("valid"), expires: *expires });
        }
        leases
    }

    fn agent(list: &[(u8, &[&str])]) -> Vec<AgentInterface> {
        list.iter()
            .map(|(last, ips)| AgentInterface {
                mac: Some(mac(*last)),
                ips: ips.iter().map(|ip| ip.parse().expect("valid")).collect(),
            })
            .collect()
    }

    fn texts(addresses: &[NodeAddress]) -> Vec<String> {
        addresses.iter().map(|a| format!("{} {}", a.address_type, a.address)).collect()
    }

    #[test]
    fn the_lease_counts_first_and_the_agent_fills_in_the_other_family() {
        let leases = leases(&[(1, "10.0.0.5", Some(2000))]);
        let agent = agent(&[(1, &["10.0.0.99", "fd00::5", "fe80::1"])]);
        let got = select(&[nic(1)], &leases, &agent, &AddressRules::default(), NOW);
        assert_eq!(texts(&got), ["InternalIP 10.0.0.5", "InternalIP fd00::5"]);
    }

    #[test]
    fn expired_leases_are_dropped_and_the_longest_wins() {
        let leases = leases(&[
            (1, "10.0.0.1", Some(NOW)),
            (1, "10.0.0.2", Some(NOW + 10)),
            (1, "10.0.0.3", Some(NOW + 20)),
            (2, "10.0.0.4", Some(NOW - 1)),
            (3, "10.0.0.6", Some(NOW + 9)),
            (3, "10.0.0.7", None),
        ]);
        let got = select(&[nic(1), nic(2), nic(3)], &leases, &[], &AddressRules::default(), NOW);
        assert_eq!(texts(&got), ["InternalIP 10.0.0.3", "InternalIP 10.0.0.7"]);
    }

    #[test]
    fn foreign_interfaces_and_useless_addresses_are_left_out() {
        let agent = agent(&[
            (0xaa, &["10.244.0.1"]),
            (1, &["127.0.0.1", "169.254.3.4", "0.0.0.0", "224.0.0.1", "255.255.255.255"]),
            (1, &["::1", "fe80::1", "::", "ff02::1", "::ffff:10.0.0.9", "10.0.0.9"]),
        ]);
        let nameless = AgentInterface { mac: None, ips: vec!["10.9.9.9".parse().expect("valid")] };
        let all: Vec<_> = agent.into_iter().chain([nameless]).collect();
        let got = select(&[nic(1)], &Leases::new(), &all, &AddressRules::default(), NOW);
        assert_eq!(texts(&got), ["InternalIP 10.0.0.9"]);
    }

    #[test]
    fn the_order_is_nic_then_family_then_number() {
        let agent =
            agent(&[(2, &["10.0.2.2", "fd02::1"]), (1, &["fd01::10", "fd01::9", "10.0.1.10", "10.0.1.9"])]);
        let got = select(&[nic(1), nic(2)], &Leases::new(), &agent, &AddressRules::default(), NOW);
        let expected = ["10.0.1.9", "10.0.1.10", "fd01::9", "fd01::10", "10.0.2.2", "fd02::1"];
        assert_eq!(got.iter().map(|a| a.address.as_str()).collect::<Vec<_>>(), expected);
        let rules = AddressRules { families: vec![Family::Ipv6], ..AddressRules::default() };
        let got = select(&[nic(1), nic(2)], &Leases::new(), &agent, &rules, NOW);
        let expected = ["fd01::9", "fd01::10", "fd02::1"];
        assert_eq!(got.iter().map(|a| a.address.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rules_decide_between_internal_external_and_none() {
        let net = |text: &str| vec![text.parse::<IpNet>().expect("valid")];
        let rules = AddressRules {
            internal: net("10.0.0.0/8"),
            external: net("192.0.2.0/24"),
            exclude: net("10.9.0.0/16"),
            ..AddressRules::default()
        };
        let agent = agent(&[(1, &["10.0.0.1", "10.9.0.1", "192.0.2.1", "172.16.0.1"])]);
        let got = select(&[nic(1)], &Leases::new(), &agent, &rules, NOW);
        assert_eq!(texts(&got), ["InternalIP 10.0.0.1", "ExternalIP 192.0.2.1"]);
    }

    #[test]
    fn a_machine_of_any_cluster_has_each_address() {
        let net = |text: &str| vec![text.parse::<IpNet>().expect("valid")];
        let rules = AddressRules {
            internal: net("10.0.0.0/8"),
            external: net("192.0.2.0/24"),
            exclude: net("172.16.0.0/12"),
            families: vec![Family::Ipv4],
        };
        let agent = agent(&[(1, &["172.16.0.1", "192.0.2.1", "fd00::1", "fe80::1"])]);
        let got = select(&[nic(1)], &Leases::new(), &agent, &rules.for_machines(), NOW);
        assert_eq!(texts(&got), ["InternalIP 172.16.0.1", "ExternalIP 192.0.2.1", "InternalIP fd00::1"]);
    }

    #[test]
    fn a_lease_counts_on_its_own_network_only() {
        let leases = leases(&[(1, "10.0.0.5", None)]);
        let on = |source| Nic { mac: mac(1), source };
        for source in [NicSource::Network("other".into()), NicSource::Other] {
            assert_eq!(select(&[on(source)], &leases, &[], &AddressRules::default(), NOW), []);
        }
        let got = select(&[nic(1)], &leases, &[], &AddressRules::default(), NOW);
        assert_eq!(texts(&got), ["InternalIP 10.0.0.5"]);
    }

    #[test]
    fn a_nic_has_only_so_many_addresses() {
        let ips = (0..=u8::MAX).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let many = [AgentInterface { mac: Some(mac(1)), ips }];
        let got = select(&[nic(1)], &Leases::new(), &many, &AddressRules::default(), NOW);
        assert_eq!(got.len(), MOST_ADDRESSES);
    }

    #[test]
    fn an_address_stands_once() {
        let agent = agent(&[(1, &["10.0.0.1"]), (1, &["10.0.0.1"]), (2, &["10.0.0.1"])]);
        let got = select(&[nic(1), nic(2)], &Leases::new(), &agent, &AddressRules::default(), NOW);
        assert_eq!(texts(&got), ["InternalIP 10.0.0.1"]);
    }
}
