//! The loop that decides when to look at which Nodes: at all of them in each period, and at changed ones at
//! once.

mod breaker_turns;
mod kubelets;
mod look;
mod writes;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::InstanceChange;
use component::{debug_state::seconds_from_now, events::EventRecorder, inspection::Inspection};
use controller_kit::{
    cache::Changes,
    cloud::Cloud,
    conditions::INSTANCE_EXISTS,
    nodes::{Node, NodeStore, NodeWriter, ReadyStatus},
};
use futures::StreamExt;
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    SHUTDOWN_TAINT,
    breaker::{Breaker, BreakerLimits},
    decide::is_held_by_breaker,
    lease::LeaseReader,
    memory::Memory,
    metrics::NodeLifecycleMetrics,
};

/// One pass in this many asks about all Nodes. The others ask about Nodes that are not Ready or in question,
/// as upstream does.
const FULL_PASS: u32 = 12;

/// The flags of this controller.
#[derive(Clone, Copy, Debug)]
pub struct NodeLifecycleOptions {
    /// `--node-monitor-period`: period of the comparison of all Nodes with the cloud.
    pub monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: maximum number of Nodes written, or leases read, at the same
    /// time.
    pub concurrent_syncs: usize,
    /// `--node-deletion-grace-period`: minimum time between the two answers that an instance is gone. `None`:
    /// one monitor period, at least 5 s.
    pub deletion_grace_period: Option<Duration>,
    /// `--node-deletion-unseen-grace-period`: the same for an instance that the provider has never seen.
    /// `None`: 24 grace periods, at most 5 minutes.
    pub deletion_unseen_grace_period: Option<Duration>,
    /// `--node-deletion-minimum-age`: a younger Node is not deleted.
    pub deletion_minimum_age: Duration,
    /// `--node-deletion-breaker-count` and `--node-deletion-breaker-percent`.
    pub breaker: BreakerLimits,
    /// `--dry-run`: writes have no effect, so the same write seems to succeed in each period.
    pub dry_run: bool,
}

/// cloud-node-lifecycle-controller.
#[derive(Debug)]
pub struct NodeLifecycleController {
    nodes: NodeStore,
    cloud: Cloud,
    writer: NodeWriter,
    leases: Arc<LeaseReader>,
    events: EventRecorder,
    metrics: NodeLifecycleMetrics,
    options: NodeLifecycleOptions,
    memories: HashMap<String, Memory>,
    /// When to look at a Node again, if before the next period.
    due: HashMap<String, Instant>,
    /// Names of the Nodes that were in question when they last changed, or that had no instance. Some of them
    /// are no longer in question.
    in_question: HashSet<String>,
    /// Names of the Nodes whose instance is gone.
    absent: HashSet<String>,
    breaker: Breaker,
    /// Names of the Nodes whose memory changed after the breaker counted them.
    uncounted: HashSet<String>,
    /// Nodes that changed after the breaker counted them.
    node_changes: Changes,
}

impl NodeLifecycleController {
    /// Creates the controller. Call [`run`](Self::run) in a task. `leases` reads the kubelets' leases, and
    /// should not be throttled.
    pub fn new(
        nodes: NodeStore,
        cloud: Cloud,
        client: Client,
        leases: Client,
        events: EventRecorder,
        metrics: NodeLifecycleMetrics,
        options: NodeLifecycleOptions,
    ) -> Self {
        Self {
            node_changes: nodes.subscribe(),
            nodes,
            cloud,
            writer: NodeWriter::new(client),
            leases: LeaseReader::new(leases, options.concurrent_syncs),
            events,
            metrics,
            options,
            memories: HashMap::new(),
            due: HashMap::new(),
            in_question: HashSet::new(),
            absent: HashSet::new(),
            breaker: Breaker::default(),
            uncounted: HashSet::new(),
        }
    }

    /// Runs until `stop` is cancelled. Writes that have begun are finished.
    pub async fn run(self, stop: CancellationToken, inspection: Inspection) {
        let leases = self.leases.clone();
        tokio::select! {
            () = Box::pin(self.work(stop, inspection)) => {}
            // This never ends.
            () = leases.observe() => {}
        }
    }

    async fn work(mut self, stop: CancellationToken, mut inspection: Inspection) {
        let mut pushed = self.cloud.changes();
        if stop.run_until_cancelled(inspection.beside(self.nodes.synced())).await.is_none() {
            return;
        }
        let mut changes = self.nodes.subscribe();
        // All Nodes first: the breaker must not judge by the few that arrive first.
        let began = Instant::now();
        self.look_at(self.nodes.all(), &stop, &inspection).await;
        let mut all_asked = Instant::now();
        self.metrics.monitored(began.elapsed());
        let mut next_period = all_asked + self.options.monitor_period;
        let mut passes = 0u32;
        loop {
            let next_due = self.due.values().min().copied();
            let (mut is_pass, mut asks_all) = (false, false);
            let names = tokio::select! {
                () = stop.cancelled() => return,
                question = inspection.question() => {
                    question.answer(self.to_json(next_period));
                    continue;
                }
                () = sleep_until(next_period) => {
                    is_pass = true;
                    passes = (passes + 1) % FULL_PASS;
                    (passes != 0).then(|| self.names_in_question())
                }
                () = sleep_until(next_due.unwrap_or(next_period)), if next_due.is_some() => Some(self.take_due()),
                names = changes.next() => Some(self.worth_a_look(names)),
                Some(change) = pushed.next() => match change {
                    InstanceChange::Changed(instances) => Some(self.nodes.matching(&instances)),
                    InstanceChange::Resync => None,
                },
            };
            let began = Instant::now();
            match names {
                Some(names) if names.is_empty() && !is_pass => {}
                Some(names) => {
                    let nodes = names.iter().filter_map(|name| self.nodes.get(name)).collect();
                    self.look_at(nodes, &stop, &inspection).await;
                    // A cloud that loses one Node may lose all of them. The breaker has to know that before a
                    // second answer permits the deletion of the first Node.
                    asks_all = self.is_someone_absent_since(all_asked);
                }
                None => asks_all = true,
            }
            if asks_all {
                is_pass = true;
                self.forget_vanished();
                self.look_at(self.nodes.all(), &stop, &inspection).await;
                all_asked = Instant::now();
            }
            if is_pass {
                self.metrics.monitored(began.elapsed());
                // As in upstream, the period starts at the end of a pass.
                next_period = Instant::now() + self.options.monitor_period;
            }
        }
    }

