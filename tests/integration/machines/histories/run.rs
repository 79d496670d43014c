//! One history.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    acts::{Act, CLUSTER, DAEMONS, next},
    model::{difference, difference_of_guests, has_guest},
};
use crate::{
    api::Api,
    faults::faults,
    machines::{
        core::forget,
        world::{BLOCK_MOVE, IDENTITY, NAMESPACE, ONLY, World, condition},
    },
    stage::{self, Chronicle, Life, Settling},
};

const ACTS: usize = 60;
const SETTLING: Settling = Settling {
    // Longer than the longest pause between tries, and the longest task
    within: Duration::from_secs(1800),
    // Longer than the pauses between tries
    stays_for: Duration::from_secs(65),
    look_every: [Duration::from_secs(4), Duration::from_secs(13)],
    // A call that hung may answer late
    may_relapse: true,
};
/// How long `clusterctl move` waits before it gives up.
const MOVE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a daemon may live that dies with the next changes.
const CRASH_TIMEOUT: Duration = Duration::from_secs(30);
struct History<'a> {
    world: World<'a>,
    chronicle: Chronicle,
    /// Machines whose infrastructure is deleted first.
    leaving: BTreeSet<String>,
    /// Lines of the cloud's objects that somebody else has made.
    foreign: BTreeSet<String>,
}

pub(super) async fn run(api: &Api, seed: u64) -> anyhow::Result<()> {
    let chronicle = Chronicle::new(api, seed, DAEMONS)?;
    let (leaving, foreign) = (BTreeSet::new(), BTreeSet::new());
    let mut history = History { world: World::new(api).await?, chronicle, leaving, foreign };
    let outcome = Box::pin(history.live()).await;
    history.chronicle.told(outcome)
}

