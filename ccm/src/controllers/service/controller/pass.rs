//! What follows from a change of the back ends.

use std::collections::HashSet;

use tokio::time::Instant;

use super::ServiceController;

/// The time from a change of the back ends until every load balancer was told.
#[derive(Debug)]
pub(super) struct NodePass {
    began: Instant,
    /// The Services whose load balancers still have to be told.
    waiting: HashSet<String>,
}

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
        let wants = |key: &&String| {
            self.memories
                .get(*key)
                .is_some_and(|memory| memory.told.wants_load_balancer() && memory.nodes.is_some())
        };
        let keys: Vec<String> = self.memories.keys().filter(wants).cloned().collect();
        let pass =
            self.pass.get_or_insert_with(|| NodePass { began: Instant::now(), waiting: HashSet::new() });
        pass.waiting.extend(keys.iter().cloned());
        for key in &keys {
            self.look_at(key);
            self.leave_pass_if_told(key);
        }
        self.end_pass();
    }

    /// The load balancer of this Service was told, or need not be told.
    pub(super) fn leave_pass_if_told(&mut self, key: &str) {
        let is_told = self.memories.get(key).and_then(|memory| memory.nodes.as_ref());
        if !self.queue.is_at_work(key)
            && is_told.is_none_or(|nodes| super::super::nodes::same_backends(nodes, self.backends.keys()))
        {
            self.leave_pass(key);
        }
    }

    pub(super) fn leave_pass(&mut self, key: &str) {
        if let Some(pass) = &mut self.pass {
            pass.waiting.remove(key);
        }
    }

    pub(super) fn end_pass(&mut self) {
        if let Some(pass) = self.pass.take_if(|pass| pass.waiting.is_empty()) {
            self.shared.metrics.node_sync_latency.observe(pass.began.elapsed().as_secs_f64());
        }
    }
}
