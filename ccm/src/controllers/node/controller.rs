//! The loop that acts: asks the cloud in batches, writes in parallel, never about one Node twice at once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use cloudprovider::{InstanceChange, InstanceLookup, InstanceMetadata};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    COMPONENT, UNINITIALIZED_TAINT,
    initialize::{Initialization, NotInitialized, initialize},
    repair::{Repair, repair},
    state::{NodeState, age_seconds},
};
use crate::{
    backoff::Backoff,
    cloud::Cloud,
    conditions::WantedCondition,
    events::{EventObject, EventRecorder, EventType},
    metrics::Metrics,
    nodes::{Node, NodePatch, NodeStore, NodeWriter, WriteError},
    work_queue::WorkQueue,
};

/// Look-ups under way at once: enough that a slow one does not hold up a new Node, few enough that Nodes gather in
/// batches while the cloud is slow.
const CONCURRENT_LOOKUPS: usize = 4;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(30) };

/// Bounds of what a provider's `retry_after` can ask for.
const RETRY_AFTER: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);

/// Drift of one Node is mended at once, but a second time only after this: two controllers that disagree must not
/// write in turns.
const REPAIR_INTERVAL: Duration = Duration::from_secs(15);

/// What the flags say to this controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeControllerOptions {
    /// `--concurrent-node-syncs`: Nodes written at the same time.
    pub concurrent_syncs: usize,
    /// `--node-status-update-frequency`: period of the comparison of all initialised Nodes with the cloud.
    pub status_update_frequency: Duration,
}

/// cloud-node-controller.
#[derive(Debug)]
pub struct NodeController {
    shared: Arc<Shared>,
    events: EventRecorder,
    options: NodeControllerOptions,
    queue: WorkQueue,
    states: HashMap<String, NodeState>,
    /// Names that something happened to while they were at work.
    after_work: HashMap<String, Again>,
    tasks: JoinSet<Done>,
    lookups: usize,
}

/// What the tasks need.
#[derive(Debug)]
struct Shared {
    nodes: NodeStore,
    cloud: Cloud,
    writer: NodeWriter,
    metrics: Metrics,
    permits: Semaphore,
}

/// Why a Node is looked at again as soon as the work on it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Again {
    /// The Node changed: it may still be right.
    NodeChanged,
    /// The cloud has something new to say.
    AskCloud,
}

/// What a task comes back with.
enum Done {
    Lookup(Vec<(String, InstanceLookup)>),
    Sync { name: String, outcome: Outcome },
    Report,
}

enum Outcome {
    /// Nothing had to be written, or the Node is gone.
    Nothing {
        metadata: Option<InstanceMetadata>,
        warnings: Vec<String>,
    },
    Initialized {
        version: String,
        metadata: InstanceMetadata,
        warnings: Vec<String>,
    },
    Repaired {
        version: String,
        metadata: InstanceMetadata,
        warnings: Vec<String>,
    },
    NotInitialized(NotInitialized),
    /// An initialised Node that the cloud gave no answer for, or that could not be written.
    NotRepaired {
        why: Option<String>,
    },
}

impl NodeController {
    /// A controller; [`run`](Self::run) it in a task.
    pub fn new(
        nodes: NodeStore,
        cloud: Cloud,
        writer: NodeWriter,
        events: &EventRecorder,
        metrics: Metrics,
        options: NodeControllerOptions,
    ) -> Self {
        let permits = Semaphore::new(options.concurrent_syncs.max(1));
        Self {
            shared: Arc::new(Shared { nodes, cloud, writer, metrics, permits }),
            events: events.for_component(COMPONENT),
            options,
            queue: WorkQueue::new(),
            states: HashMap::new(),
            after_work: HashMap::new(),
            tasks: JoinSet::new(),
            lookups: 0,
        }
    }

