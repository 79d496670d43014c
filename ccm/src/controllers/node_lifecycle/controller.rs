//! The loop that acts: one batch of look-ups each period, and at once for what changes in between.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{InstanceChange, InstanceLookup};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    COMPONENT, SHUTDOWN_TAINT,
    breaker::{BreakerLimits, Vanishing},
    decide::{
        DeletionRules, HeldBack, Memory, Verdict, condition_for, is_allowed, is_excluded,
        shutdown_taint_patch, verdict,
    },
    lease::{LeaseHistory, LeaseLook, LeaseReader},
};
use crate::{
    backoff::Backoff,
    cloud::Cloud,
    conditions::WantedCondition,
    events::{EventObject, EventRecorder, EventType},
    metrics::Metrics,
    nodes::{Node, NodePatch, NodeStore, NodeWriter, ReadyStatus, WriteError},
};

/// Requests under way at once.
const CONCURRENT_REQUESTS: usize = 16;

/// A deletion that the API server refuses is tried again in this rhythm.
const DELETION_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// A write that lost a race is repeated after this.
const STALE_RETRY: Duration = Duration::from_millis(200);

/// The least grace period, whatever the monitor period.
const LEAST_GRACE: Duration = Duration::from_secs(5);

/// What the flags say to this controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeLifecycleOptions {
    /// `--node-monitor-period`: period of the comparison of all Nodes with the cloud.
    pub monitor_period: Duration,
    /// `--node-deletion-grace-period`: time between the two answers that an instance is gone. `None`: one monitor
    /// period, at least 5 s.
    pub deletion_grace_period: Option<Duration>,
    /// `--node-deletion-minimum-age`: a younger Node is not deleted.
    pub deletion_minimum_age: Duration,
    /// `--node-deletion-breaker-count` and `--node-deletion-breaker-percent`.
    pub breaker: BreakerLimits,
}

/// cloud-node-lifecycle-controller.
#[derive(Debug)]
pub struct NodeLifecycleController {
    nodes: NodeStore,
    cloud: Cloud,
    writer: NodeWriter,
    leases: LeaseReader,
    events: EventRecorder,
    metrics: Metrics,
    options: NodeLifecycleOptions,
    memories: HashMap<String, Memory>,
    /// When to look at a Node again before the next period.
    due: HashMap<String, Instant>,
    breaker_is_open: bool,
}

/// What to write about one Node after a look.
enum Write {
    Patch(Arc<Node>, NodePatch, &'static str),
    Delete(Arc<Node>),
}

impl NodeLifecycleController {
    /// A controller; [`run`](Self::run) it in a task.
    pub fn new(
        nodes: NodeStore,
        cloud: Cloud,
        client: Client,
        events: &EventRecorder,
        metrics: Metrics,
        options: NodeLifecycleOptions,
    ) -> Self {
        Self {
            nodes,
            cloud,
            writer: NodeWriter::new(client.clone()),
            leases: LeaseReader::new(client),
            events: events.for_component(COMPONENT),
            metrics,
            options,
            memories: HashMap::new(),
            due: HashMap::new(),
            breaker_is_open: false,
        }
    }

