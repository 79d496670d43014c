//! What is to be changed in a network's definition. Pure.

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    calls::{Change, Update},
    network::{HostEntry, NetworkDhcp, Reservation, Subnet},
};
use crate::mac::Mac;

/// What a definition needs for an entry. Nothing if the entry is there, and none of the `older` ones, whose
/// place it takes. Those, and an entry with another address, are deleted first: libvirt looks for the same
/// address elsewhere only when an entry is added.
pub(super) fn to_add(
    dhcp: &NetworkDhcp,
    wanted: &Reservation,
    older: &[(Mac, String)],
) -> Result<Vec<Change>> {
    let subnet = subnet_for(dhcp, wanted)?;
    let is_ours = |entry: &HostEntry| entry.is_of(wanted.mac, &wanted.name) || entry.is_one_of(older);
    let (ours, others): (Vec<&HostEntry>, Vec<_>) = dhcp.hosts().partition(|entry| is_ours(entry));
    for other in others {
        if let Some(shared) = shared_with(other, wanted) {
            let (network, entry) = (&wanted.network, other.to_xml());
            tracing::info!(network, entry, "a host entry that is not ours has {shared}");
            let words = format!("network {network:?} has {shared} in another entry, which is not ours");
            return Err(Error::new(ErrorKind::Conflict, words));
        }
    }
    let entry = HostEntry::of(wanted);
    if matches!(ours[..], [only] if *only == entry) {
        return Ok(Vec::new());
    }
    let mut changes = to_remove(dhcp, &is_ours);
    changes.push(Change { update: Update::Add, subnet: subnet.index, host: entry.to_xml() });
    Ok(changes)
}

/// What two entries share. libvirt takes an address, a MAC address and a name in one entry only.
fn shared_with(other: &HostEntry, wanted: &Reservation) -> Option<String> {
    if other.address == Some(wanted.address) {
        Some(format!("the address {}", wanted.address))
    } else if other.mac == Some(wanted.mac) {
        Some(format!("the MAC address {}", wanted.mac))
    } else if other.name.as_deref() == Some(wanted.name.as_str()) {
        Some(format!("the name {:?}", wanted.name))
    } else {
        None
    }
}

fn subnet_for<'a>(dhcp: &'a NetworkDhcp, wanted: &Reservation) -> Result<&'a Subnet> {
    let Reservation { network, address, .. } = wanted;
    let fault = |kind, words: String| Err(Error::new(kind, words));
    if address.is_ipv6() {
        let words =
            format!("{address} cannot be reserved: libvirt reserves IPv4 addresses for MAC addresses only");
        return fault(ErrorKind::InvalidInput, words);
    }
    let with_dhcp = || dhcp.subnets.iter().filter(|subnet| subnet.has_dhcp && subnet.own.addr().is_ipv4());
    if with_dhcp().next().is_none() {
        let words =
            format!("network {network:?} has no DHCP server of libvirt for IPv4, so it keeps no addresses");
        return fault(ErrorKind::NotFound, words);
    }
    with_dhcp().find(|subnet| subnet.is_usable(*address)).map_or_else(
        || {
            let subnets: Vec<_> = with_dhcp().map(|subnet| subnet.own.to_string()).collect();
            let words = format!(
                "{address} is not an address for guests of network {network:?}, which is {}",
                subnets.join(", ")
            );
            fault(ErrorKind::InvalidInput, words)
        },
        Ok,
    )
}

/// What a definition needs so that none of our entries is in it.
pub(super) fn to_remove(dhcp: &NetworkDhcp, is_ours: &dyn Fn(&HostEntry) -> bool) -> Vec<Change> {
    let of = |subnet: &Subnet| {
        let ours = subnet.hosts.iter().filter(|entry| is_ours(entry)).map(HostEntry::to_xml);
        let index = subnet.index;
        ours.map(|host| Change { update: Update::Delete, subnet: index, host }).collect::<Vec<_>>()
    };
    dhcp.subnets.iter().flat_map(of).collect()
}
