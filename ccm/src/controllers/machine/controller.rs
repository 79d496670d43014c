//! The loop that acts. Objects are worked on in parallel, and never one of them twice at once: whatever is due for an
//! object is decided when its turn comes, and done in one task.

mod finish;
mod further;
mod lost;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use cloudprovider::{InstanceChange, machines::Kinds};
use component::{
    debug_state::seconds_from_now,
    events::EventRecorder,
    health::HealthChecks,
    inspection::Inspection,
    work_queue::{Lengths, WorkQueue, WorkQueueMeter},
};
use futures::StreamExt as _;
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    dependents::Dependents,
    failing::Failing,
    index::Index,
    metrics::ControllerMachineMetrics,
    phase::Phase,
    plan::{Due, Inputs, Memory, Next},
    room::{Room, Seat},
    store::Stores,
    subject::{Subject, SubjectKind},
    told::{Machines, Teller},
    view::View,
    watch::{Known, Watches},
    work::{Ended, Shared},
    writer::ObjectWriter,
};
use crate::{
    cache::{CachedObject as _, Changes},
    clients::TermFence,
    cloud::Cloud,
    services::ControlPlanes,
    writes::WrittenVersion,
};

/// How many objects are worked on at the same time, those included that wait long for their cloud. A namespace gets no more of these
/// places than it leaves free for the others: half of them if it is alone.
const MAX_AT_ONCE: usize = 2_000;

/// How long steps may go on when the controller is told to stop. The daemon waits a little longer for its controllers.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How soon an object is looked at again of which the watch shows an old version. The watch says nothing of a newer version with the
/// same content.
const OLD_INTERVAL: Duration = Duration::from_secs(2);

/// How long the watch may be behind. Then what it shows counts again: the versions of an API server that was restored from a
/// backup can be lower.
const OLD_TIMEOUT: Duration = Duration::from_secs(60);

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
    memories: HashMap<Subject, Memory>,
    failing: Failing,
    /// The newest version of each object that is known from a write or a read, and since when.
    written: HashMap<Subject, (WrittenVersion, Instant)>,
    /// How often in a row the API server did not do what it was asked for.
    tries: HashMap<Subject, u32>,
    /// Objects at work about which something changed meanwhile.
    dirty: HashSet<Subject>,
    /// Objects at work of which the cloud said meanwhile that they changed.
    woken: HashSet<Subject>,
    /// The UIDs that no mark has any more, by the objects at work that had them.
    lost: HashMap<Subject, HashSet<String>>,
    phases: HashMap<Subject, Phase>,
    /// How many providers have taken over so far.
    provider: u64,
    room: Room,
    tasks: JoinSet<Done>,
}

/// A task has ended.
#[derive(Debug)]
struct Done {
    subject: Subject,
    ended: Ended,
}

/// What is to be done about an object.
enum Turn {
    /// Work, now.
    Now,
    /// Work, at this time.
    At(Instant),
    /// Nothing, until something changes.
    Rest,
    /// It does not exist.
    Gone,
}

/// Whether a namespace with so many objects at work may have another one, of all that are at work.
fn has_place(at_work: usize) -> impl Fn(usize) -> bool {
    let free = MAX_AT_ONCE.saturating_sub(at_work);
    move |of_namespace| of_namespace < free
}

impl MachineController {
    /// A controller of the objects of these kinds; [`run`](Self::run) it in a task. `client` writes them, and `reader` watches
    /// them. Steps are called only while the fence is open.
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
            queue: WorkQueue::measured(queue).with_lanes(Subject::namespace_in),
            memories: HashMap::new(),
            failing: Failing::default(),
            written: HashMap::new(),
            tries: HashMap::new(),
            dirty: HashSet::new(),
            woken: HashSet::new(),
            lost: HashMap::new(),
            phases: HashMap::new(),
            provider: 0,
            room: Room::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Where the Clusters have their API servers.
    pub(super) fn control_planes(&self) -> ControlPlanes {
        self.stores.control_planes()
    }

