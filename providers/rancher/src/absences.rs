//! Who has no machine, remembered: a Node without a machine does not cost a listing for each look-up.

use std::{collections::HashSet, hash::Hash};

use tokio::time::Instant;

/// More than a cluster has Nodes.
const MAX_ABSENCES: usize = 10_000;

/// Absences that a listing has confirmed.
#[derive(Debug)]
pub(crate) struct Absences<K> {
    confirmed: HashSet<K>,
    /// From then on they have to be confirmed by a new listing.
    until: Option<Instant>,
}

impl<K> Default for Absences<K> {
    fn default() -> Self {
        Self { confirmed: HashSet::new(), until: None }
    }
}

impl<K: Eq + Hash> Absences<K> {
    /// Whether it is known that this one is absent.
    pub(crate) fn are_known_of(&self, sought: &K) -> bool {
        self.until.is_some_and(|until| Instant::now() < until) && self.confirmed.contains(sought)
    }

    /// Remembers an absence that a listing has just confirmed.
    pub(crate) fn add(&mut self, sought: K) {
        if self.confirmed.len() >= MAX_ABSENCES {
            self.confirmed.clear();
        }
        self.confirmed.insert(sought);
    }

    /// Forgets those who are there now.
    pub(crate) fn keep(&mut self, is_absent: impl FnMut(&K) -> bool) {
        self.confirmed.retain(is_absent);
    }

    /// What is remembered, and what will be, counts until then.
    pub(crate) fn count_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Forgets everything. What is added later does not count before the next listing.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_absence_counts_for_a_time_and_takes_no_endless_memory() {
        let mut absences = Absences::default();
        absences.add(0);
        assert!(!absences.are_known_of(&0), "no listing yet");
        absences.count_until(Instant::now() + Duration::from_secs(30));
        assert!(absences.are_known_of(&0) && !absences.are_known_of(&1));
        absences.keep(|sought| *sought != 0);
        assert!(!absences.are_known_of(&0));
        (0..=MAX_ABSENCES).for_each(|n| absences.add(n));
        assert!(absences.are_known_of(&MAX_ABSENCES) && absences.confirmed.len() <= MAX_ABSENCES);
        advance(Duration::from_secs(30)).await;
        assert!(!absences.are_known_of(&MAX_ABSENCES), "too old");
    }
}
