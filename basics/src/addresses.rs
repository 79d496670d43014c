//! Network addresses that have another one in them.

use std::net::{IpAddr, Ipv4Addr};

/// The first 96 bits of an address of NAT64 (RFC 6052): an address of IPv4 is at the end.
const NAT64: u128 = 0x0064_ff9b << 96;
/// The first 16 bits of an address of 6to4 (RFC 3056): an address of IPv4 follows.
const SIX_TO_FOUR: u128 = 0x2002;

/// The address of IPv4 that another form of it leads to: an IPv4-mapped one, one of NAT64 or of 6to4. Others are themselves.
///
/// A rule that permits or refuses addresses looks at both, since a router may turn one into the other.
#[must_use]
pub fn leads_to(address: IpAddr) -> IpAddr {
    let IpAddr::V6(address) = address.to_canonical() else { return address.to_canonical() };
    let bits = address.to_bits();
    let embedded = |shift: u32| {
        let part = (bits >> shift) & u128::from(u32::MAX);
        Ipv4Addr::from_bits(u32::try_from(part).unwrap_or(u32::MAX))
    };
    if bits >> 32 == NAT64 >> 32 {
        embedded(0).into()
    } else if bits >> 112 == SIX_TO_FOUR {
        embedded(80).into()
    } else {
        address.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_others_are_found() {
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("64:ff9b::10.0.0.1", "10.0.0.1"),
            ("64:ff9b:1::10.0.0.1", "64:ff9b:1::10.0.0.1"),
            ("64:ff9b::1:10.0.0.1", "64:ff9b::1:10.0.0.1"),
            ("2002:a9fe:a9fe::1", "169.254.169.254"),
            ("2003:a9fe:a9fe::1", "2003:a9fe:a9fe::1"),
            ("fd00::1", "fd00::1"),
        ] {
            let address = |text: &str| text.parse::<IpAddr>().expect("an address");
            assert_eq!(leads_to(address(text)), address(expected), "{text}");
        }
    }
}
