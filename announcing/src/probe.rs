//! Asks the network whether a host has an address.

use std::{net::IpAddr, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::{
    error::{Error, Result},
    interface::{Interface, InterfaceChoice},
    kernel::Kernel,
    limit::Limit,
    packet_socket::Listener,
    packets::{Owner, owner, question},
};

/// How often it is asked, since a question may be lost.
const QUESTIONS: usize = 3;

/// How long after a question the next one follows. RFC 5227 has one to two seconds; a Service waits here.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long the last answer may take.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// How often it is looked for answers.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How many packets are read in one look, so that it ends.
const READ_AT_ONCE: usize = 1024;

/// The longest message about neighbours that is read.
const BUFFER: usize = 512;

/// Asks on the interface that the address belongs on.
pub(crate) async fn probe(address: IpAddr, choice: &InterfaceChoice) -> Result<()> {
    let kernel = Kernel::new(Limit::default());
    let mut host = kernel.host().await?;
    if *choice == InterfaceChoice::Automatic && host.needs_routes(address) {
        host.default_routes = kernel.default_routes().await?;
    }
    let place = host.place(address, choice, None)?;
    // What is left from before a restart is ours.
    if place.is_set || !place.elsewhere.is_empty() {
        return Ok(());
    }
    let interface = place.interface;
    let Some(mac) = interface.mac.filter(|_| interface.is_up && interface.has_neighbours()) else {
        return Ok(());
    };
    match ask(address, &interface, mac).await? {
        None => Ok(()),
        Some(Owner { mac }) => {
            let mac = mac.map_or_else(|| "an unknown Ethernet address".to_owned(), shown);
            Err(Error::InUse { address, interface: interface.name, mac })
        }
    }
}

async fn ask(address: IpAddr, interface: &Interface, mac: [u8; 6]) -> Result<Option<Owner>> {
    let mut nonce = [0; 6];
    fastrand::fill(&mut nonce);
    let question = question(address, mac, nonce);
    let listener = Listener::open(interface.index, question.protocol)?;
    let is_owner = |packet: &[u8]| owner(packet, address, mac, nonce);
    for number in 1..=QUESTIONS {
        if let Err(error) = listener.send(&question) {
            // such as an interface that was switched off just now
            tracing::debug!(%address, interface = interface.name, "cannot ask for the address: {error}");
        }
        let wait = if number == QUESTIONS { LAST_ANSWER } else { INTERVAL };
        if let Some(owner) = listen(&listener, Instant::now() + wait, is_owner).await {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// Looks through the packets that come until then.
async fn listen(
    listener: &Listener,
    until: Instant,
    is_owner: impl Fn(&[u8]) -> Option<Owner>,
) -> Option<Owner> {
    let mut buffer = [0; BUFFER];
    loop {
        // Before the packets are read: a process that stood still reads what came meanwhile.
        let is_last = Instant::now() >= until;
        for _ in 0..READ_AT_ONCE {
            let Some(length) = listener.read(&mut buffer) else { break };
            let packet = buffer.get(..length).unwrap_or_default();
            if let Some(owner) = is_owner(packet) {
                return Some(owner);
            }
        }
        if is_last {
            return None;
        }
        sleep_until(until.min(Instant::now() + LOOK_INTERVAL)).await;
    }
}

fn shown(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
