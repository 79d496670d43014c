//! The address of a cluster's API server, from a pool.
//!
//! A user gives the address in `spec.controlPlaneEndpoint`, or names a pool and has one chosen. Somebody in the guests
//! must announce it, such as kube-vip.
//!
//! # Who decides
//!
//! Two clusters must never get one address, also if two daemons choose at the same time and remember nothing. So the claim
//! is a host entry of a libvirt network ([`reservation`](super::reservation)), and libvirtd decides: it refuses a second
//! entry with the same address. The entry also keeps the DHCP server from giving the address away. Its MAC address and
//! its name are made from the cluster's UID, so a cluster finds its claim again. The place in the pool at which a cluster
//! looks first is made from the UID too.
//!
//! The network is one of one hypervisor. Guests on bridges get their addresses elsewhere; then the network is only the
//! book of claims: one that is defined with the bridge's subnet and never started.
//!
//! # How a step uses it
//!
//! ```text
//! ensure_cluster: match &spec.control_plane_endpoint_pool {
//!     None       => report request.control_plane_endpoint, or nothing
//!     Some(pool) => match ensure_endpoint(link, &mark, pool, request.control_plane_endpoint.as_ref())? {
//!         Endpoint::At(endpoint) => report it
//!         Endpoint::Wait(wait)   => report the wait, without an endpoint
//!     }
//! }
//! delete_cluster: release_endpoint(link, &mark, pool)?
//! ```
//!
//! Both block, on the hypervisor that [`EndpointPoolSpec::hypervisor_of`] names. A crash after the claim and before the
//! report finds the claim in the next step.

mod choice;
mod claim;
mod spec;
mod steps;

pub(crate) use self::{
    spec::EndpointPoolSpec,
    steps::{Endpoint, ensure_endpoint, release_endpoint},
};

#[cfg(test)]
mod tests;
