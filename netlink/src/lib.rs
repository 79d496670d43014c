//! Requests to the kernel about interfaces, addresses and routes, by netlink.
//!
//! `rtnetlink` has the messages and the socket. This crate adds what a caller must be able to rely on:
//!
//! - **A listing is whole, or it is an error.** It ends with the kernel's own end, and nothing changed while it was made.
//!   Otherwise it is made again, or it fails. So what is missing in a listing is really not there.
//! - **A change was made, or it is an error.** Only the kernel's acknowledgement counts. An end of the connection does not.
//! - **Every answer has a limit**, [`TIMEOUT`].
//!
//! ```no_run
//! # async fn example() -> Result<(), netlink::Error> {
//! use rtnetlink::packet_route::{RouteNetlinkMessage, address::AddressMessage};
//!
//! let netlink = netlink::Netlink::default();
//! let addresses = netlink.list(RouteNetlinkMessage::GetAddress(AddressMessage::default())).await?;
//! println!("{} addresses", addresses.len());
//! # Ok(())
//! # }
//! ```
#![cfg(target_os = "linux")]

mod answers;
mod connection;
mod error;

use std::time::Duration;

pub use connection::Netlink;
pub use error::Error;

/// How long the kernel may take for an answer, and for each further message of it. It answers at once. An answer can only be
/// lost if memory is short.
pub const TIMEOUT: Duration = Duration::from_secs(2);
