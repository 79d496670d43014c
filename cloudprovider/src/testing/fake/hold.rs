//! Calls that wait until the test lets them go on.

use std::sync::Arc;

use super::{FakeCloud, Operation, gate::Gate};

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
        self.gate.inside()
    }

    /// Lets the calls go on that are held now, and no later ones.
    pub fn let_go(&self) {
        self.gate.let_go();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.cloud
            .lock()
            .gates
            .retain(|operation, gate| *operation != self.operation || !Arc::ptr_eq(gate, &self.gate));
        self.gate.open();
    }
}

impl FakeCloud {
    /// Holds all calls of this operation that begin from now on. [`count`](Self::count) and [`calls`](Self::calls) show them as soon
    /// as they begin.
    pub fn hold(&self, operation: Operation) -> Held {
        let gate = Arc::new(Gate::shut());
        self.lock().gates.insert(operation, Arc::clone(&gate));
        Held { cloud: self.clone(), operation, gate }
    }
}
