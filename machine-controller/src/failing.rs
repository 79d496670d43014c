//! How many objects of each namespace fail. Their steps cost calls and places that others wait for, so their
//! pauses grow with their number.

use std::{collections::HashMap, time::Duration};

/// Up to so many objects of a namespace that fail, each has the pauses of its own.
const FREE: usize = 300;

/// The average time between steps of failing objects of one namespace, if there are more. 300 objects are
/// tried once a minute then, as the longest pause of a single one is.
const INTERVAL: Duration = Duration::from_millis(200);

/// The longest pause. What was mended in the cloud is seen by then.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// The numbers of objects that fail, by namespace.
#[derive(Debug, Default)]
pub(super) struct Failing(HashMap<String, usize>);

impl Failing {
    /// Takes note that an object of this namespace did or did not fail before, and does or does not now.
    pub(super) fn note(&mut self, namespace: &str, before: bool, now: bool) {
        match (before, now) {
            (false, true) => *self.0.entry(namespace.to_owned()).or_default() += 1,
            (true, false) => {
                let Some(count) = self.0.get_mut(namespace) else { return };
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.0.remove(namespace);
                }
            }
            (true, true) | (false, false) => {}
        }
    }

    /// The least pause after a step that failed, of an object of this namespace.
    pub(super) fn least_pause(&self, namespace: &str) -> Duration {
        match self.0.get(namespace) {
            Some(count) if *count > FREE => {
                INTERVAL.saturating_mul(u32::try_from(*count).unwrap_or(u32::MAX)).min(MAX_PAUSE)
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_failing_objects_of_the_own_namespace() {
        let mut failing = Failing::default();
        for _ in 0..FREE {
            failing.note("team-a", false, true);
        }
        failing.note("team-b", false, true);
        assert_eq!(failing.least_pause("team-a"), Duration::ZERO);
        failing.note("team-a", true, true);
        assert_eq!(failing.least_pause("team-a"), Duration::ZERO, "it is counted once");
        failing.note("team-a", false, true);
        assert_eq!(failing.least_pause("team-a"), Duration::from_millis(301 * 200));
        for _ in FREE + 1..10_000 {
            failing.note("team-a", false, true);
        }
        assert_eq!(failing.least_pause("team-a"), Duration::from_secs(2_000));
        for _ in 0..100_000 {
            failing.note("team-a", false, true);
        }
        assert_eq!(failing.least_pause("team-a"), MAX_PAUSE);
        assert_eq!(failing.least_pause("team-b"), Duration::ZERO);
        failing.note("team-b", true, false);
        failing.note("team-b", true, false);
        assert!(!failing.0.contains_key("team-b"));
    }
}
