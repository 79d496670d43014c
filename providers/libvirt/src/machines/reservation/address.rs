//! What is reserved.

use std::net::IpAddr;

use crate::mac::Mac;

/// An address that a network keeps for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The libvirt network.
    pub(crate) network: String,
    /// The MAC address of the interface.
    pub(crate) mac: Mac,
    /// The host name that the server gives to the guest, and that its DNS server answers for.
    pub(crate) name: String,
    /// The address, in a subnet of the network that has DHCP.
    pub(crate) address: IpAddr,
}
