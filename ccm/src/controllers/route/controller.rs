//! The loop that decides when the routes are compared: when a Node changes, in each period, and when something that failed
//! is tried again.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use component::{debug_state::seconds_from_now, events::EventRecorder, inspection::Inspection};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    cidr::ClusterCidrs,
    metrics::{Outcome, RouteMetrics, Trigger},
    pass::{Memory, Report, Shared, Step, WrittenCondition, pass},
    retries::{Retries, Work},
};
use crate::{
    cache::CachedObject as _,
    clients::TermFence,
    cloud::Cloud,
    nodes::{Node, NodeStore, NodeWriter},
};

/// Changes of Nodes within this time lead to one pass.
const GATHERING_TIME: Duration = Duration::from_millis(100);

/// The least time between the beginnings of two passes that changes of Nodes or retries cause.
const PASS_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of this controller.
#[derive(Clone, Debug)]
pub struct RouteControllerOptions {
    /// `--cluster-name`, which the provider gets with each call.
    pub cluster_name: String,
    /// `--cluster-cidr`.
    pub cluster_cidrs: ClusterCidrs,
    /// Period of the comparison where no Node changes, from start to start.
    pub period: Duration,
    /// `--dry-run`: what would be done is logged, once.
    pub dry_run: bool,
}

/// node-route-controller.
#[derive(Debug)]
pub struct RouteController {
    shared: Arc<Shared>,
    metrics: RouteMetrics,
    period: Duration,
    retries: Retries,
    /// A digest of what matters of each Node that has pod CIDRs, by its name.
    seen: HashMap<String, u64>,
    hasher: RandomState,
    /// Nodes that changed since the pass under way began.
    changed: HashSet<String>,
    /// The conditions that were written last, by the Node's name, until the watch shows them.
    written: HashMap<String, WrittenCondition>,
    /// When the pass begins that changes of Nodes asked for.
    asked_for: Option<Instant>,
    next_period: Instant,
    last: Option<LastPass>,
    /// What was logged, so that it is logged once.
    told: HashSet<String>,
}

/// The last pass, for `/debug/state`.
#[derive(Clone, Copy, Debug)]
struct LastPass {
    began: Instant,
    trigger: Trigger,
    /// `None` while it is under way.
    outcome: Option<Outcome>,
    listed: usize,
    wanted: usize,
}

impl RouteController {
    /// Creates the controller. Call [`run`](Self::run) in a task. The cloud is changed only while the fence is open.
    pub fn new(
        nodes: NodeStore,
        (cloud, fence): (Cloud, TermFence),
        writer: NodeWriter,
        events: EventRecorder,
        metrics: RouteMetrics,
        options: RouteControllerOptions,
    ) -> Self {
        let RouteControllerOptions { cluster_name, cluster_cidrs: ranges, period, dry_run } = options;
        let shared = Shared { nodes, cloud, fence, writer, events, cluster_name, ranges, dry_run };
        Self {
            shared: Arc::new(shared),
            metrics,
            period,
            retries: Retries::new(period),
            seen: HashMap::new(),
            hasher: RandomState::new(),
            changed: HashSet::new(),
            written: HashMap::new(),
            asked_for: None,
            next_period: Instant::now(),
            last: None,
            told: HashSet::new(),
        }
    }

    /// Runs until `stop` is cancelled. Calls and writes that have begun are finished.
    pub async fn run(mut self, stop: CancellationToken, mut inspection: Inspection) {
        // No route is deleted before all Nodes are known.
        if stop.run_until_cancelled(inspection.beside(self.shared.nodes.synced())).await.is_none() {
            return;
        }
        let mut changes = self.shared.nodes.subscribe();
        let mut replacements = self.shared.cloud.replacements();
        // The first pass is about all Nodes. Only what changes after it has begun asks for another one.
        self.note(changes.take());
        self.asked_for = None;
        self.next_period = Instant::now();
        let mut running: Option<BoxFuture<'static, Report>> = None;
        loop {
            let begin = self.begin();
            tokio::select! {
                () = stop.cancelled() => {
                    if let Some(pass) = running {
                        let report = inspection.beside(pass).await;
                        self.finish(report);
                    }
                    return;
                }
                question = inspection.question() => {
                    // The request that asked may have been cancelled.
                    drop(question.send(self.to_json()));
                }
                names = changes.next() => self.note(names),
                // Cannot be an error: `self` holds the sender.
                Ok(()) = replacements.changed() => {
                    tracing::debug!("another cloud provider has taken over: its routes are compared");
                    self.retries.clear();
                    self.next_period = Instant::now();
                }
                report = async {
                    match &mut running {
                        Some(pass) => pass.await,
                        None => std::future::pending().await,
                    }
                } => {
                    running = None;
                    self.finish(report);
                }
                () = sleep_until(begin), if running.is_none() => running = Some(self.start(&stop)),
            }
        }
    }

    /// When the next pass begins.
    fn begin(&self) -> Instant {
        let earliest = self.last.map(|last| last.began + PASS_INTERVAL);
        let listing = self.retries.due(&Work::List);
        let asked_for = self.asked_for.map(|then| earliest.map_or(then, |earliest| then.max(earliest)));
        let not_before = |due: Instant| earliest.map_or(due, |earliest| due.max(earliest));
        if let Some(due) = listing {
            // Not even in the next period: the cloud may have said when.
            return not_before(due);
        }
        let retry = self.retries.next().map(not_before);
        [asked_for, retry].into_iter().flatten().fold(self.next_period, Instant::min)
    }

