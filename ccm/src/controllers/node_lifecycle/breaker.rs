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

/// Open or closed, and why.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    is_open: bool,
    /// UIDs of the Nodes whose instances were gone since it opened. An answer that an instance exists takes its Node
    /// out; that the Node was deleted, kept or let go does not: what an operator decides on one Node says nothing
    /// about the others.
    evidence: HashSet<String>,
    /// UIDs of the Nodes that an earlier leader's breaker held back, and of which nothing better is known. How many others
    /// there were nobody knows any more, so each of them keeps the breaker open until its instance is back or an operator
    /// decides on it.
    inherited: HashSet<String>,
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

    /// Whether it holds no Node back, and no earlier leader's did: a Node whose condition says so says it wrongly.
    /// That it is closed is not enough, since nothing opens it before there is an answer.
    pub(super) fn is_done(&self) -> bool {
        !self.is_open && self.inherited.is_empty()
    }

    /// Says that an earlier leader's breaker held this Node back.
    pub(super) fn inherit(&mut self, uid: &str) {
        self.inherited.insert(uid.to_owned());
    }

    /// Takes note of all Nodes, each by its UID.
    pub(super) fn update(&mut self, nodes: &[(String, Seen)], limits: BreakerLimits) -> Option<Turn> {
        let known: HashMap<&String, Seen> = nodes.iter().map(|(uid, seen)| (uid, *seen)).collect();
        self.inherited.retain(|uid| matches!(known.get(uid), Some(Seen::Absent | Seen::Unknown)));
        if self.is_open {
            for (uid, seen) in nodes {
                match seen {
                    Seen::Present => drop(self.evidence.remove(uid)),
                    Seen::Absent => drop(self.evidence.insert(uid.clone())),
                    Seen::Unknown | Seen::AbsentByDecision => {}
                }
            }
        }
        let waiting = nodes.iter().filter(|(_, seen)| *seen == Seen::Absent).count();
        // That the cloud cannot tell for a while is no recovery.
        let is_pending = |(uid, seen): &(String, Seen)| *seen == Seen::Unknown && self.evidence.contains(uid);
        let pending = waiting + nodes.iter().filter(|node| is_pending(node)).count();
        let gone = self.evidence.iter().filter(|uid| !known.contains_key(uid)).count();
        let total = nodes.len() + gone;
        let absent = if self.is_open { self.evidence.len() } else { waiting };
        // Without a Node that waits for it there is nothing to decide.
        let is_passed = pending > 0 && limits.are_passed(absent, total);
        let opens = is_passed || !self.inherited.is_empty();
        if opens == self.is_open {
            return None;
        }
        self.is_open = opens;
        self.evidence = if opens {
            nodes.iter().filter(|(_, seen)| *seen == Seen::Absent).map(|(uid, _)| uid.clone()).collect()
        } else {
            HashSet::new()
        };
        Some(match (opens, is_passed) {
            (true, true) => Turn::Opened { absent, total },
            (true, false) => Turn::Inherited { held: self.inherited.len(), total },
            (false, _) => Turn::Closed { absent: waiting, total: nodes.len() },
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
    use super::*;

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
