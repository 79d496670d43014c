//! One comparison of all routes with the Nodes: lists, plans, and does what the plan says.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, Route};
use component::{
    command_line::format_duration,
    events::{EventRecorder, EventType},
};
use futures::{
    StreamExt,
    future::{join_all, ready},
    stream::FuturesUnordered,
};
use jiff::Timestamp;
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    cidr::ClusterCidrs,
    condition::RouteCondition,
    plan::{Creation, NodePlan, Plan, plan},
    retries::{Failure, Work},
};
use crate::{
    cache::CachedObject as _,
    clients::TermFence,
    cloud::Cloud,
    nodes::{Node, NodeStore, NodeWriter},
    writes::{WriteError, WrittenVersion},
};

/// How many routes are made and deleted at the same time, as in upstream.
const CONCURRENT_OPERATIONS: usize = 200;

/// How many conditions are written at the same time.
const CONCURRENT_WRITES: usize = 64;

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
}

/// A condition that was written, and that the watch may not show yet.
#[derive(Clone, Debug)]
pub(super) struct WrittenCondition {
    pub(super) uid: String,
    pub(super) version: WrittenVersion,
    pub(super) condition: RouteCondition,
}

/// What is remembered from earlier passes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What failed and is not to be tried yet.
    pub(super) not_due: HashSet<Work>,
    /// What the provider still waits with. Nothing went wrong there.
    pub(super) in_progress: HashSet<Work>,
    /// The conditions that were written last, by the Node's name.
    pub(super) written: HashMap<String, WrittenCondition>,
}

/// What came of a pass.
#[derive(Debug)]
pub(super) struct Report {
    /// Why the cloud did not list its routes. Nothing was done then.
    pub(super) not_listed: Option<Failure>,
    pub(super) steps: Vec<Step>,
    /// How many routes the cloud has.
    pub(super) listed: usize,
    /// How many routes Nodes should have.
    pub(super) wanted: usize,
    /// How many of these were not there at the beginning.
    pub(super) missing: usize,
    /// Faults that are to be logged once.
    pub(super) faults: HashSet<String>,
}

/// What came of one piece of work.
#[derive(Debug)]
pub(super) enum Step {
    Deleted,
    Created,
    Failed(Failure),
    /// The provider waits for something first, such as the addresses of a new Node.
    InProgress(Failure),
    /// It failed before, and its time has not come.
    NotDue(Work),
    Written {
        node: String,
        written: WrittenCondition,
    },
    /// A dry run: what would be done.
    Would(String),
    /// It was not begun, since the controller stops, or the term has ended.
    Stopped,
}

/// A pass under way.
struct Pass<'a> {
    shared: &'a Shared,
    memory: &'a Memory,
    stop: &'a CancellationToken,
    /// The names of the Nodes that the plan was made from.
    nodes: HashSet<&'a str>,
    operations: Semaphore,
    writes: Semaphore,
    /// Cancelled when all deletions have ended.
    deleted: CancellationToken,
    /// The CIDRs of the routes that were deleted.
    freed: Mutex<HashSet<String>>,
}

/// Makes one pass. When `stop` is cancelled, nothing more is begun, except for routes that take the place of deleted ones.
pub(super) async fn pass(shared: Arc<Shared>, memory: Memory, stop: CancellationToken) -> Report {
    // The routes are listed before the Nodes are read, so that no route of a new Node looks like one of nobody.
    let routes = match shared.cloud.list_routes(&shared.cluster_name).await {
        Ok(routes) => routes,
        Err(error) => {
            let failure = failure(Work::List, &error);
            return Report { not_listed: Some(failure), ..Report::new(0, 0) };
        }
    };
    let mut nodes = shared.nodes.all();
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
    let plan = plan(&nodes, &routes, &shared.ranges);
    let wanted = nodes.iter().map(|node| node.pod_cidrs.len()).sum();
    let mut report = Report::new(routes.len(), wanted);
    report.missing = plan.nodes.iter().map(|node| node.creations.len()).sum();
    report.faults = faults_of(&plan);
    let pass = Pass {
        shared: &shared,
        memory: &memory,
        stop: &stop,
        nodes: nodes.iter().map(|node| node.name()).collect(),
        operations: Semaphore::new(CONCURRENT_OPERATIONS),
        writes: Semaphore::new(CONCURRENT_WRITES),
        deleted: CancellationToken::new(),
        freed: Mutex::default(),
    };
    report.steps = pass.work(&plan).await;
    report
}

impl Report {
    fn new(listed: usize, wanted: usize) -> Self {
        let (steps, faults) = (Vec::new(), HashSet::new());
        Self { not_listed: None, steps, listed, wanted, missing: 0, faults }
    }

    /// Whether a route was made or deleted.
    pub(super) fn has_changed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Deleted | Step::Created))
    }
}

/// What is odd about the routes and pod CIDRs.
fn faults_of(plan: &Plan<'_>) -> HashSet<String> {
    let unreadable = plan.unreadable.iter().map(|route| {
        format!(
            "the route {} is left alone: its destination {:?} is no CIDR",
            route.name, route.destination_cidr
        )
    });
    let outside = plan.nodes.iter().flat_map(|node| {
        let outside = node.creations.iter().filter(|creation| creation.is_outside);
        outside.map(|creation| {
            format!(
                "the pod CIDR {} of node {} is not in --cluster-cidr: its route is made, and never deleted",
                creation.cidr,
                node.node.name()
            )
        })
    });
    unreadable.chain(outside).collect()
}

fn failure(work: Work, error: &Error) -> Failure {
    let is_in_progress = error.kind() == ErrorKind::InProgress;
    Failure { work, error: error.report(), retry_after: error.retry_after(), is_in_progress }
}

