//! The addresses that networks keep for a machine.

use std::{
    collections::{BTreeSet, HashSet},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{Mark, Wait},
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{DeletionRequest, Request};
use crate::{
    domain::Domain,
    mac::Mac,
    machines::{
        fleet::Host,
        names,
        reservation::{self, Reservation},
        spec::{InterfaceSpec, LibvirtMachineSpec},
    },
};

/// How soon a step looks again for a lease. A change of the machine's addresses brings an event earlier.
const LEASE_RETRY: Duration = Duration::from_secs(3);

/// An interface whose address a network keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept<'a> {
    /// Its place among the interfaces.
    number: usize,
    network: &'a str,
    mac: Mac,
    /// The address that the spec names.
    address: Option<&'a str>,
    /// Whether an earlier interface on the same network has the machine's name.
    has_namesake: bool,
}

impl<'a> Kept<'a> {
    /// `None` if no network keeps an address for the interface. With a MAC address of the user's, an entry for it would
    /// not show whose it is.
    fn of(uid: Uuid, number: usize, interface: &'a InterfaceSpec) -> Option<Self> {
        let (network, reservation) = (interface.network.as_deref()?, interface.reservation.as_ref()?);
        let address = reservation.address.as_deref();
        let mac = names::mac(uid, number);
        interface.mac.is_none().then_some(Self { number, network, mac, address, has_namesake: false })
    }

    /// All of a machine.
    fn all(uid: Uuid, spec: &'a LibvirtMachineSpec) -> impl Iterator<Item = Self> {
        let mut networks = HashSet::new();
        let numbered = spec.interfaces.iter().enumerate();
        numbered.filter_map(move |(number, interface)| Self::of(uid, number, interface)).map(move |kept| {
            let has_namesake = !networks.insert(kept.network);
            Self { has_namesake, ..kept }
        })
    }

    /// The name of the entry: the machine's own for its first one in a network, since libvirt takes a name once.
    fn name(&self, mark: &Mark) -> String {
        if self.has_namesake { numbered_name(mark, self.number) } else { host_name(mark) }
    }

    /// Keeps this address.
    async fn reserve(&self, host: &Host, mark: &Mark, address: IpAddr) -> Result<()> {
        let (network, name) = (self.network.to_owned(), self.name(mark));
        let wanted = Reservation { network, mac: self.mac, name, address };
        let reserved = reservation::ensure(&*host.networks, &wanted).await;
        reserved.map_err(|error| error.wrap(format!("spec.interfaces[{}].reservation", self.number)))
    }
}

/// The machine's name as every release of libvirt takes it for a host: some want a letter first.
fn host_name(mark: &Mark) -> String {
    let name = mark.name();
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("m-{name}")
    }
}

fn numbered_name(mark: &Mark, number: usize) -> String {
    format!("{}-nic{number}", host_name(mark))
}

/// The MAC address and the name of every entry that the machine can have in a network, whatever its spec says now.
fn possible_entries(uid: Uuid, mark: &Mark) -> Vec<(Mac, String)> {
    let of =
        |number| [host_name(mark), numbered_name(mark, number)].map(|name| (names::mac(uid, number), name));
    (0..names::MAX_INTERFACES).flat_map(of).collect()
}

/// Checks what the spec says about an interface's address.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] with the field's name.
pub(super) fn check(number: usize, interface: &InterfaceSpec) -> Result<()> {
    let Some(reservation) = &interface.reservation else { return Ok(()) };
    let invalid = |words: String| {
        let words = format!("spec.interfaces[{number}].reservation{words}");
        Err(Error::new(ErrorKind::InvalidInput, words))
    };
    if interface.network.is_none() {
        return invalid(": needs network".to_owned());
    }
    if interface.mac.is_some() {
        return invalid(
            ": is not possible together with mac; make the network's host entry yourself".to_owned(),
        );
    }
    match &reservation.address {
        Some(text) if text.parse::<Ipv4Addr>().is_err() => {
            invalid(format!(".address: {text:?} is not an IPv4 address such as 192.168.122.10"))
        }
        _ => Ok(()),
    }
}

/// Has the networks keep the addresses that the spec names. To be done before the domain is started: a guest keeps the
/// address that it gets first.
pub(super) async fn reserve_named(host: &Host, uid: Uuid, request: &Request) -> Result<()> {
    for kept in Kept::all(uid, &request.spec) {
        if let Some(address) = kept.address.and_then(|text| text.parse().ok()) {
            kept.reserve(host, &request.mark, address).await?;
        }
    }
    Ok(())
}

/// Has the networks keep the addresses that they have given, where the spec names none. `Some` until all have given one.
pub(super) async fn reserve_leased(host: &Host, domain: &Domain, request: &Request) -> Result<Option<Wait>> {
    for kept in Kept::all(domain.uuid, &request.spec).filter(|kept| kept.address.is_none()) {
        let now = Timestamp::now().as_second();
        let Some(address) = host.hypervisor.state().inventory.leased_ipv4(domain, kept.mac, now) else {
            // The machine has an address, so nobody else looks for this one.
            host.hypervisor.look_soon(domain.uuid);
            let words = format!("no DHCP lease for {} in network {:?} yet", kept.mac, kept.network);
            return Ok(Some(Wait::address(words).look_again_after(LEASE_RETRY)));
        };
        kept.reserve(host, &request.mark, address).await?;
    }
    Ok(None)
}

/// Gives the addresses back. Does nothing where there are none, nor where the network is gone.
pub(super) async fn release(host: &Host, uid: Uuid, request: &DeletionRequest) -> Result<()> {
    let ours = possible_entries(uid, &request.mark);
    let networks: BTreeSet<&str> = Kept::all(uid, &request.spec).map(|kept| kept.network).collect();
    for network in networks {
        reservation::remove_all(&*host.networks, network, &ours).await?;
    }
    Ok(())
}
