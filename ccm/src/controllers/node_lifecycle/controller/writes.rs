//! Patches and deletions, and the records and reports of their results.

use std::sync::Arc;

use component::{events::EventType, inspection::Inspection};
use controller_kit::{
    nodes::{Node, NodePatch},
    writes::{WriteError, WrittenVersion},
};
use futures::{StreamExt, future::ready, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{super::silence::SilentKubelet, NodeLifecycleController};

/// What to write about one Node after a look.
pub(super) enum Write {
    Patch(Arc<Node>, NodePatch, &'static str),
    /// With the proof that the Node's kubelet is silent.
    Delete(Arc<Node>, SilentKubelet),
}

impl NodeLifecycleController {
    /// Sends the writes, few at a time. `inspection` is told of each finished one. After `stop` is cancelled,
    /// no write begins.
    pub(super) async fn write(
        &mut self,
        writes: Vec<Write>,
        stop: &CancellationToken,
        inspection: &Inspection,
    ) {
        let now = Instant::now();
        let mut writes = writes;
        // The deletions of one decision are all sent at once, so a proof is hardly ever too old here. If it
        // is, the Node is not deleted, but looked at again at once.
        writes.retain(|write| match write {
            Write::Delete(node, proof) if !proof.proves(node, now) => {
                self.due.insert(node.name().to_owned(), now);
                false
            }
            Write::Delete(..) | Write::Patch(..) => true,
        });
        // Deletions come first, so that patches do not delay them.
        writes.sort_by_key(|write| matches!(write, Write::Patch(..)));
        for write in &writes {
            if let Write::Delete(node, _) = write {
                self.announce(node);
            }
        }
        let writer = &self.writer;
        let outcomes: Vec<(Write, Result<WrittenVersion, WriteError>)> = stream::iter(writes)
            .take_while(|_| ready(!stop.is_cancelled()))
            .map(|write| async move {
                let outcome = match &write {
                    Write::Patch(node, patch, _) => writer.patch(node.name(), patch).await,
                    // The request may be throttled or retried, but only while the proof is valid.
                    Write::Delete(node, proof) => {
                        writer.delete(node, proof.good_until()).await.map(|()| WrittenVersion::new())
                    }
                };
                (write, outcome)
            })
            .buffer_unordered(self.options.concurrent_syncs)
            .inspect(|_| inspection.moved_on())
            .collect()
            .await;
        for (write, outcome) in outcomes {
            match write {
                Write::Patch(node, _, what) => self.patched(&node, what, outcome),
                Write::Delete(node, _) => self.deleted(&node, outcome),
            }
        }
    }

    /// Records upstream's event before the deletion, once for each Node, even if the deletion is retried.
    fn announce(&mut self, node: &Node) {
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        if !std::mem::replace(&mut memory.announced, true) {
            let message =
                format!("Deleting node {} because it does not exist in the cloud provider", node.name());
            if !self.options.dry_run {
                tracing::info!(node = node.name(), "{message}");
            }
            self.events.record(node.event_object(), EventType::Normal, "DeletingNode", message);
        }
    }

    fn patched(&mut self, node: &Node, what: &'static str, outcome: Result<WrittenVersion, WriteError>) {
        let now = Instant::now();
        let memory = self.memory_of(node, now);
        match outcome {
            Ok(version) => {
                memory.write_worked(version);
                if !self.options.dry_run {
                    tracing::info!(node = node.name(), what, "node updated");
                }
            }
            Err(WriteError::Gone) => memory.gone = Some(now),
            Err(error) => {
                let again = memory.write_failed(now);
                self.due.insert(node.name().to_owned(), again);
                tracing::warn!(node = node.name(), what, %error, "node not updated, trying again");
            }
        }
    }

    fn deleted(&mut self, node: &Node, outcome: Result<WrittenVersion, WriteError>) {
        let result = if outcome.is_ok() { "deleted" } else { "failed" };
        if !self.options.dry_run {
            self.metrics.deleted_nodes.with_label_values(&[result]).inc();
        }
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        let Err(error) = outcome else {
            memory.deleted = true;
            return;
        };
        self.due.insert(node.name().to_owned(), memory.write_failed(Instant::now()));
        let is_as_judged =
            self.nodes.get(node.name()).is_some_and(|now| now.resource_version == node.resource_version);
        if matches!(error, WriteError::Stale(_)) && !is_as_judged {
            // The Node has changed since it was judged. It is judged again, without a report.
            return;
        }
        let message = format!("Failed deleting node {}: {error}", node.name());
        tracing::error!(node = node.name(), %error, "node not deleted, trying again");
        self.events.record(node.event_object(), EventType::Warning, "DeletingNodeFailed", message);
    }
}
