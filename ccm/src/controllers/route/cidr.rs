//! The ranges of addresses that the cluster's pods have.

use std::{collections::BTreeMap, iter::successors};

use ipnet::{IpNet, Ipv4Net};

/// The ranges of `--cluster-cidr`, and how large the network of a Node may be. Only networks inside of them get routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterCidrs {
    ranges: Vec<IpNet>,
    /// The least lengths of the prefixes of a Node's networks.
    least: MaskSizes,
}

/// The lengths of the prefixes of Nodes' networks, by family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskSizes {
    /// `--node-cidr-mask-size-ipv4`. 0: any.
    pub ipv4: u8,
    /// `--node-cidr-mask-size-ipv6`. 0: any.
    pub ipv6: u8,
}

/// Why `--cluster-cidr` cannot be used. The text names the flag and says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--cluster-cidr {fault}; the route controller needs the range of the pods' addresses, such as 10.244.0.0/16, or one of each \
     family, such as 10.244.0.0/16,fd00:10:244::/56 (or --configure-cloud-routes=false)"
)]
pub struct InvalidClusterCidr {
    fault: String,
}

impl ClusterCidrs {
    /// Reads the value of `--cluster-cidr`: one range, or two of different families.
    ///
    /// # Errors
    /// A value that is empty, is no CIDR, has more than two ranges, or two of one family.
    pub fn parse(text: &str) -> Result<Self, InvalidClusterCidr> {
        let fault = |fault: String| InvalidClusterCidr { fault };
        if text.trim().is_empty() {
            return Err(fault("is empty".to_owned()));
        }
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            ranges.push(parse_cidr(part).ok_or_else(|| fault(format!("has {part:?}, which is no CIDR")))?);
        }
        match ranges[..] {
            [_] | [IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)] => {
                Ok(Self { ranges, least: MaskSizes::default() })
            }
            [_, _] => Err(fault("has two ranges of the same family".to_owned())),
            _ => Err(fault(format!("has {} ranges, and may have two at most", ranges.len()))),
        }
    }

    /// Lets no Node have a network with a shorter prefix.
    #[must_use]
    pub fn with_mask_sizes(mut self, least: MaskSizes) -> Self {
        self.least = least;
        self
    }

    /// The flag that does not allow a Node so large a network, and its value.
    pub(super) fn too_large(&self, cidr: &IpNet) -> Option<(&'static str, u8)> {
        let (flag, least) = match cidr {
            IpNet::V4(_) => ("--node-cidr-mask-size-ipv4", self.least.ipv4),
            IpNet::V6(_) => ("--node-cidr-mask-size-ipv6", self.least.ipv6),
        };
        (cidr.prefix_len() < least).then_some((flag, least))
    }

    /// Whether all addresses of `cidr` are in one of the ranges.
    pub(super) fn contain(&self, cidr: &IpNet) -> bool {
        self.ranges.iter().any(|range| range.contains(cidr))
    }

    /// Whether `cidr` is one of the ranges as a whole.
    pub(super) fn have_whole(&self, cidr: &IpNet) -> bool {
        self.ranges.contains(cidr)
    }
}

/// Reads a CIDR: the network that it stands for, whatever host bits it has. An IPv4 network in IPv6's notation is an IPv4 network.
/// As in Go's parser for Kubernetes, the parts of an IPv4 address may begin with zeros.
pub(super) fn parse_cidr(text: &str) -> Option<IpNet> {
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let read: Option<IpNet> = text.parse().ok().or_else(|| {
        let (address, length) = text.split_once('/')?;
        let parts: Vec<String> = address.split('.').map(without_zeros).collect();
        format!("{}/{length}", parts.join(".")).parse().ok()
    });
    let network = read?.trunc();
    Some(unmapped(&network).unwrap_or(network))
}

/// The IPv4 network that a network of IPv4-mapped addresses stands for.
fn unmapped(network: &IpNet) -> Option<IpNet> {
    let IpNet::V6(network) = network else { return None };
    let address = network.network().to_ipv4_mapped()?;
    let length = network.prefix_len().checked_sub(96)?;
    Ipv4Net::new(address, length).ok().map(IpNet::V4)
}

