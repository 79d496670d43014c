//! How fast one API server may send.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes a second that all answers of one API server may have together.
const RATE: f64 = 4.0 * 1024.0 * 1024.0;
/// Bytes that may come at once: a list of some 4,000 Nodes.
const BURST: f64 = 64.0 * 1024.0 * 1024.0;
/// What each answer counts at least, in bytes, since an empty one costs time too.
pub(super) const LEAST: usize = 16 * 1024;

/// A bucket of bytes, which the answers of one API server share.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new(Bucket { left: BURST, at: Instant::now() }))
    }
}

impl Pace {
    /// Takes bytes that have come, and gives how long to wait before more are read. `None`: not at all.
    pub(super) fn take(&self, bytes: usize) -> Option<Duration> {
        let mut bucket = self.0.lock();
        let now = Instant::now();
        let earned = now.saturating_duration_since(bucket.at).as_secs_f64() * RATE;
        bucket.at = now;
        bucket.left = (bucket.left + earned).min(BURST) - f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        (bucket.left < 0.0).then(|| Duration::from_secs_f64(-bucket.left / RATE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_the_rest_waits() {
        let pace = Pace::default();
        assert_eq!(pace.take(64 << 20), None);
        assert_eq!(pace.take(8 << 20), Some(Duration::from_secs(2)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pace.take(4 << 20), Some(Duration::from_secs(1)), "the debt is paid and no more");
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(pace.take(64 << 20), None, "never more than the burst");
        assert!(pace.take(1).is_some());
    }
}
