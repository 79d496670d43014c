//! The rules of the annotation `alpha.kubernetes.io/provided-node-ip`. It decides which of the cloud's
//! addresses a Node gets when its kubelet was started with `--node-ip`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{NodeAddress, NodeAddressType};

/// Why the annotation cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvidedNodeIpError {
    /// A part of the value is not an IP address.
    #[error(
        "{part:?} is not an IP address; expected one IPv4 or IPv6 address, or one of each joined by a comma"
    )]
    NotAnIp {
        /// The offending part.
        part: String,
    },
    /// More than two addresses.
    #[error("{count} addresses given; expected one IPv4 or IPv6 address, or one of each joined by a comma")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// Two addresses of one family.
    #[error("both addresses of {value:?} are of one family; expected one IPv4 and one IPv6 address")]
    SameFamily {
        /// The annotation's value.
        value: String,
    },
    /// `0.0.0.0` or `::` in a pair.
    #[error("{value:?} pairs an unspecified address with another one; expected two specific addresses")]
    UnspecifiedInPair {
        /// The annotation's value.
        value: String,
    },
    /// The cloud reports no such address.
    #[error("failed to get node address from cloud provider that matches ip: {ip}")]
    NoMatch {
        /// The address asked for.
        ip: IpAddr,
    },
}

/// Orders and filters the cloud's addresses by the value of `alpha.kubernetes.io/provided-node-ip`.
///
/// `value` is one IP address, or `ip1,ip2` of different families, without spaces. The result contains, in
/// this order:
/// - the cloud's entries, of any type, that equal the first address,
/// - the entries that equal the second address,
/// - all entries of types that did not match, in the cloud's order.
///
/// So the other addresses of a matched type are dropped. Addresses are compared by value: the spelling of
/// IPv6 and the IPv4-mapped form make no difference, and leading zeros in IPv4 are accepted. This is
/// upstream's `GetNodeAddressesFromNodeIP`.
///
/// # Errors
/// See [`ProvidedNodeIpError`].
pub fn apply_provided_node_ip(
    value: &str,
    addresses: &[NodeAddress],
) -> Result<Vec<NodeAddress>, ProvidedNodeIpError> {
    let node_ips = parse_value(value)?;
    let mut ordered = Vec::with_capacity(addresses.len());
    let mut taken: Vec<&NodeAddressType> = Vec::new();
    for ip in node_ips {
        let before = ordered.len();
        for address in addresses.iter().filter(|a| parse_ip(&a.address) == Some(ip)) {
            ordered.push(address.clone());
            taken.push(&address.address_type);
        }
        if ordered.len() == before {
            return Err(ProvidedNodeIpError::NoMatch { ip });
        }
    }
    ordered.extend(addresses.iter().filter(|a| !taken.contains(&&a.address_type)).cloned());
    Ok(ordered)
}

fn parse_value(value: &str) -> Result<Vec<IpAddr>, ProvidedNodeIpError> {
    let ips = value
        .split(',')
        .map(|part| parse_ip(part).ok_or_else(|| ProvidedNodeIpError::NotAnIp { part: part.to_owned() }))
        .collect::<Result<Vec<_>, _>>()?;
    match ips[..] {
        [a, b] if a.is_unspecified() || b.is_unspecified() => {
            return Err(ProvidedNodeIpError::UnspecifiedInPair { value: value.to_owned() });
        }
        [a, b] if a.is_ipv4() == b.is_ipv4() => {
            return Err(ProvidedNodeIpError::SameFamily { value: value.to_owned() });
        }
        [_] | [_, _] => {}
        _ => return Err(ProvidedNodeIpError::TooMany { count: ips.len() }),
    }
    Ok(ips)
}

/// Parses an IP address as Kubernetes' `ParseIPSloppy` does. Leading zeros are accepted, and the digits after
/// them are decimal, not octal. An IPv4-mapped IPv6 address becomes the IPv4 address.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        let groups: Vec<String> = text
            .split(':')
            .map(
                |group| {
                    if group.contains('.') { decimal_octets(group) } else { without_leading_zeros(group) }
                },
            )
            .collect();
        groups.join(":").parse::<Ipv6Addr>().ok().map(|ip| IpAddr::V6(ip).to_canonical())
    } else {
        decimal_octets(text).parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    }
}

