//! One comparison of all routes with the Nodes: lists, plans, and makes jobs of what the plan says.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, Route};
use component::{
    command_line::format_duration,
    events::{EventRecorder, EventType},
};
use controller_kit::{
    cache::CachedObject as _,
    clients::TermFence,
    cloud::{Cloud, CloudRoutes},
    nodes::{Node, NodeStore, NodeWriter},
    writes::WriteError,
};
use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use super::{
    cidr::ClusterCidrs,
    condition::RouteCondition,
    jobs::{Job, Subject},
    plan::{Plan, plan},
    retries::{Failure, Work},
    step::{Step, WrittenCondition},
};

/// How many routes are made and deleted at the same time, as in upstream.
const CONCURRENT_OPERATIONS: usize = 200;

/// How many conditions are written at the same time.
const CONCURRENT_WRITES: usize = 64;

/// The reason of the event about a route that is not made, as upstream.
pub(super) const ROUTE_NOT_CREATED: &str = "FailedToCreateRoute";

/// How long a pass has the routes to itself. After that another one may begin beside its last calls, and creations do not wait
/// for deletions of other CIDRs any longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a pass works with.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) nodes: NodeStore,
    pub(super) cloud: Cloud,
    /// Closed when another leader may make and delete routes.
    pub(super) fence: TermFence,
    pub(super) writer: NodeWriter,
    pub(super) events: EventRecorder,
    pub(super) cluster_name: String,
    pub(super) ranges: ClusterCidrs,
    /// Whether nothing is to be changed.
    pub(super) dry_run: bool,
    pub(super) limits: Limits,
}

/// Limits over all passes.
#[derive(Debug)]
pub(super) struct Limits {
    operations: Semaphore,
    writes: Semaphore,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations: Semaphore::new(CONCURRENT_OPERATIONS), writes: Semaphore::new(CONCURRENT_WRITES) }
    }
}

/// What is remembered from earlier passes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What failed and is not to be tried yet.
    pub(super) not_due: HashSet<Work>,
    /// What the provider still waits with. Nothing went wrong there.
    pub(super) in_progress: HashSet<Work>,
    /// What earlier passes still work on.
    pub(super) under_way: HashSet<Subject>,
    /// The conditions that were written last, by the Node's name.
    pub(super) written: HashMap<String, WrittenCondition>,
}

/// A pass that knows what is to be done.
pub(super) struct Planned {
    /// How many routes the cloud has.
    pub(super) listed: usize,
    /// How many routes Nodes should have.
    pub(super) wanted: usize,
    /// How many of these are not there.
    pub(super) missing: usize,
    /// Faults that are to be told once.
    pub(super) faults: Vec<Fault>,
    pub(super) jobs: Vec<Job>,
}

/// Something odd about a route or a pod CIDR.
pub(super) struct Fault {
    /// The line in the log.
    pub(super) line: String,
    /// The Node that an event tells of it, and the event's message.
    pub(super) event: Option<(Arc<Node>, String)>,
}

/// What the jobs of a pass have in common.
struct Pass {
    shared: Arc<Shared>,
    /// All calls go to the provider that listed the routes.
    cloud: CloudRoutes,
    memory: Memory,
    over: CancellationToken,
    /// The names of the Nodes that the plan was made from.
    nodes: HashSet<String>,
    deletions: Deletions,
    /// The CIDRs of the routes that were deleted.
    freed: Mutex<HashSet<String>>,
    planned: Instant,
}

/// The deletions of a pass that have not ended.
#[derive(Default)]
struct Deletions {
    all: TaskTracker,
    by_cidr: HashMap<String, TaskTracker>,
}

impl Deletions {
    /// Adds a deletion, which ends when the tokens are dropped.
    fn add(&mut self, cidr: &str) -> [TaskTrackerToken; 2] {
        let of_cidr = self.by_cidr.entry(cidr.to_owned()).or_default();
        // Only a closed one can be waited for.
        self.all.close();
        of_cidr.close();
        [self.all.token(), of_cidr.token()]
    }

