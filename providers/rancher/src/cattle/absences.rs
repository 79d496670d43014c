//! Who has no host, remembered: a Node without a host does not cost a listing for each look-up.

use std::collections::HashSet;

use cloudprovider::{NodeIdentity, Result};
use tokio::time::Instant;

use crate::provider_id::parse_provider_id;

/// More than a cluster has Nodes.
const MAX_ABSENCES: usize = 10_000;

/// What the host of a Node is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sought {
    /// The UUID of its provider ID, in lower case.
    Uuid(String),
    /// Its name in lower case, if it has no provider ID.
    Name(String),
}

impl Sought {
    /// What the host of this Node is found by.
    ///
    /// # Errors
    /// If the provider ID is not that of a host.
    pub(crate) fn of(node: &NodeIdentity) -> Result<Self> {
        match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => parse_provider_id(id).map(Self::Uuid),
            None => Ok(Self::Name(node.name.to_ascii_lowercase())),
        }
    }
}

/// Absences that a listing has confirmed.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    confirmed: HashSet<Sought>,
    /// From then on they have to be confirmed by a new listing.
    until: Option<Instant>,
}

impl Absences {
    /// Whether it is known that this one has no host.
    pub(super) fn are_known_of(&self, sought: &Sought) -> bool {
        self.until.is_some_and(|until| Instant::now() < until) && self.confirmed.contains(sought)
    }

    /// Remembers an absence that a listing has just confirmed.
    pub(super) fn add(&mut self, sought: Sought) {
        if self.confirmed.len() >= MAX_ABSENCES {
            self.confirmed.clear();
        }
        self.confirmed.insert(sought);
    }

    /// Forgets those who have a host now.
    pub(super) fn keep(&mut self, is_absent: impl FnMut(&Sought) -> bool) {
        self.confirmed.retain(is_absent);
    }

    /// What is remembered, and what will be, counts until then.
    pub(super) fn count_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Forgets everything. What is added later does not count before the next listing.
    pub(super) fn forget(&mut self) {
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
        let name = |n: usize| Sought::Name(format!("node-{n}"));
        let mut absences = Absences::default();
        absences.add(name(0));
        assert!(!absences.are_known_of(&name(0)), "no listing yet");
        absences.count_until(Instant::now() + Duration::from_secs(30));
        assert!(absences.are_known_of(&name(0)) && !absences.are_known_of(&name(1)));
        absences.keep(|sought| *sought != name(0));
        assert!(!absences.are_known_of(&name(0)));
        (0..=MAX_ABSENCES).for_each(|n| absences.add(name(n)));
        assert!(absences.are_known_of(&name(MAX_ABSENCES)) && absences.confirmed.len() <= MAX_ABSENCES);
        advance(Duration::from_secs(30)).await;
        assert!(!absences.are_known_of(&name(MAX_ABSENCES)), "too old");
    }

    #[test]
    fn a_provider_id_is_all_that_counts() {
        let node = |id: &str| NodeIdentity {
            name: "Node-1".to_owned(),
            provider_id: Some(id.to_owned()),
            ..NodeIdentity::default()
        };
        assert_eq!(Sought::of(&node("rancher://ABC")).expect("ours"), Sought::Uuid("abc".to_owned()));
        assert_eq!(Sought::of(&node("")).expect("a name"), Sought::Name("node-1".to_owned()));
        Sought::of(&node("k3s://node-1")).expect_err("of another cloud");
    }
}
