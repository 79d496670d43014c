//! The provider of a history, and the kubelets of its machines.
//!
//! It keeps the contract: it adds a finalizer before it makes anything, does nothing while the Cluster is paused, and lets go of a machine
//! once that is gone.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{
    super::{
        record::{By, Record},
        world::{BOOTSTRAP, CONTROL_PLANE, INFRASTRUCTURE, api, nodes},
    },
    model::{Model, State},
    rules::{STRANGER, is_deleting},
};

const FINALIZER: &str = "fake/machine";

/// What the provider does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Provision,
    Boot,
    LetGo,
    Data,
    ControlPlane,
}

/// How it does it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mood(Arc<Moods>);

#[derive(Debug, Default)]
struct Moods {
    /// No machine is made meanwhile.
    holds: watch::Sender<bool>,
    /// A pause before each job.
    pause: Mutex<Duration>,
    /// Machines whose kubelet has registered.
    booted: Mutex<BTreeSet<String>>,
}

impl Mood {
    pub(super) fn hold(&self, holds: bool) {
        self.0.holds.send_replace(holds);
    }

    pub(super) fn slow_down(&self, pause: Duration) {
        *self.0.pause.lock() = pause;
    }
}

/// The provider in one management cluster.
struct Provider {
    place: usize,
    model: Model,
    management: Client,
    workload: Client,
    mood: Mood,
}

/// Runs it until the result is dropped.
pub(super) fn start(
    (place, management): (usize, &Sandbox),
    workload: &Sandbox,
    (model, record): (&Model, &Record),
    mood: &Mood,
) -> JoinSet<()> {
    let provider = Arc::new(Provider {
        place,
        model: model.clone(),
        management: record.client(By::Provider, place, management),
        workload: record.client(By::Provider, place, workload),
        mood: mood.clone(),
    });
    let mut task = JoinSet::new();
    task.spawn(provider.run());
    task
}

impl Provider {
    async fn run(self: Arc<Self>) {
        let mut holds = self.mood.0.holds.subscribe();
        let (mut at_work, mut tasks) = (BTreeSet::new(), JoinSet::new());
        let mut changes = self.model.changes();
        loop {
            for (job, name) in self.jobs() {
                if at_work.insert((job, name.clone())) {
                    let this = Arc::clone(&self);
                    tasks.spawn(async move {
                        let pause = *this.mood.0.pause.lock();
                        if !pause.is_zero() {
                            sleep(pause).await;
                        }
                        this.work(job, &name).await;
                        (job, name)
                    });
                }
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = holds.changed() => {}
                Some(Ok(done)) = tasks.join_next() => {
                    at_work.remove(&done);
                }
            }
        }
    }

    fn jobs(&self) -> Vec<(Job, String)> {
        let state = self.model.lock();
        let is_paused =
            state.get(self.place, "clusters", "c").is_none_or(|one| one["spec"]["paused"] == true);
        if is_paused {
            return Vec::new();
        }
        let booted = self.mood.0.booted.lock();
        let of = |plural| state.all(self.place, plural).filter(|(name, _)| !name.starts_with(STRANGER));
        let mut jobs: Vec<_> = of("fakemachines")
            .filter_map(|(name, machine)| {
                let job = job_of(machine, booted.contains(name))?;
                (job != Job::Provision || !*self.mood.0.holds.borrow()).then(|| (job, name.to_owned()))
            })
            .collect();
        let is_new = |object: &Value| object["status"].is_null() && !is_deleting(object);
        let configs = of("fakeconfigs").filter(|(_, config)| is_new(config) && is_of_machine(config));
        jobs.extend(configs.map(|(name, _)| (Job::Data, name.to_owned())));
        let planes = of("fakecontrolplanes").filter(|(_, plane)| is_new(plane));
        jobs.extend(planes.map(|(name, _)| (Job::ControlPlane, name.to_owned())));
        jobs
    }

    async fn work(&self, job: Job, name: &str) {
        let is_due = |state: &State| {
            let machine = state.get(self.place, "fakemachines", name);
            machine
                .is_some_and(|machine| job_of(machine, self.mood.0.booted.lock().contains(name)) == Some(job))
        };
        match job {
            Job::Provision if is_due(&self.model.lock()) => {
                let patch = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"providerID": provider_id(name)}});
                self.patch(INFRASTRUCTURE, "FakeMachine", name, patch, false).await;
                let status = json!({"status": {"initialization": {"provisioned": true}}});
                self.patch(INFRASTRUCTURE, "FakeMachine", name, status, true).await;
            }
            Job::Boot if is_due(&self.model.lock()) => {
                self.mood.0.booted.lock().insert(name.to_owned());
                let mut node = json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                    "spec": {
                        "providerID": provider_id(name),
                        "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
                    },
                });
                node["status"] = node_status("True");
                let node: DynamicObject = serde_json::from_value(node).expect("a Node");
                drop(nodes(&self.workload).create(&PostParams::default(), &node).await);
            }
            Job::LetGo if is_due(&self.model.lock()) => {
                let patch = json!({"metadata": {"finalizers": []}});
                self.patch(INFRASTRUCTURE, "FakeMachine", name, patch, false).await;
            }
            Job::Data => {
                let status = json!({"initialization": {"dataSecretCreated": true}, "dataSecretName": format!("{name}-data")});
                self.patch(BOOTSTRAP, "FakeConfig", name, json!({"status": status}), true).await;
            }
            Job::ControlPlane => {
                let status = json!({
                    "externalManagedControlPlane": true, "version": "v1.37.1",
                    "initialization": {"controlPlaneInitialized": true},
                });
                self.patch(CONTROL_PLANE, "FakeControlPlane", name, json!({"status": status}), true).await;
            }
            Job::Provision | Job::Boot | Job::LetGo => {}
        }
    }

    async fn patch(&self, group: &str, kind: &str, name: &str, patch: Value, is_status: bool) {
        let (api, params, patch) =
            (api(&self.management, group, kind), PatchParams::default(), Patch::Merge(patch));
        // The object may be gone by now.
        drop(if is_status {
            api.patch_status(name, &params, &patch).await
        } else {
            api.patch(name, &params, &patch).await
        });
    }
}

fn provider_id(name: &str) -> String {
    format!("fake:///{name}")
}

/// What is to be done for an infrastructure machine. A machine boots once.
fn job_of(machine: &Value, has_booted: bool) -> Option<Job> {
    let is_held = machine["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    if is_deleting(machine) {
        return is_held.then_some(Job::LetGo);
    }
    if machine["status"].is_null() {
        return is_of_machine(machine).then_some(Job::Provision);
    }
    (!has_booted).then_some(Job::Boot)
}

fn is_of_machine(object: &Value) -> bool {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["kind"] == "Machine")
}

/// The status of a Node.
pub(super) fn node_status(ready: &str) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Played", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!({"conditions": [
        condition("Ready", ready), condition("MemoryPressure", "False"),
        condition("DiskPressure", "False"), condition("PIDPressure", "False"),
    ]})
}