impl History<'_> {
    async fn live(&mut self) -> anyhow::Result<()> {
        self.keep_daemons().await?;
        self.world.add_cluster(CLUSTER).await?;
        self.world.cluster_is_ready(CLUSTER).await?;
        for _ in 0..ACTS {
            self.keep_daemons().await?;
            if let Err(error) = self.core().await {
                self.chronicle.note(&format!("    the core failed: {error:#}"));
            }
            let act = next(&mut self.chronicle.random);
            self.chronicle.note(&format!("{act:?}"));
            if let Err(error) = self.act(act).await {
                // The injected faults may hit this request instead of the daemon's: then it does not happen
                self.chronicle.note(&format!("    it did not happen: {error:#}"));
            }
        }
        self.calm().await?;
        self.settle("after the history").await?;
        self.chronicle.note("every machine is deleted");
        for machine in self.machines().await? {
            self.delete(name_of(&machine)).await?;
        }
        self.settle("after the end").await?;
        ensure!(self.machines().await?.is_empty(), "there are machines left");
        ensure!(self.world.list("FakeGuest").await?.is_empty(), "there are guests left");
        self.world.delete("FakeCluster", CLUSTER).await?;
        self.world.vanishes("FakeCluster", CLUSTER).await?;
        let left: BTreeSet<String> = self.world.cloud.objects().into_iter().collect();
        ensure!(left == self.foreign, "left in the cloud: {left:?}");
        self.chronicle.daemons.end().await
    }

    async fn machines(&self) -> anyhow::Result<Vec<Value>> {
        self.world.list("FakeMachine").await
    }

    fn secrets(&self) -> kube::Api<Secret> {
        kube::Api::namespaced(self.world.api.client.clone(), NAMESPACE)
    }

    async fn has_secret(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.secrets().get_opt(&secret_of(name)).await?.is_some())
    }

    /// The names of the machines whose Machine names a Secret that is there.
    async fn with_data(&self) -> anyhow::Result<BTreeSet<String>> {
        let secrets = self.secrets().list_metadata(&ListParams::default()).await?;
        let secrets: BTreeSet<String> =
            secrets.items.into_iter().filter_map(|one| one.metadata.name).collect();
        let names_one = |machine: &Value| {
            let name = machine["spec"]["bootstrap"]["dataSecretName"].as_str();
            name.is_some_and(|name| secrets.contains(name))
        };
        let machines = self.world.list("Machine").await?;
        Ok(machines.iter().filter(|one| names_one(one)).map(|one| name_of(one).to_owned()).collect())
    }

    /// Daemons that ended are started again, as the kubelet does. Connections that were cut come back.
    async fn keep_daemons(&mut self) -> anyhow::Result<()> {
        let start = || {
            let life = Life::new();
            let client = life.client(&self.world.api.daemon_client);
            stage::start(&client, self.world.cloud.provider(), &[ONLY], life, true)
        };
        self.chronicle.daemons.keep(start).await
    }

    /// What the core does in the end of a machine.
    async fn core(&mut self) -> anyhow::Result<()> {
        for name in self.leaving.clone() {
            if self.world.get("FakeMachine", &name).await?.is_null() {
                if self.has_secret(&name).await? {
                    self.secrets().delete(&secret_of(&name), &DeleteParams::default()).await?;
                }
                self.world.delete("Machine", &name).await?;
                self.leaving.remove(&name);
            }
        }
        Ok(())
    }

    async fn delete(&mut self, name: &str) -> anyhow::Result<()> {
        if self.leaving.insert(name.to_owned()) {
            self.world.delete("FakeMachine", name).await?;
        }
        Ok(())
    }

    async fn act(&mut self, act: Act) -> anyhow::Result<()> {
        match act {
            Act::Trouble(trouble) => {
                self.chronicle.happens(trouble, self.world.api, &self.world.cloud).await?;
            }
            Act::FailTask => {
                let error = cloudprovider::Error::new(cloudprovider::ErrorKind::Unavailable, "no space left");
                self.world.cloud.fail_next_task(error);
            }
            Act::TaskTime(time) => {
                self.world.cloud.set_task_time(time);
                self.world.cloud.set_address_time(time);
            }
            Act::CrashAfter { changes } => {
                self.world.cloud.crash_after(changes);
                sleep(CRASH_TIMEOUT.mul_f64(self.chronicle.random.f64())).await;
                if self.world.cloud.recover() {
                    self.chronicle.daemons.crash_all().await;
                }
            }
            Act::PauseCluster { is_paused } => self.pause(is_paused).await?,
            Act::Move => self.relocate().await?,
            Act::AddMachine { machine, .. }
            | Act::AddData { machine }
            | Act::DeleteMachine { machine }
            | Act::ChangeSpec { machine, .. }
            | Act::PauseMachine { machine, .. }
            | Act::Relabel { machine, .. }
            | Act::WipeStatus { machine }
            | Act::LoseMachine { machine }
            | Act::PutForeign { machine }
            | Act::LoseGuest { machine }
            | Act::RemoveForeign { machine } => self.act_on_machine(&format!("m{machine}"), act).await?,
        }
        Ok(())
    }

    async fn act_on_machine(&mut self, name: &str, act: Act) -> anyhow::Result<()> {
        let object = self.world.get("FakeMachine", name).await?;
        let disk = format!("disk/{name}");
        match act {
            Act::PutForeign { .. } => {
                if !self.world.cloud.objects().iter().any(|line| line.starts_with(&disk)) {
                    self.world.cloud.put_object(&disk, None);
                    self.foreign.insert(disk);
                }
            }
            Act::RemoveForeign { .. } => {
                if self.foreign.remove(&disk) {
                    self.world.cloud.remove_object(&disk);
                }
            }
            Act::AddMachine { has_data, .. } => {
                if object.is_null() && self.world.get("Machine", name).await?.is_null() {
                    let spec = json!({"guest": has_guest(name)});
                    self.world.add_machine_with(name, json!({}), spec).await?;
                    if has_data {
                        self.world.add_data(name).await?;
                    }
                }
            }
            _ if object.is_null() || !object["metadata"]["deletionTimestamp"].is_null() => {}
            Act::AddData { .. } => {
                if !self.has_secret(name).await? {
                    self.world.add_secret(name).await?;
                }
                self.world.name_secret(name).await?;
            }
            Act::DeleteMachine { .. } => self.delete(name).await?,
            Act::LoseGuest { .. } => {
                if !self.world.get("FakeGuest", name).await?.is_null() {
                    self.world.delete("FakeGuest", name).await?;
                }
            }
            Act::ChangeSpec { cpus, .. } => {
                self.world.change("FakeMachine", name, json!({"spec": {"cpus": cpus}})).await?;
            }
            Act::Relabel { cluster, .. } => self.relabel(name, cluster).await?,
            Act::PauseMachine { is_paused, .. } => {
                let annotations = json!({"cluster.x-k8s.io/paused": is_paused.then_some("")});
                let patch = json!({"metadata": {"annotations": annotations}});
                self.world.change("FakeMachine", name, patch).await?;
            }
            Act::WipeStatus { .. } => {
                let fields = object["status"].as_object().cloned().unwrap_or_default();
                let nothing: Value = fields.keys().map(|field| (field.clone(), Value::Null)).collect();
                self.world.change_status("FakeMachine", name, nothing).await?;
            }
            _ => {
                let uid = object["metadata"]["annotations"][IDENTITY].as_str().unwrap_or_default();
                self.world.cloud.remove(uid);
            }
        }
        Ok(())
    }

    async fn relabel(&self, name: &str, cluster: Option<&str>) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": cluster}}});
        self.world.change("FakeMachine", name, patch).await.map(drop)
    }

    async fn pause(&self, is_paused: bool) -> anyhow::Result<()> {
        let patch = json!({"spec": {"paused": is_paused}});
        self.world.change("Cluster", CLUSTER, patch).await.map(drop)
    }

    /// Pauses the Cluster, waits until nobody objects, makes all objects anew without their status, and goes on.
    async fn relocate(&mut self) -> anyhow::Result<()> {
        self.pause(true).await?;
        let moved = timeout(MOVE_TIMEOUT, async {
            while !self.may_move().await? {
                self.keep_daemons().await?;
                sleep(Duration::from_secs(2)).await;
            }
            anyhow::Ok(())
        })
        .await;
        // The injected faults are for the daemons
        faults(self.world.api)?.clear();
        if matches!(moved, Ok(Ok(()))) {
            for object in self.machines().await? {
                self.make_anew("FakeMachine", object).await?;
            }
            // They go with their owners, and name them by their new UIDs.
            for mut guest in self.world.list("FakeGuest").await? {
                let owner = self.world.get("FakeMachine", name_of(&guest)).await?;
                guest["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"].clone();
                self.make_anew("FakeGuest", guest).await?;
            }
            self.make_anew("FakeCluster", self.world.get("FakeCluster", CLUSTER).await?).await?;
        } else {
            self.chronicle.note("    it could not move");
        }
        self.pause(false).await
    }

    async fn may_move(&self) -> anyhow::Result<bool> {
        Ok(self.machines().await?.iter().all(|object| {
            condition(object, "Paused")["status"] == "True"
                && object["metadata"]["annotations"][BLOCK_MOVE].is_null()
                && object["metadata"]["deletionTimestamp"].is_null()
        }))
    }

    async fn make_anew(&self, kind: &str, mut object: Value) -> anyhow::Result<()> {
        let name = name_of(&object).to_owned();
        forget(&self.world.objects(kind), &name).await?;
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            object["metadata"][field].take();
        }
        object["status"].take();
        self.world.create(kind, &name, without_nulls(object)).await.map(drop)
    }

    /// No fault goes on, and nothing is paused.
    async fn calm(&mut self) -> anyhow::Result<()> {
        self.chronicle.calm(self.world.api, &self.world.cloud)?;
        self.world.cloud.set_task_time(Duration::ZERO);
        self.world.cloud.set_address_time(Duration::ZERO);
        self.pause(false).await?;
        for machine in self.machines().await? {
            let metadata = &machine["metadata"];
            if metadata["annotations"]["cluster.x-k8s.io/paused"].is_string() {
                let patch = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
                self.world.change("FakeMachine", name_of(&machine), patch).await?;
            }
            // The core does so too. One that is being deleted goes with any label, unless it has moved.
            let is_moved = metadata["annotations"][IDENTITY] != metadata["uid"];
            if (is_moved || metadata["deletionTimestamp"].is_null())
                && metadata["labels"]["cluster.x-k8s.io/cluster-name"] != CLUSTER
            {
                self.relabel(name_of(&machine), Some(CLUSTER)).await?;
            }
        }
        Ok(())
    }

    /// Waits until everything is as the objects ask for, and stays so.
    async fn settle(&mut self, when: &str) -> anyhow::Result<()> {
        let wrong = SETTLING.wait(async || {
            self.keep_daemons().await?;
            self.core().await?;
            let (machines, cloud) = (self.machines().await?, self.world.cloud.objects());
            let guests = self.world.list("FakeGuest").await?;
            Ok(difference(&machines, &self.with_data().await?, &cloud, &self.foreign)
                .or_else(|| difference_of_guests(&machines, &guests)))
        });
        let Some(wrong) = wrong.await? else { return Ok(()) };
        let (objects, cloud) = (Value::from(self.machines().await?), self.world.cloud.objects());
        let calls = self.world.cloud.calls();
        let last = &calls[calls.len().saturating_sub(20)..];
        bail!(
            "{when}: {wrong}; the objects are {objects}; in the cloud is {cloud:?}; its last calls are {last:?}"
        )
    }
}

fn secret_of(name: &str) -> String {
    format!("{name}-data")
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The API takes a null for no value, but a client's types do not.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(field, value)| (field, without_nulls(value))).collect())
        }
        other => other,
    }
}