    /// Waits for the deletions of routes with these CIDRs, and until then for all others.
    async fn ended(&self, cidrs: &[String], then: Instant) {
        for of_cidr in cidrs.iter().filter_map(|cidr| self.by_cidr.get(cidr)) {
            of_cidr.wait().await;
        }
        if !self.all.is_empty() {
            // Whether they have ended does not matter any more.
            let _ = timeout_at(then, self.all.wait()).await;
        }
    }
}

/// A route to be made.
struct Wanted {
    cidr: String,
    /// The CIDRs of deleted routes that overlap it.
    after: Vec<String>,
    /// Whether it waits for the other deletions too.
    after_all: bool,
}

/// The cloud's routes, and the provider that has them.
pub(super) type Listed = (CloudRoutes, Vec<Route>);

/// Lists the routes.
///
/// # Errors
/// The cloud does not list them.
pub(super) async fn list(shared: Arc<Shared>) -> Result<Listed, Failure> {
    let cloud = shared.cloud.routes();
    match cloud.list(&shared.cluster_name).await {
        Ok(routes) => Ok((cloud, routes)),
        Err(error) => Err(failure(Work::List, &error)),
    }
}

/// Plans a pass. When `over` is cancelled, nothing more is begun, except for routes that take the place of deleted ones.
///
/// Deletions and creations overlap, except for creations that need the deletions first. The condition of a Node is written as
/// soon as its own routes are done.
pub(super) fn plan_pass(
    shared: &Arc<Shared>,
    (cloud, routes): Listed,
    memory: Memory,
    over: CancellationToken,
) -> Planned {
    // Read after the routes were listed, so that no route of a new Node looks like one of nobody.
    let mut nodes = shared.nodes.all();
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
    let plan = plan(&nodes, &routes, &shared.ranges);
    let mut deletions = Deletions::default();
    let ends: Vec<_> = plan.deletions.iter().map(|route| deletions.add(&route.destination_cidr)).collect();
    let pass = Arc::new(Pass {
        shared: Arc::clone(shared),
        cloud,
        memory,
        over,
        nodes: nodes.iter().map(|node| node.name().to_owned()).collect(),
        deletions,
        freed: Mutex::default(),
        planned: Instant::now(),
    });
    let deletions = plan.deletions.iter().zip(ends).map(|(route, end)| pass.deletion(route, end));
    let nodes_settled = plan.nodes.iter().map(|node| {
        let wanted = node.creations.iter();
        let wanted = wanted.map(|creation| Wanted {
            cidr: creation.cidr.to_owned(),
            after: creation.after.iter().map(|&cidr| cidr.to_owned()).collect(),
            after_all: creation.after_all,
        });
        pass.settlement(node.node, wanted.collect(), node.refused())
    });
    Planned {
        listed: routes.len(),
        wanted: nodes.iter().map(|node| node.pod_cidrs.len()).sum::<usize>()
            - plan.nodes.iter().map(|node| node.refusals.len()).sum::<usize>(),
        missing: plan.nodes.iter().map(|node| node.creations.len()).sum(),
        faults: faults_of(&plan),
        jobs: deletions.chain(nodes_settled).collect(),
    }
}

/// What is odd about the routes and pod CIDRs.
fn faults_of(plan: &Plan<'_>) -> Vec<Fault> {
    let unreadable = plan.unreadable.iter().map(|route| {
        let line = format!(
            "the route {} is left alone: its destination {:?} is no CIDR",
            route.name, route.destination_cidr
        );
        Fault { line, event: None }
    });
    let refused = plan.nodes.iter().flat_map(|planned| {
        let node = planned.node;
        planned.refusals.iter().map(move |(cidr, refusal)| {
            let (name, uid) = (node.name(), &node.identity.uid);
            let words = refusal.message(cidr);
            let event = format!("Could not create route {uid} {cidr} for node {name}: {words}");
            Fault {
                line: format!("node {name} gets no route: {}", refusal.log_message(cidr)),
                event: Some((Arc::clone(node), event)),
            }
        })
    });
    unreadable.chain(refused).collect()
}

fn failure(work: Work, error: &Error) -> Failure {
    let is_in_progress = error.kind() == ErrorKind::InProgress;
    Failure { work, error: error.log_report(), retry_after: error.retry_after(), is_in_progress }
}

