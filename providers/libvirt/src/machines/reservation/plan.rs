//! What is to be changed in a network's definition. Pure.

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    address::Reservation,
    network::{HostEntry, NetworkDhcp, Subnet},
};
use crate::mac::Mac;

/// A change of a definition, with the place of the subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The entry is there.
    None,
    /// It is not there.
    Add(i32),
    /// It is there with another address.
    Modify(i32),
}

/// What is needed for an entry.
pub(super) fn to_add(dhcp: &NetworkDhcp, wanted: &Reservation) -> Result<Change> {
    let subnet = subnet_for(dhcp, wanted)?;
    let (mut ours, mut others) = (None, Vec::new());
    for entry in dhcp.hosts() {
        if entry.is_of(wanted.mac, &wanted.name) {
            ours = Some(entry);
        } else {
            others.push(entry);
        }
    }
    if let Some(other) = others.into_iter().find(|other| is_in_the_way(other, wanted)) {
        let Reservation { network, address, name, mac } = wanted;
        let words = format!(
            "network {network:?} has the entry {}, which is not ours and is in the way of {address} for {name} ({mac})",
            other.to_xml()
        );
        return Err(Error::new(ErrorKind::Conflict, words));
    }
    Ok(match ours {
        None => Change::Add(subnet.index),
        Some(entry) if entry.address == Some(wanted.address) => Change::None,
        Some(_) => Change::Modify(subnet.index),
    })
}

/// As libvirt sees it: each of the three is in one entry only.
fn is_in_the_way(other: &HostEntry, wanted: &Reservation) -> bool {
    other.mac == Some(wanted.mac)
        || other.name.as_deref() == Some(wanted.name.as_str())
        || other.address == Some(wanted.address)
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

/// The entries with this MAC address and this name, each with the place of its subnet.
pub(super) fn to_remove(dhcp: &NetworkDhcp, mac: Mac, name: &str) -> Vec<(i32, HostEntry)> {
    let of = |subnet: &Subnet| {
        let ours = subnet.hosts.iter().filter(|entry| entry.is_of(mac, name)).cloned();
        ours.map(|entry| (subnet.index, entry)).collect::<Vec<_>>()
    };
    dhcp.subnets.iter().flat_map(of).collect()
}
