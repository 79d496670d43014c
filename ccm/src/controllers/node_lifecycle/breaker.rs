//! The breaker stops deletions if too many Nodes would be deleted at once: a fault of the cloud is then more
//! likely than the loss of all instances.

use std::collections::{HashMap, HashSet};

/// The breaker opens if both limits are exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Number of Nodes.
    pub count: usize,
    /// Percent of the Nodes that belong to this cloud.
    pub percent: u8,
}

/// The cloud's last answer about one Node, as far as it matters to the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its instance exists.
    Present,
    /// The cloud cannot tell.
    Unknown,
    /// Its instance is gone, and only the breaker could prevent the deletion of the Node.
    Absent,
    /// Its instance is gone, but an operator keeps the Node, or permits its deletion in any case.
    AbsentByDecision,
}

/// Whether the breaker is open, and the counts for that decision. A Node is counted again when it changes.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    is_open: bool,
    /// All Nodes, by UID, including deleted ones that still count.
    nodes: HashMap<String, Counted>,
    counts: Counts,
    /// UIDs of the Nodes that the breaker of an earlier leader held back, until more is known about them. The
    /// number of other Nodes that were absent at that time is unknown. So each of these keeps the breaker
    /// open until its instance is back or an operator decides about it.
    inherited: HashSet<String>,
    /// Number of times that a Node was counted.
    #[cfg(test)]
    pub work: usize,
}

/// The contribution of one Node to the counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// `None`: the Node no longer exists.
    seen: Option<Seen>,
    /// Whether its instance was gone at some time since the breaker opened. An answer that the instance
    /// exists resets this. Deletion of the Node does not, nor does an operator's decision to keep it or to
    /// permit its deletion: neither says anything about the other Nodes.
    is_evidence: bool,
}

/// The counts over all Nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    total: usize,
    /// Nodes whose instance is gone and that only the breaker may hold back.
    waiting: usize,
    /// These, and the Nodes whose instance was gone and about which the cloud cannot tell now. That is not a
    /// recovery.
    pending: usize,
    evidence: usize,
}

impl Counts {
    fn add(&mut self, node: Counted) {
        for (count, more) in self.each(node) {
            *count += usize::from(more);
        }
    }

    fn remove(&mut self, node: Counted) {
        for (count, less) in self.each(node) {
            *count -= usize::from(less);
        }
    }

    fn each(&mut self, Counted { seen, is_evidence }: Counted) -> [(&mut usize, bool); 4] {
        let is_waiting = seen == Some(Seen::Absent);
        [
            (&mut self.total, seen.is_some() || is_evidence),
            (&mut self.waiting, is_waiting),
            (&mut self.pending, is_waiting || (seen == Some(Seen::Unknown) && is_evidence)),
            (&mut self.evidence, is_evidence),
        ]
    }
}

/// A transition of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Opened {
        absent: usize,
        total: usize,
    },
    /// The breaker was open when this process became the leader.
    Inherited {
        held: usize,
        total: usize,
    },
    Closed {
        absent: usize,
        total: usize,
    },
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether no Node is held back, neither by this breaker nor by an earlier leader's. If so, a condition
    /// that still says otherwise is outdated. A closed breaker alone is not enough: before the first answer
    /// of the cloud it cannot be open.
    pub(super) fn is_done(&self) -> bool {
        !self.is_open && self.inherited.is_empty()
    }

    /// Records that an earlier leader's breaker held this Node back.
    pub(super) fn inherit(&mut self, uid: &str) {
        self.inherited.insert(uid.to_owned());
    }

    /// Records the state of one Node. `None`: it no longer exists.
    pub(super) fn note(&mut self, uid: &str, seen: Option<Seen>) {
        #[cfg(test)]
        {
            self.work += 1;
        }
        let before = self.nodes.remove(uid).unwrap_or_default();
        let is_evidence = match seen {
            Some(Seen::Present) => false,
            Some(Seen::Absent) => self.is_open,
            Some(Seen::Unknown | Seen::AbsentByDecision) | None => before.is_evidence,
        };
        let now = Counted { seen, is_evidence };
        self.counts.remove(before);
        self.counts.add(now);
        if seen.is_some() || is_evidence {
            self.nodes.insert(uid.to_owned(), now);
        }
        if !matches!(seen, Some(Seen::Absent | Seen::Unknown)) {
            self.inherited.remove(uid);
        }
    }

    /// Opens or closes the breaker according to the counts.
    pub(super) fn turn(&mut self, limits: BreakerLimits) -> Option<Turn> {
        let Counts { total, waiting, pending, evidence } = self.counts;
        let absent = if self.is_open { evidence } else { waiting };
        // If the breaker holds no Node back, it does not need to open.
        let is_passed = pending > 0 && limits.are_passed(absent, total);
        let opens = is_passed || !self.inherited.is_empty();
        if opens == self.is_open {
            return None;
        }
        self.is_open = opens;
        self.counts = Counts::default();
        self.nodes.retain(|_, node| {
            node.is_evidence = opens && node.seen == Some(Seen::Absent);
            self.counts.add(*node);
            node.seen.is_some()
        });
        Some(match (opens, is_passed) {
            (true, true) => Turn::Opened { absent, total },
            (true, false) => Turn::Inherited { held: self.inherited.len(), total },
            (false, _) => Turn::Closed { absent: waiting, total: self.counts.total },
        })
    }
}

