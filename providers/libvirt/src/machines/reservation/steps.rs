//! Making and removing entries.

use std::net::IpAddr;

use cloudprovider::{Error, ErrorKind, Result};
use jiff::Timestamp;

use super::{
    calls::{NetworkCalls, Scope},
    network::{HostEntry, NetworkDhcp, Reservation},
    plan::{to_add, to_remove},
};
use crate::{addresses::Lease, calls::Failure, inventory::LEASE_GRACE, mac::Mac};

/// What an entry is known by: its MAC address and its name.
pub(crate) type Entry = (Mac, String);

/// Whether an interface with this MAC address may be there still, or come back.
pub(crate) type MayBeThere<'a> = &'a (dyn Fn(Mac) -> bool + Sync);

/// For an address that no interface has of its own: every lease counts.
pub(crate) const ALL_LEASES: MayBeThere<'static> = &|_| true;

/// Makes sure that the network keeps this address, and only this one, for this interface. The entry takes the
/// place of the `older` ones, which are the interface's too. Leases of interfaces that are gone do not count:
/// a guest that is destroyed gives none back.
///
/// # Errors
/// - [`ErrorKind::NotFound`]: there is no such network, or it has no DHCP server.
/// - [`ErrorKind::InvalidInput`]: the address is not one of the network's, or not an IPv4 address.
/// - [`ErrorKind::Conflict`]: the address, the name or the MAC address is in another entry, or the address is
///   in a lease that another interface has.
/// - Others are libvirt's.
pub(crate) async fn ensure(
    calls: &dyn NetworkCalls,
    wanted: &Reservation,
    older: &[Entry],
    may_be_there: MayBeThere<'_>,
) -> Result<()> {
    let mut is_found = false;
    for scope in Scope::ALL {
        is_found |= ensure_in(calls, scope, wanted, older, may_be_there).await?;
    }
    if is_found { Ok(()) } else { Err(missing(calls, &wanted.network)) }
}

/// Whether the network has this definition.
async fn ensure_in(
    calls: &dyn NetworkCalls,
    scope: Scope,
    wanted: &Reservation,
    older: &[Entry],
    may_be_there: MayBeThere<'_>,
) -> Result<bool> {
    let network = &wanted.network;
    let Some(dhcp) = read(calls, network, scope).await? else { return Ok(false) };
    let changes = to_add(&dhcp, wanted, older)?;
    if !changes.is_empty() {
        check_leases(calls, wanted, may_be_there).await?;
    }
    for change in changes {
        let Err(failure) = calls.update(network, scope, &change).await else { continue };
        // Somebody else may have been faster. libvirt refuses what is in an entry already.
        let Some(dhcp) = read(calls, network, scope).await? else { return Ok(false) };
        return if to_add(&dhcp, wanted, older)?.is_empty() {
            Ok(true)
        } else {
            Err(failed(calls, network, &failure))
        };
    }
    Ok(true)
}

/// Checks that no other interface has the address by lease. The server would refuse that one the next
/// renewal, and would not give the address to this one before.
async fn check_leases(
    calls: &dyn NetworkCalls,
    wanted: &Reservation,
    may_be_there: MayBeThere<'_>,
) -> Result<()> {
    let Reservation { network, address, mac, .. } = wanted;
    let leases = leases_of_others(calls, network, *mac).await?;
    if !leases.iter().any(|(other, leased)| leased == address && may_be_there(*other)) {
        return Ok(());
    }
    let words = format!(
        "network {network:?} has the address {address} in a guest's DHCP lease, which is not ours; it is free when that has ended, and a \
         guest may go on renewing it, so name an address outside of the network's DHCP range"
    );
    Err(Error::new(ErrorKind::Conflict, words))
}

/// The addresses of the network that other interfaces than the one with this MAC address have by lease, and
/// theirs.
///
/// # Errors
/// libvirt's.
pub(crate) async fn leases_of_others(
    calls: &dyn NetworkCalls,
    network: &str,
    mac: Mac,
) -> Result<Vec<(Mac, IpAddr)>> {
    let leases = calls.leases(network).await.map_err(|failure| failed(calls, network, &failure))?;
    let now = Timestamp::now().as_second();
    let is_meant =
        |other: Mac, lease: &Lease| other != mac && lease.expires.is_none_or(|end| end > now - LEASE_GRACE);
    let others = leases.into_iter().filter(|(other, lease)| is_meant(*other, lease));
    Ok(others.map(|(other, lease)| (other, lease.ip)).collect())
}

/// Removes the entries with this MAC address and this name.
///
/// # Errors
/// libvirt's. A network or an entry that is not there is none.
pub(crate) async fn remove(calls: &dyn NetworkCalls, network: &str, mac: Mac, name: &str) -> Result<()> {
    remove_all(calls, network, &[(mac, name.to_owned())]).await
}

/// Removes the entries with one of these MAC addresses and the name beside it, with no more reading than for
/// one.
///
/// # Errors
/// libvirt's. A network or an entry that is not there is none.
pub(crate) async fn remove_all(calls: &dyn NetworkCalls, network: &str, ours: &[Entry]) -> Result<()> {
    let is_ours = |entry: &HostEntry| entry.is_one_of(ours);
    for scope in Scope::ALL {
        let Some(dhcp) = read(calls, network, scope).await? else { continue };
        for change in to_remove(&dhcp, &is_ours) {
            let Err(failure) = calls.update(network, scope, &change).await else { continue };
            // The network may have been stopped meanwhile.
            let Some(dhcp) = read(calls, network, scope).await? else { break };
            if to_remove(&dhcp, &is_ours).contains(&change) {
                return Err(failed(calls, network, &failure));
            }
        }
    }
    Ok(())
}

/// The DHCP of a network in one of its definitions. `None` if it does not have that one.
///
/// # Errors
/// libvirt's, and [`ErrorKind::Internal`] for a definition that cannot be read.
pub(crate) async fn read(
    calls: &dyn NetworkCalls,
    network: &str,
    scope: Scope,
) -> Result<Option<NetworkDhcp>> {
    let xml = calls.definition(network, scope).await.map_err(|failure| failed(calls, network, &failure))?;
    xml.map(|xml| NetworkDhcp::parse(&xml)).transpose().map_err(|why| {
        let words = format!("the definition of {} cannot be read: {why}", place(calls, network));
        Error::new(ErrorKind::Internal, words)
    })
}

/// The error for a network that is not there.
pub(crate) fn missing(calls: &dyn NetworkCalls, network: &str) -> Error {
    let words = format!("there is no network {network:?} on hypervisor {:?}", calls.hypervisor());
    Error::new(ErrorKind::NotFound, words)
}

fn failed(calls: &dyn NetworkCalls, network: &str, failure: &Failure) -> Error {
    Error::new(failure.kind, format!("{}: {}", place(calls, network), failure.message))
}

fn place(calls: &dyn NetworkCalls, network: &str) -> String {
    format!("network {network:?} on hypervisor {:?}", calls.hypervisor())
}
