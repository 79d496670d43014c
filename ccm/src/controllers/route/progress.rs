//! How far a pass has come.

use std::collections::HashSet;

use tokio::time::Instant;

use super::{retries::Work, step::Step};

/// How far a pass has come since it was planned.
#[derive(Debug)]
pub(super) struct Progress {
    /// When it was planned.
    pub(super) since: Instant,
    /// Jobs that have not ended.
    pub(super) open: usize,
    /// How many routes Nodes should have, and how many of them are missing.
    pub(super) wanted: usize,
    pub(super) missing: usize,
    /// Whether a route was made or deleted.
    pub(super) has_changed: bool,
    /// What is tried later.
    pub(super) waits: HashSet<Work>,
    /// The lines for the log that hold.
    pub(super) lines: HashSet<String>,
}

impl Progress {
    /// Takes note of one step.
    pub(super) fn note(&mut self, step: &Step) {
        match step {
            Step::Created => {
                self.missing = self.missing.saturating_sub(1);
                self.has_changed = true;
            }
            Step::Deleted => self.has_changed = true,
            Step::Failed(failure) | Step::InProgress(failure) => {
                self.waits.insert(failure.work.clone());
            }
            Step::NotDue(work) | Step::UnderWay(work) => {
                self.waits.insert(work.clone());
            }
            Step::Would(what) => {
                self.lines.insert(what.clone());
            }
            Step::Written { .. } | Step::Stopped => {}
        }
    }
}