impl Pass<'_> {
    /// Deletions and creations overlap, except for creations that need the deletions first. The condition of a Node is
    /// written as soon as its own routes are done.
    async fn work(&self, plan: &Plan<'_>) -> Vec<Step> {
        let deletions = async {
            let deletions: FuturesUnordered<_> =
                plan.deletions.iter().map(|route| self.delete(route)).collect();
            let steps: Vec<Step> = deletions.collect().await;
            self.deleted.cancel();
            steps
        };
        let nodes: FuturesUnordered<_> = plan.nodes.iter().map(|node| self.settle(node)).collect();
        let nodes = nodes.fold(Vec::new(), |mut all: Vec<Step>, steps| {
            all.extend(steps);
            ready(all)
        });
        let (mut steps, others) = tokio::join!(deletions, nodes);
        steps.extend(others);
        steps
    }

    async fn delete(&self, route: &Route) -> Step {
        let Route { name, destination_cidr: cidr, target_node: node, .. } = route;
        let work = Work::Delete { name: name.clone(), node: node.clone(), cidr: cidr.clone() };
        if self.memory.not_due.contains(&work) {
            return Step::NotDue(work);
        }
        if self.shared.dry_run {
            return Step::Would(work.to_string());
        }
        let Some(_permit) = self.permit(&self.operations).await else { return Step::Stopped };
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
        let call = self.shared.cloud.delete_route(&self.shared.cluster_name, route);
        match self.shared.fence.pass(call).await {
            None => Step::Stopped,
            Some(Ok(())) => {
                self.freed.lock().unwrap_or_else(PoisonError::into_inner).insert(cidr.clone());
                tracing::info!(route = name, cidr, node, "route deleted");
                Step::Deleted
            }
            Some(Err(error)) => Step::Failed(failure(work, &error)),
        }
    }

    /// Makes the Node's routes and writes its condition.
    async fn settle(&self, plan: &NodePlan<'_>) -> Vec<Step> {
        let creations = plan.creations.iter().map(|creation| self.create(plan.node, creation));
        let mut steps = join_all(creations).await;
        if steps.iter().any(|step| matches!(step, Step::Stopped)) {
            return steps;
        }
        let is_made = |step: &Step| matches!(step, Step::Created | Step::Would(_));
        let is_in_progress = |step: &Step| match step {
            Step::InProgress(_) => true,
            Step::NotDue(work) => self.memory.in_progress.contains(work),
            _ => false,
        };
        if steps.iter().any(is_in_progress) && steps.iter().all(|step| is_made(step) || is_in_progress(step))
        {
            // Nothing is known yet: the condition stays as it is.
            return steps;
        }
        let condition = if !plan.node.pod_cidrs.is_empty() && steps.iter().all(is_made) {
            RouteCondition::RouteCreated
        } else {
            RouteCondition::NoRouteCreated
        };
        steps.extend(self.write(plan.node, condition).await);
        steps
    }

    async fn create(&self, node: &Node, creation: &Creation<'_>) -> Step {
        let (name, cidr) = (node.name().to_owned(), creation.cidr.to_owned());
        let work = Work::Create { node: name.clone(), cidr: cidr.clone() };
        if self.memory.not_due.contains(&work) {
            return Step::NotDue(work);
        }
        if self.shared.dry_run {
            return Step::Would(work.to_string());
        }
        if creation.after_deletions {
            self.deleted.cancelled().await;
        }
        let began = Instant::now();
        let is_freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner).contains(&cidr);
        // A Node whose route was deleted to be made anew must not stay without one.
        let permit =
            if is_freed { self.operations.acquire().await.ok() } else { self.permit(&self.operations).await };
        let Some(_permit) = permit else { return Step::Stopped };
        let route = Route {
            target_node: name,
            target_node_addresses: node.identity.addresses.clone(),
            destination_cidr: cidr,
            ..Route::default()
        };
        let hint = &node.identity.uid;
        let call = self.shared.cloud.create_route(&self.shared.cluster_name, hint, &route);
        let (name, cidr) = (node.name(), creation.cidr);
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
                    "FailedToCreateRoute",
                    message,
                );
                Step::Failed(failure(work, &error))
            }
        }
    }

    /// Writes the condition if the Node has another one. `None`: there was nothing to do.
    async fn write(&self, node: &Node, condition: RouteCondition) -> Option<Step> {
        if self.has(node, condition) {
            return None;
        }
        let name = node.name();
        let work = Work::Condition { node: name.to_owned() };
        if self.memory.not_due.contains(&work) {
            return Some(Step::NotDue(work));
        }
        let Some(_permit) = self.permit(&self.writes).await else { return Some(Step::Stopped) };
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
            Err(error @ (WriteError::Stale(_) | WriteError::Failed(_))) => {
                let retry_after = None::<Duration>;
                Some(Step::Failed(Failure {
                    work,
                    error: error.to_string(),
                    retry_after,
                    is_in_progress: false,
                }))
            }
        }
    }

    /// Whether the Node has this condition, or got it with a write that the watch does not show yet.
    fn has(&self, node: &Node, condition: RouteCondition) -> bool {
        let written = self.memory.written.get(node.name());
        match written
            .filter(|written| written.uid == node.identity.uid && node.is_older_than(&written.version))
        {
            Some(written) => written.condition == condition,
            None => condition.is_on(node),
        }
    }

    /// Waits for its turn. `None`: the controller stops.
    async fn permit<'p>(&self, of: &'p Semaphore) -> Option<tokio::sync::SemaphorePermit<'p>> {
        let permit = of.acquire().await.ok()?;
        (!self.stop.is_cancelled()).then_some(permit)
    }
}
