//! The loop that acts. Services are worked on in parallel, and never one of them twice at once: whatever is due for a
//! Service is decided when its turn comes, and done in one task.

mod finish;
mod nodes_changed;

use std::{collections::HashMap, sync::Arc, time::Duration};

use component::{
    debug_state::seconds_from_now,
    events::EventRecorder,
    inspection::Inspection,
    loop_tasks::LoopTasks,
    work_queue::{WorkQueue, WorkQueueMeter},
};
use controller_kit::{
    clients::TermFence,
    cloud::Cloud,
    nodes::NodeStore,
    services::{ProviderActivity, Service, ServiceStore, ServiceWriter},
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    action::Action,
    memory::{Memory, Standing},
    metrics::ServiceMetrics,
    nodes::BackendSet,
    outcome::Outcome,
    pass::NodePass,
    plan::{Next, World, next},
    work::{Shared, Task},
};

/// The flags of this controller.
#[derive(Clone, Debug)]
pub struct ServiceControllerOptions {
    /// `--cluster-name`.
    pub cluster_name: String,
    /// `--concurrent-service-syncs`: Services that are worked on at the same time.
    pub concurrent_syncs: usize,
    /// `--service-verification-period`: how often the cloud is asked about a load balancer that nothing happens to. `None`:
    /// never.
    pub verification_period: Option<Duration>,
    /// `--dry-run`: the cloud is not changed, and writes have no effect.
    pub dry_run: bool,
}

/// service-lb-controller.
#[derive(Debug)]
pub struct ServiceController {
    shared: Arc<Shared>,
    services: ServiceStore,
    nodes: NodeStore,
    options: ServiceControllerOptions,
    queue: WorkQueue,
    memories: HashMap<String, Memory>,
    backends: BackendSet,
    /// How many providers have taken over so far.
    provider: u64,
    /// How often the provider has asked for another try for Services that wait.
    retries: u64,
    pass: Option<NodePass>,
    tasks: LoopTasks<Done>,
}

/// A task has ended.
struct Done {
    key: String,
    action: Action,
    /// What was remembered before.
    before: Memory,
    outcome: Outcome,
    /// The Service as the cloud was told of it.
    told: Arc<Service>,
}

impl ServiceController {
    /// A controller; [`run`](Self::run) it in a task. The cloud is called only while the fence is open.
    pub fn new(
        (services, nodes): (ServiceStore, NodeStore),
        (cloud, fence): (Cloud, TermFence),
        (writer, activity): (ServiceWriter, ProviderActivity),
        events: EventRecorder,
        metrics: ServiceMetrics,
        queue: WorkQueueMeter,
        options: ServiceControllerOptions,
    ) -> Self {
        let shared = Shared {
            cloud,
            fence,
            cluster_name: options.cluster_name.clone(),
            writer,
            activity,
            events,
            metrics,
            dry_run: options.dry_run,
            cut: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
            services,
            nodes,
            options,
            queue: WorkQueue::measured(queue),
            memories: HashMap::new(),
            backends: BackendSet::default(),
            provider: 0,
            retries: 0,
            pass: None,
            tasks: LoopTasks::new("a sync of a service"),
        }
    }

    /// Works until `stop` is cancelled. Then it starts nothing new, and waits for the work under way, a few seconds for calls
    /// of the cloud. It ends by itself only after a panic in a task, which the daemon notices.
    pub async fn run(mut self, stop: CancellationToken, mut inspection: Inspection) {
        let mut replaced = self.shared.cloud.replacements();
        self.provider = *replaced.borrow_and_update();
        let mut retries = self.shared.activity.retries();
        self.retries = *retries.borrow_and_update();
        let synced = async { tokio::join!(self.services.synced(), self.nodes.synced()) };
        if stop.run_until_cancelled(inspection.beside(synced)).await.is_none() {
            return;
        }
        let mut node_changes = self.nodes.subscribe();
        self.backends = BackendSet::of(&self.nodes);
        let mut changes = self.services.subscribe();
        while !stop.is_cancelled() {
            self.start_tasks();
            self.end_pass();
            tokio::select! {
                () = stop.cancelled() => {}
                names = node_changes.next() => self.nodes_changed(names),
                keys = changes.next() => keys.iter().for_each(|key| self.look_at(key)),
                Ok(()) = replaced.changed() => {
                    self.provider = *replaced.borrow_and_update();
                    self.look_at_all();
                }
                Ok(()) = retries.changed() => {
                    self.retries = *retries.borrow_and_update();
                    self.look_at_all();
                }
                () = self.queue.wait_for_due() => {}
                question = inspection.question() => question.answer(self.to_json()),
                done = self.tasks.next() => match done {
                    Some(done) => self.finish(done),
                    None => break,
                },
            }
        }
        self.tasks.end(&self.shared.cut).await;
    }

