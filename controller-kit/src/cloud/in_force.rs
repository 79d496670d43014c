//! Since when a configuration is in force, and whether another one is tried beside it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct InForce {
    since: Mutex<Instant>,
    trials: AtomicUsize,
}

impl InForce {
    pub(super) fn new() -> Self {
        Self { since: Mutex::new(Instant::now()), trials: AtomicUsize::new(0) }
    }

    /// Notes that another configuration takes over.
    pub(super) fn begins(&self) {
        *self.since.lock() = Instant::now();
    }

    pub(super) fn settled_since(&self) -> Option<Instant> {
        let is_tried = self.trials.load(Ordering::SeqCst) > 0;
        (!is_tried).then(|| *self.since.lock())
    }
}

/// A guard: another configuration is being tried until it is dropped.
#[derive(Debug)]
pub struct Trial(Arc<InForce>);

impl Trial {
    pub(super) fn new(in_force: Arc<InForce>) -> Self {
        in_force.trials.fetch_add(1, Ordering::SeqCst);
        Self(in_force)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.0.trials.fetch_sub(1, Ordering::SeqCst);
    }
}
