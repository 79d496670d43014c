//! Writes that are sent and not yet on a tape.
//!
//! The API server shows a write before its answer has reached the daemon, and a tape has it only then. A test that saw the
//! object change waits for the tape before it reads or clears it.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

/// The writes in flight, by the name of their object. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<watch::Sender<BTreeMap<String, usize>>>);

impl InFlight {
    /// A write of this object is in flight until the result is dropped.
    pub(crate) fn enter(&self, name: &str) -> Flight {
        self.0.send_modify(|all| *all.entry(name.to_owned()).or_default() += 1);
        Flight { all: self.clone(), name: name.to_owned() }
    }

    /// Waits until no write of this object is in flight.
    pub(crate) async fn none_of(&self, name: &str) {
        let mut all = self.0.subscribe();
        // The sender lives as long as this.
        let _ = all.wait_for(|all| all.get(name).is_none_or(|count| *count == 0)).await;
    }
}

/// A write in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    all: InFlight,
    name: String,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.all.0.send_modify(|all| {
            if let Some(count) = all.get_mut(&self.name) {
                *count -= 1;
            }
        });
    }
}
