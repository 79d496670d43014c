//! Requests to write all waiting events at once.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// Time limit of a flush. The queue gets the same time when the daemon stops.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How many flushes were requested, and how many of them are done. Clones share the numbers.
#[derive(Clone)]
pub(super) struct Flushes {
    asked: Arc<watch::Sender<u64>>,
    done: Arc<watch::Sender<u64>>,
}

impl Flushes {
    pub(super) fn new() -> Self {
        Self { asked: Arc::new(watch::Sender::new(0)), done: Arc::new(watch::Sender::new(0)) }
    }

    /// Requests a flush, and waits until it is done or has timed out.
    pub(super) async fn ask(&self) {
        let mut done = self.done.subscribe();
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        // The writer keeps to the same limit. This timeout is for a writer that does not run.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, done.wait_for(|done| *done >= number)).await;
    }

    /// For the writer: the number of requested flushes.
    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// For the writer: reports that all flushes up to this number are done.
    pub(super) fn done(&self, number: u64) {
        self.done.send_replace(number);
    }
}
