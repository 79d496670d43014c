//! One look: asks the cloud about some Nodes, records the answers and acts on them.

use std::{collections::HashMap, sync::Arc};

use cloudprovider::InstanceLookup;
use component::{events::EventType, inspection::Inspection};
use controller_kit::{
    cloud::CallTime,
    nodes::{Node, ReadyStatus},
};
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        decide::{DeletionRules, condition_for, is_held_by_breaker, shutdown_taint_patch, verdict},
        silence::Kubelet,
        unseen::{Unseen, grace_period},
        verdict::{HeldBack, Verdict},
    },
    NodeLifecycleController,
    writes::Write,
};

impl NodeLifecycleController {
    /// Asks the cloud about these Nodes, in one batch, and acts on the answers.
    pub(super) async fn look_at(
        &mut self,
        nodes: Vec<Arc<Node>>,
        stop: &CancellationToken,
        inspection: &Inspection,
    ) {
        // This needs no answer, so an unresponsive cloud does not delay it. Nodes of another cloud are never
        // changed.
        let (owned, others): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| node.identity.provider_id.is_none() || self.cloud.owns(node));
        self.untaint_ready(&owned, stop, inspection).await;
        // A Node without a provider ID does not belong to a cloud yet. It is not judged.
        let (nodes, without_id): (Vec<_>, Vec<_>) =
            owned.into_iter().partition(|node| node.identity.provider_id.is_some());
        for node in others.iter().chain(&without_id) {
            self.note_not_asked(node);
        }
        if nodes.is_empty() {
            // There is nothing to ask, but Nodes that no longer exist must not count any more.
            self.update_breaker();
            self.observe_kubelets();
            return;
        }
        let Some((answers, times)) = stop.run_until_cancelled(self.cloud.lookup_timed(&nodes)).await else {
            self.metrics.canceled(nodes.len());
            return;
        };
        self.metrics.answered(&answers);
        for ((node, answer), time) in nodes.iter().zip(&answers).zip(times) {
            self.note(node, answer, time);
        }
        self.update_breaker();
        let candidates = self.observe_kubelets();
        let asked = nodes.iter().zip(&answers);
        let (may_go, stay): (Vec<_>, Vec<_>) = asked.partition(|(node, _)| candidates.contains(node.name()));
        self.judge_kubelets(may_go, stop, inspection).await;
        let writes = self.decide_all(&stay, HashMap::new());
        self.write(writes, stop, inspection).await;
    }

    /// Upstream's rule: a Ready Node does not have the shutdown taint, whatever the cloud says.
    async fn untaint_ready(
        &mut self,
        nodes: &[Arc<Node>],
        stop: &CancellationToken,
        inspection: &Inspection,
    ) {
        let now = Instant::now();
        let is_free = |node: &Node| {
            self.memories.get(node.name()).is_none_or(|memory| memory.blocked_until(node, now).is_none())
        };
        let writes = nodes
            .iter()
            .filter(|node| node.ready() == ReadyStatus::True && is_free(node))
            .filter_map(|node| {
                let patch = shutdown_taint_patch(node, &InstanceLookup::Absent)?;
                Some(Write::Patch(node.clone(), patch, "shutdown taint"))
            })
            .collect();
        self.write(writes, stop, inspection).await;
    }

    fn note(&mut self, node: &Node, answer: &InstanceLookup, time: CallTime) {
        let unseen = self.unseen(node);
        let memory = self.memory_of(node, Instant::now());
        let before = memory.answer();
        memory.note(answer, time);
        memory.unseen = unseen;
        let answer = memory.answer();
        if memory.absence.is_some() {
            self.absent.insert(node.name().to_owned());
            self.in_question.insert(node.name().to_owned());
        } else {
            self.absent.remove(node.name());
        }
        if before != answer {
            tracing::debug!(node = node.name(), before, answer, "the cloud has another answer");
        }
    }

    /// The provider cannot be asked about this Node: it belongs to another cloud, at least under the present
    /// configuration.
    fn note_not_asked(&mut self, node: &Node) {
        let name = node.name();
        let Some(memory) = self.memories.get_mut(name).filter(|memory| memory.uid == node.identity.uid)
        else {
            return;
        };
        memory.note_not_asked();
        self.uncounted.insert(name.to_owned());
        self.absent.remove(name);
        self.due.remove(name);
        self.set_held_back(node, None);
    }

    fn rules(&self) -> DeletionRules {
        let grace = grace_period(self.options.deletion_grace_period, self.options.monitor_period);
        DeletionRules { grace, minimum_age: self.options.deletion_minimum_age }
    }

    fn unseen(&self, node: &Node) -> Option<Unseen> {
        Unseen::of(&self.cloud, node, self.options.deletion_unseen_grace_period, self.rules().grace)
    }

    pub(super) fn decide(
        &mut self,
        node: &Arc<Node>,
        answer: &InstanceLookup,
        kubelet: Option<Kubelet>,
        writes: &mut Vec<Write>,
    ) {
        let (rules, breaker_is_open, unseen) = (self.rules(), self.breaker.is_open(), self.unseen(node));
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        // Since the answer, another configuration may have taken effect, or may currently be tried out.
        memory.unseen = unseen;
        let now = Instant::now();
        if let Some(until) = memory.blocked_until(node, now) {
            self.due.insert(node.name().to_owned(), until);
            return;
        }
        let mut held_back = None;
        let mut due = None;
        let breaker_is_done = self.breaker.is_done();
        let verdict = verdict(node, memory, kubelet, rules, breaker_is_open, now, Timestamp::now());
        let words = verdict.words();
        if std::mem::replace(&mut memory.verdict, words) != words {
            tracing::debug!(node = node.name(), "{words}");
        }
        // An outdated condition that the breaker held the Node back has to be replaced, since the next leader
        // would rely on it.
        let is_stale = breaker_is_done && matches!(verdict, Verdict::Listen(_)) && is_held_by_breaker(node);
        let is_listening = match &verdict {
            Verdict::Listen(_) => true,
            Verdict::HoldBack(reason, _) => reason.is_uncertain(),
            Verdict::Ignore | Verdict::Wait(_) | Verdict::Delete(_) => false,
        };
        let is_going = matches!(verdict, Verdict::Delete(_));
        memory.listening_since = is_listening.then(|| memory.listening_since.unwrap_or(now));
        match verdict {
            Verdict::Ignore => {}
            Verdict::Wait(until) => due = Some(until),
            // The reported state of the kubelet stays until more is known.
            Verdict::Listen(until) => {
                held_back = memory.held_back.filter(|reason| reason.is_about_kubelet());
                due = Some(until);
            }
            Verdict::HoldBack(reason, until) => (held_back, due) = (Some(reason), until),
            Verdict::Delete(proof) => writes.push(Write::Delete(node.clone(), proof)),
        }
        if let Some(due) = due {
            self.due.insert(node.name().to_owned(), due);
        }
        self.set_held_back(node, held_back);
        if is_going {
            // After the deletion, a patch would not find the Node. Before it, a patch would change the
            // version that is a precondition of the deletion.
            return;
        }
        if let Some(patch) = shutdown_taint_patch(node, answer) {
            writes.push(Write::Patch(node.clone(), patch, "shutdown taint"));
        }
        let condition = held_back
            .or_else(|| is_stale.then_some(HeldBack::LeaseRecent))
            .map(HeldBack::condition)
            .or_else(|| condition_for(node, answer, breaker_is_done));
        if let Some(condition) = condition.filter(|condition| !condition.is_on(node)) {
            writes.push(Write::Patch(node.clone(), condition.to_patch(node, Timestamp::now()), "condition"));
        }
    }

    /// Reports that a deletion is held back: once for each reason, in an event and in metrics.
    fn set_held_back(&mut self, node: &Node, held_back: Option<HeldBack>) {
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        let before = std::mem::replace(&mut memory.held_back, held_back);
        if before == held_back {
            return;
        }
        memory.held_back_since = held_back.map(|_| Instant::now());
        if let Some(before) = before {
            self.metrics.deletions_held_back.with_label_values(&[before.as_str()]).dec();
        }
        if let Some(reason) = held_back {
            self.metrics.deletions_held_back.with_label_values(&[reason.as_str()]).inc();
            self.metrics.deletions_held_back_total.with_label_values(&[reason.as_str()]).inc();
            tracing::warn!(node = node.name(), reason = reason.as_str(), "node deletion held back");
            self.events.record(node.event_object(), EventType::Warning, "DeletionHeldBack", reason.message());
        }
    }
}