    /// Works until `stop` is cancelled. Then it starts nothing new, and waits for the work under way, a few seconds for steps.
    /// It ends by itself only after a panic in a task, which the daemon notices.
    pub async fn run(mut self, stop: CancellationToken, mut inspection: Inspection) {
        let stop_watches = CancellationToken::new();
        let _watches_end_with_us = stop_watches.clone().drop_guard();
        let mut watches = JoinSet::new();
        watches.spawn(self.watches.clone().run(stop_watches));
        let teller = Teller {
            shared: Arc::clone(&self.shared),
            further: self.stores.further.clone(),
            machines: Machines { core: self.stores.core_machines.clone(), own: self.stores.machines.clone() },
            is_in_namespace: self.options.namespace.is_some(),
            sync_period: self.options.sync_period,
        };
        watches.spawn(teller.run(stop.clone()));
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
        self.take_note(SubjectKind::Machine, stores.machines.all().iter().map(|one| one.key().into_owned()));
        self.take_note(SubjectKind::Cluster, stores.clusters.all().iter().map(|one| one.key().into_owned()));
        let mut news = stores.further.news();
        let mut further = self.take_note_of_further();
        let mut templates = stores.templates.subscribe();
        let mut core_machines = stores.core_machines.subscribe();
        let mut core_clusters = stores.core_clusters.subscribe();
        while !stop.is_cancelled() {
            self.start_tasks();
            tokio::select! {
                () = stop.cancelled() => {}
                // A cache without its watch would stay as it is for ever.
                Some(_) = watches.join_next() => break,
                keys = machines.next() => self.changed(SubjectKind::Machine, keys),
                keys = clusters.next() => self.changed(SubjectKind::Cluster, keys),
                keys = templates.next() => self.changed(SubjectKind::Template, keys),
                keys = core_machines.next() => {
                    let own: HashSet<_> = keys.iter().flat_map(|key| self.index.of_owner(key)).collect();
                    self.look_at_these(own);
                }
                keys = core_clusters.next() => {
                    let own: HashSet<_> = keys.iter().flat_map(|key| self.index.of_cluster(key)).collect();
                    self.look_at_these(own);
                }
                (number, keys) = Changes::next_of(&mut further) => self.further_changed(number, keys),
                Ok(()) = news.changed() => {
                    let readers = self.dependents.readers();
                    self.look_at_these(readers);
                }
                Some(change) = pushed.next() => self.pushed(change),
                Ok(()) = replaced.changed() => {
                    self.provider = *replaced.borrow_and_update();
                    self.look_at_all();
                }
                () = self.queue.wait_for_due() => {}
                () = self.room.free(), if self.queue.has_ready_of(has_place(self.tasks.len())) => {}
                // The request that asked may have ended.
                question = inspection.question() => drop(question.send(self.to_json())),
                Some(done) = self.tasks.join_next() => match done {
                    Ok(Done { subject, ended }) => self.finish(&subject, ended),
                    Err(error) => {
                        // Its object would count as being worked on for ever.
                        tracing::error!(%error, "the work on an object ended early");
                        break;
                    }
                },
            }
        }
        let cut = self.shared.cut.clone();
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        tokio::pin!(drained);
        tokio::select! {
            () = &mut drained => {}
            () = sleep(STOP_GRACE) => {
                cut.cancel();
                drained.await;
            }
        }
        // Another provider's controller may go on.
        for (subject, phase) in self.phases {
            self.shared.metrics.objects(subject.kind.as_str(), phase.as_str()).dec();
        }
    }

    /// Objects appeared, changed or vanished.
    fn changed(&mut self, kind: SubjectKind, keys: HashSet<String>) {
        let touched = self.take_note(kind, keys.iter().cloned());
        let own = keys.into_iter().map(|key| Subject::new(kind, key));
        let all: HashSet<_> = own.chain(touched).collect();
        self.look_at_these(all);
    }

