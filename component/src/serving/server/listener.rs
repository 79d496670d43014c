//! The listening socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::anyhow;
use socket2::{Domain, Protocol, Socket, Type};

use crate::serving::ServingOptions;

/// Maximum number of connections in the accept queue.
pub(super) const BACKLOG: i32 = 256;

/// Size of the kernel's receive buffer for unread data from a client. It counts twice as memory of the
/// daemon, since the kernel reserves as much again for itself.
pub(super) const RECEIVE_BUFFER: usize = 8 << 10;

/// Size of the kernel's send buffer for data that the client has not read. It counts twice too.
pub(super) const SEND_BUFFER: usize = 16 << 10;

/// Opens the port.
///
/// # Errors
/// A port that is in use or not permitted, or an address that this machine does not have, with the flags.
pub(super) fn bind(options: &ServingOptions) -> anyhow::Result<TcpListener> {
    let port = options.secure_port;
    let attempt = if options.bind_address.is_unspecified() {
        // As in upstream: one socket for all address families. A machine without IPv6 has only IPv4.
        open(options, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)).or_else(|error| {
            if error.kind() == std::io::ErrorKind::AddrInUse {
                return Err(error);
            }
            open(options, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        })
    } else {
        open(options, SocketAddr::new(options.bind_address, port))
    };
    attempt.map_err(|error| {
        let address = match options.bind_address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; another process listens there",
            std::io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
            _ => "",
        };
        anyhow!(
            "failed to listen on {address}:{port} (--bind-address, --secure-port): {error}{hint}; --secure-port=0 serves nothing"
        )
    })
}

fn open(options: &ServingOptions, address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Go sets this option by default, so `--permit-address-sharing` adds nothing. A restart does not wait for
    // old connections.
    socket.set_reuse_address(true)?;
    if options.permit_port_sharing {
        socket.set_reuse_port(true)?;
    }
    // Accepted connections inherit the sizes of the buffers.
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(bind_address: IpAddr, secure_port: u16) -> ServingOptions {
        ServingOptions { bind_address, secure_port, ..ServingOptions::new("server", 0) }
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("its address").port();
        let error = bind(&options(Ipv4Addr::LOCALHOST.into(), port)).expect_err("taken").to_string();
        for word in [&format!("127.0.0.1:{port}"), "--secure-port", "another process"] {
            assert!(error.contains(word), "{word} in {error}");
        }
        bind(&options(Ipv4Addr::UNSPECIFIED.into(), port)).expect_err("taken by all");
    }

    #[test]
    fn ports_are_shared_when_both_agree() {
        let shared =
            |port| ServingOptions { permit_port_sharing: true, ..options(Ipv4Addr::LOCALHOST.into(), port) };
        let one = bind(&shared(0)).expect("a port");
        let port = one.local_addr().expect("its address").port();
        bind(&shared(port)).expect("shared");
        bind(&options(Ipv4Addr::LOCALHOST.into(), port)).expect_err("not by one who does not share");
    }
}
