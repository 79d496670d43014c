//! The work on one Node: decide, then write. Runs in a task, many at once.

use std::{sync::Arc, time::Duration};

use cloudprovider::{InstanceLookup, InstanceMetadata, ProviderId};
use controller_kit::{
    cloud::Cloud,
    conditions::WantedCondition,
    nodes::{Node, NodePatch, NodeStore, NodeWriter},
    writes::{WriteError, WrittenVersion},
};
use jiff::Timestamp;
use tokio::time::timeout;

use super::{
    ForeignValue, UNINITIALIZED_TAINT,
    initialize::{Initialization, NotInitialized, initialize},
    metrics::NodeMetrics,
    repair::{Repair, Untold, no_longer_waiting, repair, untold},
    state::age_seconds,
};

/// How long the watch may take to show a patch before the next one is sent anyway.
const LONGEST_LAG: Duration = Duration::from_millis(200);

/// What the tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub nodes: NodeStore,
    pub cloud: Cloud,
    pub writer: NodeWriter,
    pub metrics: NodeMetrics,
    pub foreign_labels: ForeignValue,
    /// `--dry-run`: writes have no effect, and each is logged where it is answered.
    pub dry_run: bool,
}

/// The outcome for one Node.
pub(super) enum Outcome {
    /// The Node is gone, or was replaced by another one. What is known of it does not count any more.
    Outdated,
    /// The API server does not have this Node any more, and another one may have its name. The watch has not shown that yet.
    Gone,
    /// Nothing had to be written.
    Right { metadata: InstanceMetadata, warnings: Vec<String> },
    /// The Node could not be initialised. `node` is the version that this was decided on.
    Initialized {
        node: Arc<Node>,
        version: WrittenVersion,
        metadata: InstanceMetadata,
        warnings: Vec<String>,
    },
    /// The Node could not be initialised. `node` is the version that this was decided on.
    Repaired { node: Arc<Node>, version: WrittenVersion, metadata: InstanceMetadata, warnings: Vec<String> },
    /// The Node could not be initialised. `node` is the version that this was decided on.
    NotInitialized { node: Arc<Node>, fault: NotInitialized, status_was_written: bool },
    /// The Node is initialised, and the cloud has no answer for it. `untold` is what nothing else says of it.
    NoAnswer { node: Arc<Node>, untold: Option<Untold> },
    /// The Node is initialised, and could not be written.
    NotRepaired { why: String },
}

/// The API server does not have a Node any more.
pub(super) struct Gone;

impl Shared {
    /// Decides on one Node and writes. The Node is read again first, since it may have changed while the cloud was asked and
    /// while this waited for its turn. The answer holds only for the Node that the cloud was asked about.
    pub(super) async fn sync(&self, asked: &Node, answer: InstanceLookup, failed_before: bool) -> Outcome {
        let Some(node) = self.nodes.get(asked.name()) else { return Outcome::Outdated };
        if !node.is_same_instance(asked) {
            return Outcome::Outdated;
        }
        if node.has_taint(UNINITIALIZED_TAINT) {
            return match initialize(&node, &answer, &self.cloud.name(), Timestamp::now()) {
                Ok(plan) => self.initialize(node, plan, answer, failed_before).await,
                Err(fault) => Outcome::NotInitialized { node, fault, status_was_written: false },
            };
        }
        let untold = untold(&node, &answer);
        if let InstanceLookup::Present(instance) = answer {
            let plan = repair(&node, &instance.metadata, self.foreign_labels, Timestamp::now());
            return self.repair(node, plan, instance.metadata).await;
        }
        if let Some(condition) = no_longer_waiting(&node)
            && let Err(error) =
                self.writer.patch(node.name(), &condition.to_patch(&node, Timestamp::now())).await
        {
            return match error {
                WriteError::Gone => Outcome::Gone,
                error => Outcome::NotRepaired { why: error.to_string() },
            };
        }
        Outcome::NoAnswer { node, untold }
    }

