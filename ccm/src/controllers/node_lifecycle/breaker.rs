//! The breaker: too many Nodes that would vanish at once are more likely a mistake of the cloud than the truth.

use std::collections::{HashMap, HashSet};

/// When the breaker opens: both limits must be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Nodes.
    pub count: usize,
    /// Percent of the Nodes that belong to this cloud.
    pub percent: u8,
}

/// What the cloud said last of one Node, as far as the breaker is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its instance exists.
    Present,
    /// Nobody can tell.
    Unknown,
    /// Its instance is gone, and the Node would be deleted but for the breaker.
    Absent,
    /// Its instance is gone; an operator keeps the Node, or lets it go in any case.
    AbsentByDecision,
}

/// Whether the breaker is open, and the counts that decide it. Each Node is counted again when it changes.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    is_open: bool,
    /// All Nodes, by UID. Among them are those that were deleted and still count.
    nodes: HashMap<String, Counted>,
    counts: Counts,
    /// UIDs of the Nodes that an earlier leader's breaker held back, as long as nothing better is known of them. How many
    /// other Nodes were absent then is not known any more. So each of these keeps the breaker open until its instance is back
    /// or an operator decides on it.
    inherited: HashSet<String>,
    /// How often a Node was counted.
    #[cfg(test)]
    pub work: usize,
}

/// How one Node counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// `None`: the Node is gone.
    seen: Option<Seen>,
    /// Whether its instance was gone at some time since the breaker opened. An answer that the instance exists resets that.
    /// A deletion of the Node does not, nor does an operator's decision to keep it or to let it go: that says nothing about
    /// the other Nodes.
    is_evidence: bool,
}

/// Of all Nodes that are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    total: usize,
    /// Those whose instance is gone and that only the breaker may hold back.
    waiting: usize,
    /// These, and those whose instance was gone and of which the cloud cannot tell now. That is no recovery.
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

/// A change of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Opened {
        absent: usize,
        total: usize,
    },
    /// It was open when this process began to lead.
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

    /// Whether neither this breaker nor an earlier leader's holds any Node back. Then a condition that still says so is wrong.
    /// A closed breaker alone does not mean that: it cannot be open before there is an answer of the cloud.
    pub(super) fn is_done(&self) -> bool {
        !self.is_open && self.inherited.is_empty()
    }

    /// Says that an earlier leader's breaker held this Node back.
    pub(super) fn inherit(&mut self, uid: &str) {
        self.inherited.insert(uid.to_owned());
    }

    /// Takes note of one Node. `None`: it is gone.
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

    /// Opens or closes by what it took note of.
    pub(super) fn turn(&mut self, limits: BreakerLimits) -> Option<Turn> {
        let Counts { total, waiting, pending, evidence } = self.counts;
        let absent = if self.is_open { evidence } else { waiting };
        // Where no Node waits for it there is nothing to decide.
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
        /// Takes note of all Nodes, each by its UID, and turns.
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

    /// The same rules, all Nodes counted anew each time.
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

    /// So many absent ones first, the rest present.
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
        // kept or let go
        let decided = [vec![Seen::AbsentByDecision], vec![Seen::Absent; 3], vec![Seen::Present; 6]].concat();
        assert_eq!(breaker.update(&nodes(&decided), LIMITS), None);
        // deleted
        let deleted = nodes(&decided)[1..].to_vec();
        assert_eq!(breaker.update(&deleted, LIMITS), None);
        assert!(breaker.is_open());
        // and a decision on each of them leaves nothing to hold back
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
        // nor is it one of all of them at once
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
        // far from the limits: the others were deleted, allowed by an operator
        assert_eq!(breaker.update(&absent(2, 100), LIMITS), Some(Turn::Inherited { held: 2, total: 100 }));
        let unknown = [vec![Seen::Unknown; 2], vec![Seen::Absent; 1], vec![Seen::Present; 97]].concat();
        assert_eq!(breaker.update(&nodes(&unknown), LIMITS), None);
        assert!(breaker.is_open(), "for a third one too");
        let one_is_back = [vec![Seen::Present], vec![Seen::Absent], vec![Seen::Present; 98]].concat();
        assert_eq!(breaker.update(&nodes(&one_is_back), LIMITS), None);
        let decided = [vec![Seen::Present], vec![Seen::AbsentByDecision], vec![Seen::Present; 98]].concat();
        assert_eq!(breaker.update(&nodes(&decided), LIMITS), Some(Turn::Closed { absent: 0, total: 100 }));
        assert!(breaker.is_done());
        // a Node that is gone keeps nothing open
        breaker.inherit("gone");
        assert_eq!(breaker.update(&absent(2, 100), LIMITS), None);
        assert!(!breaker.is_open());
    }
}
