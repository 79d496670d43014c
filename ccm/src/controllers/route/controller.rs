//! The loop that decides when the routes are compared: when a Node changes, in each period, and when something that failed
//! is tried again.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use cloudprovider::LogOnce;
use component::{
    debug_state::seconds_from_now,
    events::{EventRecorder, EventType},
    inspection::Inspection,
};
use controller_kit::{
    cache::CachedObject as _,
    clients::TermFence,
    cloud::Cloud,
    nodes::{Node, NodeStore, NodeWriter},
};
use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    cidr::ClusterCidrs,
    jobs::{Ended, Jobs, Subject},
    metrics::{Outcome, RouteMetrics, Trigger},
    pass::{Limits, Listed, Memory, PATIENCE, Planned, ROUTE_NOT_CREATED, Shared, list, plan_pass},
    progress::{Current, Progress, Stage, listed},
    retries::{Failure, Retries, Work},
    step::{Step, WrittenCondition},
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
    /// Nodes that changed since the pass under way began, or before it and after a job began that still works on them.
    changed: HashSet<String>,
    /// Why the next pass begins.
    trigger: Trigger,
    /// The conditions that were written last, by the Node's name, until the watch shows them.
    written: HashMap<String, WrittenCondition>,
    /// When the pass begins that changes of Nodes asked for.
    asked_for: Option<Instant>,
    next_period: Instant,
    /// The pass under way.
    current: Option<Current>,
    /// The first pass that may be about the provider in force. What fails of earlier ones says nothing about it.
    first_of_provider: u64,
    /// What this pass and earlier ones still do.
    jobs: Jobs,
    /// What passes left alone because earlier ones still work on it.
    left_alone: HashSet<Subject>,
    /// Whether an earlier pass made or deleted a route after it was counted. The next one is counted as changed then.
    has_changed_late: bool,
    last: Option<LastPass>,
    /// What is in the log.
    logged: LogOnce,
}

/// The last pass, for `/debug/state`.
#[derive(Clone, Copy, Debug)]
struct LastPass {
    number: u64,
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
        let limits = Limits::default();
        let shared = Shared { nodes, cloud, fence, writer, events, cluster_name, ranges, dry_run, limits };
        Self {
            shared: Arc::new(shared),
            metrics,
            period,
            retries: Retries::new(period),
            seen: HashMap::new(),
            hasher: RandomState::new(),
            changed: HashSet::new(),
            trigger: Trigger::Periodic,
            written: HashMap::new(),
            asked_for: None,
            next_period: Instant::now(),
            current: None,
            first_of_provider: 0,
            jobs: Jobs::default(),
            left_alone: HashSet::new(),
            has_changed_late: false,
            last: None,
            logged: LogOnce::default(),
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
        self.changed.clear();
        self.trigger = Trigger::Periodic;
        self.asked_for = None;
        self.next_period = Instant::now();
        loop {
            let begin = self.begin();
            tokio::select! {
                () = stop.cancelled() => {
                    inspection.beside(self.end()).await;
                    return;
                }
                question = inspection.question() => question.answer(self.to_json()),
                names = changes.next() => self.note(names),
                // Cannot be an error: `self` holds the sender.
                Ok(()) = replacements.changed() => {
                    tracing::debug!("another cloud provider has taken over: its routes are compared");
                    self.take_over();
                }
                listed = listed(&mut self.current) => self.work(listed),
                Some(ended) = self.jobs.next() => self.settle(ended),
                () = sleep_until(begin.unwrap_or_else(Instant::now)), if begin.is_some() => self.start(&stop),
            }
        }
    }

    /// Finishes what has begun.
    async fn end(&mut self) {
        if matches!(&self.current, Some(Current { stage: Stage::Listing(_), .. })) {
            let listed = listed(&mut self.current).await;
            self.work(listed);
        }
        while let Some(ended) = self.jobs.next().await {
            self.settle(ended);
        }
    }

    /// Another provider has taken over.
    fn take_over(&mut self) {
        match &self.current {
            // Nobody waits for the former provider's list.
            Some(Current { stage: Stage::Listing(_), .. }) => self.current = None,
            // What the pass has begun is finished by the provider that it began with.
            Some(current) => current.over.cancel(),
            None => {}
        }
        self.retries.clear();
        self.first_of_provider = self.next_number();
        self.next_period = Instant::now();
    }

    /// The number of the next pass.
    fn next_number(&self) -> u64 {
        self.last.map_or(0, |last| last.number + 1)
    }