    async fn initialize(
        &self,
        node: Arc<Node>,
        mut plan: Initialization,
        answer: InstanceLookup,
        failed_before: bool,
    ) -> Outcome {
        let mut status_was_written = false;
        let version = match self.write(&node, &mut plan, failed_before, &mut status_was_written).await {
            Ok(version) => version,
            Err(WriteError::Gone) => return Outcome::Gone,
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
                if !self.dry_run {
                    let given = instance.provider_id.as_ref().map(ProviderId::as_str);
                    let id = node.identity.provider_id.as_deref().or(given).unwrap_or_default();
                    tracing::info!(node = node.name(), provider_id = id, "node initialized");
                }
                instance.metadata
            }
            InstanceLookup::Absent | InstanceLookup::Unknown(_) => InstanceMetadata::default(),
        };
        Outcome::Initialized { node, version, metadata, warnings: plan.into_warnings() }
    }

    /// Writes addresses and condition first, then everything else with the removal of the taint. As long as nobody else writes
    /// to the Node, each patch is for the version that the one before produced, which costs the API server least. After a
    /// conflict, patches guard only the fields that matter. So they do for a Node that could not be written before.
    async fn write(
        &self,
        node: &Node,
        plan: &mut Initialization,
        failed_before: bool,
        status_was_written: &mut bool,
    ) -> Result<WrittenVersion, WriteError> {
        let name = node.name();
        let mut version = (!failed_before).then(|| node.resource_version.clone());
        if let Some(status) = &mut plan.status {
            version = self.write_version(name, version, status).await?;
            if version.is_none() {
                status.set_version(None);
                self.writer.patch(name, status).await?;
            }
            *status_was_written = true;
        }
        if let (Some(main), Some(written)) = (&mut plan.quick_main, &version) {
            // As long as the API server's own cache does not have the first patch, it applies the second one twice.
            let shown = timeout(LONGEST_LAG, self.nodes.until_shown(name, written)).await;
            // Somebody else may have written to the Node since. Then this patch would be refused.
            let is_outdated =
                shown.is_ok_and(|shown| shown.is_some_and(|node| node.resource_version != *written));
            if !is_outdated && let Some(version) = self.write_version(name, version, main).await? {
                return Ok(version);
            }
        }
        self.writer.patch(name, &plan.guarded_main(node)).await
    }

    /// Patches the Node if it has this version, and gives the version that it has then. `None`: it has another one, or no
    /// version was given.
    async fn write_version(
        &self,
        name: &str,
        version: Option<WrittenVersion>,
        patch: &mut NodePatch,
    ) -> Result<Option<WrittenVersion>, WriteError> {
        let Some(version) = version.filter(|version| !version.is_empty()) else { return Ok(None) };
        patch.set_version(Some(&version));
        match self.writer.patch(name, patch).await {
            Ok(written) => Ok(Some(written)),
            Err(WriteError::Stale(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the condition that says why a Node is not initialised. Gives no version where it cannot be written, or where the
    /// Node is initialised by now.
    ///
    /// # Errors
    /// The API server does not have this Node any more.
    pub(super) async fn report(
        &self,
        node: &Node,
        condition: &WantedCondition,
    ) -> Result<Option<WrittenVersion>, Gone> {
        let Some(now) = self.nodes.get(node.name()) else { return Ok(None) };
        if now.identity.uid != node.identity.uid || !now.has_taint(UNINITIALIZED_TAINT) {
            return Ok(None);
        }
        let written = self.writer.patch(node.name(), &condition.to_patch(node, Timestamp::now())).await;
        match written {
            Ok(version) => Ok(Some(version)),
            Err(WriteError::Gone) => Err(Gone),
            Err(error) => {
                tracing::warn!(node = node.name(), %error, "condition not written, trying again");
                Ok(None)
            }
        }
    }

    async fn repair(&self, node: Arc<Node>, plan: Repair, metadata: InstanceMetadata) -> Outcome {
        if plan.patches.is_empty() {
            return Outcome::Right { metadata, warnings: plan.warnings };
        }
        let mut version = WrittenVersion::new();
        for patch in &plan.patches {
            match self.writer.patch(node.name(), patch).await {
                Ok(written) => version = written,
                Err(WriteError::Gone) => return Outcome::Gone,
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
