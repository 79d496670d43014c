//! Addresses, ranges of addresses, and sets of ranges.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use ipnet::IpNet;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// The family with this name in `spec.ipFamilies`.
    pub fn from_kubernetes(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.as_str() == name)
    }

    /// The name in `spec.ipFamilies`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which end of a pool is handed out first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The lowest free address.
    #[default]
    Ascending,
    /// The highest free address.
    Descending,
}

/// The place of an address among those of its family.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address at this place.
pub(crate) fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        Family::Ipv6 => Ipv6Addr::from(number).into(),
    }
}

/// Addresses of one family, from the first to the last one, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    family: Family,
    first: u128,
    last: u128,
}

/// Why a text does not name addresses. It says what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeFault {
    /// Neither a network, nor a range, nor an address.
    #[error("is not a network, range or address; write 10.0.0.0/24, 10.0.0.10-10.0.0.20 or 10.0.0.7")]
    Unreadable,
    /// The last address comes before the first one.
    #[error("ends before it begins; write the lower address first")]
    Reversed,
    /// A range from one family to the other.
    #[error("begins and ends in different address families; give each family a range of its own")]
    MixedFamilies,
    /// IPv4 addresses in IPv6 notation.
    #[error("is an IPv4 address in IPv6 notation; write it as IPv4")]
    Mapped,
}

impl AddressRange {
    /// The range between two addresses.
    ///
    /// # Errors
    /// The addresses are of different families or in the wrong order.
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, RangeFault> {
        let family = Family::of(first);
        if family != Family::of(last) {
            return Err(RangeFault::MixedFamilies);
        }
        let (first, last) = (number(first), number(last));
        if first > last { Err(RangeFault::Reversed) } else { Ok(Self { family, first, last }) }
    }

    /// All addresses of a network. With `skip_ends` the first and the last one are left out of an IPv4 network with more
    /// than two addresses: they are its name and its broadcast address.
    pub fn of_network(network: IpNet, skip_ends: bool) -> Self {
        let (family, prefix) = (Family::of(network.addr()), network.prefix_len());
        let (first, last) = (number(network.network()), number(network.broadcast()));
        let has_ends = family == Family::Ipv4 && prefix < 31;
        if skip_ends && has_ends {
            return Self { family, first: first + 1, last: last - 1 };
        }
        Self { family, first, last }
    }

    /// The family of the addresses.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        address(self.family, self.first)
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        address(self.family, self.last)
    }

    pub(crate) fn numbers(&self) -> (u128, u128) {
        (self.first, self.last)
    }

    /// How many addresses there are. The whole of IPv6 counts as one less than it has.
    pub fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.family == Family::of(address) && (self.first..=self.last).contains(&number(address))
    }

    /// The addresses that are in both ranges.
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (self.family == other.family && first <= last).then_some(Self { family: self.family, first, last })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first())
        } else {
            write!(f, "{}-{}", self.first(), self.last())
        }
    }
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Addresses as an operator writes them: a network, a range or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeText {
    /// A network in CIDR notation, with its host bits as written.
    Network(IpNet),
    /// Two addresses joined by `-`, or one address.
    Range(AddressRange),
}

impl RangeText {
    /// The addresses. For `skip_ends` see [`AddressRange::of_network`]; it does not change a range.
    pub fn range(&self, skip_ends: bool) -> AddressRange {
        match self {
            Self::Network(network) => AddressRange::of_network(*network, skip_ends),
            Self::Range(range) => *range,
        }
    }

    /// Whether it is the network of all addresses of a family.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::Network(network) if network.prefix_len() == 0)
    }

    /// The network as it should have been written, if bits behind its prefix are set.
    pub fn with_host_bits(&self) -> Option<IpNet> {
        match self {
            Self::Network(network) if network.trunc() != *network => Some(network.trunc()),
            _ => None,
        }
    }
}

impl FromStr for RangeText {
    type Err = RangeFault;

    fn from_str(text: &str) -> Result<Self, RangeFault> {
        let text = text.trim();
        if let Ok(network) = text.parse::<IpNet>() {
            unmapped(network.addr())?;
            return Ok(Self::Network(network));
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| RangeFault::Unreadable);
        let (first, last) = (unmapped(parse(first)?)?, unmapped(parse(last)?)?);
        AddressRange::new(first, last).map(Self::Range)
    }
}

fn unmapped(address: IpAddr) -> Result<IpAddr, RangeFault> {
    if address.to_canonical() == address { Ok(address) } else { Err(RangeFault::Mapped) }
}

/// What is wrong with a network that [is everything](RangeText::is_everything).
pub(crate) const EVERYTHING: &str =
    "is every address that there is; write the networks that are for load balancers";

/// Why no Service can have addresses of this range.
pub(crate) fn unusable(range: &AddressRange) -> Option<&'static str> {
    let has = |first: &str, last: &str| {
        let bounds = first.parse().ok().zip(last.parse().ok());
        let reserved = bounds.and_then(|(first, last)| AddressRange::new(first, last).ok());
        reserved.is_some_and(|reserved| reserved.overlap(range).is_some())
    };
    if has("0.0.0.0", "0.255.255.255") || has("::", "::") {
        return Some("has addresses that no host can have");
    }
    if has("127.0.0.0", "127.255.255.255") || has("::1", "::1") {
        return Some("has loopback addresses");
    }
    if has("224.0.0.0", "239.255.255.255") || has("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff") {
        return Some("has multicast addresses");
    }
    if has("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff") {
        return Some("has link-local addresses");
    }
    if has("240.0.0.0", "255.255.255.255") {
        return Some("has addresses that are reserved");
    }
    None
}

/// A set of addresses of both families. Its ranges are sorted and do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    ranges: Vec<AddressRange>,
}

impl AddressSet {
    /// The ranges of a family, the lowest first.
    pub fn of_family(&self, family: Family) -> impl DoubleEndedIterator<Item = &AddressRange> {
        self.ranges.iter().filter(move |range| range.family == family)
    }

    /// All ranges.
    pub(crate) fn ranges(&self) -> &[AddressRange] {
        &self.ranges
    }

    /// Whether there are addresses of this family.
    pub fn has(&self, family: Family) -> bool {
        self.of_family(family).next().is_some()
    }

    /// Whether the address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (family, number) = (Family::of(address), number(address));
        let at = self.ranges.partition_point(|range| (range.family, range.last) < (family, number));
        self.ranges.get(at).is_some_and(|range| range.contains(address))
    }

    /// How many addresses of this family there are.
    pub fn count(&self, family: Family) -> u128 {
        self.of_family(family).fold(0, |sum, range| range.count().saturating_add(sum))
    }

    /// Addresses that are in both sets.
    pub fn overlap(&self, other: &Self) -> Option<AddressRange> {
        self.ranges.iter().find_map(|range| other.ranges.iter().find_map(|other| range.overlap(other)))
    }
}

impl FromIterator<AddressRange> for AddressSet {
    fn from_iter<I: IntoIterator<Item = AddressRange>>(ranges: I) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut ranges: Vec<AddressRange> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match ranges.last_mut() {
                Some(before)
                    if before.family == range.family && range.first <= before.last.saturating_add(1) =>
                {
                    before.last = before.last.max(range.last);
                }
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }
}

impl fmt::Display for AddressSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.ranges.iter().enumerate() {
            write!(f, "{}{range}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