fn decimal_octets(text: &str) -> String {
    text.split('.').map(without_leading_zeros).collect::<Vec<_>>().join(".")
}

fn without_leading_zeros(digits: &str) -> String {
    let stripped = digits.trim_start_matches('0');
    if stripped.is_empty() && !digits.is_empty() { "0".to_owned() } else { stripped.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn internal(ip: &str) -> NodeAddress {
        NodeAddress::internal_ip(ip)
    }
    fn external(ip: &str) -> NodeAddress {
        NodeAddress::external_ip(ip)
    }
    fn hostname(name: &str) -> NodeAddress {
        NodeAddress::hostname(name)
    }

    /// (value, the cloud's addresses, expected)
    type Case = (&'static str, Vec<NodeAddress>, Vec<NodeAddress>);

    #[test]
    fn matches_come_first_and_take_their_type() {
        let cases: Vec<Case> = vec![
            // one address: the preferred one first, others of its type vanish, other types stay
            (
                "10.1.1.2",
                vec![internal("10.1.1.1"), internal("10.1.1.2"), external("55.55.55.55"), hostname("n")],
                vec![internal("10.1.1.2"), external("55.55.55.55"), hostname("n")],
            ),
            // the match is of another type
            (
                "55.55.55.55",
                vec![internal("10.1.1.1"), external("55.55.55.55"), external("55.55.55.56"), hostname("n")],
                vec![external("55.55.55.55"), internal("10.1.1.1"), hostname("n")],
            ),
            // an address that has two types matches both
            (
                "10.1.1.1",
                vec![internal("10.1.1.1"), external("10.1.1.1"), external("9.9.9.9")],
                vec![internal("10.1.1.1"), external("10.1.1.1")],
            ),
            // the other family of a matched type is dropped too
            ("10.1.1.1", vec![internal("10.1.1.1"), internal("fd00::1")], vec![internal("10.1.1.1")]),
            // a pair keeps the annotation's order and the cloud's text
            (
                "fd00::1,10.1.1.1",
                vec![internal("10.1.1.1"), internal("FD00:0:0::1"), hostname("n")],
                vec![internal("FD00:0:0::1"), internal("10.1.1.1"), hostname("n")],
            ),
            // IPv4-mapped form and leading zeros
            ("::ffff:10.1.1.1", vec![internal("10.1.1.1")], vec![internal("10.1.1.1")]),
            ("010.001.01.1", vec![internal("10.1.1.1")], vec![internal("10.1.1.1")]),
            ("10.1.1.1", vec![internal("010.1.1.1")], vec![internal("010.1.1.1")]),
            ("::ffff:010.1.1.01", vec![internal("10.1.1.1")], vec![internal("10.1.1.1")]),
            ("fd00:00000::0001", vec![internal("fd00::1")], vec![internal("fd00::1")]),
            // a host name that is an IP address matches too
            (
                "10.1.1.1",
                vec![hostname("10.1.1.1"), internal("10.1.1.9")],
                vec![hostname("10.1.1.1"), internal("10.1.1.9")],
            ),
            // an unspecified address alone is an address like any other
            ("0.0.0.0", vec![internal("0.0.0.0")], vec![internal("0.0.0.0")]),
        ];
        for (value, addresses, expected) in cases {
            assert_eq!(apply_provided_node_ip(value, &addresses).as_ref(), Ok(&expected), "{value}");
        }
    }

    #[test]
    fn faults() {
        let cloud = [internal("10.1.1.1"), internal("fd00::1")];
        let error = |value: &str| apply_provided_node_ip(value, &cloud).expect_err(value);
        for value in [
            "",
            " ",
            "x",
            "10.1.1",
            "10.1.1.1,",
            ",",
            "10.1.1.1, fd00::1",
            " 10.1.1.1",
            "10.1.1.256",
            "10..1.1",
            "fe80::1%eth0",
            "1.1.1.-1",
        ] {
            assert!(
                matches!(error(value), ProvidedNodeIpError::NotAnIp { .. }),
                "{value:?}: {}",
                error(value)
            );
        }
        assert!(matches!(error("10.1.1.1,fd00::1,10.1.1.2"), ProvidedNodeIpError::TooMany { count: 3 }));
        assert!(matches!(error("10.1.1.1,10.1.1.2"), ProvidedNodeIpError::SameFamily { .. }));
        assert!(matches!(error("10.1.1.1,::ffff:10.1.1.2"), ProvidedNodeIpError::SameFamily { .. }));
        assert!(matches!(error("10.1.1.1,::"), ProvidedNodeIpError::UnspecifiedInPair { .. }));
        assert!(matches!(error("0.0.0.0,fd00::1"), ProvidedNodeIpError::UnspecifiedInPair { .. }));
        assert_eq!(
            error("10.1.1.2").to_string(),
            "failed to get node address from cloud provider that matches ip: 10.1.1.2"
        );
        assert!(matches!(error("10.1.1.1,fd00::2"), ProvidedNodeIpError::NoMatch { .. }));
    }

    fn any_address() -> impl Strategy<Value = NodeAddress> {
        let ip = prop_oneof![
            any::<Ipv4Addr>().prop_map(|ip| ip.to_string()),
            any::<Ipv6Addr>().prop_map(|ip| ip.to_string()),
            (1..9u8).prop_map(|n| format!("10.0.0.{n}")),
            (1..9u8).prop_map(|n| format!("fd00::{n}")),
            "[a-z]{1,8}",
        ];
        let kind = prop_oneof![
            Just(NodeAddressType::InternalIp),
            Just(NodeAddressType::ExternalIp),
            Just(NodeAddressType::Hostname),
            Just(NodeAddressType::InternalDns),
        ];
        (kind, ip).prop_map(|(kind, ip)| NodeAddress::new(kind, ip))
    }

    proptest! {
        #[test]
        fn no_value_panics(value in ".{0,40}", addresses in prop::collection::vec(any_address(), 0..6)) {
            let _ = apply_provided_node_ip(&value, &addresses);
        }

        #[test]
        fn result_holds_the_invariants(
            addresses in prop::collection::vec(any_address(), 1..8),
            first in 0..8usize,
        ) {
            let wanted = &addresses[first % addresses.len()];
            let Some(ip) = parse_ip(&wanted.address) else { return Ok(()) };
            let result = apply_provided_node_ip(&wanted.address, &addresses).expect("the address is there");
            // the first one is the requested one, whatever its spelling
            prop_assert_eq!(parse_ip(&result[0].address), Some(ip));
            // nothing is added, and nothing appears more often than before
            for address in &result {
                let count = |list: &[NodeAddress]| list.iter().filter(|a| *a == address).count();
                prop_assert_eq!(count(&result), count(&addresses));
            }
            // of a matched type only matches are left; other types are untouched and in order
            let matched: Vec<_> = addresses.iter().filter(|a| parse_ip(&a.address) == Some(ip)).collect();
            let rest: Vec<_> =
                addresses.iter().filter(|a| !matched.iter().any(|m| m.address_type == a.address_type)).collect();
            prop_assert_eq!(result.iter().collect::<Vec<_>>(), [matched, rest].concat());
            // applying it again changes nothing
            let again = apply_provided_node_ip(&wanted.address, &result);
            prop_assert_eq!(again, Ok(result));
        }

        #[test]
        fn a_pair_decides_the_order(v4 in any::<Ipv4Addr>(), v6 in any::<Ipv6Addr>(), swap in any::<bool>()) {
            prop_assume!(!v4.is_unspecified() && !v6.is_unspecified() && v6.to_ipv4_mapped().is_none());
            let cloud = [NodeAddress::internal_ip(v4), NodeAddress::internal_ip(v6), NodeAddress::hostname("n")];
            let (value, expected) = if swap {
                (format!("{v6},{v4}"), vec![cloud[1].clone(), cloud[0].clone(), cloud[2].clone()])
            } else {
                (format!("{v4},{v6}"), cloud.to_vec())
            };
            prop_assert_eq!(apply_provided_node_ip(&value, &cloud), Ok(expected));
        }
    }
}
