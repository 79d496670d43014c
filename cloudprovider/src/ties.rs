//! Which of several instances with one identity a Node means. Pure.
//!
//! A copy by a backup tool, an entry of the inventory that was left behind, or a migration has two instances carry the UUID of one Node. A
//! provider says what is known of each, and [`the_meant_one`] compares them.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use crate::PowerState;

/// At this number of Nodes all are forgotten.
const MOST_NODES: usize = 16_384;

/// Where the name of a Node is found on an instance. A later one says more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameFound {
    /// Nowhere, or the guest has another name.
    #[default]
    Nowhere,
    /// It is the name in the cloud, and the guest reports none.
    InCloud,
    /// The guest reports it as its host name.
    InGuest,
}

/// How much an instance does. A later one does more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// It is off, or that is not known.
    #[default]
    Off,
    /// It is paused, suspended, or being shut down: its memory is kept.
    Held,
    /// It runs.
    Running,
}

impl From<PowerState> for Activity {
    fn from(state: PowerState) -> Self {
        match state {
            PowerState::Running => Self::Running,
            PowerState::Paused | PowerState::ShuttingDown => Self::Held,
            PowerState::Off | PowerState::Crashed => Self::Off,
        }
    }
}

/// What is known of an instance that may be the one of a Node. Of two instances the greater one is meant: the first field in which
/// they differ decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    /// It carries the mark of the object that asks.
    pub is_marked: bool,
    /// The cloud has it in its hands: it is neither orphaned, inaccessible nor invalid.
    pub is_connected: bool,
    /// Whether it runs.
    pub activity: Activity,
    /// Where the Node's name is found.
    pub name: NameFound,
    /// It reports an address that the Node has.
    pub has_address: bool,
    /// It was the one that was last found for this Node.
    pub was_last_seen: bool,
}

/// An instance that may be the one of a Node.
#[derive(Clone, Copy, Debug)]
pub struct Contender<T> {
    /// The instance.
    pub instance: T,
    /// What is known of it. If it cannot be read now, that is what was known last.
    pub evidence: Evidence,
    /// Whether the part of the cloud that has it can be read now.
    pub is_read: bool,
}

/// The end of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant<T> {
    /// There are no instances.
    None,
    /// This one.
    One(T),
    /// This one cannot be read now, and may be the one that is meant.
    Unread(T),
    /// Nothing that is known tells them apart.
    Tie,
}

/// The instance that a Node means.
///
/// An instance that cannot be read now may have been started since. So where there is such a one, another is meant only if that runs.
pub fn the_meant_one<T: Clone>(contenders: &[Contender<T>]) -> Meant<T> {
    let Some(best) = contenders.iter().max_by_key(|one| one.evidence) else { return Meant::None };
    let unread = || contenders.iter().find(|one| !one.is_read).map(|one| Meant::Unread(one.instance.clone()));
    if !best.is_read {
        return Meant::Unread(best.instance.clone());
    }
    if contenders.iter().filter(|one| one.evidence == best.evidence).count() > 1 {
        return unread().unwrap_or(Meant::Tie);
    }
    let runs = best.evidence.is_connected && best.evidence.activity == Activity::Running;
    match unread() {
        Some(unread) if !runs => unread,
        _ => Meant::One(best.instance.clone()),
    }
}

/// Which instance was last found for each Node.
#[derive(Debug)]
pub struct LastSeen<T> {
    by_node: Mutex<HashMap<String, T>>,
}

impl<T> Default for LastSeen<T> {
    fn default() -> Self {
        Self { by_node: Mutex::default() }
    }
}

impl<T> LastSeen<T> {
    /// Whether the last one that was found for the Node is one for which this is true.
    pub fn is(&self, node: &str, is_it: impl FnOnce(&T) -> bool) -> bool {
        self.by_node().get(node).is_some_and(is_it)
    }

