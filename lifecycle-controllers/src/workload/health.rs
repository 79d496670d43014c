//! Whether a workload cluster answers.

use std::time::Duration;

use tokio::time::Instant;

/// So many probes in a row have to fail.
const FAILURES: u32 = 3;
/// The time that lies at least between the first and the last of them.
const OVER: Duration = Duration::from_secs(10);
/// After so much silence a probe is due.
const SILENCE: Duration = Duration::from_secs(10);
/// A probe after a failed one comes sooner, so that an outage shows after some 12 s.
const AGAIN: Duration = Duration::from_secs(5);
/// The spread of both around their value, so that many clusters are not probed at once.
const JITTER: f64 = 0.2;

/// What the last probes said. An event of the watch counts as one that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    last_success: Option<Instant>,
    failures: u32,
    /// When the first of the failures was.
    failing_since: Option<Instant>,
}

impl Health {
    /// The cluster answered.
    pub(super) fn succeeded(&mut self, now: Instant) {
        *self = Self { last_success: Some(now), ..Self::default() };
    }

    /// The cluster did not answer. Gives whether it counts as away now.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        self.failures >= FAILURES && now.saturating_duration_since(since) >= OVER
    }

    /// When the last probe succeeded.
    pub(super) fn last_success(&self) -> Option<Instant> {
        self.last_success
    }

    /// How many failed since then.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// When the next probe is due, if the last one or the last event was at `last`.
    pub(super) fn next_probe(&self, last: Instant) -> Instant {
        let wait = if self.failures == 0 { SILENCE } else { AGAIN };
        last + wait.mul_f64(fastrand::f64().mul_add(2.0 * JITTER, 1.0 - JITTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_failures_over_ten_seconds_are_an_outage() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        // Seconds and outcomes of probes, and whether the cluster is away after the last.
        let table: [(&[(u64, bool)], bool); 6] = [
            (&[(0, false)], false),
            (&[(0, false), (5, false), (9, false)], false),
            (&[(0, false), (5, false), (9, false), (10, false)], true),
            (&[(0, false), (20, false)], false),
            (&[(0, false), (5, false), (6, true), (10, false), (15, false)], false),
            (&[(0, false), (5, false), (6, true), (10, false), (15, false), (20, false)], true),
        ];
        for (probes, is_away) in table {
            let mut health = Health::default();
            let mut last = false;
            for (seconds, answered) in probes {
                if *answered {
                    health.succeeded(at(*seconds));
                    last = false;
                } else {
                    last = health.failed(at(*seconds));
                }
            }
            assert_eq!(last, is_away, "{probes:?}");
        }
        let mut health = Health::default();
        let wait = |health: &Health| health.next_probe(begin).duration_since(begin).as_secs_f64();
        assert!((8.0..=12.0).contains(&wait(&health)));
        health.failed(begin);
        assert!((4.0..=6.0).contains(&wait(&health)));
        assert_eq!((health.failures(), health.last_success()), (1, None));
    }
}
