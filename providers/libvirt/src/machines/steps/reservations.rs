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
    domain::{Domain, Nic},
    mac::Mac,
    machines::{
        libvirt_machines::Host,
        names,
        reservation::{self, Entry, Reservation},
        spec::{InterfaceSpec, LibvirtMachineSpec},
    },
};

/// How soon a step checks for a lease again. A change of the machine's addresses brings an event earlier.
const LEASE_RETRY: Duration = Duration::from_secs(3);

/// An interface whose address a network keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept<'a> {
    /// Its place among the interfaces.
    number: usize,
    network: &'a str,
    /// The address that the spec names.
    address: Option<&'a str>,
    /// Whether an earlier interface on the same network has the machine's name.
    has_namesake: bool,
}

impl<'a> Kept<'a> {
    /// `None` if no network keeps an address for the interface. With a MAC address of the user's, an entry
    /// for it would not show whose it is.
    fn of(number: usize, interface: &'a InterfaceSpec) -> Option<Self> {
        let (network, reservation) = (interface.network.as_deref()?, interface.reservation.as_ref()?);
        let address = reservation.address.as_deref();
        interface.mac.is_none().then_some(Self { number, network, address, has_namesake: false })
    }

    /// All of a machine.
    fn all(spec: &'a LibvirtMachineSpec) -> impl Iterator<Item = Self> {
        let mut networks = HashSet::new();
        let numbered = spec.interfaces.iter().enumerate();
        numbered.filter_map(|(number, interface)| Self::of(number, interface)).map(move |kept| {
            let has_namesake = !networks.insert(kept.network);
            Self { has_namesake, ..kept }
        })
    }

    /// The entry of the interface. Its name is the domain's for the first one in a network, since libvirt
    /// takes a name once.
    fn entry(&self, identities: Identities<'_>) -> Entry {
        identities.entry(self.number, self.has_namesake)
    }

    /// Keeps this address, in the place of the entries `older`.
    async fn reserve(&self, host: &Host, entry: Entry, older: &[Entry], address: IpAddr) -> Result<()> {
        let (mac, name) = entry;
        let wanted = Reservation { network: self.network.to_owned(), mac, name, address };
        // A guest may ask the server for any address with any number of MAC addresses. It has those of its
        // domain.
        let may_be_there = |mac: Mac| has_domain_with(host, mac);
        let reserved = reservation::ensure(&*host.networks, &wanted, older, &may_be_there).await;
        reserved.map_err(|error| error.wrap(format!("spec.interfaces[{}].reservation", self.number)))
    }
}

