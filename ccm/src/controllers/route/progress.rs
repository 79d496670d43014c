//! How far a pass has come.

use std::{collections::HashSet, fmt};

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    jobs::Subject,
    pass::Listed,
    retries::{Failure, Work},
    step::Step,
};

/// The pass under way.
pub(super) struct Current {
    pub(super) number: u64,
    /// What earlier passes worked on when this one began.
    pub(super) under_way: HashSet<Subject>,
    /// Cancelled when nothing more of it is to be begun.
    pub(super) over: CancellationToken,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    Listing(BoxFuture<'static, Result<Listed, Failure>>),
    Working(Progress),
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Waits until the pass under way has its list.
pub(super) async fn listed(current: &mut Option<Current>) -> Result<Listed, Failure> {
    match current {
        Some(Current { stage: Stage::Listing(listing), .. }) => listing.await,
        _ => std::future::pending().await,
    }
}

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