    /// Notes what depends on what now. Gives the others for which that makes a difference.
    fn take_note(&mut self, kind: SubjectKind, keys: impl Iterator<Item = String>) -> HashSet<Subject> {
        let mut touched = HashSet::new();
        let store = match kind {
            SubjectKind::Machine => self.stores.machines.clone(),
            SubjectKind::Cluster => self.stores.clusters.clone(),
            SubjectKind::Template => return touched,
        };
        for key in keys {
            let object = store.get(&key).map(|object| object.unpacked());
            let subject = Subject::new(kind, key);
            let uid = self.index.uid(&subject).map(str::to_owned);
            touched.extend(self.index.update(&subject, object.as_ref(), &self.shared.kinds));
            if let Some(uid) = uid {
                self.lost(&subject, uid);
            }
            let phase = object.as_ref().map(Phase::of);
            let before = match phase {
                Some(phase) => self.phases.insert(subject, phase),
                None => self.phases.remove(&subject),
            };
            let gauge = |phase: Phase| self.shared.metrics.objects(kind.as_str(), phase.as_str());
            if let Some(phase) = before {
                gauge(phase).dec();
            }
            if let Some(phase) = phase {
                gauge(phase).inc();
            }
        }
        touched
    }

    /// The cloud says that something changed.
    fn pushed(&mut self, change: InstanceChange) {
        match change {
            InstanceChange::Changed(refs) => {
                let uids = refs.into_iter().filter_map(|one| one.machine);
                let subjects: HashSet<_> = uids.flat_map(|uid| self.index.of_uid(&uid)).collect();
                for subject in subjects {
                    self.wake(&subject);
                }
            }
            InstanceChange::Resync => {
                let subjects: Vec<_> = self.memories.keys().cloned().collect();
                for subject in subjects {
                    self.wake(&subject);
                }
            }
        }
    }

    /// The next step of this object is due now. One under way may have looked too early.
    fn wake(&mut self, subject: &Subject) {
        if self.queue.is_at_work(&subject.to_string()) {
            self.woken.insert(subject.clone());
        }
        if let Some(memory) = self.memories.get_mut(subject) {
            memory.due = Due::Now;
        }
        self.look_at(subject);
    }

    fn turn_of(&self, subject: &Subject) -> Turn {
        let memory = self.memories.get(subject);
        if subject.kind == SubjectKind::Template {
            let Some(template) = self.stores.templates.get(&subject.key) else { return Turn::Gone };
            let template = template.unpacked();
            let inputs = Inputs::of_template(&template, self.provider);
            return match memory.filter(|memory| memory.inputs == inputs).map(|memory| memory.due) {
                _ if self.shared.ignores(&template) => Turn::Rest,
                _ if self.is_old(subject, |version| template.is_older_than(version)) => {
                    Turn::At(Instant::now() + OLD_INTERVAL)
                }
                Some(Due::At(at)) if at > Instant::now() => Turn::At(at),
                None | Some(Due::Now | Due::At(_)) => Turn::Now,
                Some(Due::WhenChanged) => Turn::Rest,
            };
        }
        let Some(view) = View::of(subject, &self.stores, &self.index, memory, &self.shared.kinds) else {
            return Turn::Gone;
        };
        if self.is_old(subject, |version| view.is_older_than(version)) {
            return Turn::At(Instant::now() + OLD_INTERVAL);
        }
        match view.next(&view.object, &view.unread(), &self.shared.scope(self.provider)) {
            Next::Ignore | Next::Rest => Turn::Rest,
            Next::At(at) => Turn::At(at),
            _ => Turn::Now,
        }
    }

    /// Whether the watch does not show our last write yet. What it shows is no ground for a decision then.
    fn is_old(&self, subject: &Subject, is_older: impl FnOnce(&str) -> bool) -> bool {
        let known = self.written.get(subject).filter(|(_, since)| since.elapsed() < OLD_TIMEOUT);
        known.is_some_and(|(version, _)| is_older(version))
    }

