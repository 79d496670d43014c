//! Which pod CIDRs get a route. A Node's CIDRs may come from its kubelet, so a route must neither take traffic that is not the pods', nor that
//! of another Node's pods.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use controller_kit::nodes::Node;
use ipnet::IpNet;

use super::cidr::{ClusterCidrs, overlapping, parse_cidr};

/// Why a pod CIDR gets no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal<'a> {
    /// It is no CIDR.
    Unreadable,
    /// It is an IPv4 network in IPv6's notation, which providers read differently.
    Mapped(IpNet),
    /// It is not inside of `--cluster-cidr`.
    Outside,
    /// It is larger than this flag with this value allows.
    TooLarge(&'static str, u8),
    /// It is all of a range, and other Nodes have networks in there.
    WholeRange,
    /// A Node with a better claim has addresses of it. It is the Node itself if that has two CIDRs that overlap.
    Overlaps {
        /// The other CIDR.
        cidr: &'a str,
        /// The other Node.
        node: &'a str,
    },
}

impl Refusal<'_> {
    /// What is wrong with the CIDR, in the words of the Node's own condition and event. Other Nodes are not named there.
    pub(super) fn message(&self, cidr: &str) -> String {
        match self {
            Self::Unreadable => format!("the pod CIDR {cidr:?} is no CIDR"),
            Self::Mapped(network) => {
                format!("the pod CIDR {cidr} is an IPv4 network in IPv6 notation; {network} would be right")
            }
            Self::Outside => format!("the pod CIDR {cidr} is not in --cluster-cidr"),
            Self::TooLarge(flag, least) => {
                format!("the pod CIDR {cidr} is larger than {flag}={least} allows")
            }
            Self::WholeRange => format!(
                "the pod CIDR {cidr} is a whole range of --cluster-cidr, in which other nodes have their pods"
            ),
            Self::Overlaps { .. } => {
                format!(
                    "the pod CIDR {cidr} overlaps one that is in use: of overlapping ones, that of the oldest node gets a route"
                )
            }
        }
    }

    /// The same for the log and for operators.
    pub(super) fn log_message(&self, cidr: &str) -> String {
        let message = self.message(cidr);
        match self {
            Self::Overlaps { cidr, node } => format!("{message} ({cidr} of node {node})"),
            _ => message,
        }
    }
}

/// The claims of all Nodes to their pod CIDRs.
pub(super) struct Claims<'a>(HashMap<(&'a str, &'a str), Option<Refusal<'a>>>);

/// A readable CIDR inside of the cluster's ranges.
struct Claim<'a> {
    node: &'a Node,
    cidr: &'a str,
    network: IpNet,
    is_whole: bool,
}

impl<'a> Claims<'a> {
    /// Decides about all of them.
    pub(super) fn of(nodes: &'a [Arc<Node>], ranges: &ClusterCidrs) -> Self {
        let mut decided = HashMap::new();
        let mut claims = Vec::new();
        for node in nodes {
            for cidr in &node.pod_cidrs {
                match read(cidr, ranges) {
                    Ok(network) => {
                        claims.push(Claim { node, cidr, network, is_whole: ranges.have_whole(&network) });
                    }
                    Err(refusal) => drop(decided.insert((node.name(), cidr.as_str()), Some(refusal))),
                }
            }
        }
        // The API server sets the time of creation. A Node that has a whole range would be alone for ever if it came first.
        claims.sort_by_key(|claim| {
            let Claim { node, is_whole, .. } = claim;
            (*is_whole, node.created.is_none(), node.created, node.name(), node.identity.uid.as_str())
        });
        let mut taken: BTreeMap<IpNet, (&str, &str)> = BTreeMap::new();
        for Claim { node, cidr, network, is_whole } in claims {
            let own = (node.name(), cidr);
            if decided.contains_key(&own) {
                continue;
            }
            let other = overlapping(&taken, network).next().map(|(_, other)| *other);
            let refusal =
                other.map(
                    |(node, cidr)| {
                        if is_whole { Refusal::WholeRange } else { Refusal::Overlaps { cidr, node } }
                    },
                );
            if refusal.is_none() {
                taken.insert(network, own);
            }
            decided.insert(own, refusal);
        }
        Self(decided)
    }

