//! Ports of the hosts that no Service gets.

use std::ops::RangeInclusive;

/// Where something of the hosts listens that a Service must not take the place of: SSH, Docker, etcd, the API server, the
/// supervisor of K3s and RKE2, the kubelet and its neighbours, and the node ports of all Services.
const DEFAULT: [RangeInclusive<u16>; 7] =
    [22..=22, 2375..=2376, 2379..=2380, 6443..=6443, 9345..=9345, 10248..=10260, 30000..=32767];

/// The word for no port at all.
const NONE: &str = "none";

/// Ports of the hosts that no Service gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedPorts(Vec<RangeInclusive<u16>>);

impl Default for ReservedPorts {
    fn default() -> Self {
        Self(DEFAULT.to_vec())
    }
}

impl ReservedPorts {
    /// Whether no Service gets this port.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }

    /// Reads ports and ranges with commas between them, or `none`.
    ///
    /// # Errors
    /// What would be right.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.trim() == NONE {
            return Ok(Self(Vec::new()));
        }
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.trim().parse::<u16>().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty() && !range.contains(&0)).then_some(range)
        };
        let all: Option<Vec<_>> = text.split(',').map(range).collect();
        all.map(Self)
            .ok_or("must be ports and ranges with commas between them, such as 22, 10248-10260; or none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_the_hosts_are_reserved_unless_the_operator_says_otherwise() {
        let ports = ReservedPorts::default();
        for port in [22, 2376, 2379, 6443, 9345, 10250, 10256, 30000, 32767] {
            assert!(ports.contains(port), "{port}");
        }
        for port in [21, 80, 443, 8080, 8443, 29999, 32768] {
            assert!(!ports.contains(port), "{port}");
        }
        let ports = ReservedPorts::parse(" 22,8000-8002 ").expect("good");
        assert!([22, 8000, 8001, 8002].into_iter().all(|port| ports.contains(port)) && !ports.contains(6443));
        assert!(!ReservedPorts::parse("none").expect("good").contains(22));
        for bad in [",", "22,", "0", "0-5", "9-5", "ssh", "1-70000", "1--2", "-"] {
            ReservedPorts::parse(bad).expect_err(bad);
        }
    }
}