    fn world(&self) -> World {
        let nodes = Arc::clone(self.backends.keys());
        World { nodes, provider: self.provider, retries: self.retries, now: Instant::now() }
    }

    fn next_for(&self, key: &str) -> (Option<Arc<Service>>, Next) {
        let service = self.services.get(key);
        let next = next(service.as_deref(), self.memories.get(key), &self.world());
        (service, next)
    }

    /// Puts a Service into the queue if something is due for it, now or later. One at work is looked at again when its work
    /// ends.
    fn look_at(&mut self, key: &str) {
        if self.queue.is_at_work(key) {
            return;
        }
        match self.next_for(key).1 {
            Next::Now(_) => self.queue.add(key),
            Next::At(at, _) | Next::LookAt(at) => {
                self.queue.add_after(key, at.saturating_duration_since(Instant::now()));
            }
            Next::Wait => {}
            Next::Forget => self.forget(key),
        }
        self.leave_pass_if_settled(key);
    }

    fn look_at_all(&mut self) {
        let keys: Vec<String> = self.memories.keys().cloned().collect();
        for key in &keys {
            self.look_at(key);
        }
    }

    fn forget(&mut self, key: &str) {
        self.queue.remove(key);
        self.memories.remove(key);
        self.leave_pass(key);
    }

    /// Starts the work that is ready, on as many Services as the flag allows.
    fn start_tasks(&mut self) {
        while self.tasks.len() < self.options.concurrent_syncs.max(1)
            && let Some(key) = self.queue.take_next()
        {
            // Things may have changed while it waited for its turn.
            match self.next_for(&key) {
                (service, Next::Now(action)) => self.start(key, service, action),
                (_, Next::At(..) | Next::LookAt(_) | Next::Wait | Next::Forget) => {
                    self.queue.done(&key);
                    self.look_at(&key);
                }
            }
        }
    }

    fn start(&mut self, key: String, service: Option<Arc<Service>>, action: Action) {
        let old = self.memories.get(&key).map(|memory| Arc::clone(&memory.told));
        let Some(service) = (if action == Action::DeleteOld { old } else { service }) else {
            self.queue.done(&key);
            return;
        };
        let provider = self.provider;
        let memory = self.memories.entry(key.clone()).or_insert_with(|| Memory::new(&service, provider));
        if memory.told.uid() != service.uid() {
            *memory = Memory::new(&service, provider);
        }
        let task_memory = memory.clone();
        match action {
            Action::Ensure => {
                memory.told = Arc::clone(&service);
                memory.nodes = Some(Arc::clone(self.backends.keys()));
                // What is due from now on is due for what the cloud is told now.
                memory.standing = Standing::Due;
                memory.confirmed &= memory.provider == provider;
                (memory.provider, memory.retries) = (provider, self.retries);
                memory.may_exist |= !self.shared.dry_run;
            }
            Action::CleanUp => {
                if service.is_whole() {
                    memory.told = Arc::clone(&service);
                }
                memory.provider = provider;
                // If it is to have a load balancer again, whatever this does by then, that is to be ensured.
                (memory.standing, memory.confirmed) = (Standing::Due, false);
                // The finalizer says that there may be one, also after it is removed by somebody else.
                memory.may_exist |= service.needs_cleanup() && !self.shared.dry_run;
            }
            Action::DeleteOld => memory.provider = provider,
            // Noted before the call: a failed one is tried again as a whole, not with the next Node that changes.
            Action::UpdateNodes => memory.nodes = Some(Arc::clone(self.backends.keys())),
            Action::Repair | Action::Verify => {}
        }
        let task = Task { action, service, memory: task_memory, backends: self.backends.current() };
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let mut told = Arc::clone(&task.service);
            let outcome = shared.act(&task, &mut told).await;
            Done { key, action, before: task.memory, outcome, told }
        });
    }

    /// For `/debug/state`.
    fn to_json(&self) -> Value {
        let services: Map<String, Value> = self
            .memories
            .iter()
            .map(|(key, memory)| {
                let mut json = memory.to_json();
                json["atWork"] = self.queue.is_at_work(key).into();
                json["nextTryInSeconds"] = self.queue.due(key).map(seconds_from_now).into();
                (key.clone(), json)
            })
            .collect();
        json!({
            "queue": self.queue.lengths().to_json(),
            "nodes": self.backends.keys().len(),
            "services": services,
        })
    }
}

#[cfg(test)]
mod tests;
