//! The loop that acts. It asks the cloud in batches and writes in parallel, but never works twice on one Node at the same time.

mod outcomes;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{InstanceChange, InstanceLookup};
use component::{
    debug_state::seconds_from_now,
    events::EventRecorder,
    inspection::Inspection,
    loop_tasks::LoopTasks,
    work_queue::{WorkQueue, WorkQueueMeter},
};
use controller_kit::{
    cache::CachedObject as _,
    cloud::{Cloud, Owner},
    conditions::WantedCondition,
    nodes::{Node, NodeStore, NodeWriter},
    writes::{GONE_FOR, WrittenVersion},
};
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    ForeignValue, PROVIDED_NODE_IP, UNINITIALIZED_TAINT,
    initialize::WRITE_FAILED,
    metrics::{Counted, NodeMetrics},
    repair::repair,
    state::NodeState,
    sync::{Gone, Outcome, Shared},
};

/// How many look-ups may be under way. With enough of them, a slow one does not delay a new Node. With few, Nodes gather in
/// batches while the cloud is slow.
const CONCURRENT_LOOKUPS: usize = 4;

/// Drift of a Node is repaired at once, but a second time only after this long. Two controllers that disagree must not write in
/// turns.
const REPAIR_INTERVAL: Duration = Duration::from_secs(15);

/// The metric's reason for a Node that waits for another cloud's cloud-controller-manager.
const FOREIGN: &str = "ForeignProviderID";

/// The flags of this controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeControllerOptions {
    /// `--concurrent-node-syncs`: Nodes written at the same time.
    pub concurrent_syncs: usize,
    /// `--node-status-update-frequency`: period of the comparison of all initialised Nodes with the cloud.
    pub status_update_frequency: Duration,
    /// Additional labels that have another client's value.
    pub foreign_labels: ForeignValue,
    /// `--dry-run`: writes have no effect, so a Node that was written stays as it is.
    pub dry_run: bool,
}

/// cloud-node-controller.
#[derive(Debug)]
pub struct NodeController {
    shared: Arc<Shared>,
    events: EventRecorder,
    options: NodeControllerOptions,
    queue: WorkQueue,
    states: HashMap<String, NodeState>,
    /// Names of the Nodes that something happened to while they were being worked on.
    after_work: HashMap<String, Again>,
    /// What there is to write, the oldest first. A task is made only when its turn comes: thousands of waiting tasks would cost
    /// more memory than everything else.
    writes: VecDeque<Write>,
    tasks: LoopTasks<Done>,
    lookups: usize,
    /// How many tasks are writing.
    writing: usize,
    stopping: bool,
}

/// A pending write to one Node.
#[derive(Debug)]
enum Write {
    /// What the cloud's answer asks for.
    Sync(Arc<Node>, InstanceLookup),
    /// The condition that says why the Node is not initialised, and when it is tried again.
    Report(Arc<Node>, WantedCondition, Duration),
}

/// Why a Node is looked at again as soon as the work on it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Again {
    /// The Node changed: it may still be right.
    NodeChanged,
    /// The cloud has something new to say.
    AskCloud,
}

/// The result of a task.
enum Done {
    /// The Nodes that the cloud was asked about, each with its answer.
    Lookup(Vec<(Arc<Node>, InstanceLookup)>),
    Sync {
        name: String,
        outcome: Outcome,
    },
    /// The condition that says why a Node is not initialised was written, or not.
    Report {
        name: String,
        written: Result<Option<WrittenVersion>, Gone>,
        retry_in: Duration,
    },
}

