//! The clocks that tell whether a term is over.
//!
//! The monotonic clock, on which timers run, stops while the machine is suspended, but other machines
//! continue. So the time here is the monotonic time plus the time that the machine was suspended (on Linux:
//! `CLOCK_BOOTTIME`). A virtual machine that its hypervisor paused does not know about the pause. But its
//! time of day is usually corrected soon after, so the time of day is a second indication.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

/// The machine's other information about time, besides its monotonic clock.
pub trait TimeSource: fmt::Debug + Send + Sync {
    /// How long the machine has been suspended since it was started.
    fn suspended(&self) -> Duration;
    /// The time of day.
    fn wall(&self) -> Timestamp;
}

/// A clock that continues while the machine is suspended. Its [`Instant`]s can be compared only with each
/// other, since tokio's clock stops during a suspension. Clones share the clock.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Arc<dyn TimeSource>,
    /// The suspended time when this clock was created.
    begin: Duration,
}

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The time on a [`Clock`].
    pub at: Instant,
    /// The time of day.
    pub wall: Timestamp,
}

impl Clock {
    /// The clock of this machine.
    pub fn system() -> Self {
        Self::of(Arc::new(System))
    }

    /// A clock from this source and from tokio's clock.
    pub fn of(source: Arc<dyn TimeSource>) -> Self {
        let begin = source.suspended();
        Self { source, begin }
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        // The order matters: whatever happens between the two readings, the sum is a time between them.
        let suspended = self.source.suspended().saturating_sub(self.begin);
        Instant::now() + suspended
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { at: self.now(), wall: self.source.wall() }
    }

    /// The time left until `deadline`.
    pub(super) fn left(&self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(self.now())
    }

    /// Waits until `deadline`. If the machine is suspended meanwhile, the rest of the wait follows the
    /// suspension, so this may end after `deadline`.
    pub(super) async fn sleep_until(&self, deadline: Instant) {
        sleep(self.left(deadline)).await;
    }
}

impl Moment {
    /// What is left of `length` since this moment, on the clock that is ahead.
    pub(super) fn left_of(self, length: Duration, now: Self) -> Duration {
        let by_wall = Duration::try_from(now.wall.duration_since(self.wall)).unwrap_or_default();
        length.saturating_sub(by_wall.max(now.at.saturating_duration_since(self.at)))
    }

    /// Whether `length` has passed since this moment, on either clock.
    pub(super) fn is_over(self, length: Duration, now: Self) -> bool {
        self.left_of(length, now).is_zero()
    }
}

/// The times that Linux reports.
#[derive(Clone, Copy, Debug)]
struct System;

impl TimeSource for System {
    #[cfg(target_os = "linux")]
    fn suspended(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        suspended_by(|| read(ClockId::Boottime), || read(ClockId::Monotonic))
    }

    #[cfg(not(target_os = "linux"))]
    fn suspended(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The suspended time of a machine, from a clock that continues while it is suspended and one that stops.
#[cfg(any(target_os = "linux", test))]
fn suspended_by(boot: impl FnOnce() -> Duration, monotonic: impl FnOnce() -> Duration) -> Duration {
    // Read in this order, so that the result is never too large.
    let boot = boot();
    boot.saturating_sub(monotonic())
}

#[cfg(test)]
pub(super) mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// A machine whose suspensions and time of day a test controls.
    #[derive(Debug, Default)]
    pub(in crate::leader_election) struct Machine {
        suspended: Mutex<Duration>,
        wall: Mutex<Timestamp>,
    }

    impl Machine {
        /// Suspends the machine for this long.
        pub(in crate::leader_election) fn suspend(&self, time: Duration) {
            *self.suspended.lock() += time;
        }

        /// Moves the time of day forward or back by so many seconds.
        pub(in crate::leader_election) fn set_wall(&self, seconds: i64) {
            let mut wall = self.wall.lock();
            *wall = Timestamp::from_second(wall.as_second() + seconds).expect("a time");
        }
    }

    impl TimeSource for Machine {
        fn suspended(&self) -> Duration {
            *self.suspended.lock()
        }
        fn wall(&self) -> Timestamp {
            *self.wall.lock()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_machine_sleeps_through_counts() {
        let machine = Arc::new(Machine::default());
        machine.suspend(Duration::from_secs(1000));
        let clock = Clock::of(machine.clone());
        let (start, second) = (clock.now(), Duration::from_secs(1));
        assert_eq!(start, Instant::now(), "what was before does not count");
        tokio::time::advance(second).await;
        assert_eq!(clock.now(), start + second);
        machine.suspend(60 * second);
        assert_eq!(clock.now(), start + 61 * second);
        let before = Instant::now();
        clock.sleep_until(start + 60 * second).await;
        assert_eq!(Instant::now(), before, "it was over");
        clock.sleep_until(start + 63 * second).await;
        assert_eq!(before.elapsed(), 2 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_is_over_by_whichever_clock() {
        let machine = Arc::new(Machine::default());
        let clock = Clock::of(machine.clone());
        let (began, term) = (clock.moment(), Duration::from_secs(12));
        let is_over = || began.is_over(term, clock.moment());
        machine.set_wall(11);
        assert!(!is_over());
        machine.set_wall(1);
        assert!(is_over());
        machine.set_wall(-3600);
        assert!(!is_over());
        machine.suspend(term);
        assert!(is_over());
    }

    #[test]
    fn what_one_clock_is_ahead_of_the_other_was_slept() {
        let second = Duration::from_secs(1);
        for (boot, monotonic, slept) in [(90, 30, 60), (30, 30, 0), (30, 31, 0)] {
            assert_eq!(suspended_by(|| boot * second, || monotonic * second), slept * second);
        }
        // Time that passes between the two readings does not count as suspended.
        let passed = std::cell::Cell::new(5 * second);
        let read = || passed.replace(passed.get() + second);
        assert_eq!(suspended_by(read, read), Duration::ZERO);
    }

    #[test]
    fn the_systems_clock_moves_with_the_monotonic_one() {
        let clock = Clock::system();
        let (before, ours, after) = (Instant::now(), clock.now(), Instant::now());
        let off = Duration::from_millis(100);
        assert!(ours + off >= before && ours <= after + off, "this machine was not suspended meanwhile");
    }
}
