//! One history.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    super::world::{BOOTSTRAP, INFRASTRUCTURE, Other, World, nodes},
    acts::{Act, next, pause},
    cloud::{self, Mood, node_status},
    expected::{difference, left},
    model::Model,
    rules::{STRANGER, is_deleting},
    users::if_there,
};
use crate::kept::KEEP_FAILED_FOR;

pub(super) const GROUP: &str = "cluster.x-k8s.io";

/// How much happens.
const ACTS: std::ops::RangeInclusive<usize> = 4..=10;

/// The Lease of a daemon that dies has to expire: no other works before.
const LEASE: Duration = Duration::from_secs(15);

/// When all is well, everything is as it should be within this time: the longest pause after failures is five minutes.
const WITHIN: Duration = Duration::from_secs(1800);

/// Then nothing is written for this time.
const QUIET: Duration = Duration::from_secs(3600);

pub(super) struct History {
    pub(super) random: fastrand::Rng,
    pub(super) world: World,
    pub(super) model: Model,
    /// Daemons whose term is over, and those of a management cluster that the objects left.
    pub(super) others: Vec<Other>,
    /// The management cluster where the objects are not.
    pub(super) elsewhere: Option<sandbox::Sandbox>,
    pub(super) providers: Vec<JoinSet<()>>,
    pub(super) mood: Mood,
    /// Until when watches are late.
    late_until: Option<Instant>,
    is_bad: bool,
    /// The daemon did not learn of everything at once.
    was_blind: bool,
    /// Deployments ask to keep failed Machines.
    keeps_failed: bool,
}

/// Lives one history.
///
/// # Errors
/// What was not as it should be.
pub(super) async fn run(seed: u64, model: Model) -> Result<(), String> {
    let world = World::recorded(model.record()).await;
    let mut history = History {
        random: fastrand::Rng::with_seed(seed),
        world,
        model,
        others: Vec::new(),
        elsewhere: None,
        providers: Vec::new(),
        mood: Mood::default(),
        late_until: None,
        is_bad: false,
        was_blind: false,
        keeps_failed: seed % 2 == 1,
    };
    history.live().await
}

impl History {
    async fn live(&mut self) -> Result<(), String> {
        self.begin().await;
        for _ in 0..self.random.usize(ACTS) {
            let act = next(&mut self.random);
            self.model.note(&format!("{act:?}"));
            self.was_blind |= act.makes_blind();
            self.act(act).await?;
            let time = pause(&mut self.random);
            self.rest(time).await?;
        }
        self.calm().await?;
        self.settle("after the history").await?;
        self.stays().await?;
        self.end().await
    }

    async fn begin(&mut self) {
        self.world.create_templates().await;
        self.world.create_templates_named("t2").await;
        self.create_strangers().await;
        self.start_provider();
        self.create_deployment().await;
        self.world.start_controllers().await;
    }

    pub(super) fn start_provider(&mut self) {
        let World { place, management, workload, record, .. } = &self.world;
        self.providers.push(cloud::start((*place, management), workload, (&self.model, record), &self.mood));
    }

    /// What looks as if it were ours.
    async fn create_strangers(&self) {
        let labels = json!({"pool": "d", "cluster.x-k8s.io/cluster-name": "c"});
        let of = |group: &str, kind: &str, name: &str, labels: &Value, spec: Value| {
            json!({
                "apiVersion": format!("{group}/v1beta2"), "kind": kind,
                "metadata": {"name": name, "labels": labels}, "spec": spec,
            })
        };
        let machine = of(INFRASTRUCTURE, "FakeMachine", STRANGER, &labels, json!({}));
        self.world.create(INFRASTRUCTURE, "FakeMachine", machine).await;
        let config = of(BOOTSTRAP, "FakeConfig", STRANGER, &labels, json!({}));
        self.world.create(BOOTSTRAP, "FakeConfig", config).await;
        // Its Cluster is not there.
        let spec = json!({
            "clusterName": "other", "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "FakeMachine", "name": STRANGER},
        });
        let machine = of(GROUP, "Machine", STRANGER, &json!({"pool": "d"}), spec);
        self.world.create(GROUP, "Machine", machine).await;
        let node = json!({"metadata": {"name": STRANGER}, "spec": {"providerID": "fake:///of-the-control-plane"}, "status": node_status("True")});
        let node = serde_json::from_value(node).expect("a Node");
        let client = self.world.record.client(super::super::record::By::User, 0, &self.world.workload);
        nodes(&client).create(&PostParams::default(), &node).await.expect("a Node");
    }