    /// Works until `stop` is cancelled; then takes nothing new and waits for the writes under way.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pushed = self.shared.cloud.changes();
        if stop.run_until_cancelled(self.shared.nodes.synced()).await.is_none() {
            return;
        }
        let mut changes = self.shared.nodes.subscribe();
        // Upstream's first comparison is at once: every Node counts as changed now.
        let mut next_period = Instant::now() + self.options.status_update_frequency;
        loop {
            self.start_lookup();
            tokio::select! {
                () = stop.cancelled() => break,
                names = changes.next() => names.iter().for_each(|name| self.node_changed(name)),
                Some(change) = pushed.next() => self.instances_changed(change),
                () = sleep_until(next_period) => {
                    self.look_at_all();
                    next_period = Instant::now() + self.options.status_update_frequency;
                }
                () = self.queue.wait_for_due() => {}
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.finish(done),
                    // Tasks are not aborted and our code does not panic; should it, the next period looks again.
                    Err(error) => tracing::error!(%error, "a sync of nodes ended early"),
                },
            }
        }
        while self.tasks.join_next().await.is_some() {}
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
        if self.states.get(name).is_some_and(|state| state.uid != node.identity.uid) {
            self.forget(name);
        }
        let state = self.states.entry(name.to_owned()).or_insert_with(|| NodeState::new(&node.identity.uid));
        if state.written.as_ref().is_some_and(|written| node.is_older_than(written)) {
            // The watch has yet to show what we wrote ourselves, and will.
            return;
        }
        if node.has_taint(UNINITIALIZED_TAINT) {
            // A Node that waits for another try is looked at when its time comes, when the cloud says something, or
            // when it changed in a way that counts: our own condition on it must not cut the wait short.
            let tried = state.tried.as_ref().filter(|_| self.queue.is_waiting(name));
            if tried.is_none_or(|tried| tried.identity != node.identity || tried.taints != node.taints) {
                self.queue.add(name);
            }
            return;
        }
        let is_right = state
            .metadata
            .as_ref()
            .is_some_and(|metadata| repair(&node, metadata, Timestamp::now()).patches.is_empty());
        if is_right {
            return;
        }
        let since_repair = state.repaired.map_or(REPAIR_INTERVAL, |repaired| repaired.elapsed());
        match REPAIR_INTERVAL.checked_sub(since_repair) {
            Some(wait) if !wait.is_zero() => self.queue.add_after(name, wait),
            _ => self.queue.add(name),
        }
    }

    /// The provider pushed something.
    fn instances_changed(&mut self, change: InstanceChange) {
        match change {
            InstanceChange::Changed(instances) => {
                for name in self.shared.nodes.matching(&instances) {
                    self.look_at(&name);
                }
            }
            InstanceChange::Resync => self.look_at_all(),
        }
    }

    fn look_at_all(&mut self) {
        for node in self.shared.nodes.all() {
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

    fn forget(&mut self, name: &str) {
        if let Some(reason) = self.states.remove(name).and_then(|state| state.waiting_for) {
            self.shared.metrics.uninitialized_nodes.with_label_values(&[reason]).dec();
        }
    }

    /// Asks the cloud about everything that is ready, in one batch.
    fn start_lookup(&mut self) {
        if self.lookups == CONCURRENT_LOOKUPS || !self.queue.has_ready() {
            return;
        }
        let mut nodes = Vec::new();
        for name in self.queue.take_ready() {
            match self.shared.nodes.get(&name).filter(|node| self.is_ours(node)) {
                Some(node) => nodes.push(node),
                None => self.queue.done(&name),
            }
        }
        if nodes.is_empty() {
            return;
        }
        self.lookups += 1;
        let shared = self.shared.clone();
        self.tasks.spawn(async move {
            let answers = shared.cloud.lookup_with_zones(&nodes).await;
            Done::Lookup(nodes.iter().map(|node| node.name().to_owned()).zip(answers).collect())
        });
    }

    /// A Node of another cloud is never judged: it waits for the CCM of that cloud.
    fn is_ours(&self, node: &Node) -> bool {
        node.identity.provider_id.is_none() || self.shared.cloud.owns(node)
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Report => {}
            Done::Lookup(answers) => {
                self.lookups -= 1;
                for (name, answer) in answers {
                    let shared = self.shared.clone();
                    self.tasks.spawn(async move {
                        let outcome = shared.sync(&name, answer).await;
                        Done::Sync { name, outcome }
                    });
                }
            }
            Done::Sync { name, outcome } => {
                self.queue.done(&name);
                self.settle(&name, outcome);
                match self.after_work.remove(&name) {
                    Some(Again::NodeChanged) => self.node_changed(&name),
                    Some(Again::AskCloud) => self.queue.add(&name),
                    None => {}
                }
            }
        }
    }

    /// Takes note of what came out for one Node and sets the time of the next try.
    fn settle(&mut self, name: &str, outcome: Outcome) {
        let Some(node) = self.shared.nodes.get(name) else {
            self.forget(name);
            return;
        };
        let Some(state) = self.states.get_mut(name) else { return };
        let waited_for = state.waiting_for;
        match outcome {
            Outcome::Nothing { metadata, warnings } => {
                state.succeed();
                state.metadata = metadata;
                warn(name, state.new_warnings(warnings));
            }
            Outcome::Repaired { version, metadata, warnings } => {
                state.succeed();
                state.metadata = Some(metadata);
                state.written = Some(version);
                state.repaired = Some(Instant::now());
                warn(name, state.new_warnings(warnings));
            }
            Outcome::Initialized { version, metadata, warnings } => {
                state.succeed();
                state.metadata = Some(metadata);
                state.written = Some(version);
                warn(name, state.new_warnings(warnings));
                self.events.record(
                    EventObject::node(&node),
                    EventType::Normal,
                    "Synced",
                    "Node synced successfully",
                );
            }
            Outcome::NotInitialized(fault) => {
                let report = state.fail(&node, &fault);
                state.tried = Some(node.clone());
                let wait = match fault.retry_after {
                    Some(after) => after.clamp(*RETRY_AFTER.start(), *RETRY_AFTER.end()),
                    None => BACKOFF.after(state.failures),
                };
                self.queue.add_after(name, wait);
                if let Some(condition) = report {
                    self.report(&node, condition);
                }
            }
            Outcome::NotRepaired { why } => {
                // The period comes again by itself; only a write that failed is tried earlier.
                if let Some(why) = why {
                    state.failures = state.failures.saturating_add(1);
                    tracing::warn!(node = name, error = why, "node not updated, trying again");
                    self.queue.add_after(name, BACKOFF.after(state.failures));
                }
            }
        }
        let waits_for = self.states.get(name).and_then(|state| state.waiting_for);
        if waited_for != waits_for {
            let gauge = &self.shared.metrics.uninitialized_nodes;
            waited_for.inspect(|reason| gauge.with_label_values(&[*reason]).dec());
            waits_for.inspect(|reason| gauge.with_label_values(&[*reason]).inc());
        }
    }

    /// Says in an event and in the Node's condition why it is not initialised.
    fn report(&mut self, node: &Arc<Node>, condition: WantedCondition) {
        let message = format!("Node is not initialized: {}", condition.message);
        tracing::warn!(
            node = node.name(),
            reason = condition.reason,
            message = condition.message,
            "node not initialized"
        );
        self.events.record(EventObject::node(node), EventType::Warning, "InitializationFailed", message);
        let (shared, node) = (self.shared.clone(), node.clone());
        self.tasks.spawn(async move {
            let patch = condition.to_patch(&node, Timestamp::now());
            if let Err(error) = shared.writer.patch(node.name(), &patch).await {
                tracing::debug!(node = node.name(), %error, "condition not written");
            }
            Done::Report
        });
    }
}

