//! The names that are ready, in lanes that take turns.

use std::collections::{BTreeMap, HashMap};

/// The names that are ready. In a lane the first to come is the first to be taken.
#[derive(Debug)]
pub(super) struct Lanes {
    lane_of: fn(&str) -> &str,
    by_key: HashMap<String, Lane>,
    /// The lanes that have names, by their turns.
    order: BTreeMap<u64, String>,
    /// The turn of each name in its lane.
    turns: HashMap<String, u64>,
    last_turn: u64,
}

/// One lane. There is one as long as it has names that are ready or at work.
#[derive(Debug, Default)]
struct Lane {
    /// The names, by their turns.
    names: BTreeMap<u64, String>,
    /// The turn of the lane, as long as it has names.
    turn: u64,
    at_work: usize,
}

impl Default for Lanes {
    /// One lane for all names.
    fn default() -> Self {
        Self::new(|_| "")
    }
}

impl Lanes {
    pub(super) fn new(lane_of: fn(&str) -> &str) -> Self {
        Self { lane_of, by_key: HashMap::new(), order: BTreeMap::new(), turns: HashMap::new(), last_turn: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.turns.contains_key(name)
    }

    /// Whether there is a name of a lane that `may` more be taken of.
    pub(super) fn has_any(&self, may: impl Fn(usize) -> bool) -> bool {
        self.order.values().filter_map(|lane| self.by_key.get(lane)).any(|lane| may(lane.at_work))
    }

    /// Adds a name. Gives whether it was not there.
    pub(super) fn add(&mut self, name: &str) -> bool {
        if self.has(name) {
            return false;
        }
        self.last_turn += 1;
        let key = (self.lane_of)(name);
        let lane = self.by_key.entry(key.to_owned()).or_default();
        if lane.names.is_empty() {
            lane.turn = self.last_turn;
            self.order.insert(lane.turn, key.to_owned());
        }
        lane.names.insert(self.last_turn, name.to_owned());
        self.turns.insert(name.to_owned(), self.last_turn);
        true
    }

    /// Removes a name. Gives whether it was there.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some(turn) = self.turns.remove(name) else { return false };
        let key = (self.lane_of)(name);
        if let Some(lane) = self.by_key.get_mut(key) {
            lane.names.remove(&turn);
            if lane.names.is_empty() {
                self.order.remove(&lane.turn);
            }
        }
        self.forget_if_idle(key);
        true
    }

    /// Takes the first name of the lane whose turn it is, of those that `may` more be taken of. The lane's next turn comes after those
    /// of the others.
    pub(super) fn take(&mut self, may: impl Fn(usize) -> bool) -> Option<String> {
        let is_free = |key: &String| self.by_key.get(key).is_some_and(|lane| may(lane.at_work));
        let (turn, key) = self.order.iter().find(|(_, key)| is_free(key))?;
        let (turn, key) = (*turn, key.clone());
        self.order.remove(&turn);
        let lane = self.by_key.get_mut(&key)?;
        let (_, name) = lane.names.pop_first()?;
        lane.at_work += 1;
        if !lane.names.is_empty() {
            self.last_turn += 1;
            lane.turn = self.last_turn;
            self.order.insert(lane.turn, key);
        }
        self.turns.remove(&name);
        Some(name)
    }

    /// The work on a name that was taken has ended.
    pub(super) fn done(&mut self, name: &str) {
        let key = (self.lane_of)(name);
        if let Some(lane) = self.by_key.get_mut(key) {
            lane.at_work = lane.at_work.saturating_sub(1);
        }
        self.forget_if_idle(key);
    }

    fn forget_if_idle(&mut self, key: &str) {
        if self.by_key.get(key).is_some_and(|lane| lane.names.is_empty() && lane.at_work == 0) {
            self.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_lane_that_is_idle() {
        let mut lanes = Lanes::new(|name| name.split('/').next().unwrap_or_default());
        for name in ["a/1", "a/2", "b/1"] {
            assert!(lanes.add(name));
        }
        assert!(!lanes.add("a/1") && lanes.remove("a/1") && !lanes.remove("a/1"));
        assert_eq!(lanes.take(|_| true).as_deref(), Some("a/2"));
        assert!(lanes.remove("b/1") && lanes.is_empty() && lanes.order.is_empty());
        assert_eq!(lanes.by_key.len(), 1, "a/2 is at work");
        lanes.done("a/2");
        assert!(lanes.by_key.is_empty() && lanes.turns.is_empty());
    }
}