    pub(super) async fn create_deployment(&mut self) {
        let replicas = self.random.i32(1..=3);
        self.world.create_deployment(replicas).await;
        if self.keeps_failed {
            self.annotate("MachineDeployment", "d", KEEP_FAILED_FOR, Some("1h")).await;
        }
    }

    /// Time passes. A daemon that dies meanwhile has a successor.
    pub(super) async fn rest(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        loop {
            self.keep_daemon().await;
            if self.late_until.is_some_and(|until| until <= Instant::now()) {
                self.late_until = None;
                self.world.line.hold_watches(None);
            }
            self.collect_garbage().await;
            if self.was_blind {
                self.delete_unseen_nodes().await;
            }
            if let Some(broken) = self.model.lock().broken.first() {
                return Err(broken.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(Duration::from_secs(1))).await;
        }
    }

    /// As the garbage collector of Kubernetes does it. What did not come late is not its to find.
    async fn collect_garbage(&self) {
        let garbage = self.model.lock().garbage(self.world.place);
        for (plural, name) in garbage {
            let (group, kind) = match plural.as_str() {
                "machines" => (GROUP, "Machine"),
                "machinesets" => (GROUP, "MachineSet"),
                "fakemachines" => (INFRASTRUCTURE, "FakeMachine"),
                "fakeconfigs" => (BOOTSTRAP, "FakeConfig"),
                _ => continue,
            };
            self.model.note(&format!("    {kind} {name} is garbage"));
            self.delete_object(group, kind, &name).await;
        }
    }

    /// As a cloud's node lifecycle controller does it with Nodes whose machines are gone. A Machine that ends early may not see its own.
    async fn delete_unseen_nodes(&self) {
        let unseen = self.model.lock().unseen_nodes(self.world.place);
        for name in unseen {
            self.model.note(&format!("    the cloud deletes the Node {name}, which no Machine has seen"));
            self.model.lock().count("Nodes that no Machine has seen");
            if_there(self.workload_nodes().delete(&name, &DeleteParams::default()).await);
        }
    }

    async fn keep_daemon(&mut self) {
        if self.world.line.is_cut() {
            self.model.note("    the daemon is dead");
            self.model.lock().count("deaths at a write");
            self.crash().await;
        }
    }

    async fn crash(&mut self) {
        self.world.stop_controllers().await;
        sleep(LEASE).await;
        self.lead_next();
        self.world.restart().await;
        self.be_bad();
    }

    /// The next daemon is the one that works.
    pub(super) fn lead_next(&self) {
        self.model.lock().leaders[self.world.place] = self.world.line.number() + 1;
    }

    pub(super) fn be_bad(&mut self) {
        if self.is_bad {
            self.world.line.make_bad(self.random.u64(..));
        }
    }

    fn machine(&self, index: usize) -> Option<String> {
        let state = self.model.lock();
        let mut names = state.names(self.world.place, "machines");
        names.retain(|name| !name.starts_with(STRANGER));
        (!names.is_empty()).then(|| names[index % names.len()].clone())
    }

    pub(super) fn has_deployment(&self) -> bool {
        self.model.lock().deployment(self.world.place).is_some_and(|one| !is_deleting(one))
    }

    async fn act(&mut self, act: Act) -> Result<(), String> {
        match act {
            Act::Scale(replicas) => self.patch_deployment(json!({"replicas": replicas})).await,
            Act::Version(version) => {
                let version = format!("v1.37.{version}");
                self.patch_deployment(json!({"template": {"spec": {"version": version}}})).await;
            }
            Act::Template(name) => {
                let spec =
                    json!({"infrastructureRef": {"name": name}, "bootstrap": {"configRef": {"name": name}}});
                self.patch_deployment(json!({"template": {"spec": spec}})).await;
            }
            Act::Label(value) => {
                let labels = json!({"node.cluster.x-k8s.io/x": value.to_string()});
                self.patch_deployment(json!({"template": {"metadata": {"labels": labels}}})).await;
            }
            Act::RollingUpdate { surge, unavailable } => {
                let bounds = json!({"maxSurge": surge, "maxUnavailable": unavailable});
                let strategy = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
                self.patch_deployment(json!({"rollout": {"strategy": strategy}})).await;
            }
            Act::OnDelete => {
                let strategy = json!({"type": "OnDelete", "rollingUpdate": null});
                self.patch_deployment(json!({"rollout": {"strategy": strategy}})).await;
            }
            Act::Order(order) => self.patch_deployment(json!({"deletion": {"order": order}})).await,
            Act::PauseRollout(paused) => self.patch_deployment(json!({"paused": paused})).await,
            Act::PauseDeployment(paused) => {
                self.ensure_deployment().await;
                let value = paused.then_some("");
                self.annotate("MachineDeployment", "d", "cluster.x-k8s.io/paused", value).await;
            }
            Act::PauseCluster(paused) => self.pause_cluster(paused).await,
            Act::Succeed => {
                self.world.line.fence();
                self.lead_next();
                let other = self.world.succeed().await;
                self.others.push(other);
                self.be_bad();
            }
            Act::Move => self.relocate().await?,
            Act::HealthCheck(exists) => self.set_health_check(exists).await,
            Act::Wait => self.rest(Duration::from_secs(120)).await?,
            Act::DeleteDeployment | Act::DeleteSet(_) | Act::DeleteMachine(_) | Act::Mark(_) => {
                self.delete(act).await;
            }
            Act::Lose { machine, .. } | Act::Ready { machine, .. } => {
                if let Some(name) = self.machine(machine) {
                    self.strike(act, &name).await;
                }
            }
            Act::Hold(holds) => self.mood.hold(holds),
            Act::SlowProvider(time) => self.mood.slow_down(time),
            Act::BadRequests(is_bad) => {
                self.is_bad = is_bad;
                self.world.line.calm();
                self.be_bad();
            }
            Act::DropWatches { with_history } => {
                let faults = self.world.management.faults();
                if with_history {
                    faults.expire();
                }
                faults.drop_watches();
                self.world.workload.faults().drop_watches();
            }
            Act::LateWatch(kind, time) => {
                self.world.line.hold_watches(Some(kind));
                self.late_until = Some(Instant::now() + time);
            }
            Act::Crash => self.crash().await,
            Act::CrashAfter { writes, side } => {
                self.world.line.cut_at(self.world.line.writes() + writes, side);
            }
        }
        Ok(())
    }

    async fn delete(&mut self, act: Act) {
        match act {
            Act::DeleteDeployment if self.has_deployment() => {
                self.delete_object(GROUP, "MachineDeployment", "d").await;
            }
            Act::DeleteSet(index) => {
                let sets = self.model.lock().names(self.world.place, "machinesets");
                if let Some(name) = sets.get(index) {
                    self.delete_object(GROUP, "MachineSet", name).await;
                }
            }
            Act::DeleteMachine(index) => {
                if let Some(name) = self.machine(index) {
                    self.delete_object(GROUP, "Machine", &name).await;
                }
            }
            Act::Mark(index) => {
                if let Some(name) = self.machine(index) {
                    self.annotate("Machine", &name, "cluster.x-k8s.io/delete-machine", Some("yes")).await;
                }
            }
            _ => {}
        }
    }

    fn workload_nodes(&self) -> kube::Api<kube::api::DynamicObject> {
        nodes(&self.world.record.client(
            super::super::record::By::User,
            self.world.place,
            &self.world.workload,
        ))
    }

    /// Something happens to the machine of this name.
    pub(super) async fn strike(&mut self, act: Act, name: &str) {
        if self.model.lock().get(self.world.place, "nodes", name).is_none() {
            return;
        }
        let ready = match act {
            Act::Lose { node_goes: true, .. } => {
                if_there(self.workload_nodes().delete(name, &DeleteParams::default()).await);
                return;
            }
            Act::Lose { .. } => "Unknown",
            Act::Ready { is_ready: true, .. } => "True",
            _ => "False",
        };
        let patch = Patch::Merge(json!({"status": node_status(ready)}));
        if_there(self.workload_nodes().patch_status(name, &PatchParams::default(), &patch).await);
    }

    async fn set_health_check(&mut self, exists: bool) {
        let is_there = self.model.lock().get(self.world.place, "machinehealthchecks", "h").is_some();
        if exists && !is_there {
            let unhealthy = |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": 30});
            let check = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": "h"},
                "spec": {
                    "clusterName": "c", "selector": {"matchLabels": {"pool": "d"}},
                    "checks": {"unhealthyNodeConditions": [unhealthy("False"), unhealthy("Unknown")]},
                },
            });
            self.world.create(GROUP, "MachineHealthCheck", check).await;
        } else if !exists && is_there {
            self.delete_object(GROUP, "MachineHealthCheck", "h").await;
        }
    }

    /// Nothing fails any more, nothing is paused, and users do what is theirs to do.
    async fn calm(&mut self) -> Result<(), String> {
        self.model.note("calm");
        self.is_bad = false;
        self.late_until = None;
        self.world.line.calm();
        self.others.clear();
        self.mood.hold(false);
        self.mood.slow_down(Duration::ZERO);
        self.keep_daemon().await;
        if self
            .model
            .lock()
            .get(self.world.place, "clusters", "c")
            .is_some_and(|one| one["spec"]["paused"] == true)
        {
            self.pause_cluster(false).await;
        }
        if self.model.lock().deployment(self.world.place).is_some() {
            self.annotate("MachineDeployment", "d", "cluster.x-k8s.io/paused", None).await;
        }
        self.rest(Duration::from_secs(600)).await?;
        if !self.has_deployment() {
            self.rest(WITHIN).await?;
        }
        self.patch_deployment(json!({"paused": false})).await;
        if !self.has_deployment() {
            return Err("the deployment is still being deleted".to_owned());
        }
        self.annotate("MachineDeployment", "d", KEEP_FAILED_FOR, None).await;
        self.rest(Duration::from_secs(30)).await?;
        self.heal().await;
        self.rest(Duration::from_secs(60)).await?;
        self.replace_outdated().await;
        Ok(())
    }

    /// Waits until everything is as it should be.
    async fn settle(&mut self, when: &str) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let Some(wrong) = difference(&self.model.lock(), self.world.place) else { return Ok(()) };
            if begin.elapsed() > WITHIN {
                return Err(format!("{when}: {wrong}"));
            }
            self.rest(Duration::from_secs(5)).await?;
        }
    }

    /// Nothing is written any more.
    async fn stays(&mut self) -> Result<(), String> {
        // Words are written after ten seconds.
        self.rest(Duration::from_secs(30)).await?;
        let before = self.model.lock().writes;
        self.model.note("quiet");
        sleep(QUIET).await;
        self.rest(Duration::ZERO).await?;
        let after = self.model.lock().writes;
        if after > before {
            return Err(format!("{} writes when all was done", after - before));
        }
        match difference(&self.model.lock(), self.world.place) {
            Some(wrong) => Err(format!("it was right, and then {wrong}")),
            None => Ok(()),
        }
    }

    /// Everything is deleted.
    async fn end(&mut self) -> Result<(), String> {
        let with_cluster = self.random.bool();
        let (kind, name) = if with_cluster { ("Cluster", "c") } else { ("MachineDeployment", "d") };
        self.model.note(&format!("{kind} {name} is deleted"));
        self.delete_object(GROUP, kind, name).await;
        let begin = Instant::now();
        loop {
            let Some(wrong) = left(&self.model.lock(), self.world.place, with_cluster) else { return Ok(()) };
            if begin.elapsed() > WITHIN {
                return Err(format!("after the deletion: {wrong}"));
            }
            self.rest(Duration::from_secs(5)).await?;
        }
    }
}
