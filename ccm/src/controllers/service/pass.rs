//! How long it takes until every load balancer knows of a change of the back ends.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

/// The time since the back ends changed. Another change that comes before its end belongs to it.
#[derive(Debug)]
pub(super) struct NodePass {
    began: Instant,
    /// The Services whose load balancers still have to be told.
    waiting: HashSet<String>,
}

impl NodePass {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), waiting: HashSet::new() }
    }

    pub(super) fn wait_for(&mut self, keys: impl IntoIterator<Item = String>) {
        self.waiting.extend(keys);
    }

    pub(super) fn waits_for(&self, key: &str) -> bool {
        self.waiting.contains(key)
    }

    /// Takes out a Service whose load balancer was told, or will not be told.
    pub(super) fn leave(&mut self, key: &str) {
        self.waiting.remove(key);
    }

    /// How long it took, if every load balancer was told.
    pub(super) fn ended(&self) -> Option<Duration> {
        self.waiting.is_empty().then(|| self.began.elapsed())
    }
}
