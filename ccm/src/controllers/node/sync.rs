//! The work on one Node: decide, then write. Runs in a task, many at once.

use std::sync::Arc;

use cloudprovider::{InstanceLookup, InstanceMetadata};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::{
    UNINITIALIZED_TAINT,
    initialize::{Initialization, NotInitialized, initialize},
    repair::{Repair, no_longer_waiting, repair},
    state::age_seconds,
};
use crate::{
    cloud::Cloud,
    metrics::Metrics,
    nodes::{Node, NodePatch, NodeStore, NodeWriter, WriteError, WrittenVersion},
};

/// What the tasks need.
#[derive(Debug)]
pub(super) struct Shared {
    pub nodes: NodeStore,
    pub cloud: Cloud,
    pub writer: NodeWriter,
    pub metrics: Metrics,
    /// One for each Node that may be written at the same time.
    pub permits: Semaphore,
    /// `--dry-run`: writes have no effect, and are told where they are answered.
    pub dry_run: bool,
}

/// What came out for one Node.
pub(super) enum Outcome {
    /// The Node is gone, or another one by now: whatever is known of it does not count.
    Outdated,
    /// Nothing had to be written.
    Right { metadata: InstanceMetadata, warnings: Vec<String> },
    /// With the Node that this was decided on.
    Initialized {
        node: Arc<Node>,
        version: WrittenVersion,
        metadata: InstanceMetadata,
        warnings: Vec<String>,
    },
    /// With the Node that this was decided on.
    Repaired { node: Arc<Node>, version: WrittenVersion, metadata: InstanceMetadata, warnings: Vec<String> },
    /// With the Node that this was decided on.
    NotInitialized { node: Arc<Node>, fault: NotInitialized, status_was_written: bool },
    /// An initialised Node that the cloud has no answer for.
    NoAnswer { node: Arc<Node> },
    /// An initialised Node that could not be written.
    NotRepaired { why: String },
}

impl Shared {
    /// Decides on one Node and writes. The Node is read again first: it may have changed while the cloud was asked
    /// and while this waited for its turn, and the answer is about the one that was asked about.
    pub(super) async fn sync(&self, asked: &Node, answer: InstanceLookup) -> Outcome {
        // Closed never: the semaphore lives as long as `self`.
        let _permit = self.permits.acquire().await;
        let Some(node) = self.nodes.get(asked.name()) else { return Outcome::Outdated };
        let who = |node: &Node| {
            let id = node.identity.clone();
            (id.uid, id.provider_id, id.system_uuid, id.machine_id)
        };
        if who(&node) != who(asked) {
            return Outcome::Outdated;
        }
        if node.has_taint(UNINITIALIZED_TAINT) {
            let provider = self.cloud.provider();
            return match initialize(&node, &answer, provider.name(), Timestamp::now()) {
                Ok(plan) => self.initialize(node, plan, answer).await,
                Err(fault) => Outcome::NotInitialized { node, fault, status_was_written: false },
            };
        }
        if let InstanceLookup::Present(instance) = answer {
            let plan = repair(&node, &instance.metadata, Timestamp::now());
            return self.repair(node, plan, instance.metadata).await;
        }
        if let Some(condition) = no_longer_waiting(&node)
            && let Err(error) =
                self.writer.patch(node.name(), &condition.to_patch(&node, Timestamp::now())).await
        {
            return Outcome::NotRepaired { why: error.to_string() };
        }
        Outcome::NoAnswer { node }
    }

    async fn initialize(&self, node: Arc<Node>, plan: Initialization, answer: InstanceLookup) -> Outcome {
        let mut status_was_written = false;
        if let Some(patch) = &plan.status {
            match self.writer.patch(node.name(), patch).await {
                Ok(_) => status_was_written = true,
                Err(WriteError::Gone) => return Outcome::Outdated,
                Err(error) => {
                    let fault = NotInitialized::write_failed(error.to_string());
                    return Outcome::NotInitialized { node, fault, status_was_written };
                }
            }
        }
        let version = match self.writer.patch(node.name(), &plan.main).await {
            Ok(version) => version,
            Err(WriteError::Gone) => return Outcome::Outdated,
            Err(error) => {
                let fault = NotInitialized::write_failed(error.to_string());
                return Outcome::NotInitialized { node, fault, status_was_written };
            }
        };
        if !self.dry_run {
            let age = age_seconds(&node);
            self.metrics.taint_removal_delay.observe(age);
            self.metrics.initial_node_sync_delay.observe(age);
        }
        let metadata = match answer {
            InstanceLookup::Present(instance) => {
                let id = node.identity.provider_id.as_deref().unwrap_or(instance.provider_id.as_str());
                if !self.dry_run {
                    tracing::info!(node = node.name(), provider_id = id, "node initialized");
                }
                instance.metadata
            }
            InstanceLookup::Absent | InstanceLookup::Unknown(_) => InstanceMetadata::default(),
        };
        Outcome::Initialized { node, version, metadata, warnings: plan.warnings }
    }

    async fn repair(&self, node: Arc<Node>, plan: Repair, metadata: InstanceMetadata) -> Outcome {
        if plan.patches.is_empty() {
            return Outcome::Right { metadata, warnings: plan.warnings };
        }
        let mut version = WrittenVersion::new();
        for patch in &plan.patches {
            match self.writer.patch(node.name(), patch).await {
                Ok(written) => version = written,
                Err(WriteError::Gone) => return Outcome::Outdated,
                Err(error) => return Outcome::NotRepaired { why: error.to_string() },
            }
            if !self.dry_run {
                let what = if matches!(patch, NodePatch::Status(_)) { "addresses" } else { "labels" };
                tracing::info!(node = node.name(), what, "node follows the cloud");
            }
        }
        Outcome::Repaired { node, version, metadata, warnings: plan.warnings }
    }
}