    /// Notes the one that was found for a Node.
    pub fn note(&self, node: &str, found: T) {
        let mut by_node = self.by_node();
        if let Some(known) = by_node.get_mut(node) {
            *known = found;
            return;
        }
        if by_node.len() >= MOST_NODES {
            by_node.clear();
        }
        by_node.insert(node.to_owned(), found);
    }

    fn by_node(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.by_node.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_found_for_a_node_is_known() {
        let seen = LastSeen::default();
        assert!(!seen.is("a", |one| *one == 1));
        seen.note("a", 1);
        seen.note("b", 2);
        assert!(seen.is("a", |one| *one == 1) && seen.is("b", |one| *one == 2));
        seen.note("a", 3);
        assert!(seen.is("a", |one| *one == 3));
        for number in 0..2 * MOST_NODES {
            seen.note(&number.to_string(), number);
            assert!(seen.by_node().len() <= MOST_NODES);
        }
    }

    fn plain() -> Evidence {
        Evidence { is_connected: true, activity: Activity::Running, ..Evidence::default() }
    }

    fn meant(contenders: &[(Evidence, bool)]) -> Meant<usize> {
        let contender = |(instance, (evidence, is_read)): (usize, &(Evidence, bool))| Contender {
            instance,
            evidence: *evidence,
            is_read: *is_read,
        };
        the_meant_one(&contenders.iter().enumerate().map(contender).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_difference_decides() {
        let lost = Evidence { is_connected: false, ..plain() };
        let off = Evidence { activity: Activity::Off, ..plain() };
        let held = Evidence { activity: Activity::Held, ..plain() };
        let in_guest = Evidence { name: NameFound::InGuest, ..plain() };
        let in_cloud = Evidence { name: NameFound::InCloud, ..plain() };
        let addressed = Evidence { has_address: true, ..plain() };
        let seen = Evidence { was_last_seen: true, ..plain() };
        for (better, worse) in [
            (Evidence { is_marked: true, ..Evidence::default() }, in_guest),
            (off, lost),
            (plain(), Evidence { name: NameFound::InGuest, has_address: true, ..off }),
            (plain(), held),
            (held, off),
            (in_guest, in_cloud),
            (in_cloud, addressed),
            (addressed, seen),
            (seen, plain()),
        ] {
            assert_eq!(meant(&[(better, true), (worse, true)]), Meant::One(0), "{better:?} {worse:?}");
            assert_eq!(meant(&[(worse, true), (better, true)]), Meant::One(1), "{better:?} {worse:?}");
        }
    }

    #[test]
    fn what_nothing_tells_apart_is_a_tie() {
        assert_eq!(meant(&[]), Meant::None);
        assert_eq!(meant(&[(Evidence::default(), true)]), Meant::One(0));
        assert_eq!(meant(&[(plain(), true), (plain(), true)]), Meant::Tie);
        let off = Evidence { activity: Activity::Off, ..plain() };
        assert_eq!(meant(&[(off, true), (plain(), true), (plain(), true)]), Meant::Tie);
        assert_eq!(meant(&[(off, true), (plain(), true), (off, true)]), Meant::One(1));
    }

    #[test]
    fn what_cannot_be_read_may_run_by_now() {
        let off = Evidence { activity: Activity::Off, ..plain() };
        let orphaned = Evidence { is_connected: false, ..plain() };
        assert_eq!(meant(&[(plain(), false)]), Meant::Unread(0));
        assert_eq!(meant(&[(plain(), true), (off, false)]), Meant::One(0), "it runs");
        assert_eq!(meant(&[(off, true), (off, false)]), Meant::Unread(1));
        assert_eq!(meant(&[(off, true), (plain(), false)]), Meant::Unread(1));
        assert_eq!(meant(&[(plain(), true), (plain(), false)]), Meant::Unread(1), "both may run");
        let named = Evidence { name: NameFound::InGuest, ..off };
        assert_eq!(meant(&[(named, true), (off, false)]), Meant::Unread(1), "the other may run by now");
        assert_eq!(meant(&[(orphaned, true), (orphaned, false)]), Meant::Unread(1));
    }
}
