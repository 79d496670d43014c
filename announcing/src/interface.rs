//! The interfaces and addresses of the host, and which interface an address belongs on. Pure.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use ipnet::IpNet;

use crate::{
    LIFETIME,
    error::{Error, Result},
};

/// The number that marks addresses as ours (`IFA_PROTO`, Linux 5.18 and newer; `ip address` prints `proto 204`). It has no
/// meaning to the kernel.
pub const ADDRESS_PROTOCOL: u8 = 204;

/// Where kube-proxy in its mode IPVS puts the addresses of all Services, on every host. It answers for none of them to the
/// neighbours.
const KUBE_PROXY_IPVS: &str = "kube-ipvs0";

/// The interface that holds an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum InterfaceChoice {
    /// The interface of this name.
    Named(String),
    /// The interface that has an address whose subnet contains this one; else that of the default route.
    #[default]
    Automatic,
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Automatic => f.write_str("automatic"),
        }
    }
}

impl FromStr for InterfaceChoice {
    type Err = String;

    /// Parses the name of an interface. Whether it exists is seen when an address is held.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        // the kernel's rules, and IFNAMSIZ
        let is_name = (1..16).contains(&name.len())
            && !matches!(name, "." | "..")
            && !name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
        if is_name {
            Ok(Self::Named(name.to_owned()))
        } else {
            Err(format!(
                "{name:?} is not the name of an interface: 1 to 15 characters without \"/\", \":\" or blanks"
            ))
        }
    }
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Its Ethernet address; `None` if it has none, or one of another kind.
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) is_loopback: bool,
    /// Its neighbours do not resolve addresses.
    pub(crate) is_no_arp: bool,
    /// It is switched on and has a carrier.
    pub(crate) is_up: bool,
}

impl Interface {
    /// Whether there are neighbours that resolve addresses on this interface.
    pub(crate) fn has_neighbours(&self) -> bool {
        !self.is_loopback && !self.is_no_arp && self.mac.is_some()
    }
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostAddress {
    pub(crate) interface: u32,
    pub(crate) address: IpAddr,
    pub(crate) prefix_length: u8,
    /// `IFA_PROTO`. Kernels before 5.18 have none.
    pub(crate) protocol: Option<u8>,
    /// How long the kernel keeps it; `None` means for ever.
    pub(crate) valid_for: Option<Duration>,
    /// Not to be chosen as a source.
    pub(crate) is_deprecated: bool,
}

impl HostAddress {
    /// Whether this program, now or before a restart, set the address. On kernels that do not keep the mark, it is
    /// recognized by its short life, which nothing else gives to a single address.
    pub(crate) fn is_ours(&self) -> bool {
        let is_single = self.prefix_length == single(self.address);
        let is_short = self.valid_for.is_some_and(|left| left <= LIFETIME);
        let is_marked = match self.protocol {
            Some(protocol) => protocol == ADDRESS_PROTOCOL,
            None => self.is_deprecated,
        };
        is_single && is_short && is_marked
    }
}

/// The length of the prefix that contains one address only.
pub(crate) fn single(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// What the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) addresses: Vec<HostAddress>,
    /// The interfaces of the default routes, of IPv4 and IPv6.
    pub(crate) default_routes: [Option<u32>; 2],
}

/// Where an address belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) interface: Interface,
    /// Whether the interface has the address.
    pub(crate) is_set: bool,
    /// Other interfaces that have it from us, and must not.
    pub(crate) elsewhere: Vec<u32>,
}

impl Host {
    pub(crate) fn names(&self) -> Vec<String> {
        self.interfaces.iter().map(|interface| interface.name.clone()).collect()
    }

    fn named(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    fn by_index(&self, index: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.index == index)
    }

    /// Where `address` belongs. `before` is the interface that had it until now. An automatic choice is not changed while that
    /// interface exists, unless only another one has a subnet that contains the address.
    pub(crate) fn place(
        &self,
        address: IpAddr,
        choice: &InterfaceChoice,
        before: Option<&str>,
    ) -> Result<Place> {
        let of_kube_proxy = self.named(KUBE_PROXY_IPVS).map(|interface| interface.index);
        let there = self.addresses.iter().filter(|one| one.address == address);
        let there: Vec<_> = there.filter(|one| Some(one.interface) != of_kube_proxy).collect();
        if let Some(foreign) = there.iter().find(|one| !one.is_ours()) {
            let interface = self.by_index(foreign.interface);
            let interface = interface.map_or_else(|| foreign.interface.to_string(), |one| one.name.clone());
            return Err(Error::Foreign { address, interface });
        }
        let interface = match choice {
            InterfaceChoice::Named(name) => self
                .named(name)
                .ok_or_else(|| Error::NoInterface { name: name.clone(), existing: self.names() })?,
            InterfaceChoice::Automatic => self
                .by_subnet(address, before)
                .or_else(|| before.and_then(|name| self.named(name)))
                .or_else(|| self.by_index(self.default_routes[usize::from(address.is_ipv6())]?))
                .ok_or_else(|| Error::NoFittingInterface { address, existing: self.names() })?,
        };
        Ok(Place {
            interface: interface.clone(),
            is_set: there.iter().any(|one| one.interface == interface.index),
            elsewhere: there
                .iter()
                .map(|one| one.interface)
                .filter(|index| *index != interface.index)
                .collect(),
        })
    }

    /// Whether only the default route can say where `address` belongs.
    pub(crate) fn needs_routes(&self, address: IpAddr) -> bool {
        self.by_subnet(address, None).is_none()
    }

    /// The interface with the smallest subnet that contains `address`, or `before` if any of its subnets does.
    fn by_subnet(&self, address: IpAddr, before: Option<&str>) -> Option<&Interface> {
        self.addresses
            .iter()
            .filter(|one| one.prefix_length < single(one.address) && !one.is_ours())
            .filter(|one| {
                IpNet::new(one.address, one.prefix_length).is_ok_and(|subnet| subnet.contains(&address))
            })
            .filter_map(|one| Some((one.prefix_length, self.by_index(one.interface)?)))
            .filter(|(_, interface)| !interface.is_loopback)
            // of two with the same subnet the one that has been there longer
            .min_by_key(|(length, interface)| {
                (Some(interface.name.as_str()) != before, u8::MAX - length, interface.index)
            })
            .map(|(_, interface)| interface)
    }
}

/// Why no interface can hold `address`.
pub(crate) fn fault(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("it is the unspecified address");
    }
    if address.is_multicast() {
        return Some("it is a multicast address");
    }
    if address.is_loopback() {
        return Some("it is a loopback address, which stays on its host");
    }
    match address {
        IpAddr::V4(v4) if v4.is_broadcast() => Some("it is the broadcast address"),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("it is an IPv4 address in the form of IPv6"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("it is a link-local address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
