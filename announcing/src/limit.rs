//! How long the kernel may keep addresses.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{LIFETIME, RENEW_INTERVAL};

/// How late the kernel removes an address at most, with some time for the request to reach it. It looks about once a second.
const REMOVAL_DELAY: Duration = Duration::from_secs(2);

/// The shortest time between two renewals.
const MIN_RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// Says how long from now this process may hold addresses.
type Question = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How long this process may hold addresses. Without a question for that: as long as it works. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Limit(Arc<Mutex<Option<Question>>>);

impl Limit {
    pub(crate) fn set(&self, question: Question) {
        *self.0.lock() = Some(question);
    }

    /// How long the kernel may keep an address that is set now, in whole seconds. Zero: it must not be set.
    pub(crate) fn lifetime(&self) -> Duration {
        let question = self.0.lock().clone();
        lifetime(question.map_or(Duration::MAX, |ask| ask()))
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").finish_non_exhaustive()
    }
}

/// The lifetime of an address that must be gone after `limit`.
fn lifetime(limit: Duration) -> Duration {
    Duration::from_secs(limit.saturating_sub(REMOVAL_DELAY).as_secs()).min(LIFETIME)
}

/// When to renew addresses of this lifetime: two renewals may fail, if there is time for that.
pub(crate) fn renew_interval(lifetime: Duration) -> Duration {
    (lifetime / 3).clamp(MIN_RENEW_INTERVAL, RENEW_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_address_is_gone_before_the_limit() {
        for (limit, expected) in [
            (Duration::MAX, 9 * SECOND),
            (13 * SECOND, 9 * SECOND),
            (11 * SECOND, 9 * SECOND),
            (Duration::from_millis(10_999), 8 * SECOND),
            (3 * SECOND, SECOND),
            (Duration::from_millis(2_999), Duration::ZERO),
            (Duration::ZERO, Duration::ZERO),
        ] {
            assert_eq!(lifetime(limit), expected, "{limit:?}");
        }
    }

    #[test]
    fn a_short_life_is_renewed_more_often() {
        for (lifetime, interval) in [(9, 3), (6, 2), (3, 1), (1, 1), (0, 1)] {
            assert_eq!(renew_interval(lifetime * SECOND), interval * SECOND, "{lifetime}");
        }
    }

    #[test]
    fn the_question_is_asked_each_time() {
        let limit = Limit::default();
        assert_eq!(limit.lifetime(), LIFETIME);
        let left = Arc::new(Mutex::new(20));
        limit.set({
            let left = Arc::clone(&left);
            Arc::new(move || *left.lock() * SECOND)
        });
        assert_eq!(limit.clone().lifetime(), LIFETIME);
        *left.lock() = 5;
        assert_eq!(limit.lifetime(), 3 * SECOND);
    }
}
