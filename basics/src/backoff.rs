//! Waits between retries.

use std::time::Duration;

/// Exponential backoff: doubles from `first` to `most`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest wait, before the spread.
    pub most: Duration,
}

impl Backoff {
    /// The wait after `failures` failures in a row (from 1), spread by up to 20 % so that many waiters do not
    /// return at the same moment.
    pub fn after(self, failures: u32) -> Duration {
        self.nominal(failures).mul_f64(fastrand::f64().mul_add(0.4, 0.8))
    }

    /// The same without the spread, never more than `most`: for a single waiter, or one that adds its own
    /// spread.
    pub fn nominal(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_most() {
        let backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(10) };
        for (failures, nominal) in [(1, 0.1), (2, 0.2), (4, 0.8), (8, 10.0), (u32::MAX, 10.0)] {
            assert_eq!(backoff.nominal(failures), Duration::from_secs_f64(nominal));
            let wait = backoff.after(failures).as_secs_f64();
            assert!((nominal * 0.79..=nominal * 1.21).contains(&wait), "{failures}: {wait}");
        }
    }
}