impl BreakerLimits {
    fn are_passed(self, absent: usize, total: usize) -> bool {
        absent > self.count && absent * 100 > usize::from(self.percent) * total
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    impl Breaker {
        /// Records all Nodes, each by its UID, and updates the breaker.
        fn update(&mut self, nodes: &[(String, Seen)], limits: BreakerLimits) -> Option<Turn> {
            let gone: Vec<String> = self
                .nodes
                .keys()
                .chain(&self.inherited)
                .filter(|uid| !nodes.iter().any(|node| node.0 == **uid))
                .cloned()
                .collect();
            for uid in gone {
                self.note(&uid, None);
            }
            for (uid, seen) in nodes {
                self.note(uid, Some(*seen));
            }
            self.turn(limits)
        }
    }

    /// The same rules, but all Nodes are counted again each time.
    #[derive(Default)]
    struct Model {
        is_open: bool,
        evidence: HashSet<String>,
        inherited: HashSet<String>,
    }

    impl Model {
        fn update(&mut self, nodes: &HashMap<String, Seen>) -> Option<bool> {
            let seen = |uid: &String| nodes.get(uid).copied();
            self.inherited.retain(|uid| matches!(seen(uid), Some(Seen::Absent | Seen::Unknown)));
            let absent: HashSet<String> =
                nodes.iter().filter(|node| *node.1 == Seen::Absent).map(|node| node.0.clone()).collect();
            if self.is_open {
                self.evidence.retain(|uid| seen(uid) != Some(Seen::Present));
                self.evidence.extend(absent.iter().cloned());
            }
            let is_pending = |uid: &String| self.evidence.contains(uid) && seen(uid) == Some(Seen::Unknown);
            let pending = absent.len() + nodes.keys().filter(|uid| is_pending(uid)).count();
            let total = nodes.len() + self.evidence.iter().filter(|uid| seen(uid).is_none()).count();
            let count = if self.is_open { self.evidence.len() } else { absent.len() };
            let opens = (pending > 0 && LIMITS.are_passed(count, total)) || !self.inherited.is_empty();
            let has_turned = opens != self.is_open;
            self.is_open = opens;
            if has_turned {
                self.evidence = if opens { absent } else { HashSet::new() };
            }
            has_turned.then_some(opens)
        }
    }

    #[test]
    fn it_is_the_same_as_if_all_were_counted_anew() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let (mut breaker, mut model, mut nodes) = (Breaker::default(), Model::default(), HashMap::new());
            let most = rng.usize(5..40);
            for step in 0..300 {
                let uids: HashSet<String> =
                    (0..rng.usize(0..4)).map(|_| rng.usize(0..most).to_string()).collect();
                for uid in uids {
                    let seen = match rng.u8(0..8) {
                        0 => None,
                        1..4 => Some(Seen::Present),
                        4 => Some(Seen::Unknown),
                        5 => Some(Seen::AbsentByDecision),
                        _ => Some(Seen::Absent),
                    };
                    if rng.u8(0..100) == 0 {
                        breaker.inherit(&uid);
                        model.inherited.insert(uid.clone());
                    }
                    breaker.note(&uid, seen);
                    match seen {
                        Some(seen) => drop(nodes.insert(uid, seen)),
                        None => drop(nodes.remove(&uid)),
                    }
                }
                let turn = breaker.turn(LIMITS).map(|turn| !matches!(turn, Turn::Closed { .. }));
                assert_eq!(turn, model.update(&nodes), "seed {seed}, step {step}");
                assert_eq!(breaker.counts.evidence, model.evidence.len(), "seed {seed}, step {step}");
            }
        }
    }

    const LIMITS: BreakerLimits = BreakerLimits { count: 3, percent: 20 };

    fn nodes(seen: &[Seen]) -> Vec<(String, Seen)> {
        seen.iter().enumerate().map(|(number, seen)| (number.to_string(), *seen)).collect()
    }

    /// This many absent Nodes, followed by present ones.
    fn absent(count: usize, total: usize) -> Vec<(String, Seen)> {
        nodes(&[vec![Seen::Absent; count], vec![Seen::Present; total - count]].concat())
    }

    #[test]
    fn both_limits_must_be_passed() {
        for (count, total, opens) in [
            (0, 0, false),
            (3, 3, false),
            (4, 4, true),
            (4, 20, false),
            (5, 20, true),
            (4, 19, true),
            (100, 500, false),
            (101, 500, true),
        ] {
            let mut breaker = Breaker::default();
            breaker.update(&absent(count, total), LIMITS);
            assert_eq!(breaker.is_open(), opens, "{count} of {total}");
        }
    }

    #[test]
    fn it_closes_when_enough_instances_are_back() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.update(&absent(4, 10), LIMITS), Some(Turn::Opened { absent: 4, total: 10 }));
        assert_eq!(breaker.update(&absent(4, 10), LIMITS), None);
        let back = [vec![Seen::Present], vec![Seen::Absent; 3], vec![Seen::Present; 6]].concat();
        assert_eq!(breaker.update(&nodes(&back), LIMITS), Some(Turn::Closed { absent: 3, total: 10 }));
    }

    #[test]
    fn a_decision_on_one_node_releases_no_other() {
        let mut breaker = Breaker::default();
        breaker.update(&absent(4, 10), LIMITS);
        // An operator keeps one Node or permits its deletion.
        let decided = [vec![Seen::AbsentByDecision], vec![Seen::Absent; 3], vec![Seen::Present; 6]].concat();
        assert_eq!(breaker.update(&nodes(&decided), LIMITS), None);
        // That Node is deleted.
        let deleted = nodes(&decided)[1..].to_vec();
        assert_eq!(breaker.update(&deleted, LIMITS), None);
        assert!(breaker.is_open());
        // After a decision about each Node, there is none left to hold back.
        let all = [vec![Seen::AbsentByDecision; 4], vec![Seen::Present; 6]].concat();
        assert!(matches!(breaker.update(&nodes(&all), LIMITS), Some(Turn::Closed { .. })));
    }

    #[test]
    fn an_unknown_answer_is_no_recovery() {
        let mut breaker = Breaker::default();
        breaker.update(&absent(6, 10), LIMITS);
        let unknown = [vec![Seen::Unknown; 5], vec![Seen::Absent], vec![Seen::Present; 4]].concat();
        assert_eq!(breaker.update(&nodes(&unknown), LIMITS), None);
        assert!(breaker.is_open());
        // Unknown answers about all of them at once are no recovery either.
        let unknown = [vec![Seen::Unknown; 6], vec![Seen::Present; 4]].concat();
        assert_eq!(breaker.update(&nodes(&unknown), LIMITS), None);
        let few = [vec![Seen::Absent; 2], vec![Seen::Unknown; 4], vec![Seen::Present; 4]].concat();
        assert_eq!(breaker.update(&nodes(&few), LIMITS), None);
        assert!(breaker.is_open());
        let back = vec![Seen::Present; 10];
        assert!(matches!(breaker.update(&nodes(&back), LIMITS), Some(Turn::Closed { .. })));
    }

    #[test]
    fn what_an_earlier_leader_held_back_keeps_it_open() {
        let mut breaker = Breaker::default();
        assert!(breaker.is_done());
        breaker.inherit("0");
        breaker.inherit("1");
        assert!(!breaker.is_open() && !breaker.is_done(), "nobody has answered yet");
        // Far from the limits: the other Nodes were deleted with an operator's permission.
        assert_eq!(breaker.update(&absent(2, 100), LIMITS), Some(Turn::Inherited { held: 2, total: 100 }));
        let unknown = [vec![Seen::Unknown; 2], vec![Seen::Absent; 1], vec![Seen::Present; 97]].concat();
        assert_eq!(breaker.update(&nodes(&unknown), LIMITS), None);
        assert!(breaker.is_open(), "for a third one too");
        let one_is_back = [vec![Seen::Present], vec![Seen::Absent], vec![Seen::Present; 98]].concat();
        assert_eq!(breaker.update(&nodes(&one_is_back), LIMITS), None);
        let decided = [vec![Seen::Present], vec![Seen::AbsentByDecision], vec![Seen::Present; 98]].concat();
        assert_eq!(breaker.update(&nodes(&decided), LIMITS), Some(Turn::Closed { absent: 0, total: 100 }));
        assert!(breaker.is_done());
        // A Node that no longer exists does not keep the breaker open.
        breaker.inherit("gone");
        assert_eq!(breaker.update(&absent(2, 100), LIMITS), None);
        assert!(!breaker.is_open());
    }
}
