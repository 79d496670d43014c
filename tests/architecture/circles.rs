//! Circles in a graph.

use std::collections::{BTreeMap, BTreeSet};

/// The sets of two or more nodes of which each can be reached from each other one.
pub(crate) fn circles<N: Ord + Clone>(arrows: &BTreeMap<N, BTreeSet<N>>) -> BTreeSet<BTreeSet<N>> {
    let reached: BTreeMap<&N, BTreeSet<&N>> = arrows.keys().map(|node| (node, reach(node, arrows))).collect();
    let both_ways = |node: &N| {
        let there = reached[node].iter().copied();
        let back = |other: &&N| reached.get(*other).is_some_and(|from| from.contains(node));
        there.filter(back).cloned().collect::<BTreeSet<N>>()
    };
    arrows.keys().map(both_ways).filter(|circle| circle.len() > 1).collect()
}

/// Every node that can be reached from this one.
fn reach<'n, N: Ord>(from: &'n N, arrows: &'n BTreeMap<N, BTreeSet<N>>) -> BTreeSet<&'n N> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(node) = open.pop() {
        for next in arrows.get(node).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_whole_and_once() {
        let arrows =
            [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("f", "a"), ("g", "g")];
        let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in arrows {
            graph.entry(from).or_default().insert(to);
        }
        let found = circles(&graph);
        assert_eq!(found, BTreeSet::from([BTreeSet::from(["a", "b", "c"]), BTreeSet::from(["d", "e"])]));
    }
}
