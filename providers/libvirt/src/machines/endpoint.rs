//! The address of a cluster's API server, from a pool.
//!
//! A user gives the address in `spec.controlPlaneEndpoint`, or names a pool and has one chosen. Somebody in
//! the guests must announce it, such as kube-vip.
//!
//! # Who decides
//!
//! Two clusters must never get one address, also if two daemons choose at the same time and remember nothing.
//! So the claim is a host entry of a libvirt network ([`reservation`](super::reservation)), and libvirtd
//! decides: it refuses a second entry with the same address. The entry also keeps the DHCP server from giving
//! the address away. Its MAC address and its name are made from the cluster's whole mark, so a cluster finds
//! its claim again. The place in the pool at which a cluster looks first is made from its UID.
//!
//! The network is one of one hypervisor. Guests on bridges get their addresses elsewhere; then the network is
//! only the book of claims: one that is defined with the bridge's subnet and never started.
//!
//! # Where it is written
//!
//! In `spec.controlPlaneEndpoint`, which a move to another management cluster keeps, and which never changes.
//! A crash after the claim and before the report finds the claim in the next step. Once the endpoint is
//! written, each step renews its claim. So an entry that was removed comes back, and a condition names an
//! entry that another program has made meanwhile.

mod choice;
mod claim;
mod steps;

pub(crate) use self::{
    claim::{Claim, UnprovenClaims},
    steps::{Endpoint, ensure_endpoint, has_claim, is_claimed, release_endpoint},
};

#[cfg(test)]
mod tests;
