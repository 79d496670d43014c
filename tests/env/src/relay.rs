//! Relays between network namespaces.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::PATIENCE;
use crate::process::{Process, run};

/// Starts two relays, `socat` commands of the two namespaces: `near` connects to port `to` of 127.0.0.1 and takes what
/// comes through `socket`; `far` listens on `from`, an address and a port, and sends it there. Sockets in the file
/// system cross network namespaces. `cat` runs in the namespace of `far`.
pub(crate) fn start(
    mut near: Command,
    to: u16,
    mut far: Command,
    from: (&str, u16),
    socket: &Path,
    cat: impl Fn() -> Command,
) -> Result<[Process; 2]> {
    let (address, port) = from;
    near.arg(format!("UNIX-LISTEN:{},fork", socket.display())).arg(format!("TCP:127.0.0.1:{to}"));
    far.arg(format!("TCP-LISTEN:{port},bind={address},reuseaddr,fork"))
        .arg(format!("UNIX-CONNECT:{}", socket.display()));
    let log = socket.with_extension("log");
    let mut near = Process::spawn("relay", &near, &log)?;
    near.wait_until(PATIENCE, || socket.exists())?;
    let mut far = Process::spawn("relay", &far, &log)?;
    far.wait_until(PATIENCE, || is_listening(cat(), port))?;
    Ok([far, near])
}

/// Whether something listens on this port, by the list that `cat` prints.
fn is_listening(mut cat: Command, port: u16) -> bool {
    let hexadecimal = format!(":{port:04X} 00000000:0000 0A");
    run(cat.arg("/proc/net/tcp")).is_ok_and(|text| text.contains(&hexadecimal))
}
