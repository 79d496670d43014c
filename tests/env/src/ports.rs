//! Free TCP ports on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};
use parking_lot::Mutex;

/// Below the range from which the kernel takes local ports of outgoing connections: a server that is stopped
/// and started again must find its port free.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A TCP port that nothing listens on. It belongs to this process until the process ends: no other process that
/// asks here gets it, even before a server listens on it or while that server is stopped.
///
/// # Errors
/// If all ports of the range are taken.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static OWNED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    // concurrent processes start in different places
    let process = u16::try_from(std::process::id() % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let offset = (u32::from(process) * 37 + u32::from(step)) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset)?;
        // The kernel gives an abstract name to one socket, and frees it when the process ends.
        let name = SocketAddr::from_abstract_name(format!("test-env/port/{port}"))?;
        let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            OWNED.lock().push(claim);
            return Ok(port);
        }
    }
    bail!("no free TCP port on loopback")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_claimed_while_nothing_listens_on_it() {
        let port = free_port().unwrap();
        let name = SocketAddr::from_abstract_name(format!("test-env/port/{port}")).unwrap();
        assert!(UnixListener::bind_addr(&name).is_err(), "another process would get it too");
        assert_ne!(free_port().unwrap(), port);
    }
}
