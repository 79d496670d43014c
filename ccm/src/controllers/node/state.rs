//! What the node controller remembers of a Node between its syncs.

use std::{sync::Arc, time::Duration};

use cloudprovider::{InstanceMetadata, LogOnce};
use component::debug_state::seconds_from_now;
use controller_kit::{
    conditions::{INITIALIZED, WantedCondition},
    nodes::Node,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{initialize::NotInitialized, metrics::Counted, reminder::Reminder, repair::Untold};

/// How long a fault is not reported that may go away by itself, such as a missing lease or a write conflict.
const IN_PROGRESS_GRACE: Duration = Duration::from_secs(5);

/// The same reason with another message is reported no more often than this.
const REWORDING_INTERVAL: Duration = Duration::from_secs(60);

/// What is remembered of one Node. All of it can be lost: the next sync finds it out again.
#[derive(Debug, Default)]
pub(super) struct NodeState {
    /// The UID of the Node.
    pub uid: String,
    /// Whether the API server said that the Node does not exist any more. Until the watch shows that too, changes of the Node
    /// do not matter.
    pub gone: bool,
    /// Failures in a row.
    pub failures: u32,
    /// The Node as it was at the last try without success. In a dry run, also the Node as it was when it would have been
    /// written.
    pub tried: Option<Arc<Node>>,
    /// When the failures in a row began.
    failing_since: Option<Instant>,
    /// What was reported last, and when.
    reported: Option<(NotInitialized, Instant)>,
    /// The events that say why the Node is not initialised.
    reminder: Option<Reminder>,
    /// Why the Node waits now, for the metric.
    pub waiting_for: Option<&'static str>,
    /// The resource version that our own last write produced: older ones in the cache are skipped.
    pub written: Option<String>,
    /// What the cloud said last of an initialised Node. With it, a change of the Node that leaves it right costs no look-up.
    pub metadata: Option<InstanceMetadata>,
    /// When drift was last repaired.
    pub repaired: Option<Instant>,
    /// What was said of a Node that is not followed.
    untold: Option<(Untold, Reminder)>,
    /// The last warnings, so that each is logged once.
    warned: LogOnce,
}

impl NodeState {
    /// An empty state for the Node with this UID.
    pub(super) fn new(uid: &str) -> Self {
        Self { uid: uid.to_owned(), ..Self::default() }
    }

    /// Notes a failure. Returns the condition to write and to send as an event, if the failure is to be
    /// reported now.
    pub(super) fn fail(&mut self, node: &Node, fault: &NotInitialized) -> Option<WantedCondition> {
        let now = Instant::now();
        // Where the provider says when to try again, that is no failure.
        if fault.retry_after.is_none() {
            self.failures = self.failures.saturating_add(1);
        }
        self.waiting_for = Some(fault.reason);
        let since = *self.failing_since.get_or_insert(now);
        if fault.in_progress && now.duration_since(since) < IN_PROGRESS_GRACE {
            return None;
        }
        let due = match &self.reported {
            None => true,
            Some((before, _)) if before.reason != fault.reason => true,
            Some((before, at)) => {
                before.message != fault.message && now.duration_since(*at) >= REWORDING_INTERVAL
            }
        };
        if !due {
            return None;
        }
        self.reported = Some((fault.clone(), now));
        self.reminder = Some(Reminder::begin());
        let condition = WantedCondition::new(INITIALIZED, "False", fault.reason, fault.message.clone());
        (!condition.is_on(node)).then_some(condition)
    }

    /// Whether the event about a fault that lasts is due again.
    pub(super) fn is_reminder_due(&mut self) -> bool {
        self.reminder.as_mut().is_some_and(Reminder::is_due)
    }

    /// Notes that the Node is initialised and not followed, for a reason that may be worth an event. Returns whether the event is
    /// due now.
    pub(super) fn not_followed(&mut self, untold: Option<Untold>) -> bool {
        let before = self.untold.take();
        self.succeed();
        let Some(untold) = untold else { return false };
        let (reminder, is_due) = match before {
            Some((said, mut reminder)) if said == untold => {
                let is_due = reminder.is_due();
                (reminder, is_due)
            }
            _ => (Reminder::begin(), true),
        };
        self.untold = Some((untold, reminder));
        is_due
    }

    /// Why the Node is initialised and not followed.
    fn not_followed_for(&self) -> Option<&'static str> {
        self.untold.as_ref().map(|(untold, _)| untold.reason)
    }

    /// Where the Node is counted.
    pub(super) fn counted(&self) -> Counted {
        Counted { uninitialized: self.waiting_for, unfollowed: self.not_followed_for() }
    }

    /// The report could not be written, or was overwritten. It is due again.
    pub(super) fn forget_report(&mut self) {
        self.reported = None;
    }

    /// Notes a success.
    pub(super) fn succeed(&mut self) {
        self.failures = 0;
        self.failing_since = None;
        self.reported = None;
        self.reminder = None;
        self.waiting_for = None;
        self.tried = None;
        self.untold = None;
    }

    /// For `/debug/state`.
    pub(super) fn to_json(&self) -> Value {
        let last_result = match (self.waiting_for, &self.metadata) {
            (Some(_), _) => "NotInitialized",
            (None, Some(_)) => "Right",
            (None, None) if self.tried.is_some() => "NoInstance",
            (None, None) => "NotAsked",
        };
        json!({
            "lastResult": last_result,
            "waitingFor": self.waiting_for,
            "notFollowedFor": self.not_followed_for(),
            "reported": self.reported.as_ref().map(|(fault, at)| json!({
                "reason": fault.reason,
                "message": fault.message,
                "secondsAgo": -seconds_from_now(*at),
            })),
            "failures": self.failures,
            "failingForSeconds": self.failing_since.map(|since| -seconds_from_now(since)),
            "repairedSecondsAgo": self.repaired.map(|at| -seconds_from_now(at)),
            "warnings": self.warned.all().collect::<Vec<_>>(),
            "instance": self.metadata.as_ref().map(|metadata| json!({
                "type": metadata.instance_type,
                "zone": metadata.zone,
                "region": metadata.region,
                "addresses": metadata
                    .addresses
                    .iter()
                    .map(|address| format!("{} {}", address.address_type, address.address))
                    .collect::<Vec<_>>(),
                "additionalLabels": metadata.additional_labels,
            })),
        })
    }

    /// The warnings that were not there the last time.
    pub(super) fn new_warnings(&mut self, warnings: Vec<String>) -> Vec<String> {
        self.warned.change_to(warnings)
    }
}

