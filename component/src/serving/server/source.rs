//! Where clients come from: whatever is shared is shared among sources, so that none of them takes what others need.

use std::net::{IpAddr, Ipv6Addr};

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// This machine, as the kubelet of a daemon in the host's network. Its places are its own.
    Here,
    Address(IpAddr),
}

impl Source {
    /// `local`: the address of this machine that was asked.
    pub(super) fn of(peer: IpAddr, local: Option<IpAddr>) -> Self {
        if peer.is_loopback() || local == Some(peer) {
            return Self::Here;
        }
        Self::Address(match peer {
            IpAddr::V4(_) => peer,
            // Whoever has one address of IPv6 has all of its network.
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
