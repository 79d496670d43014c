//! Updates the breaker, and reports when it opens or closes.

use component::events::EventType;

use super::{
    super::{
        breaker::{BreakerLimits, Seen, Turn},
        decide::{is_allowed, is_excluded},
    },
    NodeLifecycleController,
};

impl NodeLifecycleController {
    /// Counts all Nodes, not only those of one look, since changes from the provider arrive one by one. Only
    /// Nodes that changed since the last call are counted again, so frequent calls are cheap. While no Node
    /// is absent, a closed breaker stays closed.
    pub(super) fn update_breaker(&mut self) {
        let mut changed = std::mem::take(&mut self.uncounted);
        changed.extend(self.node_changes.take());
        for name in changed {
            // A Node that has never been looked at does not count yet.
            let Some(memory) = self.memories.get(&name) else { continue };
            let node = self.nodes.get(&name).filter(|node| node.identity.uid == memory.uid);
            // A Node without a provider ID does not count, since it has no instance yet. It has a memory if
            // its shutdown taint was removed.
            let node = node.filter(|node| node.identity.provider_id.is_some());
            let seen = node.map(|node| match (memory.absence, memory.is_present) {
                (Some(_), _) if is_excluded(&node) || is_allowed(&node) => Seen::AbsentByDecision,
                (Some(_), _) => Seen::Absent,
                (None, true) => Seen::Present,
                (None, false) => Seen::Unknown,
            });
            self.breaker.note(&memory.uid, seen);
        }
        if !self.breaker.is_open() && self.absent.is_empty() {
            return;
        }
        let limits = self.options.breaker;
        let BreakerLimits { count, percent } = limits;
        match self.breaker.turn(limits) {
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
                let message = format!(
                    "Node deletions are allowed again: {absent} of {total} nodes have no instance and are neither kept nor let go by an operator"
                );
                self.events.record(self.events.daemon(), EventType::Normal, "DeletionBreakerClosed", message);
            }
        }
        self.metrics.deletion_breaker_open.set(self.breaker.is_open().into());
    }
}
