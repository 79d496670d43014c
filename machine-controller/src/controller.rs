//! The loop that acts. Objects are worked on in parallel, and never one of them twice at once: whatever is
//! due for an object is decided when its turn comes, and done in one task.

mod changes;
mod reboots;
mod turns;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::machines::Kinds;
use component::{
    debug_state::seconds_from_now,
    events::EventRecorder,
    health::HealthChecks,
    inspection::Inspection,
    loop_tasks::LoopTasks,
    work_queue::{WorkQueue, WorkQueueMeter},
};
use controller_kit::{
    cache::{CachedObject as _, Changes},
    clients::TermFence,
    cloud::Cloud,
    services::ControlPlanes,
    writes::WrittenVersion,
};
use futures::StreamExt as _;
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    concurrency::{Concurrency, has_place},
    dependents::Dependents,
    failing::Failing,
    index::Index,
    metrics::ControllerMachineMetrics,
    object_key::{ObjectKey, ObjectKind},
    phase::Phase,
    plan::{Due, Memory},
    status_only::StatusOnlyIndex,
    store::Stores,
    watch::{Known, Watches},
    work::{Ended, Shared},
    writer::ObjectWriter,
};

/// The flags of this controller.
#[derive(Clone, Debug)]
pub struct MachineControllerOptions {
    /// `--namespace`. `None`: all of them.
    pub namespace: Option<String>,
    /// `--watch-filter`
    pub watch_filter: Option<String>,
    /// `--sync-period`: how often a step is made for an object to which nothing happens.
    pub sync_period: Duration,
    /// `--dry-run`
    pub dry_run: bool,
    /// The name of the check that the API server serves the kinds.
    pub kinds_check: String,
}

/// machine-controller.
#[derive(Debug)]
pub struct MachineController {
    shared: Arc<Shared>,
    stores: Stores,
    watches: Watches,
    options: MachineControllerOptions,
    index: Index,
    dependents: Dependents,
    queue: WorkQueue,
    memories: HashMap<ObjectKey, Memory>,
    failing: Failing,
    /// The newest version of each object that is known from a write or a read, and since when.
    written: HashMap<ObjectKey, (WrittenVersion, Instant)>,
    /// How often in a row the API server did not do what it was asked for.
    tries: HashMap<ObjectKey, u32>,
    /// Objects at work that something changed for meanwhile. They are scheduled when their work ends.
    dirty: HashSet<ObjectKey>,
    /// Objects at work that the cloud reported a change for meanwhile. Their next step is due when their work
    /// ends.
    woken: HashSet<ObjectKey>,
    /// The UIDs that no object has any more, by the objects at work that had them. A step may use one until
    /// it ends.
    gone_uids: HashMap<ObjectKey, HashSet<String>>,
    status_only: StatusOnlyIndex,
    phases: HashMap<ObjectKey, Phase>,
    /// How many providers have taken over so far.
    provider: u64,
    concurrency: Concurrency,
    tasks: LoopTasks<Done>,
}

/// A task has ended.
#[derive(Debug)]
struct Done {
    object_key: ObjectKey,
    ended: Ended,
}

impl MachineController {
    /// A controller of the objects of these kinds; [`run`](Self::run) it in a task. `client` writes them, and
    /// `reader` watches them. Steps are called only while the fence is open.
    #[expect(clippy::too_many_arguments, reason = "each is another part of the daemon")]
    pub fn new(
        kinds: Kinds,
        (cloud, fence): (Cloud, TermFence),
        (client, reader): (Client, Client),
        events: EventRecorder,
        metrics: ControllerMachineMetrics,
        queue: WorkQueueMeter,
        health: &HealthChecks,
        options: MachineControllerOptions,
    ) -> Self {
        let (stores, known) = (Stores::of(&kinds, options.namespace.as_deref()), Known::default());
        known.report_to(health, &options.kinds_check);
        let shared = Shared {
            cloud,
            fence,
            kinds,
            writer: ObjectWriter::new(client, kinds),
            events,
            metrics,
            api_version: format!("{}/{}", kinds.group, kinds.version).into(),
            watch_filter: options.watch_filter.clone(),
            dry_run: options.dry_run,
            cut: CancellationToken::new(),
        };
        let namespace = options.namespace.clone();
        Self {
            shared: Arc::new(shared),
            watches: Watches { client: reader, kinds, stores: stores.clone(), namespace, known },
            stores,
            options,
            index: Index::default(),
            dependents: Dependents::default(),
            queue: WorkQueue::measured(queue).with_lanes(ObjectKey::namespace_in),
            memories: HashMap::new(),
            failing: Failing::default(),
            written: HashMap::new(),
            tries: HashMap::new(),
            dirty: HashSet::new(),
            woken: HashSet::new(),
            gone_uids: HashMap::new(),
            status_only: StatusOnlyIndex::default(),
            phases: HashMap::new(),
            provider: 0,
            concurrency: Concurrency::default(),
            tasks: LoopTasks::new("the work on an object"),
        }
    }

    /// Where the Clusters have their API servers.
    pub fn control_planes(&self) -> ControlPlanes {
        self.stores.control_planes()
    }