/// What the MAC addresses and the names of a machine's entries are made from.
#[derive(Clone, Copy, Debug)]
enum Identities<'a> {
    /// From the whole mark, so that no other object has them.
    Mark(&'a Mark),
    /// From the UID and the machine's name alone, as those of domains that are called like their machine. The
    /// object of another namespace can have that name and say that it had a UID with these bytes.
    Older(Uuid, &'a Mark),
}

impl<'a> Identities<'a> {
    /// Those of a domain's interfaces. A tenant may choose both the UID and a MAC address. The name of a new
    /// domain it never chooses.
    fn of_domain(domain: &Domain, mark: &'a Mark) -> Self {
        let is_older = |nic: &Nic| {
            (0..names::MAX_INTERFACES).any(|number| nic.mac == names::older_mac(domain.uuid, number))
        };
        let is_named_as_now = domain.name == names::domain(mark);
        if !is_named_as_now && domain.nics.iter().any(is_older) {
            Self::Older(domain.uuid, mark)
        } else {
            Self::Mark(mark)
        }
    }

    /// The entry of an interface, with a number in the name if it is not the first one in its network.
    fn entry(self, number: usize, is_numbered: bool) -> Entry {
        let (mac, name) = match self {
            Self::Mark(mark) => (names::mac(mark, number), names::domain(mark)),
            Self::Older(uid, mark) => (names::older_mac(uid, number), names::older_host_name(mark)),
        };
        (mac, if is_numbered { format!("{name}-nic{number}") } else { name })
    }

    /// Every entry that the machine can have in a network, whatever its spec says now.
    fn all(self) -> impl Iterator<Item = Entry> {
        let of = move |number| [false, true].map(|is_numbered| self.entry(number, is_numbered));
        (0..names::MAX_INTERFACES).flat_map(of)
    }
}

fn has_domain_with(host: &Host, mac: Mac) -> bool {
    let state = host.hypervisor.state();
    state.inventory.domains().any(|domain| domain.nics.iter().any(|nic| nic.mac == mac))
}

/// The entries that domains called like their machine have, but for those with the MAC address of a domain
/// that is not the machine's.
fn older_entries(host: &Host, uid: Uuid, mark: &Mark) -> Vec<Entry> {
    let state = host.hypervisor.state();
    let others = state.inventory.domains().filter(|domain| !mark.owns(domain.mark()));
    let taken: HashSet<Mac> = others.flat_map(|domain| domain.nics.iter().map(|nic| nic.mac)).collect();
    Identities::Older(uid, mark).all().filter(|(mac, _)| !taken.contains(mac)).collect()
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

/// Has the networks keep the addresses that the spec names. To be done before the domain is started: a guest
/// keeps the address that it gets first. No hypervisor has a domain with the machine's UID, so entries made
/// from that are its own, unless another domain has their MAC address.
pub(super) async fn reserve_named(host: &Host, uid: Uuid, request: &Request) -> Result<()> {
    let mark = &request.mark;
    let older = older_entries(host, uid, mark);
    for kept in Kept::all(&request.spec) {
        if let Some(address) = kept.address.and_then(|text| text.parse().ok()) {
            kept.reserve(host, kept.entry(Identities::Mark(mark)), &older, address).await?;
        }
    }
    Ok(())
}

/// Has the networks keep the addresses that they have given, where the spec names none. `Some` until all have
/// given one.
pub(super) async fn reserve_leased(host: &Host, domain: &Domain, request: &Request) -> Result<Option<Wait>> {
    let identities = Identities::of_domain(domain, &request.mark);
    for kept in Kept::all(&request.spec).filter(|kept| kept.address.is_none()) {
        let now = Timestamp::now().as_second();
        let entry = kept.entry(identities);
        let Some(address) = host.hypervisor.state().inventory.leased_ipv4(domain, entry.0, now) else {
            // The machine has an address, so the actor does not poll for this one.
            host.hypervisor.read_leases_soon(domain.uuid);
            let words = format!("no DHCP lease for {} in network {:?} yet", entry.0, kept.network);
            return Ok(Some(Wait::address(words).look_again_after(LEASE_RETRY)));
        };
        kept.reserve(host, entry, &[], address).await?;
    }
    Ok(None)
}

/// Gives the addresses back. Does nothing where there are none, nor where the network is gone.
/// `has_foreign_domain` says whether the hypervisor has a domain with the machine's UID that is not the
/// machine's: entries that were made from that UID alone are then that domain's.
pub(super) async fn release(
    host: &Host,
    uid: Uuid,
    request: &DeletionRequest,
    has_foreign_domain: bool,
) -> Result<()> {
    let mark = &request.mark;
    let mut ours: Vec<Entry> = Identities::Mark(mark).all().collect();
    if !has_foreign_domain {
        ours.extend(older_entries(host, uid, mark));
    }
    let networks: BTreeSet<&str> = Kept::all(&request.spec).map(|kept| kept.network).collect();
    for network in networks {
        reservation::remove_all(&*host.networks, network, &ours).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::NicSource;

    #[test]
    fn a_chosen_mac_address_gives_no_machine_the_names_of_an_older_domain() {
        let uid = Uuid::from_u128(7);
        let mark = Mark::machine(uid.to_string(), "team-a", "prod", "registry");
        let nics = vec![Nic { mac: names::older_mac(uid, 3), source: NicSource::Other }];
        let host_of = |name: &str| {
            let domain =
                Domain { nics: nics.clone(), ..Domain::unreadable(uid, name.to_owned(), String::new()) };
            Identities::of_domain(&domain, &mark).entry(0, false).1
        };
        let now = names::domain(&mark);
        assert_eq!(host_of(&now), now);
        assert_eq!(host_of("registry"), "registry");
        assert_eq!(host_of("renamed-by-hand"), "registry");
    }
}
