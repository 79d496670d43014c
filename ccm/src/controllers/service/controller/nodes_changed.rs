//! What follows from a change of the back ends.

use std::collections::HashSet;

use super::ServiceController;
use crate::controllers::service::{action::Action, nodes::same_backends, pass::NodePass, plan::Next};

impl ServiceController {
    /// Nodes appeared, changed or vanished. Unless the set of back ends is another one now, no Service is looked at.
    pub(super) fn nodes_changed(&mut self, names: HashSet<String>) {
        let mut changed = false;
        for name in names {
            let node = self.nodes.get(&name);
            changed |= self.backends.note(&name, node);
        }
        if !changed {
            return;
        }
        self.backends.renew();
        let has_back_ends = |key: &&String| {
            let memory = self.memories.get(*key);
            memory.is_some_and(|memory| memory.told.wants_load_balancer() && memory.nodes.is_some())
        };
        let keys: Vec<String> = self.memories.keys().filter(has_back_ends).cloned().collect();
        self.pass.get_or_insert_with(NodePass::begin).wait_for(keys.iter().cloned());
        for key in &keys {
            self.look_at(key);
        }
    }

    /// Takes a Service out of the pass if its load balancer knows the back ends, or will not be told of them.
    pub(super) fn leave_pass_if_settled(&mut self, key: &str) {
        if !self.pass.as_ref().is_some_and(|pass| pass.waits_for(key)) || self.queue.is_at_work(key) {
            return;
        }
        let nodes = self.memories.get(key).and_then(|memory| memory.nodes.as_ref());
        let is_told = nodes.is_none_or(|nodes| same_backends(nodes, self.backends.keys()));
        let will_be_told = match self.next_for(key).1 {
            Next::Now(action) | Next::At(_, action) => {
                matches!(action, Action::Ensure | Action::UpdateNodes)
            }
            // What is due can be told only when the watch shows our last write.
            Next::LookAt(_) => true,
            Next::Wait | Next::Forget => false,
        };
        if is_told || !will_be_told {
            self.leave_pass(key);
        }
    }

    pub(super) fn leave_pass(&mut self, key: &str) {
        if let Some(pass) = &mut self.pass {
            pass.leave(key);
        }
    }

    /// Ends the pass when it waits for nothing any more.
    pub(super) fn end_pass(&mut self) {
        if let Some(took) = self.pass.as_ref().and_then(NodePass::ended) {
            self.pass = None;
            self.shared.metrics.node_sync_latency.observe(took.as_secs_f64());
        }
    }
}
