//! When an address is announced. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// How long after an address was set it is announced: several times, since neighbours do not confirm.
const BURST: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// How often an address is announced after that, for neighbours that missed it.
const INTERVAL: Duration = Duration::from_secs(30);

/// The announcements of one address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    began: Instant,
    sent: usize,
    due: Instant,
}

impl Schedule {
    /// A schedule with its first announcement at once.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { began: now, sent: 0, due: now }
    }

    /// When the next announcement is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Notes that an announcement was sent, or could not be.
    pub(crate) fn done(&mut self, now: Instant) {
        self.sent += 1;
        self.due = match BURST.get(self.sent) {
            Some(after) => self.began + *after,
            None => now + INTERVAL,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_every_half_minute() {
        let began = Instant::now();
        let mut schedule = Schedule::begin(began);
        let mut seen = Vec::new();
        for _ in 0..7 {
            let due = schedule.due();
            seen.push((due - began).as_millis());
            schedule.done(due);
        }
        assert_eq!(seen, [0, 100, 500, 1_000, 2_000, 32_000, 62_000]);
    }

    #[test]
    fn a_late_announcement_is_not_made_up_for() {
        let began = Instant::now();
        let mut schedule = Schedule::begin(began);
        let late = began + Duration::from_secs(600);
        for _ in 0..BURST.len() {
            schedule.done(late);
        }
        assert_eq!(schedule.due(), late + INTERVAL);
    }
}
