//! The parts that are switched on one by one: which controllers each has, and how they run for one term.

pub mod bootstrap;
pub mod core;

use component::inspection::Inspection;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// In a dry run a part does nothing: each step builds on what the one before has written, and workload clusters know no dry run.
async fn idle(part: &str, stop: CancellationToken, mut inspection: Inspection) {
    tracing::info!(part, "dry run: the lifecycle controllers do nothing");
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            question = inspection.question() => question.answer(json!({"dryRun": true})),
        }
    }
}