    /// When the next pass begins. `None`: not before the one under way has its list.
    fn begin(&self) -> Option<Instant> {
        let then = self.due();
        match &self.current {
            None => Some(then),
            Some(Current { stage: Stage::Listing(_), .. }) => None,
            // What hangs must not hold up the other Nodes.
            Some(Current { stage: Stage::Working(progress), .. }) => {
                Some(then.max(progress.since + PATIENCE))
            }
        }
    }

    /// When there is something to do for a pass.
    fn due(&self) -> Instant {
        let earliest = self.last.map(|last| last.began + PASS_INTERVAL);
        let listing = self.retries.due(&Work::List);
        let asked_for = self.asked_for.map(|then| earliest.map_or(then, |earliest| then.max(earliest)));
        let not_before = |due: Instant| earliest.map_or(due, |earliest| due.max(earliest));
        if let Some(due) = listing {
            // Not even in the next period: the cloud may have said when.
            return not_before(due);
        }
        // What a job works on is not to be tried again before the job ends.
        let is_tried = |work: &Work| Subject::of(work).iter().any(|subject| self.jobs.is_busy(subject));
        let retry = self.retries.next(is_tried).map(not_before);
        [asked_for, retry].into_iter().flatten().fold(self.next_period, Instant::min)
    }

    fn start(&mut self, stop: &CancellationToken) {
        if let Some(Current { over, stage: Stage::Working(progress), .. }) = self.current.take() {
            tracing::debug!(
                jobs = progress.open,
                "the routes are compared again beside calls that take long"
            );
            // What has not begun is planned anew.
            over.cancel();
            self.finish(progress);
            while let Some(Some(ended)) = self.jobs.next().now_or_never() {
                self.settle(ended);
            }
        }
        let now = Instant::now();
        let trigger = std::mem::replace(&mut self.trigger, Trigger::Periodic);
        self.asked_for = None;
        if self.next_period <= now {
            self.next_period = now + self.period;
        }
        // What a job under way fails with is about the Node as it was.
        self.changed.retain(|name| self.jobs.is_busy(&Subject::Node(name.clone())));
        let number = self.next_number();
        self.last = Some(LastPass { number, began: now, trigger, outcome: None, listed: 0, wanted: 0 });
        let listing = Box::pin(list(Arc::clone(&self.shared)));
        // The list may lack what ends while it is made.
        let under_way = self.jobs.subjects();
        let stage = Stage::Listing(listing);
        self.current = Some(Current { number, under_way, over: stop.child_token(), stage });
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
                self.trigger = Trigger::NodeChange;
                self.ask();
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

    /// Plans a pass that has its list, and begins its jobs.
    fn work(&mut self, listed: Result<Listed, Failure>) {
        let Some(mut current) = self.current.take() else { return };
        let listed = match listed {
            Ok(listed) => listed,
            Err(failure) => return self.not_listed(failure),
        };
        if self.retries.has(&Work::List) {
            self.retries.forget(&Work::List);
            tracing::info!("the cloud lists its routes again");
        }
        let memory = self.memory(std::mem::take(&mut current.under_way));
        let Planned { listed, wanted, missing, faults, jobs } =
            plan_pass(&self.shared, listed, memory, current.over.clone());
        for fault in &faults {
            if !self.logged.begins(fault.line.as_str()) {
                continue;
            }
            tracing::warn!("{}", fault.line);
            if let Some((node, message)) = fault.event.as_ref().filter(|_| !self.shared.dry_run) {
                let (about, message) = (node.event_object(), message.clone());
                self.shared.events.record(about, EventType::Warning, ROUTE_NOT_CREATED, message);
            }
        }
        let progress = Progress {
            since: Instant::now(),
            open: jobs.len(),
            wanted,
            missing,
            has_changed: false,
            waits: HashSet::new(),
            lines: faults.into_iter().map(|fault| fault.line).collect(),
        };
        if let Some(last) = &mut self.last {
            (last.listed, last.wanted) = (listed, wanted);
        }
        if jobs.is_empty() {
            return self.finish_whole(progress);
        }
        current.stage = Stage::Working(progress);
        for job in jobs {
            self.jobs.begin(current.number, job);
        }
        self.current = Some(current);
    }

    /// What a pass must know of earlier ones.
    fn memory(&mut self, under_way: HashSet<Subject>) -> Memory {
        self.written.retain(|name, written| {
            let node = self.shared.nodes.get(name);
            node.is_some_and(|node| node.identity.uid == written.uid && node.is_older_than(&written.version))
        });
        Memory {
            // What is due soon is tried now, which saves a pass.
            not_due: self.retries.not_due(Instant::now() + GATHERING_TIME),
            in_progress: self.retries.in_progress(),
            under_way,
            written: self.written.clone(),
        }
    }

    /// Takes note of a job that has ended, of this pass or an earlier one.
    fn settle(&mut self, Ended { pass, subjects, steps }: Ended) {
        let is_current = self.current.as_ref().is_some_and(|current| current.number == pass);
        let has_changed = steps.iter().any(|step| matches!(step, Step::Created | Step::Deleted));
        self.has_changed_late |= has_changed && !is_current;
        let is_waited_for = subjects.iter().filter(|subject| self.left_alone.remove(*subject)).count() > 0;
        if !is_current && (has_changed || is_waited_for) {
            // The pass that followed did not see it.
            self.ask();
        }
        for step in &steps {
            if let Some(Current { stage: Stage::Working(progress), .. }) = &mut self.current
                && is_current
            {
                progress.note(step);
            }
        }
        for step in steps {
            self.note_step(pass, step);
        }
        let Some(Current { stage: Stage::Working(progress), .. }) = &mut self.current else { return };
        if !is_current {
            return;
        }
        progress.open -= 1;
        if progress.open == 0
            && let Some(Current { stage: Stage::Working(progress), .. }) = self.current.take()
        {
            self.finish_whole(progress);
        }
    }

    /// Asks for a pass soon.
    fn ask(&mut self) {
        self.asked_for.get_or_insert_with(|| Instant::now() + GATHERING_TIME);
    }

    fn note_step(&mut self, pass: u64, step: Step) {
        let now = Instant::now();
        match step {
            Step::Created | Step::Deleted | Step::NotDue(_) | Step::Stopped => {}
            Step::UnderWay(work) => {
                let subjects = Subject::of(&work).into_iter();
                let busy = subjects.filter(|subject| self.jobs.are_busy_with(subject, pass));
                let busy: Vec<Subject> = busy.collect();
                if busy.is_empty() {
                    // It has ended since this pass began.
                    self.ask();
                }
                self.left_alone.extend(busy);
            }
            Step::Failed(Failure { work, error, .. }) | Step::InProgress(Failure { work, error, .. })
                if pass < self.first_of_provider =>
            {
                // The provider in force is asked without a wait: a pass has been asked for.
                tracing::warn!(error, "could not {work}, in a pass of the former cloud provider");
            }
            Step::Failed(failure) => {
                let (work, error) = (failure.work.clone(), failure.error.clone());
                let wait = self.retries.failed(failure, now);
                tracing::warn!(error, "could not {work}: trying again in {wait:.1?}");
                self.try_at_once_if_changed(&work);
            }
            Step::InProgress(failure) => {
                let (work, error) = (failure.work.clone(), failure.error.clone());
                let wait = self.retries.failed(failure, now);
                tracing::debug!(error, "cannot {work} yet: trying again in {wait:.1?}");
                self.try_at_once_if_changed(&work);
            }
            Step::Written { node, written } => {
                self.written.insert(node, written);
            }
            Step::Would(what) => {
                if self.logged.begins(what.as_str()) {
                    tracing::info!("dry run: would {what}");
                }
            }
        }
    }

    /// A Node that changed meanwhile does not wait.
    fn try_at_once_if_changed(&mut self, work: &Work) {
        if work.node().is_some_and(|node| self.changed.contains(node)) {
            self.retries.forget(work);
        }
    }

    fn not_listed(&mut self, failure: Failure) {
        self.count_pass(Outcome::Error);
        let (is_new, error) = (!self.retries.has(&Work::List), failure.error.clone());
        let wait = self.retries.failed(failure, Instant::now());
        if is_new {
            tracing::error!(error, "the cloud does not list its routes: trying again in {wait:.1?}");
        } else {
            tracing::debug!(error, "the cloud does not list its routes: trying again in {wait:.1?}");
        }
    }

    /// Takes note of a pass all of whose jobs have ended.
    fn finish_whole(&mut self, progress: Progress) {
        self.retries.keep_only(&progress.waits);
        self.logged.keep(|line| progress.lines.contains(line));
        self.finish(progress);
    }

    /// Takes note of a pass, which may have jobs that are still under way.
    fn finish(&mut self, progress: Progress) {
        let has_changed = std::mem::take(&mut self.has_changed_late) || progress.has_changed;
        self.count_pass(if has_changed { Outcome::Changed } else { Outcome::Noop });
        self.metrics.count(progress.wanted, progress.missing);
    }

    fn count_pass(&mut self, outcome: Outcome) {
        if let Some(last) = &mut self.last {
            last.outcome = Some(outcome);
            self.metrics.synced(outcome, last.trigger);
        }
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
            "nextPassInSeconds": self.begin().map(seconds_from_now),
            "lastPass": last,
            "underWay": self.jobs.to_json(),
            "waiting": self.retries.to_json(),
        })
    }
}

#[cfg(test)]
mod tests;