    /// Works until `stop` is cancelled. Then it starts nothing new, and waits for the work under way, a few
    /// seconds for steps. It ends by itself only after a panic in a task, which the daemon notices.
    pub async fn run(mut self, stop: CancellationToken, mut inspection: Inspection) {
        let stop_watches = CancellationToken::new();
        let _watches_end_with_us = stop_watches.clone().drop_guard();
        let mut watches = JoinSet::new();
        watches.spawn(self.watches.clone().run(stop_watches));
        let mut replaced = self.shared.cloud.replacements();
        self.provider = *replaced.borrow_and_update();
        let mut pushed = self.shared.cloud.changes();
        let stores = self.stores.clone();
        tokio::select! {
            () = stop.cancelled() => return,
            _ = watches.join_next() => return,
            () = inspection.beside(stores.arrived()) => {}
        }
        // Who has which identity has to be known before the first step.
        let mut machines = stores.machines.subscribe();
        let mut clusters = stores.clusters.subscribe();
        self.note(ObjectKind::Machine, stores.machines.all().iter().map(|one| one.key().into_owned()));
        self.note(ObjectKind::Cluster, stores.clusters.all().iter().map(|one| one.key().into_owned()));
        let mut news = stores.auxiliary.news();
        let mut auxiliary = self.note_auxiliary();
        let mut templates = stores.templates.subscribe();
        let mut core_machines = stores.core_machines.subscribe();
        let mut core_clusters = stores.core_clusters.subscribe();
        while !stop.is_cancelled() {
            self.start_tasks();
            tokio::select! {
                () = stop.cancelled() => {}
                // A cache without its watch would stay as it is for ever.
                Some(_) = watches.join_next() => break,
                keys = machines.next() => self.changed(ObjectKind::Machine, keys),
                keys = clusters.next() => self.changed(ObjectKind::Cluster, keys),
                keys = templates.next() => self.changed(ObjectKind::Template, keys),
                keys = core_machines.next() => {
                    let own: HashSet<_> = keys.iter().flat_map(|key| self.index.of_owner(key)).collect();
                    self.schedule_all(own);
                    self.schedule_reboots_of(&keys);
                    self.wake_held();
                }
                keys = core_clusters.next() => {
                    let own: HashSet<_> = keys.iter().flat_map(|key| self.index.of_cluster(key)).collect();
                    self.schedule_all(own);
                    self.schedule_reboots_in(&keys);
                }
                (number, keys) = Changes::next_of(&mut auxiliary) => self.auxiliary_changed(number, keys),
                Ok(()) = news.changed() => {
                    let readers = self.dependents.readers();
                    self.schedule_all(readers);
                }
                Some(change) = pushed.next() => self.pushed(change),
                Ok(()) = replaced.changed() => {
                    self.provider = *replaced.borrow_and_update();
                    self.schedule_known();
                }
                () = self.queue.wait_for_due() => {}
                () = self.concurrency.free(), if self.queue.has_ready_of(has_place(self.tasks.len())) => {}
                question = inspection.question() => question.answer(self.to_json()),
                done = self.tasks.next() => match done {
                    Some(Done { object_key, ended }) => self.finish(&object_key, ended),
                    None => break,
                },
            }
        }
        self.tasks.end(&self.shared.cut).await;
        // Another provider's controller may go on.
        for (object_key, phase) in self.phases {
            self.shared.metrics.objects(object_key.kind.as_str(), phase.as_str()).dec();
        }
    }

    /// The name of an object for people.
    fn name_of(&self, object_key: &ObjectKey) -> String {
        match object_key.kind {
            ObjectKind::StatusOnly(_) => {
                format!("{} {}", object_key.kind.kind(&self.shared.kinds), object_key.key)
            }
            _ => object_key.to_string(),
        }
    }

    /// For `/debug/state`.
    fn to_json(&self) -> Value {
        let now = Instant::now();
        let objects = self.memories.iter().map(|(object_key, memory)| {
            let json = json!({
                "phase": self.phases.get(object_key).map(|phase| phase.as_str()),
                "failures": memory.failures,
                "atWork": self.queue.is_at_work(&object_key.to_string()),
                "furtherObjects": self.dependents.of(object_key),
                "nextStepInSeconds": match memory.due {
                    Due::Now => Some(seconds_from_now(now)),
                    Due::At(at) => Some(seconds_from_now(at)),
                    Due::WhenChanged => None,
                },
            });
            (self.name_of(object_key), json)
        });
        let served = match self.watches.known.get() {
            None => Value::Null,
            Some(Ok(served)) => served.core_version.into(),
            Some(Err(missing)) => json!({"missing": missing}),
        };
        json!({
            "kinds": {
                "group": self.shared.kinds.group,
                "version": self.shared.kinds.version,
                "machine": self.shared.kinds.machine.kind,
                "cluster": self.shared.kinds.cluster.kind,
                "clusterApi": served,
            },
            "furtherKinds": self.stores.auxiliary.to_json(),
            "namespace": self.options.namespace,
            "watchFilter": self.options.watch_filter,
            "queue": self.queue.lengths().to_json(),
            "objects": objects.collect::<Map<_, _>>(),
        })
    }
}
