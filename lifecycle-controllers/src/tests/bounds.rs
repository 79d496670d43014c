//! How many Machines there are, looked at after every write.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::pin,
    sync::Arc,
};

use component::watching;
use futures::StreamExt as _;
use kube::{
    Api,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
    runtime::watcher,
};
use parking_lot::Mutex;
use sandbox::Sandbox;
use tokio::task::JoinSet;

#[derive(Debug, Default)]
struct Counted {
    /// Whether each Machine is available and stays.
    machines: BTreeMap<String, bool>,
    most: usize,
    least: usize,
    broken: Vec<String>,
    /// What happened last.
    history: VecDeque<String>,
}

impl Counted {
    fn note(&mut self, event: &str, object: &DynamicObject) {
        let (metadata, spec) = (&object.metadata, &object.data["spec"]);
        let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
        let bad: Vec<_> = conditions
            .filter(|one| {
                one["status"] != "True"
                    && ["Ready", "Available", "NodeReady", "InfrastructureReady"]
                        .contains(&one["type"].as_str().unwrap_or_default())
            })
            .map(|one| format!("{} {}: {}", one["type"], one["reason"], one["message"]))
            .collect();
        let deleted = if metadata.deletion_timestamp.is_some() { " deleted" } else { "" };
        let name = metadata.name.as_deref().unwrap_or_default();
        let is_available = is_available(object);
        let words = format!(
            "{event} {name}{deleted} replicas {} {} available {is_available} {bad:?}",
            spec["replicas"], spec["version"]
        );
        self.history.push_back(words);
        if self.history.len() > 30 {
            self.history.pop_front();
        }
    }

    fn look(&mut self) {
        let (all, available) = (self.machines.len(), self.machines.values().filter(|is| **is).count());
        if all > self.most || available < self.least {
            let Self { most, least, .. } = *self;
            let words =
                format!("{all} Machines of at most {most}, {available} available of at least {least}");
            if self.broken.is_empty() {
                self.broken.extend(self.history.drain(..));
                self.broken.push(words);
            }
        }
    }
}

/// Follows all Machines of a management cluster.
#[derive(Debug)]
pub(super) struct Bounds {
    counted: Arc<Mutex<Counted>>,
    _task: JoinSet<()>,
}

impl Bounds {
    pub(super) fn new(management: &Sandbox) -> Self {
        let counted = Arc::new(Mutex::new(Counted { most: usize::MAX, ..Counted::default() }));
        let machine = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
        let api: Api<DynamicObject> = Api::all_with(watching::client(management.client()), &machine);
        let (mut task, shared) = (JoinSet::new(), Arc::clone(&counted));
        task.spawn(async move {
            let mut events = pin!(watching::watch(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let mut counted = shared.lock();
                match &event {
                    Ok(watcher::Event::Apply(machine)) => counted.note("", machine),
                    Ok(watcher::Event::Delete(machine)) => counted.note("gone:", machine),
                    _ => {}
                }
                match event {
                    Ok(watcher::Event::Apply(machine) | watcher::Event::InitApply(machine)) => {
                        let is_available =
                            machine.metadata.deletion_timestamp.is_none() && is_available(&machine);
                        counted.machines.insert(machine.metadata.name.unwrap_or_default(), is_available);
                    }
                    Ok(watcher::Event::Delete(machine)) => {
                        counted.machines.remove(&machine.metadata.name.unwrap_or_default());
                    }
                    _ => {}
                }
                counted.look();
            }
        });
        let set = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineSet"));
        let api: Api<DynamicObject> = Api::all_with(watching::client(management.client()), &set);
        let shared = Arc::clone(&counted);
        task.spawn(async move {
            let mut events = pin!(watching::watch(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                if let Ok(watcher::Event::Apply(set)) = event {
                    shared.lock().note("set", &set);
                }
            }
        });
        Self { counted, _task: task }
    }

    /// From now on there are at most and at least so many.
    pub(super) fn set(&self, most: usize, least: usize) {
        let mut counted = self.counted.lock();
        (counted.most, counted.least) = (most, least);
        counted.look();
    }

    /// Fails if a write broke them.
    pub(super) fn check(&self, what: &str) {
        let broken = &self.counted.lock().broken;
        assert!(broken.is_empty(), "{what}: {broken:#?}");
    }
}

fn is_available(machine: &DynamicObject) -> bool {
    let conditions = machine.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Available" && one["status"] == "True")
}
