//! Free TCP ports on loopback.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below the range from which the kernel takes local ports of outgoing connections: a server that is stopped
/// and started again must find its port free.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A TCP port that nothing listens on. This process does not return it again before all others were returned.
pub(crate) fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // concurrent processes start in different places
    let process = u16::try_from(std::process::id() % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let offset = (u32::from(process) * 37 + u32::from(step)) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free TCP port on loopback")
}