impl Shared {
    /// Decides on one Node and writes. The Node is read again first: it may have changed while the cloud was asked
    /// and while this waited for its turn.
    async fn sync(&self, name: &str, answer: InstanceLookup) -> Outcome {
        // Closed never: the semaphore lives as long as `self`.
        let _permit = self.permits.acquire().await;
        let Some(node) = self.nodes.get(name) else {
            return Outcome::Nothing { metadata: None, warnings: Vec::new() };
        };
        if node.has_taint(UNINITIALIZED_TAINT) {
            let provider = self.cloud.provider().name();
            match initialize(&node, &answer, provider, Timestamp::now()) {
                Ok(plan) => self.initialize(&node, plan, answer).await,
                Err(fault) => Outcome::NotInitialized(fault),
            }
        } else if let InstanceLookup::Present(instance) = answer {
            let plan = repair(&node, &instance.metadata, Timestamp::now());
            self.repair(&node, plan, instance.metadata).await
        } else {
            // Absence is the lifecycle controller's business, and a cloud that cannot answer changes nothing.
            Outcome::NotRepaired { why: None }
        }
    }

    async fn initialize(&self, node: &Node, plan: Initialization, answer: InstanceLookup) -> Outcome {
        let mut version = String::new();
        for patch in plan.status.iter().chain([&plan.main]) {
            match self.writer.patch(node.name(), patch).await {
                Ok(written) => version = written,
                Err(WriteError::Gone) => return Outcome::Nothing { metadata: None, warnings: Vec::new() },
                Err(error) => {
                    return Outcome::NotInitialized(NotInitialized::write_failed(error.to_string()));
                }
            }
        }
        let age = age_seconds(node);
        self.metrics.taint_removal_delay.observe(age);
        self.metrics.initial_node_sync_delay.observe(age);
        let metadata = match answer {
            InstanceLookup::Present(instance) => {
                tracing::info!(
                    node = node.name(),
                    provider_id =
                        node.identity.provider_id.as_deref().unwrap_or(instance.provider_id.as_str()),
                    "node initialized"
                );
                instance.metadata
            }
            InstanceLookup::Absent | InstanceLookup::Unknown(_) => InstanceMetadata::default(),
        };
        Outcome::Initialized { version, metadata, warnings: plan.warnings }
    }

    async fn repair(&self, node: &Node, plan: Repair, metadata: InstanceMetadata) -> Outcome {
        if plan.patches.is_empty() {
            return Outcome::Nothing { metadata: Some(metadata), warnings: plan.warnings };
        }
        let mut version = String::new();
        for patch in &plan.patches {
            match self.writer.patch(node.name(), patch).await {
                Ok(written) => version = written,
                Err(WriteError::Gone) => return Outcome::Nothing { metadata: None, warnings: Vec::new() },
                Err(error) => return Outcome::NotRepaired { why: Some(error.to_string()) },
            }
            let what = if matches!(patch, NodePatch::Status(_)) { "addresses" } else { "labels" };
            tracing::info!(node = node.name(), what, "node follows the cloud");
        }
        Outcome::Repaired { version, metadata, warnings: plan.warnings }
    }
}

fn warn(name: &str, warnings: Vec<String>) {
    for warning in warnings {
        tracing::warn!(node = name, "{warning}");
    }
}