    /// Works until `stop` is cancelled; a look that has begun is finished.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pushed = self.cloud.changes();
        if stop.run_until_cancelled(self.nodes.synced()).await.is_none() {
            return;
        }
        let mut changes = self.nodes.subscribe();
        let mut next_period = Instant::now();
        loop {
            let next_due = self.due.values().min().copied();
            let names = tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(next_period) => None,
                () = sleep_until(next_due.unwrap_or(next_period)), if next_due.is_some() => Some(self.take_due()),
                names = changes.next() => Some(self.worth_a_look(names)),
                Some(change) = pushed.next() => match change {
                    InstanceChange::Changed(instances) => Some(self.nodes.matching(&instances)),
                    InstanceChange::Resync => None,
                },
            };
            match names {
                Some(names) if names.is_empty() => {}
                Some(names) => {
                    let nodes = names.iter().filter_map(|name| self.nodes.get(name)).collect();
                    self.look_at(nodes).await;
                }
                None => {
                    self.look_at(self.nodes.all()).await;
                    // As upstream: the period counts from the end of a pass.
                    next_period = Instant::now() + self.options.monitor_period;
                }
            }
        }
    }

    fn rules(&self) -> DeletionRules {
        let grace =
            self.options.deletion_grace_period.unwrap_or(self.options.monitor_period.max(LEAST_GRACE));
        DeletionRules { grace, minimum_age: self.options.deletion_minimum_age }
    }

    fn take_due(&mut self) -> Vec<String> {
        let now = Instant::now();
        let names: Vec<String> =
            self.due.iter().filter(|(_, due)| **due <= now).map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.due.remove(name);
        }
        names
    }

    /// Of the Nodes that changed those where the answer of the cloud can matter now: a Ready one without our taint is
    /// left to the period and to what the provider pushes, so that a thousand new Nodes cause no thousand look-ups.
    fn worth_a_look(&mut self, names: HashSet<String>) -> Vec<String> {
        names
            .into_iter()
            .filter(|name| match self.nodes.get(name) {
                None => {
                    self.forget(name);
                    false
                }
                Some(node) => {
                    self.memories.get(name).is_some_and(|memory| memory.absence.is_some())
                        || node.has_taint(SHUTDOWN_TAINT)
                        || (node.ready() != ReadyStatus::True && node.identity.provider_id.is_some())
                }
            })
            .collect()
    }

    fn forget(&mut self, name: &str) {
        self.due.remove(name);
        if let Some(held_back) = self.memories.remove(name).and_then(|memory| memory.held_back) {
            self.metrics.deletions_held_back.with_label_values(&[held_back.as_str()]).dec();
        }
    }

    /// Asks the cloud about these Nodes, in one batch, and acts on the answers.
    async fn look_at(&mut self, mut nodes: Vec<Arc<Node>>) {
        // A Node of another cloud, or of none yet, is never judged.
        nodes.retain(|node| self.cloud.owns(node));
        if nodes.is_empty() {
            self.update_breaker();
            return;
        }
        let answers = self.cloud.lookup(&nodes).await;
        let now = Instant::now();
        for (node, answer) in nodes.iter().zip(&answers) {
            self.note(node, answer, now);
        }
        self.update_breaker();
        self.look_at_leases(&nodes).await;

        let mut writes = Vec::new();
        for (node, answer) in nodes.iter().zip(&answers) {
            self.decide(node, answer, &mut writes);
        }
        self.write(writes).await;
    }

    fn note(&mut self, node: &Node, answer: &InstanceLookup, now: Instant) {
        if self.memories.get(node.name()).is_some_and(|memory| memory.uid != node.identity.uid) {
            self.forget(node.name());
        }
        let new = || Memory::new(&node.identity.uid, now);
        self.memories.entry(node.name().to_owned()).or_insert_with(new).note(answer, now);
    }

    /// Counts over everything known, not over this batch: pushes come one by one.
    fn update_breaker(&mut self) {
        let mut vanishing = Vanishing::default();
        let mut vanished = Vec::new();
        for (name, memory) in &self.memories {
            match self.nodes.get(name) {
                Some(node) if node.identity.uid == memory.uid => {
                    vanishing.total += 1;
                    let counts = memory.absence.is_some() && !is_excluded(&node) && !is_allowed(&node);
                    vanishing.absent += usize::from(counts);
                }
                _ => vanished.push(name.clone()),
            }
        }
        for name in vanished {
            self.forget(&name);
        }
        let limits = self.options.breaker;
        let opens = limits.opens(vanishing);
        if opens == self.breaker_is_open {
            return;
        }
        self.breaker_is_open = opens;
        self.metrics.deletion_breaker_open.set(opens.into());
        let Vanishing { absent, total } = vanishing;
        let BreakerLimits { count, percent } = limits;
        if opens {
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
            self.events.record(EventObject::daemon(), EventType::Warning, "DeletionBreakerOpened", message);
        } else {
            tracing::info!(absent, total, "node deletions are allowed again");
            let message =
                format!("Node deletions are allowed again: {absent} of {total} nodes have no instance");
            self.events.record(EventObject::daemon(), EventType::Normal, "DeletionBreakerClosed", message);
        }
    }

    /// Looks at the leases of the kubelets whose Nodes may have to go.
    async fn look_at_leases(&mut self, nodes: &[Arc<Node>]) {
        if self.breaker_is_open {
            return;
        }
        let in_question: Vec<String> = nodes
            .iter()
            .filter(|node| !is_excluded(node) && !node.deleting)
            .map(|node| node.name().to_owned())
            .filter(|name| {
                self.memories.get(name).is_some_and(|memory| memory.absence.is_some() && !memory.deleted)
            })
            .collect();
        let leases = &self.leases;
        let looks: Vec<(String, LeaseLook)> = stream::iter(in_question)
            .map(|name| async move {
                let look = leases.look(&name).await;
                (name, look)
            })
            .buffer_unordered(CONCURRENT_REQUESTS)
            .collect()
            .await;
        let now = Instant::now();
        for (name, look) in looks {
            let Some(memory) = self.memories.get_mut(&name) else { continue };
            match look {
                LeaseLook::Found(lease) => LeaseHistory::update(&mut memory.lease, lease, now),
                LeaseLook::None => memory.lease = None,
                // Without an answer nothing is decided: the row begins anew.
                LeaseLook::Failed => memory.absence = None,
            }
        }
    }

    fn decide(&mut self, node: &Arc<Node>, answer: &InstanceLookup, writes: &mut Vec<Write>) {
        let name = node.name().to_owned();
        if let Some(patch) = shutdown_taint_patch(node, answer) {
            writes.push(Write::Patch(node.clone(), patch, "shutdown taint"));
        }
        if let Some(condition) = condition_for(node, answer) {
            writes.push(Self::condition_write(node, &condition));
        }
        let (rules, breaker_is_open) = (self.rules(), self.breaker_is_open);
        let Some(memory) = self.memories.get_mut(&name) else { return };
        let now = Instant::now();
        let (held_back, due) = match verdict(node, memory, rules, breaker_is_open, now, Timestamp::now()) {
            Verdict::Ignore => (None, None),
            Verdict::Wait(until) => (None, Some(until)),
            Verdict::HoldBack(reason, due) => (Some(reason), due),
            Verdict::Delete => {
                if self.due.get(&name).is_none_or(|due| *due <= now || memory.failed_deletions == 0) {
                    writes.push(Write::Delete(node.clone()));
                }
                (None, None)
            }
        };
        if let Some(due) = due {
            self.due.insert(name, due);
        }
        self.set_held_back(node, held_back, writes);
    }

    /// Says that a deletion is held back: once for each reason, in an event, in the Node's condition, in metrics.
    fn set_held_back(&mut self, node: &Arc<Node>, held_back: Option<HeldBack>, writes: &mut Vec<Write>) {
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        let before = std::mem::replace(&mut memory.held_back, held_back);
        if before == held_back {
            return;
        }
        if let Some(before) = before {
            self.metrics.deletions_held_back.with_label_values(&[before.as_str()]).dec();
        }
        if let Some(reason) = held_back {
            self.metrics.deletions_held_back.with_label_values(&[reason.as_str()]).inc();
            self.metrics.deletions_held_back_total.with_label_values(&[reason.as_str()]).inc();
            tracing::warn!(node = node.name(), reason = reason.as_str(), "node deletion held back");
            let message = reason.message();
            self.events.record(EventObject::node(node), EventType::Warning, "DeletionHeldBack", message);
            let condition = reason.condition();
            if !condition.is_on(node) {
                writes.push(Self::condition_write(node, &condition));
            }
        }
    }

    fn condition_write(node: &Arc<Node>, condition: &WantedCondition) -> Write {
        Write::Patch(node.clone(), condition.to_patch(node, Timestamp::now()), "condition")
    }

    async fn write(&mut self, writes: Vec<Write>) {
        for write in &writes {
            if let Write::Delete(node) = write {
                self.announce(node);
            }
        }
        let writer = &self.writer;
        let outcomes: Vec<(Write, Result<(), WriteError>)> = stream::iter(writes)
            .map(|write| async move {
                let outcome = match &write {
                    Write::Patch(node, patch, _) => writer.patch(node.name(), patch).await.map(|_| ()),
                    Write::Delete(node) => writer.delete(node.name(), &node.identity.uid).await,
                };
                (write, outcome)
            })
            .buffer_unordered(CONCURRENT_REQUESTS)
            .collect()
            .await;
        for (write, outcome) in outcomes {
            match write {
                Write::Patch(node, _, what) => self.patched(&node, what, outcome),
                Write::Delete(node) => self.deleted(&node, outcome),
            }
        }
    }

    /// Upstream's event before the deletion, once for each Node however often the deletion is tried.
    fn announce(&mut self, node: &Node) {
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        if !std::mem::replace(&mut memory.announced, true) {
            let message =
                format!("Deleting node {} because it does not exist in the cloud provider", node.name());
            tracing::info!(node = node.name(), "{message}");
            self.events.record(EventObject::node(node), EventType::Normal, "DeletingNode", message);
        }
    }

    fn patched(&mut self, node: &Node, what: &'static str, outcome: Result<(), WriteError>) {
        match outcome {
            Ok(()) => tracing::info!(node = node.name(), what, "node updated"),
            Err(WriteError::Gone) => {}
            Err(WriteError::Stale(why)) => {
                tracing::debug!(node = node.name(), what, why, "node changed meanwhile, looking again");
                self.due.insert(node.name().to_owned(), Instant::now() + STALE_RETRY);
            }
            Err(error) => tracing::warn!(node = node.name(), what, %error, "node not updated, trying again"),
        }
    }

    fn deleted(&mut self, node: &Node, outcome: Result<(), WriteError>) {
        let result = if outcome.is_ok() { "deleted" } else { "failed" };
        self.metrics.deleted_nodes.with_label_values(&[result]).inc();
        let Some(memory) = self.memories.get_mut(node.name()) else { return };
        match outcome {
            Ok(()) => memory.deleted = true,
            // Another Node has this name by now; it is looked at when the watch shows it.
            Err(WriteError::Stale(_)) => {}
            Err(error) => {
                memory.failed_deletions = memory.failed_deletions.saturating_add(1);
                let wait = DELETION_BACKOFF.after(memory.failed_deletions);
                self.due.insert(node.name().to_owned(), Instant::now() + wait);
                let message = format!("Failed deleting node {}: {error}", node.name());
                tracing::error!(node = node.name(), %error, "node not deleted, trying again");
                self.events.record(
                    EventObject::node(node),
                    EventType::Warning,
                    "DeletingNodeFailed",
                    message,
                );
            }
        }
    }
}