    /// Why this CIDR of this Node gets no route. `None`: it gets one.
    pub(super) fn refusal(&self, node: &Node, cidr: &str) -> Option<Refusal<'a>> {
        self.0.get(&(node.name(), cidr)).copied().unwrap_or(Some(Refusal::Unreadable))
    }
}

fn read<'a>(cidr: &str, ranges: &ClusterCidrs) -> Result<IpNet, Refusal<'a>> {
    let network = parse_cidr(cidr).ok_or(Refusal::Unreadable)?;
    if matches!(network, IpNet::V4(_)) && cidr.contains(':') {
        return Err(Refusal::Mapped(network));
    }
    if !ranges.contain(&network) {
        return Err(Refusal::Outside);
    }
    ranges.too_large(&network).map_or(Ok(network), |(flag, least)| Err(Refusal::TooLarge(flag, least)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::route::cidr::MaskSizes;

    const RANGES: &str = "10.120.0.0/16,fd00:120::/48";

    /// A Node that was made at this second.
    fn node(name: &str, second: u32, cidrs: &[&str]) -> Arc<Node> {
        let created = format!("2026-01-01T00:00:{second:02}Z");
        let metadata = json!({"name": name, "uid": name, "creationTimestamp": created});
        Arc::new(Node::from_json(json!({"metadata": metadata, "spec": {"podCIDRs": cidrs}})))
    }

    /// Those that get a route, as `node CIDR`.
    fn granted(nodes: &[Arc<Node>]) -> Vec<String> {
        let claims = Claims::of(nodes, &ClusterCidrs::parse(RANGES).expect("ranges"));
        let all = nodes.iter().flat_map(|node| node.pod_cidrs.iter().map(move |cidr| (node, cidr)));
        let granted = all.filter(|(node, cidr)| claims.refusal(node, cidr).is_none());
        granted.map(|(node, cidr)| format!("{} {cidr}", node.name())).collect()
    }

    #[test]
    fn of_overlapping_cidrs_that_of_the_older_node_is_right() {
        for (what, nodes, expected) in [
            (
                "neighbours",
                vec![node("a", 1, &["10.120.0.0/24"]), node("b", 0, &["10.120.1.0/24"])],
                vec!["a 10.120.0.0/24", "b 10.120.1.0/24"],
            ),
            (
                "the same",
                vec![node("a", 1, &["10.120.0.0/24"]), node("b", 0, &["10.120.0.0/24"])],
                vec!["b 10.120.0.0/24"],
            ),
            (
                "of the same second, the first name",
                vec![node("b", 0, &["10.120.0.0/24"]), node("a", 0, &["10.120.0.0/24"])],
                vec!["a 10.120.0.0/24"],
            ),
            (
                "around several",
                vec![
                    node("a", 1, &["10.120.0.0/24"]),
                    node("b", 2, &["10.120.3.0/24"]),
                    node("evil", 3, &["10.120.0.0/22"]),
                ],
                vec!["a 10.120.0.0/24", "b 10.120.3.0/24"],
            ),
            (
                "a part",
                vec![node("a", 1, &["10.120.0.0/24"]), node("evil", 3, &["10.120.0.128/25"])],
                vec!["a 10.120.0.0/24"],
            ),
            (
                "with host bits",
                vec![node("a", 1, &["10.120.0.0/24"]), node("evil", 3, &["10.120.0.77/24"])],
                vec!["a 10.120.0.0/24"],
            ),
            (
                "what is refused is in nobody's way",
                vec![
                    node("a", 1, &["10.120.0.0/24"]),
                    node("evil", 2, &["10.120.0.0/23"]),
                    node("b", 3, &["10.120.1.0/24"]),
                ],
                vec!["a 10.120.0.0/24", "b 10.120.1.0/24"],
            ),
            (
                "one family each",
                vec![
                    node("a", 1, &["10.120.0.0/24", "fd00:120:0:1::/64"]),
                    node("b", 2, &["10.120.1.0/24", "fd00:120:0:1::/64"]),
                ],
                vec!["a 10.120.0.0/24", "a fd00:120:0:1::/64", "b 10.120.1.0/24"],
            ),
            (
                "twice on one Node",
                vec![node("a", 1, &["10.120.0.0/24", "10.120.0.0/25"])],
                vec!["a 10.120.0.0/24"],
            ),
        ] {
            assert_eq!(granted(&nodes), expected, "{what}");
        }
    }

    #[test]
    fn what_is_outside_gets_no_route() {
        let all = [
            "192.0.2.0/24",
            "10.0.0.0/8",
            "10.120.0.0/15",
            "0.0.0.0/0",
            "1.0.0.0/8",
            "::/0",
            "fd00:120::/47",
            "2001:db8::/64",
            "::ffff:10.120.0.0/120",
            "::ffff:0.0.0.0/96",
            "nonsense",
            "10.120.0.0",
            "10.120.0.0/33",
        ];
        for cidr in all {
            assert_eq!(granted(&[node("evil", 0, &[cidr])]), Vec::<String>::new(), "{cidr}");
            // One that is right beside it gets its own.
            assert_eq!(granted(&[node("a", 0, &["10.120.0.0/24", cidr])]), ["a 10.120.0.0/24"], "{cidr}");
        }
    }

    #[test]
    fn a_whole_range_is_for_the_only_node() {
        let (evil, a) = (node("evil", 0, &["10.120.0.0/16"]), node("a", 1, &["10.120.7.0/24"]));
        assert_eq!(granted(std::slice::from_ref(&evil)), ["evil 10.120.0.0/16"]);
        assert_eq!(granted(&[evil.clone(), a]), ["a 10.120.7.0/24"]);
        let b = node("b", 1, &["10.120.0.0/16"]);
        assert_eq!(granted(&[b, evil.clone()]), ["evil 10.120.0.0/16"]);
        // The other family is another range.
        let v6 = node("v6", 1, &["fd00:120:0:1::/64"]);
        assert_eq!(granted(&[evil, v6]), ["evil 10.120.0.0/16", "v6 fd00:120:0:1::/64"]);
    }

    #[test]
    fn no_node_has_a_larger_network_than_the_flags_allow() {
        let least = MaskSizes { ipv4: 24, ipv6: 64 };
        let ranges = ClusterCidrs::parse(RANGES).expect("ranges").with_mask_sizes(least);
        let nodes = [
            node("evil", 0, &["10.120.128.0/17", "fd00:120:0:8000::/49"]),
            node("whole", 0, &["10.120.0.0/16"]),
            node("a", 1, &["10.120.200.0/24", "fd00:120:0:9000::/64"]),
            node("small", 1, &["10.120.1.0/26", "fd00:120:0:1::/80"]),
        ];
        let claims = Claims::of(&nodes, &ranges);
        let why = |node: usize, cidr: usize| {
            let (node, cidr) = (&nodes[node], &nodes[node].pod_cidrs[cidr]);
            claims.refusal(node, cidr).map(|refusal| refusal.log_message(cidr))
        };
        let words =
            |cidr: &str, flag: &str| Some(format!("the pod CIDR {cidr} is larger than {flag} allows"));
        assert_eq!(why(0, 0), words("10.120.128.0/17", "--node-cidr-mask-size-ipv4=24"));
        assert_eq!(why(0, 1), words("fd00:120:0:8000::/49", "--node-cidr-mask-size-ipv6=64"));
        assert_eq!(why(1, 0), words("10.120.0.0/16", "--node-cidr-mask-size-ipv4=24"));
        for (node, cidr) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
            assert_eq!(why(node, cidr), None);
        }
    }

    #[test]
    fn only_the_log_names_the_other_node() {
        let refusal = Refusal::Overlaps { cidr: "10.120.0.0/24", node: "victim" };
        assert!(!refusal.message("10.120.0.0/25").contains("victim"));
        assert!(refusal.log_message("10.120.0.0/25").contains("10.120.0.0/24 of node victim"));
    }
}
