//! Chooses the kubelets whose leases are read: those of the Nodes that may have to be deleted, right before
//! each decision.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cloudprovider::InstanceLookup;
use component::inspection::Inspection;
use controller_kit::nodes::{Node, ReadyStatus};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        SHUTDOWN_TAINT,
        availability::choose_peers,
        decide::{is_allowed, is_excluded, needs_no_listening},
        lease::LeaseRead,
        silence::{Kubelet, LeaseHistory, judge},
    },
    NodeLifecycleController,
    writes::Write,
};

/// Maximum number of peers: kubelets whose leases are read only to find out whether kubelets can renew them.
const MAX_PEERS: usize = 10;

impl NodeLifecycleController {
    /// Names of the Nodes that may have to be deleted, depending on their kubelets. While there is such a
    /// Node, and reads of leases can decide about it, the API server and some other kubelets are observed.
    pub(super) fn observe_kubelets(&self) -> HashSet<String> {
        let may_have_to_go = |name: &&String| {
            self.nodes.get(name).is_some_and(|node| {
                let is_known = self.memories.get(*name).is_some_and(|memory| {
                    memory.uid == node.identity.uid && memory.absence.is_some() && !memory.deleted
                });
                let is_stopped = self.breaker.is_open() && !is_allowed(&node);
                is_known && !is_excluded(&node) && !node.deleting && !is_stopped
            })
        };
        let candidates: HashSet<String> = self.absent.iter().filter(may_have_to_go).cloned().collect();
        let now = Instant::now();
        let needs_listening = |name: &&String| {
            let (Some(node), Some(memory)) = (self.nodes.get(name), self.memories.get(*name)) else {
                return true;
            };
            !needs_no_listening(&node, memory, now)
        };
        let listened_for: Vec<String> =
            candidates.iter().filter(needs_listening).take(MAX_PEERS).cloned().collect();
        let peers = if listened_for.is_empty() { Vec::new() } else { self.peers() };
        self.leases.set_observed(peers, listened_for);
        candidates
    }

    /// Nodes whose kubelets should be alive, with as few changes as possible. They are Ready. Others are
    /// chosen only if no Node is Ready, since kube-controller-manager may have lost contact with all of them.
    /// Nodes of other clouds are equally suitable.
    fn peers(&self) -> Vec<String> {
        let should_live = |node: &Arc<Node>| {
            !self.absent.contains(node.name()) && !node.deleting && !node.has_taint(SHUTDOWN_TAINT)
        };
        let (ready, others): (Vec<_>, Vec<_>) = self
            .nodes
            .all()
            .into_iter()
            .filter(should_live)
            .partition(|node| node.ready() == ReadyStatus::True);
        let names = if ready.is_empty() { others } else { ready };
        let names: HashSet<&str> = names.iter().map(|node| node.name()).collect();
        choose_peers(&self.leases.observed(), &names, self.leases.availability().mute(), MAX_PEERS)
    }

    /// Decides about the Nodes that may have to be deleted: few at a time, so that each decision directly
    /// follows the read of the lease. If the cloud's answer becomes too old before that, the cloud is asked
    /// again.
    pub(super) async fn judge_kubelets(
        &mut self,
        asked: Vec<(&Arc<Node>, &InstanceLookup)>,
        stop: &CancellationToken,
        inspection: &Inspection,
    ) {
        // Without peers, only these reads show that the API server does not respond.
        let mut nobody_answers = false;
        for batch in asked.chunks(self.options.concurrent_syncs.max(1)) {
            let now = Instant::now();
            let is_old = |name: &str| {
                let absence = self.memories.get(name).and_then(|memory| memory.absence);
                absence.is_some_and(|absence| absence.is_old(now))
            };
            let (old, batch): (Vec<_>, Vec<_>) =
                batch.iter().copied().partition(|(node, _)| is_old(node.name()));
            self.due.extend(old.iter().map(|(node, _)| (node.name().to_owned(), now)));
            if batch.is_empty() {
                continue;
            }
            // No hundreds of lease reads are sent to an API server that does not respond.
            let answers = !nobody_answers && self.leases.availability().answers();
            let names = batch
                .iter()
                .filter(|_| answers)
                .map(|(node, _)| (node.name().to_owned(), node.identity.uid.clone()));
            let reads = self.leases.read_all(names.collect(), inspection);
            let Some(reads) = stop.run_until_cancelled(reads).await else { return };
            nobody_answers |= !reads.is_empty() && reads.iter().all(|(_, read)| !read.is_answered());
            for (name, read) in &reads {
                if let Some(memory) = self.memories.get_mut(name).filter(|memory| memory.uid == read.uid()) {
                    LeaseHistory::update(&mut memory.lease, read);
                }
            }
            // Meanwhile an operator may have decided about some Nodes.
            self.update_breaker();
            let writes = self.decide_all(&batch, reads.into_iter().collect());
            self.write(writes, stop, inspection).await;
        }
    }

    /// Decides about Nodes from these answers and reads of leases, and from the present state of the Nodes.
    pub(super) fn decide_all(
        &mut self,
        asked: &[(&Arc<Node>, &InstanceLookup)],
        mut reads: HashMap<String, LeaseRead>,
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        for (asked, answer) in asked {
            if let Some(node) = self.nodes.get(asked.name())
                && node.is_same_instance(asked)
            {
                let read = reads.remove(node.name()).filter(|read| read.uid() == node.identity.uid);
                let kubelet = read.and_then(|read| self.kubelet(&node, &read));
                self.decide(&node, answer, kubelet, &mut writes);
            }
        }
        writes
    }

    fn kubelet(&self, node: &Node, read: &LeaseRead) -> Option<Kubelet> {
        let memory = self.memories.get(node.name())?;
        // An operator's permission to delete a Node does not depend on other Nodes.
        let must_hear = !is_allowed(node);
        Some(judge(read, memory.lease.as_ref(), node.ready(), &self.leases.availability(), must_hear))
    }
}
