//! Making and removing entries.

use cloudprovider::{Error, ErrorKind, Result};

use super::{
    address::Reservation,
    calls::{NetworkCalls, Scope, Update},
    network::{HostEntry, NetworkDhcp},
    plan::{Change, to_add, to_remove},
};
use crate::{calls::Failure, mac::Mac};

/// Makes sure that the network keeps this address, and only this one, for this interface.
///
/// # Errors
/// - [`ErrorKind::NotFound`]: there is no such network, or it has no DHCP server.
/// - [`ErrorKind::InvalidInput`]: the address is not one of the network's, or not an IPv4 address.
/// - [`ErrorKind::Conflict`]: the address, the name or the MAC address is in another entry, which the message has.
/// - Others are libvirt's.
pub(crate) fn ensure(calls: &mut impl NetworkCalls, wanted: &Reservation) -> Result<()> {
    let mut is_found = false;
    for scope in Scope::ALL {
        is_found |= ensure_in(calls, scope, wanted)?;
    }
    if is_found { Ok(()) } else { Err(missing(&wanted.network)) }
}

/// Whether the network has this definition.
fn ensure_in(calls: &mut impl NetworkCalls, scope: Scope, wanted: &Reservation) -> Result<bool> {
    let Some(dhcp) = read(calls, &wanted.network, scope)? else { return Ok(false) };
    let Some((update, index)) = update_for(&dhcp, wanted)? else { return Ok(true) };
    let entry = HostEntry::of(wanted);
    let Err(failure) = calls.update(&wanted.network, scope, update, index, &entry.to_xml()) else {
        return Ok(true);
    };
    // Somebody else may have been faster. libvirt refuses what is in an entry already.
    let Some(dhcp) = read(calls, &wanted.network, scope)? else { return Ok(false) };
    match update_for(&dhcp, wanted)? {
        None => Ok(true),
        Some(_) => Err(failed(&wanted.network, &failure)),
    }
}

fn update_for(dhcp: &NetworkDhcp, wanted: &Reservation) -> Result<Option<(Update, i32)>> {
    Ok(match to_add(dhcp, wanted)? {
        Change::None => None,
        Change::Add(index) => Some((Update::Add, index)),
        Change::Modify(index) => Some((Update::Modify, index)),
    })
}

/// Removes the entries with this MAC address and this name.
///
/// # Errors
/// libvirt's. A network or an entry that is not there is none.
pub(crate) fn remove(calls: &mut impl NetworkCalls, network: &str, mac: Mac, name: &str) -> Result<()> {
    for scope in Scope::ALL {
        let Some(dhcp) = read(calls, network, scope)? else { continue };
        for (index, entry) in to_remove(&dhcp, mac, name) {
            let Err(failure) = calls.update(network, scope, Update::Delete, index, &entry.to_xml()) else {
                continue;
            };
            let Some(dhcp) = read(calls, network, scope)? else { continue };
            if !to_remove(&dhcp, mac, name).is_empty() {
                return Err(failed(network, &failure));
            }
        }
    }
    Ok(())
}

/// The DHCP of a network in one of its definitions. `None` if it does not have that one.
///
/// # Errors
/// libvirt's, and [`ErrorKind::Internal`] for a definition that cannot be read.
pub(crate) fn read(
    calls: &mut impl NetworkCalls,
    network: &str,
    scope: Scope,
) -> Result<Option<NetworkDhcp>> {
    let xml = calls.definition(network, scope).map_err(|failure| failed(network, &failure))?;
    xml.map(|xml| NetworkDhcp::parse(&xml)).transpose().map_err(|why| {
        let words = format!("the definition of network {network:?} cannot be read: {why}");
        Error::new(ErrorKind::Internal, words)
    })
}

/// The error for a network that is not there.
pub(crate) fn missing(network: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no network {network:?}"))
}

fn failed(network: &str, failure: &Failure) -> Error {
    Error::new(failure.kind, format!("network {network:?}: {}", failure.message))
}
