//! When logs are looked at.

use std::{collections::HashMap, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::machines::identity::Identity;

/// How long a guest may take to come up before its log is looked at.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(300);

/// The time between two looks at the same log. Each other quotation is a write.
const LOOK_INTERVAL: Duration = Duration::from_secs(300);

/// The guests without an address.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<HashMap<Identity, Look>>);

#[derive(Debug)]
struct Look {
    next: Instant,
    words: Option<String>,
}

impl Looks {
    fn all(&self) -> MutexGuard<'_, HashMap<Identity, Look>> {
        self.0.lock()
    }

    /// Whether the log of a guest is to be looked at. The first question begins its time.
    pub(crate) fn is_due(&self, guest: &Identity, now: Instant) -> bool {
        let mut all = self.all();
        let look = all.entry(guest.clone()).or_insert_with(|| Look { next: now + FIRST_LOOK, words: None });
        look.next <= now
    }

    /// Remembers what was seen.
    pub(crate) fn set(&self, guest: &Identity, words: Option<String>, now: Instant) {
        self.all().insert(guest.clone(), Look { next: now + LOOK_INTERVAL, words });
    }

    /// What was seen last, and after what time to look again.
    pub(crate) fn last(&self, guest: &Identity, now: Instant) -> (Option<String>, Duration) {
        match self.all().get(guest) {
            Some(look) => (look.words.clone(), look.next.saturating_duration_since(now)),
            None => (None, FIRST_LOOK),
        }
    }

    /// The guest has an address, or is gone.
    pub(crate) fn forget(&self, guest: &Identity) {
        self.all().remove(guest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_looked_at_after_a_time_and_not_often() {
        let (looks, begin) = (Looks::default(), Instant::now());
        let guest = &Identity { namespace: "default".to_owned(), uid: uuid::Uuid::from_u128(1) };
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(!looks.is_due(guest, at(0)));
        assert_eq!(looks.last(guest, at(100)), (None, Duration::from_secs(200)));
        assert!(!looks.is_due(guest, at(299)) && looks.is_due(guest, at(300)));
        looks.set(guest, Some("panic".to_owned()), at(301));
        assert!(!looks.is_due(guest, at(600)) && looks.is_due(guest, at(601)));
        assert_eq!(looks.last(guest, at(600)), (Some("panic".to_owned()), Duration::from_secs(1)));
        looks.forget(guest);
        assert!(!looks.is_due(guest, at(900)), "its time begins anew");
    }
}