impl Pass {
    fn deletion(self: &Arc<Self>, route: &Route, end: [TaskTrackerToken; 2]) -> Job {
        let subjects = vec![Subject::Cidr(route.destination_cidr.clone())];
        let (pass, route) = (Arc::clone(self), route.clone());
        let work = Box::pin(async move {
            let step = pass.delete(&route).await;
            drop(end);
            vec![step]
        });
        Job { subjects, work }
    }

    fn settlement(self: &Arc<Self>, node: &Arc<Node>, wanted: Vec<Wanted>, refused: Option<String>) -> Job {
        let cidrs = wanted.iter().map(|wanted| Subject::Cidr(wanted.cidr.clone()));
        let subjects = cidrs.chain([Subject::Node(node.name().to_owned())]).collect();
        let (pass, node) = (Arc::clone(self), Arc::clone(node));
        Job { subjects, work: Box::pin(async move { pass.settle(&node, &wanted, refused).await }) }
    }

    /// Whether an earlier pass still works on the routes with this CIDR.
    fn is_under_way(&self, cidr: &str) -> bool {
        self.memory.under_way.contains(&Subject::Cidr(cidr.to_owned()))
    }

    async fn delete(&self, route: &Route) -> Step {
        let Route { name, destination_cidr: cidr, target_node: node, .. } = route;
        let work = Work::Delete { name: name.clone(), node: node.clone(), cidr: cidr.clone() };
        if self.is_under_way(cidr) {
            return Step::UnderWay(work);
        }
        if self.memory.not_due.contains(&work) {
            return Step::NotDue(work);
        }
        if self.shared.dry_run {
            return Step::Would(work.to_string());
        }
        let Some(_permit) = self.permit(&self.shared.limits.operations).await else { return Step::Stopped };
        if !node.is_empty() && !self.nodes.contains(node.as_str()) {
            // The cache of a daemon that has just taken over may lack a new Node whose route another one made.
            let not_gone = match self.shared.writer.is_there(node).await {
                Ok(false) => None,
                Ok(true) => Some("the node exists, and is not in the cache yet".to_owned()),
                Err(error) => Some(format!("cannot tell whether the node is gone: {error}")),
            };
            if let Some(error) = not_gone {
                return Step::Failed(Failure { work, error, retry_after: None, is_in_progress: false });
            }
        }
        let call = self.cloud.delete(&self.shared.cluster_name, route);
        match self.shared.fence.pass(call).await {
            None => Step::Stopped,
            Some(Ok(())) => {
                self.freed.lock().insert(cidr.clone());
                tracing::info!(route = name, cidr, node, "route deleted");
                Step::Deleted
            }
            Some(Err(error)) => Step::Failed(failure(work, &error)),
        }
    }

    /// Makes the Node's routes and writes its condition. `refused` says why it may not have all of them.
    async fn settle(&self, node: &Node, wanted: &[Wanted], refused: Option<String>) -> Vec<Step> {
        let name = node.name();
        if self.memory.under_way.contains(&Subject::Node(name.to_owned())) {
            let creations =
                wanted.iter().map(|wanted| Work::Create { node: name.to_owned(), cidr: wanted.cidr.clone() });
            return creations
                .chain([Work::Condition { node: name.to_owned() }])
                .map(Step::UnderWay)
                .collect();
        }
        let mut steps = join_all(wanted.iter().map(|wanted| self.create(node, wanted))).await;
        if steps.iter().any(|step| matches!(step, Step::Stopped)) {
            return steps;
        }
        let is_made = |step: &Step| matches!(step, Step::Created | Step::Would(_));
        let is_in_progress = |step: &Step| match step {
            Step::InProgress(_) | Step::UnderWay(_) => true,
            Step::NotDue(work) => self.memory.in_progress.contains(work),
            _ => false,
        };
        if refused.is_none()
            && steps.iter().any(is_in_progress)
            && steps.iter().all(|step| is_made(step) || is_in_progress(step))
        {
            // Nothing is known yet: the condition stays as it is.
            return steps;
        }
        let condition = match refused {
            Some(why) => RouteCondition::Refused(why),
            None if !node.pod_cidrs.is_empty() && steps.iter().all(is_made) => RouteCondition::RouteCreated,
            None => RouteCondition::NoRouteCreated,
        };
        steps.extend(self.write(node, condition).await);
        steps
    }

