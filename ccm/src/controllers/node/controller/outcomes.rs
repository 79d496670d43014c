//! Handles the outcome for one Node: what is remembered and reported, and when the Node is tried again.

use std::{sync::Arc, time::Duration};

use component::{backoff::Backoff, events::EventType};
use controller_kit::{conditions::WantedCondition, nodes::Node, writes::GONE_FOR};
use tokio::time::Instant;

use super::{NodeController, Write};
use crate::controllers::node::sync::Outcome;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(30) };

/// Bounds for a provider's `retry_after`.
const RETRY_AFTER: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);

/// Where only a change of the cloud or of the configuration can help, a Node is tried no more often than this. Such changes are
/// pushed, or seen in the next period.
const HOPELESS: Duration = Duration::from_secs(60);

/// The reason of the event about a Node that is not initialised.
const INITIALIZATION_FAILED: &str = "InitializationFailed";

impl NodeController {
    /// Notes the outcome for one Node and sets the time of the next try. Returns whether the Node's condition
    /// is to be written first.
    pub(super) fn settle(&mut self, name: &str, outcome: Outcome) -> bool {
        let Some(state) = self.states.get_mut(name) else { return false };
        let counted = state.counted();
        let mut report = None;
        let mut retry_in = None;
        state.gone = matches!(outcome, Outcome::Gone);
        match outcome {
            Outcome::Gone => {
                tracing::debug!(node = name, "the node is gone: waiting until the watch says so");
                retry_in = Some(GONE_FOR);
            }
            Outcome::Outdated => {
                tracing::debug!(node = name, "the node changed while the cloud was asked: trying again");
                retry_in = Some(BACKOFF.first);
            }
            Outcome::Right { metadata, warnings } => {
                // Logged once, and not in each period.
                if state.metadata.as_ref() != Some(&metadata) {
                    tracing::debug!(node = name, "the node is as the cloud says");
                }
                state.succeed();
                state.metadata = Some(metadata);
                warn(name, state.new_warnings(warnings));
            }
            Outcome::Repaired { node, version, metadata, warnings } => {
                state.succeed();
                state.tried = self.options.dry_run.then_some(node);
                state.metadata = Some(metadata);
                state.written = Some(version);
                state.repaired = Some(Instant::now());
                warn(name, state.new_warnings(warnings));
            }
            Outcome::Initialized { node, version, metadata, warnings } => {
                state.succeed();
                state.tried = self.options.dry_run.then_some(node);
                state.metadata = Some(metadata);
                state.written = Some(version);
                warn(name, state.new_warnings(warnings));
                if let Some(node) = self.shared.nodes.get(name) {
                    let message = "Node synced successfully";
                    self.events.record(node.event_object(), EventType::Normal, "Synced", message);
                }
            }
            Outcome::NotInitialized { node, fault, status_was_written } => {
                if status_was_written {
                    // The write has set the condition to `True`, so the report is due again.
                    state.forget_report();
                }
                report = state.fail(&node, &fault).map(|condition| (node.clone(), condition));
                if report.is_none() && state.is_reminder_due() {
                    self.events.record(
                        node.event_object(),
                        EventType::Warning,
                        INITIALIZATION_FAILED,
                        not_initialized(&fault.message),
                    );
                }
                state.tried = Some(node);
                let wait = match fault.retry_after {
                    Some(after) => after.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()),
                    None if fault.hopeless => HOPELESS,
                    None => BACKOFF.after(state.failures),
                };
                tracing::debug!(
                    node = name,
                    reason = fault.reason,
                    why = fault.message,
                    failures = state.failures,
                    "not initialized yet: trying again in {wait:.1?}"
                );
                retry_in = Some(wait);
            }
            Outcome::NoAnswer { node, untold } => {
                if state.tried.is_none() {
                    tracing::debug!(node = name, "the cloud has no answer: the node is left as it is");
                }
                // What follows from an absence is the node-lifecycle controller's task. Here the next period, or a pushed
                // change, looks at the Node again.
                let is_due = state.not_followed(untold.clone());
                if let Some(untold) = untold.filter(|_| is_due) {
                    tracing::warn!(
                        node = name,
                        reason = untold.reason,
                        why = untold.message,
                        "node not followed"
                    );
                    self.events.record(
                        node.event_object(),
                        EventType::Warning,
                        untold.reason,
                        untold.message,
                    );
                }
                state.tried = Some(node);
            }
            Outcome::NotRepaired { why } => {
                state.failures = state.failures.saturating_add(1);
                tracing::warn!(node = name, error = why, "node not updated, trying again");
                retry_in = Some(BACKOFF.after(state.failures));
            }
        }
        self.shared.metrics.recount(counted, state.counted());
        let Some(retry_in) = retry_in else { return false };
        if let Some((node, condition)) = report.filter(|_| !self.stopping) {
            self.report(node, condition, retry_in);
            return true;
        }
        self.queue.done(name);
        self.queue.retry_after(name, retry_in);
        false
    }

    /// Says in an event and in the Node's condition why it is not initialised.
    fn report(&mut self, node: Arc<Node>, condition: WantedCondition, retry_in: Duration) {
        let message = not_initialized(&condition.message);
        tracing::warn!(
            node = node.name(),
            reason = condition.reason,
            why = condition.message,
            "node not initialized"
        );
        self.events.record(node.event_object(), EventType::Warning, INITIALIZATION_FAILED, message);
        // Put before the writes that wait, since the next try of this Node has to come after it.
        self.writes.push_front(Write::Report(node, condition, retry_in));
    }
}

fn not_initialized(why: &str) -> String {
    format!("Node is not initialized: {why}")
}

fn warn(name: &str, warnings: Vec<String>) {
    for warning in warnings {
        tracing::warn!(node = name, "{warning}");
    }
}
