//! Limits how often a message is logged, since messages that any client can cause must not fill the log.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Permits one message per interval.
#[derive(Debug)]
pub(super) struct Seldom {
    pause: Duration,
    last: Mutex<Option<Instant>>,
}

impl Seldom {
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause, last: Mutex::new(None) }
    }

    /// Whether the message may be logged now. If so, the pause begins.
    pub(super) fn may(&self) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock();
        if last.is_some_and(|last| now.duration_since(last) < self.pause) {
            return false;
        }
        *last = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_in_a_while() {
        let seldom = Seldom::new(Duration::from_secs(60));
        assert!(seldom.may() && !seldom.may());
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!seldom.may());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(seldom.may() && !seldom.may());
    }
}