    async fn create(&self, node: &Node, wanted: &Wanted) -> Step {
        let (name, cidr) = (node.name(), wanted.cidr.as_str());
        let work = Work::Create { node: name.to_owned(), cidr: cidr.to_owned() };
        if self.is_under_way(cidr) {
            return Step::UnderWay(work);
        }
        if self.memory.not_due.contains(&work) {
            return Step::NotDue(work);
        }
        if self.shared.dry_run {
            return Step::Would(work.to_string());
        }
        if wanted.after_all || !wanted.after.is_empty() {
            self.deletions.ended(&wanted.after, self.planned + PATIENCE).await;
        }
        let began = Instant::now();
        let is_freed = {
            let freed = self.freed.lock();
            wanted.after.iter().any(|cidr| freed.contains(cidr))
        };
        // A Node whose route was deleted to be made anew must not stay without one.
        let operations = &self.shared.limits.operations;
        let permit = if is_freed { operations.acquire().await.ok() } else { self.permit(operations).await };
        let Some(_permit) = permit else { return Step::Stopped };
        let route = Route {
            target_node: name.to_owned(),
            target_node_addresses: node.identity.addresses.clone(),
            destination_cidr: cidr.to_owned(),
            ..Route::default()
        };
        let hint = &node.identity.uid;
        let call = self.cloud.create(&self.shared.cluster_name, hint, &route);
        match self.shared.fence.pass(call).await {
            None => Step::Stopped,
            Some(Ok(())) => {
                tracing::info!(node = name, cidr, "route created");
                Step::Created
            }
            Some(Err(error)) if error.kind() == ErrorKind::InProgress => {
                Step::InProgress(failure(work, &error))
            }
            Some(Err(error)) => {
                let took = format_duration(began.elapsed());
                let why = error.report();
                let message =
                    format!("Could not create route {hint} {cidr} for node {name} after {took}: {why}");
                self.shared.events.record(
                    node.event_object(),
                    EventType::Warning,
                    ROUTE_NOT_CREATED,
                    message,
                );
                Step::Failed(failure(work, &error))
            }
        }
    }

    /// Writes the condition if the Node has another one. `None`: there was nothing to do.
    async fn write(&self, node: &Node, condition: RouteCondition) -> Option<Step> {
        if self.has(node, &condition) {
            return None;
        }
        let name = node.name();
        let work = Work::Condition { node: name.to_owned() };
        if self.memory.not_due.contains(&work) {
            return Some(Step::NotDue(work));
        }
        let Some(_permit) = self.permit(&self.shared.limits.writes).await else { return Some(Step::Stopped) };
        match self.shared.writer.patch(name, &condition.to_patch(node, Timestamp::now())).await {
            Ok(version) => {
                tracing::debug!(
                    node = name,
                    reason = condition.reason(),
                    "condition NetworkUnavailable written"
                );
                let written = WrittenCondition { uid: node.identity.uid.clone(), version, condition };
                Some(Step::Written { node: name.to_owned(), written })
            }
            // The watch will tell.
            Err(WriteError::Gone) => None,
            Err(error @ (WriteError::Stale(_) | WriteError::Failed(_))) => Some(Step::Failed(Failure {
                work,
                error: error.to_string(),
                retry_after: None,
                is_in_progress: false,
            })),
        }
    }

    /// Whether the Node has this condition, or got it with a write that the watch does not show yet.
    fn has(&self, node: &Node, condition: &RouteCondition) -> bool {
        let written = self.memory.written.get(node.name());
        match written
            .filter(|written| written.uid == node.identity.uid && node.is_older_than(&written.version))
        {
            Some(written) => written.condition == *condition,
            None => condition.is_on(node),
        }
    }

    /// Waits for its turn. `None`: the pass is over.
    async fn permit<'p>(&self, of: &'p Semaphore) -> Option<SemaphorePermit<'p>> {
        self.over.run_until_cancelled(of.acquire()).await?.ok()
    }
}
