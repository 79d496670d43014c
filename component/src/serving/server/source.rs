//! Sources of connections. Shared resources are divided among sources, so that no source can take those of
//! another one.

use std::net::{IpAddr, Ipv6Addr};

/// The source of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// This machine, for example its kubelet if the daemon uses the host's network. It has slots of its own.
    Here,
    Address(IpAddr),
}

impl Source {
    /// `local`: the address of this machine that the client connected to.
    pub(super) fn of(peer: IpAddr, local: Option<IpAddr>) -> Self {
        if peer.is_loopback() || local == Some(peer) {
            return Self::Here;
        }
        Self::Address(match peer {
            IpAddr::V4(_) => peer,
            // A client with one IPv6 address has a whole /64 network.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_node_itself_is_here() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let six: IpAddr = "::1".parse().expect("an address");
        let here = [own, Ipv4Addr::LOCALHOST.into(), IpAddr::from([127, 0, 0, 9]), six];
        assert!(here.iter().all(|peer| Source::of(*peer, Some(own)) == Source::Here));
        assert_eq!(Source::of(own, None), Source::Address(own));
        let of = |address: &str| Source::of(address.parse().expect("an address"), Some(own));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