    fn start(&mut self, stop: &CancellationToken) -> BoxFuture<'static, Report> {
        let now = Instant::now();
        let trigger = if self.asked_for.take().is_some() { Trigger::NodeChange } else { Trigger::Periodic };
        if self.next_period <= now {
            self.next_period = now + self.period;
        }
        self.changed.clear();
        self.written.retain(|name, written| {
            let node = self.shared.nodes.get(name);
            node.is_some_and(|node| node.identity.uid == written.uid && node.is_older_than(&written.version))
        });
        self.last = Some(LastPass { began: now, trigger, outcome: None, listed: 0, wanted: 0 });
        // What is due soon is tried now, which saves a pass.
        let not_due = self.retries.not_due(now + GATHERING_TIME);
        let in_progress = self.retries.in_progress();
        let memory = Memory { not_due, in_progress, written: self.written.clone() };
        Box::pin(pass(Arc::clone(&self.shared), memory, stop.clone()))
    }

    /// Notes which Nodes changed in what routes depend on.
    fn note(&mut self, names: HashSet<String>) {
        for name in names {
            let node = self.shared.nodes.get(&name);
            let digest = node.as_deref().and_then(|node| self.digest(node));
            let before = match digest {
                Some(digest) => self.seen.insert(name.clone(), digest),
                None => self.seen.remove(&name),
            };
            if before != digest {
                self.retries.forget_node(&name);
                self.changed.insert(name);
                self.asked_for.get_or_insert_with(|| Instant::now() + GATHERING_TIME);
            }
        }
    }

    /// A digest of what routes depend on. `None`: the Node has no pod CIDRs.
    fn digest(&self, node: &Node) -> Option<u64> {
        if node.pod_cidrs.is_empty() {
            return None;
        }
        let addresses: Vec<(&str, &str)> =
            node.identity.addresses.iter().map(|a| (a.address_type.as_str(), a.address.as_str())).collect();
        Some(self.hasher.hash_one((&node.identity.uid, &node.pod_cidrs, addresses)))
    }

    /// Takes note of what came of a pass.
    fn finish(&mut self, report: Report) {
        let Some(last) = &mut self.last else { return };
        let outcome = match &report {
            Report { not_listed: Some(_), .. } => Outcome::Error,
            report if report.has_changed() => Outcome::Changed,
            _ => Outcome::Noop,
        };
        self.metrics.synced(outcome, last.trigger);
        last.outcome = Some(outcome);
        let now = Instant::now();
        if let Some(failure) = report.not_listed {
            let (is_new, error) = (!self.retries.has(&Work::List), failure.error.clone());
            let wait = self.retries.failed(failure, now);
            if is_new {
                tracing::error!(error, "the cloud does not list its routes: trying again in {wait:.1?}");
            } else {
                tracing::debug!(error, "the cloud does not list its routes: trying again in {wait:.1?}");
            }
            return;
        }
        if self.retries.has(&Work::List) {
            self.retries.forget(&Work::List);
            tracing::info!("the cloud lists its routes again");
        }
        (last.listed, last.wanted) = (report.listed, report.wanted);
        let missing = self.settle(report.steps, report.missing, now);
        self.metrics.count(report.wanted, missing);
        self.told.retain(|line| report.faults.contains(line) || self.shared.dry_run);
        for fault in report.faults {
            if !self.told.contains(&fault) {
                tracing::warn!("{fault}");
                self.told.insert(fault);
            }
        }
    }

    /// Takes note of each step, and returns how many of the `missing` routes are still missing.
    fn settle(&mut self, steps: Vec<Step>, mut missing: usize, now: Instant) -> usize {
        let waits = steps.iter().filter_map(|step| match step {
            Step::Failed(failure) | Step::InProgress(failure) => Some(failure.work.clone()),
            Step::NotDue(work) => Some(work.clone()),
            _ => None,
        });
        self.retries.keep_only(&waits.collect());
        for step in steps {
            match step {
                Step::Created => missing = missing.saturating_sub(1),
                Step::Deleted | Step::NotDue(_) | Step::Stopped => {}
                Step::Failed(failure) => {
                    let (work, error) = (failure.work.clone(), failure.error.clone());
                    let wait = self.retries.failed(failure, now);
                    tracing::warn!(error, "could not {work}: trying again in {wait:.1?}");
                }
                Step::InProgress(failure) => {
                    let (work, error) = (failure.work.clone(), failure.error.clone());
                    let wait = self.retries.failed(failure, now);
                    tracing::debug!(error, "cannot {work} yet: trying again in {wait:.1?}");
                }
                Step::Written { node, written } => {
                    self.written.insert(node, written);
                }
                Step::Would(what) => {
                    if !self.told.contains(&what) {
                        tracing::info!("dry run: would {what}");
                        self.told.insert(what);
                    }
                }
            }
        }
        // A Node that changed meanwhile is tried at once.
        for name in &self.changed {
            self.retries.forget_node(name);
        }
        missing
    }

    /// For `/debug/state`.
    fn to_json(&self) -> Value {
        let last = self.last.map(|last| {
            json!({
                "beganInSeconds": seconds_from_now(last.began),
                "trigger": last.trigger.as_str(),
                "outcome": last.outcome.map(Outcome::as_str),
                "routesListed": last.listed,
                "routesWanted": last.wanted,
            })
        });
        json!({
            "periodSeconds": self.period.as_secs_f64(),
            "nextPeriodInSeconds": seconds_from_now(self.next_period),
            "nextPassInSeconds": seconds_from_now(self.begin()),
            "lastPass": last,
            "waiting": self.retries.to_json(),
        })
    }
}

#[cfg(test)]
mod tests;
