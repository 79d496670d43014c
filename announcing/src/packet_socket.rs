//! A socket that sends packets below IP. The only unsafe code of this crate: `sockaddr_ll` has no safe form in a crate
//! that this workspace can use.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "constants that fit, in the types that C has for them")]

use std::io;

use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use crate::packets::Packet;

/// Sends packets on any interface, and receives none. The kernel writes the Ethernet header.
#[derive(Debug)]
pub(crate) struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens the socket, which needs the capability `NET_RAW`.
    pub(crate) fn open() -> io::Result<Self> {
        // protocol 0 receives nothing
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends a packet on the interface with this index.
    pub(crate) fn send(&self, interface: u32, packet: &Packet) -> io::Result<()> {
        self.0.send_to(&packet.payload, &link_address(interface, packet.protocol, packet.to)).map(drop)
    }
}

/// The address of an Ethernet station behind an interface.
fn link_address(interface: u32, protocol: u16, mac: [u8; 6]) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a `sockaddr_ll` is no larger than the storage, needs no stricter alignment, and any bytes, zeros included, are
    // a valid one.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET.cast_unsigned() as libc::sa_family_t;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    address.sll_halen = 6;
    address.sll_addr[..6].copy_from_slice(&mac);
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage holds a `sockaddr_ll` with its family, and `length` is its size.
    unsafe { SockAddr::new(storage, length) }
}
