//! What the breaker goes by, and what is told when it opens or closes.

use super::{
    super::{
        breaker::{BreakerLimits, Seen, Turn},
        decide::{is_allowed, is_excluded},
    },
    NodeLifecycleController,
};
use crate::events::EventType;

impl NodeLifecycleController {
    /// Counts over everything known, not over this batch: pushes come one by one. Where nobody is absent a closed breaker
    /// stays closed, and a thousand Nodes that come one by one are not counted a thousand times.
    pub(super) fn update_breaker(&mut self) {
        if !self.breaker.is_open() && self.absent.is_empty() {
            return;
        }
        let mut seen = Vec::new();
        for (name, memory) in &self.memories {
            let Some(node) = self.nodes.get(name).filter(|node| node.identity.uid == memory.uid) else {
                continue;
            };
            // Its taint may have been ours to remove; its instance is nobody's yet, and is not counted.
            if node.identity.provider_id.is_none() {
                continue;
            }
            let is_decided = is_excluded(&node) || is_allowed(&node);
            let now = match (memory.absence, memory.is_present) {
                (Some(_), _) if is_decided => Seen::AbsentByDecision,
                (Some(_), _) => Seen::Absent,
                (None, true) => Seen::Present,
                (None, false) => Seen::Unknown,
            };
            seen.push((memory.uid.clone(), now));
        }
        let limits = self.options.breaker;
        let BreakerLimits { count, percent } = limits;
        match self.breaker.update(&seen, limits) {
            None => {}
            Some(Turn::Opened { absent, total }) => {
                tracing::error!(
                    absent,
                    total,
                    count,
                    percent,
                    "node deletions are stopped: too many nodes would vanish at once"
                );
                let message = format!(
                    "Node deletions are stopped: the cloud provider has no instance for {absent} of {total} nodes (limits: more than {count} nodes and more than {percent} %)"
                );
                self.events.record(
                    self.events.daemon(),
                    EventType::Warning,
                    "DeletionBreakerOpened",
                    message,
                );
            }
            Some(Turn::Inherited { held, total }) => {
                tracing::error!(
                    held,
                    total,
                    "node deletions stay stopped: they were before this process began to lead"
                );
                let message = format!(
                    "Node deletions stay stopped: an earlier leader held back {held} of {total} nodes whose instances are still missing"
                );
                self.events.record(
                    self.events.daemon(),
                    EventType::Warning,
                    "DeletionBreakerOpened",
                    message,
                );
            }
            Some(Turn::Closed { absent, total }) => {
                tracing::info!(absent, total, "node deletions are allowed again");
                let message =
                    format!("Node deletions are allowed again: {absent} of {total} nodes have no instance");
                self.events.record(self.events.daemon(), EventType::Normal, "DeletionBreakerClosed", message);
            }
        }
        self.metrics.deletion_breaker_open.set(self.breaker.is_open().into());
    }
}
