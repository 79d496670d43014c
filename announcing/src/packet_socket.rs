//! Sockets that send and receive packets below IP. The only unsafe code of this crate: `sockaddr_ll` has no safe form in a crate
//! that this workspace can use.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "constants that fit, in the types that C has for them")]

use std::io::{self, Read as _};

use socket2::{Domain, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

use crate::{
    error::{Error, Result},
    packets::{IPV6, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, Packet},
};

/// Sends packets on any interface, and receives none. The kernel writes the Ethernet header.
#[derive(Debug)]
pub(crate) struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens the socket, which needs the capability `NET_RAW`.
    pub(crate) fn open() -> Result<Self> {
        open().map(Self).map_err(|error| cannot_open(&error))
    }

    /// Sends a packet on the interface with this index.
    pub(crate) fn send(&self, interface: u32, packet: &Packet) -> io::Result<()> {
        self.0.send_to(&packet.payload, &link_address(interface, packet.protocol, packet.to)).map(drop)
    }
}

/// Sends packets on one interface, and receives those of one protocol there; of IPv6 only messages about neighbours.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    interface: u32,
}

impl Listener {
    /// Opens the socket, which needs the capability `NET_RAW`.
    pub(crate) fn open(interface: u32, protocol: u16) -> Result<Self> {
        let opened = || -> io::Result<Socket> {
            let socket = open()?;
            if protocol == IPV6 {
                socket.attach_filter(&NEIGHBOUR_MESSAGES)?;
            }
            socket.bind(&link_address(interface, protocol, [0; 6]))?;
            Ok(socket)
        };
        let socket = opened().map_err(|error| cannot_open(&error))?;
        Ok(Self { socket, interface })
    }

    /// Sends a packet.
    pub(crate) fn send(&self, packet: &Packet) -> io::Result<()> {
        let to = link_address(self.interface, packet.protocol, packet.to);
        self.socket.send_to(&packet.payload, &to).map(drop)
    }

    /// Reads a packet that has come already.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        (&self.socket).read(buffer).ok()
    }
}

/// Neighbour solicitations and advertisements, of all packets of IPv6 (classic BPF): a busy interface has many others.
static NEIGHBOUR_MESSAGES: [SockFilter; 7] = {
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ICMPV6: u32 = 58;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, 6),
        SockFilter::new(JUMP_IF_EQUAL, 0, 4, ICMPV6),
        SockFilter::new(LOAD_BYTE, 0, 0, 40),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, NEIGHBOUR_SOLICITATION as u32),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, NEIGHBOUR_ADVERTISEMENT as u32),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
};

fn open() -> io::Result<Socket> {
    // protocol 0 receives nothing
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn cannot_open(error: &io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EPERM) {
        return Error::Permission { action: "announce addresses to the neighbours", capability: "NET_RAW" };
    }
    Error::Kernel { action: "open a packet socket".to_owned(), reason: error.to_string() }
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