/// Seconds since the Node was created, not below zero.
pub(super) fn age_seconds(node: &Node) -> f64 {
    node.created.map_or(0.0, |created| Timestamp::now().duration_since(created).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(reason: &'static str, message: &str, in_progress: bool) -> NotInitialized {
        NotInitialized { reason, message: message.into(), retry_after: None, in_progress, hopeless: false }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_reported_once() {
        let (mut state, node) = (NodeState::default(), Node::default());
        assert!(state.fail(&node, &fault("A", "x", false)).is_some());
        assert!(state.fail(&node, &fault("A", "x", false)).is_none());
        assert!(state.fail(&node, &fault("B", "x", false)).is_some());
        assert!(state.fail(&node, &fault("B", "y", false)).is_none(), "only the words changed");
        tokio::time::advance(REWORDING_INTERVAL).await;
        assert!(state.fail(&node, &fault("B", "y", false)).is_some());
        assert_eq!(state.failures, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn what_mends_itself_is_reported_late() {
        let (mut state, node) = (NodeState::default(), Node::default());
        assert!(state.fail(&node, &fault("A", "x", true)).is_none());
        tokio::time::advance(IN_PROGRESS_GRACE).await;
        assert!(state.fail(&node, &fault("A", "x", true)).is_some());
        state.succeed();
        assert!(state.fail(&node, &fault("A", "x", true)).is_none());
    }
}
