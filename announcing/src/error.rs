//! Why an address cannot be held.

use std::net::IpAddr;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an address cannot be held or released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface can have such an address, or neighbours could not reach it.
    #[error("{address} cannot be announced: {why}")]
    NotUsable {
        /// The address.
        address: IpAddr,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The host has the address already, and somebody else set it. It is never touched.
    #[error(
        "{address} is an address of interface {interface} on this host already, and was not set by this program; \
         remove it there, or take it out of the pool"
    )]
    Foreign {
        /// The address.
        address: IpAddr,
        /// The interface that has it.
        interface: String,
    },
    /// A host on the network has the address.
    #[error("{address} is in use on the network of interface {interface}: the host at {mac} has it")]
    InUse {
        /// The address.
        address: IpAddr,
        /// The interface whose network was asked.
        interface: String,
        /// The Ethernet address of the host, or that it is not known.
        mac: String,
    },
    /// The interface does not exist.
    #[error("there is no interface {name:?} on this host; there are: {}", listed(existing))]
    NoInterface {
        /// The name that was asked for.
        name: String,
        /// The names of the interfaces that exist.
        existing: Vec<String>,
    },
    /// No interface was named, and none fits.
    #[error(
        "no interface of this host fits {address}: none has an address in its subnet, and there is no default route; \
         name one of: {}",
        listed(existing)
    )]
    NoFittingInterface {
        /// The address.
        address: IpAddr,
        /// The names of the interfaces that exist.
        existing: Vec<String>,
    },
    /// IPv6 is switched off.
    #[error(
        "IPv6 is switched off on interface {interface}; set the sysctl net.ipv6.conf.{interface}.disable_ipv6 to 0"
    )]
    Ipv6Off {
        /// The interface.
        interface: String,
    },
    /// The process lacks a capability.
    #[error("this process may not {action}: it needs the capability {capability}")]
    Permission {
        /// What it may not do.
        action: &'static str,
        /// The capability, as manifests spell it: `NET_ADMIN` or `NET_RAW`.
        capability: &'static str,
    },
    /// Another process may hold it by now, or soon: see [`Announcer::limit`](crate::Announcer::limit).
    #[error("this process may not hold addresses now: another one may lead soon, or leads already")]
    NotLeading,
    /// This is not Linux.
    #[error("addresses can be announced on Linux only")]
    Unsupported,
    /// The kernel refused, or did not answer. The next try may succeed.
    #[error("cannot {action}: {reason}")]
    Kernel {
        /// What failed.
        action: String,
        /// The kernel's message.
        reason: String,
    },
    /// The runtime that the announcer worked in has ended.
    #[error("the announcer has ended")]
    Ended,
}

/// How many interfaces a message names. A Node has one for each of its pods.
const MAX_NAMES: usize = 20;

/// The names for a message.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Error {
    /// Whether the same call can succeed later without a change of the configuration or the host.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Kernel { .. } | Self::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_some_interfaces() {
        let missing = |count: usize| {
            let existing = (0..count).map(|number| format!("veth{number}")).collect();
            Error::NoInterface { name: "eth9".to_owned(), existing }.to_string()
        };
        assert!(missing(2).ends_with("there are: veth0, veth1"));
        assert!(missing(20).ends_with(", veth19"));
        assert!(missing(300).ends_with(", veth19 and 280 more"));
    }
}
