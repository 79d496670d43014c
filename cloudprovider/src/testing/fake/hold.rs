//! Calls that wait until the test lets them go on.

use std::sync::{Arc, PoisonError};

use tokio::sync::Semaphore;

use super::{FakeCloud, Operation};

/// Where calls of an operation wait.
pub(super) struct Gate {
    /// One permit for each call that may go on.
    open: Semaphore,
    /// How many calls have come, and how many of them may go on.
    counts: std::sync::Mutex<(usize, usize)>,
}

impl Gate {
    /// Waits until the test lets this call go on.
    pub(super) async fn pass(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).0 += 1;
        // An error means that the gate is open for good.
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
    }
}

/// The calls of an operation that begin while this exists: they do not answer. Look-ups and zones use the instances as they were when
/// the call began. When it is dropped, all of them go on.
#[must_use]
pub struct Held {
    cloud: FakeCloud,
    operation: Operation,
    gate: Arc<Gate>,
}

impl Held {
    /// How many calls are held now.
    pub fn inside(&self) -> usize {
        let counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 - counts.1
    }

    /// Lets the calls go on that are held now, and no later ones.
    pub fn let_go(&self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.open.add_permits(counts.0 - counts.1);
        counts.1 = counts.0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.cloud
            .lock()
            .gates
            .retain(|operation, gate| *operation != self.operation || !Arc::ptr_eq(gate, &self.gate));
        self.gate.open.close();
    }
}

impl FakeCloud {
    /// Holds all calls of this operation that begin from now on. [`count`](Self::count) and [`calls`](Self::calls) show them as soon
    /// as they begin.
    pub fn hold(&self, operation: Operation) -> Held {
        let gate = Arc::new(Gate { open: Semaphore::new(0), counts: std::sync::Mutex::default() });
        self.lock().gates.insert(operation, Arc::clone(&gate));
        Held { cloud: self.clone(), operation, gate }
    }
}
