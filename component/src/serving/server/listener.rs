//! The listening socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::anyhow;
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections in the accept queue.
pub(super) const BACKLOG: i32 = 256;

/// Size of the kernel's receive buffer for unread data from a client. It counts twice as memory of the
/// daemon, since the kernel reserves as much again for itself.
pub(super) const RECEIVE_BUFFER: usize = 8 << 10;

/// Size of the kernel's send buffer for data that the client has not read. It counts twice too.
pub(super) const SEND_BUFFER: usize = 16 << 10;

/// A port to be opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listen {
    pub address: IpAddr,
    pub port: u16,
    pub shares_port: bool,
    /// What stands between `--` and the names of the flags.
    pub flags: &'static str,
}

/// Opens the port.
///
/// # Errors
/// A port that is in use or not permitted, or an address that this machine does not have, with the flags.
pub(super) fn bind(listen: &Listen) -> anyhow::Result<TcpListener> {
    let Listen { port, flags, .. } = *listen;
    let attempt = if listen.address.is_unspecified() {
        // As in upstream: one socket for all address families. A machine without IPv6 has only IPv4.
        open(listen, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)).or_else(|error| {
            if error.kind() == std::io::ErrorKind::AddrInUse {
                return Err(error);
            }
            open(listen, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        })
    } else {
        open(listen, SocketAddr::new(listen.address, port))
    };
    attempt.map_err(|error| {
        let address = match listen.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; another process listens there",
            std::io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
            _ => "",
        };
        anyhow!(
            "failed to listen on {address}:{port} (--{flags}bind-address, --{flags}secure-port): {error}{hint}; \
             --{flags}secure-port=0 serves nothing"
        )
    })
}

fn open(listen: &Listen, address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Go sets this option by default, so `--permit-address-sharing` adds nothing. A restart does not wait for
    // old connections.
    socket.set_reuse_address(true)?;
    if listen.shares_port {
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

    fn listen(address: IpAddr, port: u16) -> Listen {
        Listen { address, port, shares_port: false, flags: "" }
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("its address").port();
        let error = bind(&listen(Ipv4Addr::LOCALHOST.into(), port)).expect_err("taken").to_string();
        for word in [&format!("127.0.0.1:{port}"), "--secure-port", "another process"] {
            assert!(error.contains(word), "{word} in {error}");
        }
        bind(&listen(Ipv4Addr::UNSPECIFIED.into(), port)).expect_err("taken by all");
    }

    #[test]
    fn ports_are_shared_when_both_agree() {
        let shared = |port| Listen { shares_port: true, ..listen(Ipv4Addr::LOCALHOST.into(), port) };
        let one = bind(&shared(0)).expect("a port");
        let port = one.local_addr().expect("its address").port();
        bind(&shared(port)).expect("shared");
        bind(&listen(Ipv4Addr::LOCALHOST.into(), port)).expect_err("not by one who does not share");
    }
}
