//! Which pools this daemon watches for leftovers, so that it looks at each of them once.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

/// The pools that somebody watches: hypervisor and pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweeps(Arc<Mutex<HashSet<(String, String)>>>);

impl Sweeps {
    /// Whether nobody watches the pool yet. If so, the caller does from now on.
    pub(super) fn begin(&self, pool: &(String, String)) -> bool {
        self.0.lock().insert(pool.clone())
    }

    pub(super) fn end(&self, pool: &(String, String)) {
        self.0.lock().remove(pool);
    }
}
