//! The bootstrap part: KubeadmConfigs, and the data by which kubeadm makes their machines Nodes.

use component::inspection::Inspection;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{gate::PartTerm, options::LifecycleOptions};

/// Runs the controllers of the part for one term, until `stop` is cancelled. Writes that have begun are finished.
///
/// # Errors
/// Something of the controllers may go on.
pub async fn run(
    term: PartTerm,
    options: LifecycleOptions,
    stop: CancellationToken,
    mut inspection: Inspection,
) -> cloudprovider::Result<()> {
    tracing::debug!(part = term.part.name, ?options, "no controllers yet");
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            question = inspection.question() => question.answer(json!({})),
        }
    }
}
