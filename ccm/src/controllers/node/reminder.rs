//! When an event that still holds is written again.

use std::time::Duration;

use component::backoff::Backoff;
use tokio::time::Instant;

/// API servers drop an event after an hour by default. The pauses grow, so that a Node that nobody mends costs few events.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(600), most: Duration::from_secs(6 * 3600) };

/// What was said last, how often, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reminder {
    said_at: Instant,
    times: u32,
}

impl Reminder {
    /// Begins with the first event, now.
    pub(super) fn begin() -> Self {
        Self { said_at: Instant::now(), times: 1 }
    }

    /// Whether the event is due again. If so, it counts as written now.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.said_at.elapsed() >= PAUSES.nominal(self.times);
        if is_due {
            *self = Self { said_at: Instant::now(), times: self.times.saturating_add(1) };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow() {
        let minute = Duration::from_secs(60);
        let (mut reminder, mut at) = (Reminder::begin(), Vec::new());
        for passed in 1..=24 * 60 {
            tokio::time::advance(minute).await;
            if reminder.is_due() {
                at.push(passed);
            }
        }
        assert_eq!(at, [10, 30, 70, 150, 310, 630, 990, 1350]);
    }
}