    /// Puts an object into the queue if something is due for it, now or later. One at work is looked at again when its work
    /// ends.
    fn look_at(&mut self, subject: &Subject) {
        let name = subject.to_string();
        if self.queue.is_at_work(&name) {
            self.dirty.insert(subject.clone());
            return;
        }
        match self.turn_of(subject) {
            Turn::Now => self.queue.add(&name),
            Turn::At(at) => {
                self.queue.remove(&name);
                self.queue.add_after(&name, at.saturating_duration_since(Instant::now()));
            }
            Turn::Rest => {}
            Turn::Gone => self.forget(subject),
        }
    }

    fn look_at_these(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        for subject in subjects {
            self.look_at(&subject);
        }
    }

    fn look_at_all(&mut self) {
        let subjects: Vec<_> = self.memories.keys().cloned().collect();
        self.look_at_these(subjects);
    }

    fn forget(&mut self, subject: &Subject) {
        self.queue.remove(&subject.to_string());
        self.dependents.forget(subject);
        if let Some(memory) = self.memories.remove(subject) {
            self.failing.note(subject.namespace(), memory.failures > 0, false);
        }
        self.written.remove(subject);
        self.tries.remove(subject);
    }

    /// Starts the work that is ready.
    fn start_tasks(&mut self) {
        while let Some(seat) = self.room.take()
            && let Some(name) = self.queue.take_next_of(has_place(self.tasks.len()))
        {
            let subject = Subject::of_name(&name);
            // Things may have changed while it waited for its turn.
            match subject.filter(|subject| matches!(self.turn_of(subject), Turn::Now)) {
                Some(subject) => self.start(subject, seat),
                None => {
                    self.queue.done(&name);
                    if let Some(subject) = Subject::of_name(&name) {
                        self.look_at(&subject);
                    }
                }
            }
        }
    }

    fn start(&mut self, subject: Subject, seat: Seat) {
        self.woken.remove(&subject);
        self.dirty.remove(&subject);
        let (shared, provider) = (Arc::clone(&self.shared), self.provider);
        let memory = self.memories.get(&subject);
        if subject.kind == SubjectKind::Template {
            let (template, memory) = (self.stores.templates.get(&subject.key), memory.cloned());
            self.tasks.spawn(async move {
                let ended = match &template {
                    Some(template) => {
                        let template = template.unpacked();
                        shared
                            .describe_template(&subject, &template, memory.as_ref(), (provider, &seat))
                            .await
                    }
                    None => Ended::NOTHING,
                };
                Done { subject, ended }
            });
            return;
        }
        let companions = self.dependents.companions_of(&subject);
        let view = View::of(&subject, &self.stores, &self.index, memory, &shared.kinds);
        let view = view.map(|view| view.with_companions(companions));
        self.tasks.spawn(async move {
            let ended = match &view {
                Some(view) => shared.act(view, provider, seat).await,
                None => Ended::NOTHING,
            };
            Done { subject, ended }
        });
    }

    /// For `/debug/state`.
    fn to_json(&self) -> Value {
        let now = Instant::now();
        let objects = self.memories.iter().map(|(subject, memory)| {
            let name = subject.to_string();
            let json = json!({
                "phase": self.phases.get(subject).map(|phase| phase.as_str()),
                "failures": memory.failures,
                "atWork": self.queue.is_at_work(&name),
                "furtherObjects": self.dependents.of(subject),
                "nextStepInSeconds": match memory.due {
                    Due::Now => Some(seconds_from_now(now)),
                    Due::At(at) => Some(seconds_from_now(at)),
                    Due::WhenChanged => None,
                },
            });
            (name, json)
        });
        let Lengths { ready, at_work, waiting } = self.queue.lengths();
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
            "furtherKinds": self.stores.further.to_json(),
            "namespace": self.options.namespace,
            "watchFilter": self.options.watch_filter,
            "queue": {"ready": ready, "atWork": at_work, "waiting": waiting},
            "objects": objects.collect::<Map<_, _>>(),
        })
    }
}
