//! Requests to write at once what waits in the queue.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// How long a flush may take. Also what the queue gets when the daemon stops.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How many flushes were asked for, and how many of them are done. Cloning shares it.
#[derive(Clone)]
pub(super) struct Flushes {
    asked: Arc<watch::Sender<u64>>,
    done: Arc<watch::Sender<u64>>,
}

impl Flushes {
    pub(super) fn new() -> Self {
        Self { asked: Arc::new(watch::Sender::new(0)), done: Arc::new(watch::Sender::new(0)) }
    }

    /// Asks the writer for a flush, and waits until it is done or its time is over.
    pub(super) async fn ask(&self) {
        let mut done = self.done.subscribe();
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        // The writer keeps to the same time. This one is for a writer that does not run.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, done.wait_for(|done| *done >= number)).await;
    }

    /// For the writer: the flushes that are asked for.
    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// For the writer: all flushes up to this number are done.
    pub(super) fn done(&self, number: u64) {
        self.done.send_replace(number);
    }
}