impl NodeController {
    /// A controller; [`run`](Self::run) it in a task.
    pub fn new(
        nodes: NodeStore,
        cloud: Cloud,
        writer: NodeWriter,
        events: EventRecorder,
        metrics: NodeMetrics,
        queue: WorkQueueMeter,
        options: NodeControllerOptions,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                nodes,
                cloud,
                writer,
                metrics,
                foreign_labels: options.foreign_labels,
                dry_run: options.dry_run,
            }),
            events,
            options,
            queue: WorkQueue::measured(queue),
            states: HashMap::new(),
            after_work: HashMap::new(),
            writes: VecDeque::new(),
            tasks: LoopTasks::new("a sync of nodes"),
            lookups: 0,
            writing: 0,
            stopping: false,
        }
    }

    /// Works until `stop` is cancelled. Then it starts nothing new and waits for the writes under way. It
    /// ends by itself only after a panic in a task, which the daemon notices.
    pub async fn run(mut self, stop: CancellationToken, mut inspection: Inspection) {
        let mut pushed = self.shared.cloud.changes();
        let synced = inspection.beside(self.shared.nodes.synced());
        if stop.run_until_cancelled(synced).await.is_none() {
            return;
        }
        let mut changes = self.shared.nodes.subscribe();
        // The first comparison is at once, as upstream, because every Node counts as changed now.
        let mut next_period = Instant::now() + self.options.status_update_frequency;
        while !stop.is_cancelled() {
            self.start_lookup();
            self.start_writes();
            tokio::select! {
                () = stop.cancelled() => {}
                names = changes.next() => names.iter().for_each(|name| self.node_changed(name)),
                Some(change) = pushed.next() => self.instances_changed(change),
                () = sleep_until(next_period) => {
                    self.look_at_all();
                    next_period = Instant::now() + self.options.status_update_frequency;
                }
                () = self.queue.wait_for_due() => {}
                question = inspection.question() => question.answer(self.to_json()),
                done = self.tasks.next() => match done {
                    Some(done) => self.finish(done),
                    None => return,
                },
            }
        }
        self.stopping = true;
        self.writes.clear();
        while let Some(done) = self.tasks.next_of_rest().await {
            self.finish(done);
        }
    }

    /// For `/debug/state`.
    fn to_json(&self) -> Value {
        let nodes: Map<String, Value> = self
            .states
            .iter()
            .map(|(name, state)| {
                let mut json = state.to_json();
                json["atWork"] = self.queue.is_at_work(name).into();
                json["nextTryInSeconds"] = self.queue.due(name).map(seconds_from_now).into();
                (name.clone(), json)
            })
            .collect();
        json!({
            "queue": self.queue.lengths().to_json(),
            "lookupsUnderWay": self.lookups,
            "writesUnderWay": self.writing,
            "writesWaiting": self.writes.len(),
            "nodes": nodes,
        })
    }

    /// A Node appeared, changed or vanished.
    fn node_changed(&mut self, name: &str) {
        if self.queue.is_at_work(name) {
            self.after_work.entry(name.to_owned()).or_insert(Again::NodeChanged);
            return;
        }
        let Some(node) = self.shared.nodes.get(name) else {
            self.queue.remove(name);
            self.forget(name);
            return;
        };
        let is_waiting = self.queue.is_waiting(name);
        let foreign = self.shared.foreign_labels;
        let state = self.state_of(&node);
        if state.gone || state.written.as_ref().is_some_and(|written| node.is_older_than(written)) {
            // The watch has not shown our own write yet. It will.
            return;
        }
        // It was asked about without success, and nothing has changed that the answer depends on. The next try comes at its
        // time, or when the cloud reports a change. So a Node that changes all the time costs no look-ups.
        let in_vain = state.tried.as_ref().is_some_and(|tried| same_to_the_cloud(tried, &node));
        if node.has_taint(UNINITIALIZED_TAINT) {
            // In a dry run nothing is left to try: the write was answered, and the Node stays as it is.
            if !(in_vain && (is_waiting || self.options.dry_run)) {
                tracing::debug!(node = name, "the node is not initialized: asking the cloud");
                self.queue.add(name);
            }
            return;
        }
        if in_vain {
            return;
        }
        let is_right = state
            .metadata
            .as_ref()
            .is_some_and(|metadata| repair(&node, metadata, foreign, Timestamp::now()).patches.is_empty());
        if is_right {
            return;
        }
        let since_repair = state.repaired.map_or(REPAIR_INTERVAL, |repaired| repaired.elapsed());
        let is_first = state.metadata.is_none();
        match REPAIR_INTERVAL.checked_sub(since_repair) {
            Some(wait) if !wait.is_zero() => {
                tracing::debug!(node = name, "the node differs again: asking the cloud in {wait:.1?}");
                self.queue.add_after(name, wait);
            }
            _ => {
                let why =
                    if is_first { "the node is new" } else { "the node differs from what the cloud said" };
                tracing::debug!(node = name, "{why}: asking the cloud");
                self.queue.add(name);
            }
        }
    }

    /// The provider pushed something.
    fn instances_changed(&mut self, change: InstanceChange) {
        match change {
            InstanceChange::Changed(instances) => {
                for name in self.shared.nodes.matching(&instances) {
                    tracing::debug!(node = name, "the cloud tells of a change: asking it");
                    self.look_at(&name);
                }
            }
            InstanceChange::Resync => {
                tracing::debug!("the cloud may have missed changes: asking about all nodes");
                self.look_at_all();
            }
        }
    }

    fn look_at_all(&mut self) {
        let nodes = self.shared.nodes.all();
        // The node-lifecycle controller does this too, but it may be switched off.
        let uids: HashSet<&str> = nodes.iter().map(|node| node.identity.uid.as_str()).collect();
        self.shared.cloud.keep_seen(|uid| uids.contains(uid));
        for node in &nodes {
            self.look_at(node.name());
        }
    }

    fn look_at(&mut self, name: &str) {
        if self.queue.is_at_work(name) {
            self.after_work.insert(name.to_owned(), Again::AskCloud);
        } else {
            self.queue.add(name);
        }
    }

    /// What is remembered of this Node. Of an earlier Node of the same name everything is forgotten.
    fn state_of(&mut self, node: &Node) -> &mut NodeState {
        if self.states.get(node.name()).is_some_and(|state| state.uid != node.identity.uid) {
            self.forget(node.name());
        }
        self.states.entry(node.name().to_owned()).or_insert_with(|| NodeState::new(&node.identity.uid))
    }

    fn forget(&mut self, name: &str) {
        if let Some(state) = self.states.remove(name) {
            self.shared.metrics.recount(state.counted(), Counted::default());
        }
    }

    /// Asks the cloud about all Nodes that are ready in the queue, in one batch.
    fn start_lookup(&mut self) {
        if self.lookups == CONCURRENT_LOOKUPS || !self.queue.has_ready() {
            return;
        }
        let mut nodes = Vec::new();
        for name in self.queue.take_ready() {
            match self.shared.nodes.get(&name) {
                Some(node) if self.is_to_be_asked_about(&node) => nodes.push(node),
                Some(_) => self.queue.done(&name),
                None => {
                    self.queue.done(&name);
                    self.forget(&name);
                }
            }
        }
        if nodes.is_empty() {
            return;
        }
        self.lookups += 1;
        let shared = self.shared.clone();
        self.tasks.spawn(async move {
            let asked_at = Instant::now();
            let answers = shared.cloud.lookup_with_zones(&nodes).await;
            let milliseconds = u64::try_from(asked_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::trace!(nodes = nodes.len(), milliseconds, "the cloud answered");
            Done::Lookup(nodes.into_iter().zip(answers).collect())
        });
    }

    fn is_to_be_asked_about(&mut self, node: &Node) -> bool {
        let owner = self.shared.cloud.owner_of(node);
        let is_uninitialized = node.has_taint(UNINITIALIZED_TAINT);
        let is_ours = match owner {
            Owner::Nobody | Owner::Us => true,
            // The look-up returns an error that says what is wrong with the provider ID.
            Owner::UsBroken | Owner::Unclear => is_uninitialized,
            Owner::Foreign => false,
        };
        if !is_ours {
            // A Node of another cloud is never judged: it waits for the CCM of that cloud.
            self.leave_alone(node, is_uninitialized);
            return false;
        }
        let state = self.state_of(node);
        if state.written.as_ref().is_some_and(|written| node.is_older_than(written)) {
            // The watch has not shown our own write yet. The Node is asked about when it has.
            state.metadata = None;
            return false;
        }
        true
    }

    /// Takes note that a Node belongs to another cloud, and logs once that it waits for that cloud's manager.
    fn leave_alone(&mut self, node: &Node, is_uninitialized: bool) {
        let shared = self.shared.clone();
        let state = self.state_of(node);
        let before = state.counted();
        state.succeed();
        state.waiting_for = is_uninitialized.then_some(FOREIGN);
        let now = state.counted();
        shared.metrics.recount(before, now);
        if is_uninitialized && before != now {
            let provider_id = node.identity.provider_id.as_deref().unwrap_or_default();
            tracing::info!(
                node = node.name(),
                provider_id,
                provider = &*shared.cloud.name(),
                "node is left to another cloud: its provider ID is not of ours"
            );
        }
    }

    /// Starts the writes that wait, as many at the same time as the flag allows.
    fn start_writes(&mut self) {
        while self.writing < self.options.concurrent_syncs.max(1)
            && let Some(write) = self.writes.pop_front()
        {
            self.writing += 1;
            let shared = self.shared.clone();
            match write {
                Write::Sync(node, answer) => {
                    let state = self.states.get(node.name());
                    let failed_before = state.is_some_and(|state| state.waiting_for == Some(WRITE_FAILED));
                    self.tasks.spawn(async move {
                        let outcome = shared.sync(&node, answer, failed_before).await;
                        Done::Sync { name: node.name().to_owned(), outcome }
                    });
                }
                Write::Report(node, condition, retry_in) => self.tasks.spawn(async move {
                    let written = shared.report(&node, &condition).await;
                    Done::Report { name: node.name().to_owned(), written, retry_in }
                }),
            }
        }
        if self.writes.is_empty() {
            // Space for thousands of writes is rarely needed again, so it is given back.
            self.writes.shrink_to_fit();
        }
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Lookup(answers) => {
                self.lookups -= 1;
                if !self.stopping {
                    self.writes.extend(answers.into_iter().map(|(node, answer)| Write::Sync(node, answer)));
                }
            }
            Done::Sync { name, outcome } => {
                self.writing -= 1;
                // The Node counts as being worked on while its condition is written. Two writes to one Node must not race.
                if !self.settle(&name, outcome) {
                    self.end_work(&name);
                }
            }
            Done::Report { name, written, retry_in } => {
                self.writing -= 1;
                if let Some(state) = self.states.get_mut(&name) {
                    state.gone = written.is_err();
                    match &written {
                        Ok(Some(version)) => state.written = Some(version.clone()),
                        Ok(None) => state.forget_report(),
                        Err(Gone) => {}
                    }
                }
                // The time is set first. The change that our own condition makes must not end the wait early.
                self.queue.done(&name);
                self.queue.retry_after(&name, if written.is_ok() { retry_in } else { GONE_FOR });
                self.end_work(&name);
            }
        }
    }

    fn end_work(&mut self, name: &str) {
        self.queue.done(name);
        match self.after_work.remove(name) {
            Some(Again::NodeChanged) => self.node_changed(name),
            Some(Again::AskCloud) => self.queue.add(name),
            None => {}
        }
    }
}

/// Whether two versions of a Node are the same in everything that the cloud's answer, and what we do with it, depends on.
fn same_to_the_cloud(a: &Node, b: &Node) -> bool {
    a.is_same_instance(b)
        && a.identity.addresses == b.identity.addresses
        && a.identity.annotations.get(PROVIDED_NODE_IP) == b.identity.annotations.get(PROVIDED_NODE_IP)
        && a.has_taint(UNINITIALIZED_TAINT) == b.has_taint(UNINITIALIZED_TAINT)
}

#[cfg(test)]
mod tests;
