//! The choice of an address. Pure.

use std::{collections::HashSet, net::IpAddr};

use address_pools::{AddressRange, Family, RangeText};
use cloudprovider::{Error, ErrorKind, Result};

use super::claim::Claim;
use crate::machines::{
    reservation::{NetworkDhcp, Subnet},
    spec::EndpointPoolSpec,
};

/// The most addresses that a pool may have.
const MAX_ADDRESSES: u128 = 65_536;

/// The addresses of a pool, each once.
#[derive(Clone, Debug)]
pub(super) struct Pool(Vec<IpAddr>);

impl Pool {
    /// Reads the addresses.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] with the place of the first fault.
    pub(super) fn read(spec: &EndpointPoolSpec) -> Result<Self> {
        let mut addresses = Vec::new();
        for (i, text) in spec.addresses.iter().enumerate() {
            let fault = |what: String| {
                let words = format!("spec.controlPlaneEndpointPool.addresses[{i}]: {text:?} {what}");
                Error::new(ErrorKind::InvalidInput, words)
            };
            let range = text.parse::<RangeText>().map_err(|error| fault(error.to_string()))?.range(true);
            if range.family() != Family::Ipv4 {
                return Err(fault("is not IPv4, and libvirt keeps only IPv4 addresses".to_owned()));
            }
            if range.count() + addresses.len() as u128 > MAX_ADDRESSES {
                return Err(fault(format!("makes more than {MAX_ADDRESSES} addresses")));
            }
            addresses.extend(every(&range));
        }
        let mut known = HashSet::new();
        addresses.retain(|address| known.insert(*address));
        Ok(Self(addresses))
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// All addresses, beginning with one that the claim chooses.
    fn from<'a>(&'a self, claim: &Claim) -> impl Iterator<Item = IpAddr> + 'a {
        let count = self.0.len().max(1);
        let start = usize::try_from(claim.uid.as_u128() % count as u128).unwrap_or(0);
        self.0.iter().cycle().skip(start).take(self.0.len()).copied()
    }
}

fn every(range: &AddressRange) -> impl Iterator<Item = IpAddr> + use<> {
    let ends = match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Some(u32::from(first)..=u32::from(last)),
        _ => None,
    };
    ends.into_iter().flatten().map(|number| IpAddr::V4(number.into()))
}

/// The address for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The cluster has it already, in one definition of the network at least.
    Held(IpAddr),
    /// Nobody has it.
    Free(IpAddr),
    /// All are taken.
    Full,
    /// The network cannot keep any, and why.
    Unusable(String),
}

/// Chooses an address of the pool that no definition of the network has for anyone else, and that is not one
/// of the leased ones.
pub(super) fn choose(
    definitions: &[NetworkDhcp],
    leased: &HashSet<IpAddr>,
    pool: &Pool,
    claim: &Claim,
) -> Choice {
    let hosts = || definitions.iter().flat_map(NetworkDhcp::hosts);
    let held = hosts().find(|host| claim.has(host)).and_then(|host| host.address);
    if let Some(address) = held {
        return Choice::Held(address);
    }
    let taken: HashSet<IpAddr> = hosts().filter_map(|host| host.address).collect();
    let mut is_any_usable = false;
    for address in pool.from(claim) {
        if definitions.iter().all(|dhcp| can_keep(dhcp, address)) {
            if !taken.contains(&address) && !leased.contains(&address) {
                return Choice::Free(address);
            }
            is_any_usable = true;
        }
    }
    if is_any_usable { Choice::Full } else { Choice::Unusable(why_unusable(definitions)) }
}

/// Whether the network can keep the address, and does not give it to anyone.
fn can_keep(dhcp: &NetworkDhcp, address: IpAddr) -> bool {
    let keeps = |subnet: &Subnet| subnet.has_dhcp && subnet.is_usable(address) && !subnet.is_dynamic(address);
    dhcp.subnets.iter().any(keeps)
}

fn why_unusable(definitions: &[NetworkDhcp]) -> String {
    let subnets = definitions.iter().flat_map(|dhcp| &dhcp.subnets);
    let with_dhcp: Vec<&Subnet> = subnets.filter(|one| one.has_dhcp && one.own.addr().is_ipv4()).collect();
    let Some(subnet) = with_dhcp.first() else {
        return "the network has no DHCP server of libvirt for IPv4, so it keeps no addresses".to_owned();
    };
    let ranges: Vec<_> = subnet.ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
    format!(
        "none of the addresses is in the network's subnet {} and outside of its DHCP ranges ({})",
        subnet.own.trunc(),
        ranges.join(", ")
    )
}