    /// For `/debug/state`.
    fn to_json(&self, next_period: Instant) -> Value {
        let nodes: Map<String, Value> = self
            .memories
            .iter()
            .map(|(name, memory)| {
                let mut json = memory.to_json();
                json["nextLookInSeconds"] = self.due.get(name).copied().map(seconds_from_now).into();
                (name.clone(), json)
            })
            .collect();
        json!({
            "nextPeriodInSeconds": seconds_from_now(next_period),
            "breaker": {
                "open": self.breaker.is_open(),
                "count": self.options.breaker.count,
                "percent": self.options.breaker.percent,
            },
            "nodes": nodes,
        })
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

    /// The changed Nodes for which the cloud's answer can matter now. A thousand new Nodes must not cause a
    /// thousand look-ups.
    fn worth_a_look(&mut self, names: HashSet<String>) -> Vec<String> {
        names
            .into_iter()
            .filter(|name| match self.nodes.get(name) {
                None => {
                    self.forget(name);
                    false
                }
                Some(node) => {
                    if self.memories.get(name).is_some_and(|memory| memory.uid != node.identity.uid) {
                        self.forget(name);
                    }
                    let is_in_question = self.is_in_question(&node);
                    if is_in_question {
                        self.in_question.insert(name.clone());
                    }
                    is_in_question
                }
            })
            .collect()
    }

    fn names_in_question(&mut self) -> Vec<String> {
        let mut names = std::mem::take(&mut self.in_question);
        names.retain(|name| self.nodes.get(name).is_some_and(|node| self.is_in_question(&node)));
        self.in_question = names;
        self.in_question.iter().cloned().collect()
    }

    /// Whether the cloud's answer can matter now. It does not for a Ready Node without anything to repair,
    /// since its kubelet is alive. Such a Node is looked at in a full pass, and when the provider reports a
    /// change.
    fn is_in_question(&self, node: &Node) -> bool {
        self.memories.get(node.name()).is_some_and(|memory| memory.absence.is_some())
            || node.has_taint(SHUTDOWN_TAINT)
            || node.condition(INSTANCE_EXISTS).is_some_and(|condition| condition.status != "True")
            || (node.ready() != ReadyStatus::True && node.identity.provider_id.is_some())
    }

    /// Whether an instance was found to be gone after `then`, for the first time.
    fn is_someone_absent_since(&self, then: Instant) -> bool {
        let absences = self.absent.iter().filter_map(|name| self.memories.get(name)?.absence);
        absences.map(|absence| absence.first).any(|first| first > then)
    }

    /// Forgets the Nodes that no longer exist, and those replaced by a new Node of the same name.
    fn forget_vanished(&mut self) {
        let nodes = &self.nodes;
        let is_there = |name: &String, memory: &Memory| {
            nodes.get(name).is_some_and(|node| node.identity.uid == memory.uid)
        };
        let vanished: Vec<String> = self
            .memories
            .iter()
            .filter(|(name, memory)| !is_there(name, memory))
            .map(|(name, _)| name.clone())
            .collect();
        for name in vanished {
            self.forget(&name);
        }
        let nodes = self.nodes.all();
        let uids: HashSet<&str> = nodes.iter().map(|node| node.identity.uid.as_str()).collect();
        self.cloud.keep_seen(|uid| uids.contains(uid));
    }

    fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.in_question.remove(name);
        self.absent.remove(name);
        let Some(memory) = self.memories.remove(name) else { return };
        self.breaker.note(&memory.uid, None);
        if let Some(held_back) = memory.held_back {
            self.metrics.deletions_held_back.with_label_values(&[held_back.as_str()]).dec();
        }
    }

    /// The memory of this Node. The memory of an earlier Node with the same name is discarded.
    fn memory_of(&mut self, node: &Node, now: Instant) -> &mut Memory {
        if self.memories.get(node.name()).is_some_and(|memory| memory.uid != node.identity.uid) {
            self.forget(node.name());
        }
        self.uncounted.insert(node.name().to_owned());
        let breaker = &mut self.breaker;
        self.memories.entry(node.name().to_owned()).or_insert_with(|| {
            if is_held_by_breaker(node) {
                breaker.inherit(&node.identity.uid);
            }
            Memory::new(&node.identity.uid, now)
        })
    }
}

#[cfg(test)]
mod tests;
