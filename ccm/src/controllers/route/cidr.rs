//! The ranges of addresses that the cluster's pods have.

use ipnet::IpNet;

/// The ranges of `--cluster-cidr`. A route belongs to this controller if its CIDR begins or ends in one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterCidrs(Vec<IpNet>);

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
            [_] | [IpNet::V4(_), IpNet::V6(_)] | [IpNet::V6(_), IpNet::V4(_)] => Ok(Self(ranges)),
            [_, _] => Err(fault("has two ranges of the same family".to_owned())),
            _ => Err(fault(format!("has {} ranges, and may have two at most", ranges.len()))),
        }
    }

    /// Whether the first or the last address of `cidr` is in one of the ranges.
    pub(super) fn meets(&self, cidr: &IpNet) -> bool {
        self.0.iter().any(|range| range.contains(&cidr.network()) || range.contains(&cidr.broadcast()))
    }
}

/// Reads a CIDR. As in Go's parser for Kubernetes, the parts of an IPv4 address may begin with zeros.
pub(super) fn parse_cidr(text: &str) -> Option<IpNet> {
    let without_zeros = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    text.parse().ok().or_else(|| {
        let (address, length) = text.split_once('/')?;
        let parts: Vec<String> = address.split('.').map(without_zeros).collect();
        format!("{}/{length}", parts.join(".")).parse().ok()
    })
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

    /// Upstream's cases for the responsibility for a route.
    #[test]
    fn the_first_or_the_last_address_decides() {
        for (ranges, cidr, meets) in [
            ("10.124.0.0/14", "10.127.96.0/20", true),
            ("10.124.0.0/14", "10.128.0.0/20", false),
            ("10.124.0.0/14", "10.120.0.0/13", true),
            ("10.124.0.0/14", "10.96.0.0/11", true),
            ("10.124.0.0/14", "10.64.0.0/10", true),
            ("10.124.0.0/14", "10.0.0.0/8", false),
            ("10.124.0.0/14", "0.0.0.0/0", false),
            ("10.124.0.0/14", "fd00::/64", false),
            ("10.124.0.0/14,fd00:1::/48", "fd00:1:0:5::/64", true),
            ("10.124.0.0/14,fd00:1::/48", "fd00:2::/64", false),
            ("10.124.0.0/14,fd00:1::/48", "10.124.3.0/24", true),
        ] {
            let cidr = parse_cidr(cidr).expect("a CIDR");
            assert_eq!(
                ClusterCidrs::parse(ranges).expect("ranges").meets(&cidr),
                meets,
                "{cidr} in {ranges}"
            );
        }
    }
}
