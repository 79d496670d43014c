//! How long to wait for the response to a wait for changes.

use std::time::Duration;

use crate::{session::CALL_DEADLINE, vim::CallError};

/// How much later than asked for a response to a wait may come, at first.
const WAIT_MARGIN: Duration = Duration::from_secs(20);

/// How often the margin doubles at most: up to about five minutes.
const MAX_DOUBLINGS: u32 = 4;

/// Doubles the margin with each response in a row that did not come.
///
/// The response may be lost, or the server may be slow. Only the first is mended by a new session. To a slow
/// server, its logins and listings are more work, so each further session waits longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Patience {
    /// Sessions in a row that ended because no response came.
    late: u32,
}

impl Patience {
    /// When to give up a wait that the server may hold for this long.
    pub(super) fn deadline(self, longest: Duration) -> Duration {
        CALL_DEADLINE.max(longest + WAIT_MARGIN * 2_u32.pow(self.late.min(MAX_DOUBLINGS)))
    }

    /// Notes why following has ended, and how long it lasted. After a long time, in which other waits were
    /// answered, the margin begins anew.
    pub(super) fn note(&mut self, error: &CallError, lasted: Duration) {
        self.late = match error {
            CallError::Timeout { method: "WaitForUpdatesEx", after } if lasted >= *after * 3 => 1,
            CallError::Timeout { method: "WaitForUpdatesEx", .. } => self.late.saturating_add(1),
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(45);

    fn timeout(after: u64) -> CallError {
        CallError::Timeout { method: "WaitForUpdatesEx", after: Duration::from_secs(after) }
    }

    #[test]
    fn a_server_that_stays_slow_gets_more_time_in_each_session_up_to_a_limit() {
        let mut patience = Patience::default();
        let mut seconds = Vec::new();
        for _ in 0..7 {
            let deadline = patience.deadline(LONGEST);
            seconds.push(deadline.as_secs());
            patience.note(&timeout(deadline.as_secs()), deadline + Duration::from_secs(5));
        }
        assert_eq!(seconds, [65, 85, 125, 205, 365, 365, 365]);
    }

    #[test]
    fn what_is_no_late_response_needs_no_more_time() {
        let lost = CallError::Unreachable { method: "WaitForUpdatesEx", reason: "reset".into() };
        let other = CallError::Timeout { method: "Login", after: CALL_DEADLINE };
        for error in [lost, other] {
            let mut patience = Patience { late: 3 };
            patience.note(&error, Duration::from_secs(70));
            assert_eq!(patience, Patience::default(), "{error}");
        }
    }

    #[test]
    fn a_lost_response_long_after_a_slow_time_is_noticed_soon() {
        let mut patience = Patience { late: 3 };
        patience.note(&timeout(205), Duration::from_secs(3600));
        assert_eq!(patience.deadline(LONGEST).as_secs(), 85);
    }

    #[test]
    fn a_page_of_the_listing_gets_more_time_too() {
        assert_eq!(Patience::default().deadline(Duration::ZERO), CALL_DEADLINE);
        assert!(Patience { late: 4 }.deadline(Duration::ZERO) > CALL_DEADLINE);
    }
}
