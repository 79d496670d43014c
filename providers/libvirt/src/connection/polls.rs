//! Which domains are asked for addresses again, and when each of them is due.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

/// Domains that are polled, each at its own pace: the others do not make it more frequent.
#[derive(Debug, Default)]
pub(super) struct Polls(HashMap<Uuid, Poll>);

#[derive(Clone, Copy, Debug)]
struct Poll {
    since: Instant,
    due: Instant,
}

impl Polls {
    /// Polls a domain from now on, at once for the first time. Does nothing if it is polled already.
    pub(super) fn begin(&mut self, uuid: Uuid, now: Instant) {
        self.0.entry(uuid).or_insert(Poll { since: now, due: now });
    }

    /// The same, also for a domain that is polled already.
    pub(super) fn begin_anew(&mut self, uuid: Uuid, now: Instant) {
        self.0.insert(uuid, Poll { since: now, due: now });
    }

    /// Polls a domain no more.
    pub(super) fn end(&mut self, uuid: Uuid) {
        self.0.remove(&uuid);
    }

    /// Polls only those domains on that `is_wanted` accepts, which is given the time that each has been polled for.
    pub(super) fn keep(&mut self, now: Instant, is_wanted: impl Fn(Uuid, Duration) -> bool) {
        self.0.retain(|uuid, poll| is_wanted(*uuid, now.duration_since(poll.since)));
    }

    /// Takes those that are due. Each is due again after a pause that `pause` makes of the time since its beginning.
    pub(super) fn take_due(&mut self, now: Instant, pause: impl Fn(Duration) -> Duration) -> Vec<Uuid> {
        let mut due = Vec::new();
        for (uuid, poll) in self.0.iter_mut().filter(|(_, poll)| poll.due <= now) {
            poll.due = now + pause(now.duration_since(poll.since));
            due.push(*uuid);
        }
        due
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|poll| poll.due).min()
    }

    /// Who is polled.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<Uuid> {
        self.0.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_domain_has_its_own_pace() {
        let (mut polls, start) = (Polls::default(), Instant::now());
        let [old, new] = [1, 2].map(Uuid::from_u128);
        let at = |seconds| start + Duration::from_secs(seconds);
        let pause = |age: Duration| age.max(Duration::from_secs(1));
        let due = |polls: &mut Polls, seconds| {
            let mut due = polls.take_due(at(seconds), pause);
            due.sort_unstable();
            due
        };
        polls.begin(old, at(0));
        assert_eq!(due(&mut polls, 0), [old]);
        assert!(due(&mut polls, 0).is_empty(), "once");
        assert_eq!(due(&mut polls, 10), [old], "and again at 20 s");
        polls.begin(new, at(12));
        polls.begin(old, at(12));
        for second in 12..20 {
            assert!(!due(&mut polls, second).contains(&old), "not because of others");
        }
        assert_eq!(polls.next(), Some(at(20)));
        assert_eq!(due(&mut polls, 20), [old, new]);
        polls.begin_anew(old, at(21));
        polls.keep(at(21), |_, age| age < Duration::from_secs(9));
        assert_eq!(due(&mut polls, 21), [old]);
        polls.end(old);
        assert_eq!(polls.next(), None);
    }
}