/// The networks of the map that have addresses in common with `network`.
pub(super) fn overlapping<T>(map: &BTreeMap<IpNet, T>, network: IpNet) -> impl Iterator<Item = (&IpNet, &T)> {
    // Of two networks that overlap, one contains the other.
    let around = successors(network.supernet(), IpNet::supernet);
    let around = around.filter_map(|outer| map.get_key_value(&outer));
    around.chain(map.range(network..).take_while(move |(inner, _)| network.contains(*inner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_or_one_of_each_family() {
        for good in [
            "10.244.0.0/16",
            " 10.0.0.0/8 ",
            "fd00::/48",
            "10.0.0.0/8,fd00::/48",
            "fd00::/48, 10.0.0.0/8",
            "010.0.0.0/8",
        ] {
            assert!(ClusterCidrs::parse(good).is_ok(), "{good}");
        }
        for (bad, words) in [
            ("", "--cluster-cidr is empty"),
            (" ", "--cluster-cidr is empty"),
            ("10.0.0.0", "has \"10.0.0.0\", which is no CIDR"),
            ("10.0.0.0/33", "has \"10.0.0.0/33\", which is no CIDR"),
            ("10.0.0.0/8,", "has \"\", which is no CIDR"),
            ("10.0.0.0/8,10.1.0.0/16", "has two ranges of the same family"),
            ("fd00::/48,fd01::/48", "has two ranges of the same family"),
            ("10.0.0.0/8,fd00::/48,fd01::/48", "has 3 ranges"),
        ] {
            let error = ClusterCidrs::parse(bad).expect_err(bad).to_string();
            assert!(error.contains(words) && error.contains("10.244.0.0/16"), "{bad}: {error}");
        }
    }

    #[test]
    fn only_what_is_inside_as_a_whole_is_in_a_range() {
        for (ranges, cidr, is_inside) in [
            ("10.124.0.0/14", "10.127.96.0/20", true),
            ("10.124.0.0/14", "10.124.0.0/14", true),
            ("10.124.0.0/14", "10.127.255.255/32", true),
            ("10.124.0.0/14", "10.124.7.9/24", true),
            ("10.124.0.0/14", "::ffff:10.124.7.0/120", true),
            ("10.124.0.0/14", "010.124.007.0/24", true),
            ("::ffff:10.124.0.0/110", "10.124.7.0/24", true),
            ("10.124.9.9/14", "10.124.7.0/24", true),
            ("10.124.0.0/14", "10.128.0.0/20", false),
            // They begin or end in the range, or have it inside.
            ("10.124.0.0/14", "10.124.0.0/13", false),
            ("10.124.0.0/14", "10.120.0.0/13", false),
            ("10.124.0.0/14", "10.96.0.0/11", false),
            ("10.124.0.0/14", "10.0.0.0/8", false),
            ("10.124.0.0/14", "0.0.0.0/0", false),
            ("10.124.0.0/14", "::ffff:0.0.0.0/96", false),
            ("10.124.0.0/14", "::/0", false),
            ("10.124.0.0/14", "fd00::/64", false),
            ("10.124.0.0/14,fd00:1::/48", "fd00:1:0:5::/64", true),
            ("10.124.0.0/14,fd00:1::/48", "fd00:1::/47", false),
            ("10.124.0.0/14,fd00:1::/48", "fd00:2::/64", false),
            ("10.124.0.0/14,fd00:1::/48", "10.124.3.0/24", true),
        ] {
            let cidr = parse_cidr(cidr).expect("a CIDR");
            let ranges = ClusterCidrs::parse(ranges).expect("ranges");
            assert_eq!(ranges.contain(&cidr), is_inside, "{cidr} in {ranges:?}");
        }
    }

    #[test]
    fn networks_overlap_with_those_around_and_inside_of_them() {
        let all = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "fd00::/8", "0.0.0.0/0"];
        let map: BTreeMap<IpNet, &str> =
            all.into_iter().map(|text| (parse_cidr(text).expect("a CIDR"), text)).collect();
        for (cidr, expected) in [
            ("10.1.2.128/25", vec!["10.1.2.0/24", "10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0"]),
            ("10.1.0.0/16", vec!["10.0.0.0/8", "0.0.0.0/0", "10.1.0.0/16", "10.1.2.0/24"]),
            ("10.1.0.0/17", vec!["10.1.0.0/16", "10.0.0.0/8", "0.0.0.0/0", "10.1.2.0/24"]),
            ("11.0.0.0/8", vec!["0.0.0.0/0"]),
            ("fd00::/64", vec!["fd00::/8"]),
            ("fe00::/8", vec![]),
            ("::/0", vec!["fd00::/8"]),
        ] {
            let found = overlapping(&map, parse_cidr(cidr).expect("a CIDR")).map(|(_, text)| *text);
            assert_eq!(found.collect::<Vec<_>>(), expected, "{cidr}");
        }
    }
}
