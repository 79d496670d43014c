//! Holds addresses of load balancers on the interfaces of this host, and tells the neighbours where they are.
//!
//! So a cluster on bare machines needs neither kube-vip nor MetalLB: the daemon that leads holds the addresses on the host
//! that it runs on, and kube-proxy there does the rest.
//!
//! # Example
//!
//! ```no_run
//! # async fn example() -> Result<(), announcing::Error> {
//! use announcing::{Announcer, HolderId, InterfaceChoice};
//!
//! let announcer = Announcer::of_process();
//! let me = HolderId::new("pool of cluster prod");
//! let held = announcer.hold(&me, "192.0.2.5".parse().unwrap(), &InterfaceChoice::Automatic).await?;
//! println!("on {}", held.interface);
//! announcer.release_all(&me).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What happens when the process dies
//!
//! An address lives in the kernel for [`LIFETIME`] at most, and is renewed every [`RENEW_INTERVAL`]. If the process is killed, or
//! stands still, the kernel itself removes its addresses.
//!
//! Where one of several processes leads, the next leader must not meet a host that still answers for its addresses. So
//! [`Announcer::limit`] gets a question: how long can no other process lead? An address never lives longer than the answer.
//! A leader whose renewals of the lease fail gives its addresses shorter and shorter lives, and they are gone when the lease
//! runs out, whatever becomes of the process.
//!
//! - A holder that stops, or that may not lead any longer, calls [`Announcer::release_all`], and the addresses are gone at
//!   once.
//! - A process that stood still asks the question again before it sets an address.
//! - An address that is left from before a restart is recognized by [`ADDRESS_PROTOCOL`], and taken over.
//! - An address that anybody else set is never changed or deleted. [`Announcer::hold`] fails and names the interface.
//!
//! # What is set
//!
//! Single addresses (`/32`, `/128`) without a route for a network, and deprecated, so that the host's own connections do not
//! use them as their source. IPv6's detection of duplicates is off.
//!
//! The neighbours are told by gratuitous ARP (a request and a reply) and by unsolicited neighbour advertisements: at once, after
//! 0.1, 0.5, 1 and 2 seconds, and then every 30 seconds; also when the interface comes back or has a new Ethernet
//! address. "At once" means when the kernel receives packets for the address: for IPv6 that is a little later than its
//! acknowledgement. Nothing is announced on loopback interfaces, and on those without Ethernet addresses.
//!
//! With kube-proxy in its mode IPVS, every host has the addresses of all Services on `kube-ipvs0`, and answers for them unless
//! kube-proxy's `strictARP` is on. Those addresses do not count as somebody else's.
//!
//! # What is asked before
//!
//! [`Announcer::probe`] asks the network whether a host has an address already: three ARP probes (RFC 5227), or three neighbour
//! solicitations as for the detection of duplicates (RFC 4862), half a second apart, and a second for the last answer. A host that
//! answers, announces the address, or asks for it in the same way at the same time, has it.
//!
//! # Cost
//!
//! A renewal of 1,000 IPv4 addresses takes 20 ms of one processor, of 5,000 200 ms; of 100 IPv6 addresses 3 ms, of 1,000 300 ms:
//! each time an IPv6 address is renewed, the kernel joins all multicast groups of the interface again, and reports them. So
//! some thousands of IPv4 and one thousand of IPv6 addresses are what one host can hold. Beyond that renewals come too
//! late, which the log says.
//!
//! # Needs
//!
//! The process needs the capabilities `NET_ADMIN` and `NET_RAW` in the network namespace of the host.

mod announcer;
mod error;
mod interface;
#[cfg(target_os = "linux")]
mod keeper;
#[cfg(target_os = "linux")]
mod kernel;
mod limit;
#[cfg(target_os = "linux")]
mod packet_socket;
mod packets;
#[cfg(target_os = "linux")]
mod probe;
mod request;
mod schedule;

use std::time::Duration;

pub use announcer::{Announcer, HeldAddress};
pub use error::{Error, Result};
pub use interface::{ADDRESS_PROTOCOL, InterfaceChoice};
pub use request::{Held, HolderId};

/// How long the kernel keeps an address that is not renewed, at most.
pub const LIFETIME: Duration = Duration::from_secs(9);

/// How often addresses are renewed: two renewals may fail. Those with shorter lives are renewed more often.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(3);
