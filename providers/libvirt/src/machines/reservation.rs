//! Addresses that the DHCP servers of libvirt's networks keep: host entries `<host mac= name= ip=/>`.
//!
//! An entry is ours if its MAC address and its name are, since both are made from the hash of the object's
//! whole mark. Nothing else is ever changed or removed. A network has two definitions, the running one and
//! the one that is kept for its next start; an entry is put into both, in two calls, and each step looks at
//! both. So a crash between the two is mended.
//!
//! ```text
//! ensure(calls, &reservation, &older)  before the domain is started
//! remove(calls, &network, mac, &name)  when the domain is gone; nothing to do if there is no such network
//! ```
//!
//! An address that another interface has by lease is refused until the lease has ended, or the interface's
//! machine is gone: an entry would take it away from that guest at its next renewal.
//!
//! Limits: IPv4 only, since libvirt's IPv6 entries go by DUID, which a guest makes itself. A lease that the
//! server gives away between the look and the change is not seen.

mod calls;
mod network;
mod plan;
mod steps;

pub(crate) use self::{
    calls::{LibvirtNetworks, NetworkCalls, Scope},
    network::{HostEntry, NetworkDhcp, Reservation, Subnet},
    steps::{ALL_LEASES, Entry, ensure, leases_of_others, missing, read, remove, remove_all},
};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
