//! The life of a cluster on vSphere: the machines of a deployment boot and become Nodes, are scaled, replaced, healed and
//! deleted, by Cluster API's own managers and one daemon in both of its roles.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::WATCH_CALLS;
use tokio::time::{Instant, timeout};

use super::{
    LIMIT, PATIENCE,
    datacenter::{Datacenter, NAMESPACE, kubelets},
    zones,
};
use crate::{
    cluster_api::{
        installed::Installed,
        management::Management,
        objects::{Objects, condition, is, name, reference},
    },
    shipped_roles,
    support::{addresses, node_vanishes, provider_id, tail},
    trial::{Outcome, runtime},
    vsphere::SOON,
};

/// How many machines there are at most, and how many are left.
const MANY: usize = 20;
const FEW: usize = 5;

/// The most calls to vCenter for a machine, besides the watch. There are 3.3 where nothing is slow. How often the watch lists
/// everything anew depends on the time that it takes, not on the machines.
const MAX_CALLS: u64 = 8;

/// The most writes for a machine and its `VSphereVM`, besides those for waits: five, and two for what the guest tells after its
/// first address, which comes with it where nothing is slow.
const MAX_WRITES: u64 = 7;

/// How long a wait lasts that is written, for a machine and its `VSphereVM`. A busy machine has more of them.
const WRITTEN_WAIT: Duration = Duration::from_secs(5);

/// The daemon looks at no object for this time by itself: what it tells of a destroyed virtual machine, vCenter has told it. How soon
/// that is, is measured among the benchmarks.
const SELDOM: &str = "--sync-period=24h";

/// In the end all machines of the cluster are gone at once, as far as their Nodes show.
const ALL_AT_ONCE: &str = "--node-deletion-breaker-percent=100";

pub(super) fn whole() -> Outcome {
    let datacenter = Arc::new(Datacenter::start("")?);
    let management = Management::start()?;
    let folder = TempDir::new().context("a folder")?;
    let control_plane = &management.control_plane;
    let installed = Installed::apply(control_plane, "vsphere", datacenter.config())?;
    let log = folder.path().join("daemon.log");
    let flags = [&SOON[..], &[ALL_AT_ONCE, SELDOM]].concat();
    let daemon = installed.start(control_plane, &flags, &log)?;
    let outcome = runtime(false)?.block_on(async {
        let objects = management.namespace(NAMESPACE).await?.on("VSphere", PATIENCE);
        let life = Life { objects, management: &management, datacenter: Arc::clone(&datacenter) };
        timeout(LIMIT, life.whole()).await.with_context(|| format!("not done within {LIMIT:?}"))?
    });
    outcome
        .with_context(|| format!("the managers said: {}", management.words_about(NAMESPACE)))
        .with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
    daemon.terminate()?;
    let sessions = datacenter.vcsim.sessions()?;
    if (sessions.0, sessions.2) != (0, 0) {
        return Err(anyhow::anyhow!("sessions are left: {sessions:?}").into());
    }
    Ok(management.nothing_was_refused(shipped_roles::USER)?)
}

struct Life<'m> {
    objects: Objects,
    management: &'m Management,
    datacenter: Arc<Datacenter>,
}

/// How long it took to make a machine.
fn time_until_ready(machine: &Value) -> anyhow::Result<Duration> {
    let time = |text: &Value| text.as_str().unwrap_or_default().parse::<Timestamp>();
    let ready = time(&condition(machine, "Ready")["lastTransitionTime"]);
    let made = time(&machine["metadata"]["creationTimestamp"]);
    let took = made.and_then(|made| Ok(ready?.duration_since(made)));
    Ok(took.with_context(|| format!("no times in {machine}"))?.unsigned_abs())
}

impl Life<'_> {
    async fn whole(&self) -> anyhow::Result<()> {
        let Self { objects, datacenter, management } = self;
        let _kubelets = kubelets(&objects.client, datacenter);
        let began = Instant::now();
        let told = |what: &str| println!("{what} after {:.1?}", began.elapsed());

        // The daemon has two sessions: its own, and that of the cluster.
        let (cluster, secret) = datacenter.cluster_of_template("prod")?;
        let secrets = kube::Api::<Secret>::namespaced(objects.client.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        let cluster = json!({ "spec": cluster });
        objects.apply_cluster("prod", &management.control_plane, cluster).await?;
        objects
            .becomes("Cluster", "prod", "provisioned", |one| is(one, "InfrastructureReady", "True"))
            .await?;
        let has_version = |one: &Value| one["status"]["vCenterVersion"].is_string();
        objects.becomes("VSphereCluster", "prod", "with the version of its vCenter", has_version).await?;
        datacenter.vcsim.reset_counts()?;
        let position = management.control_plane.audit_position();
        objects.apply_template("small", &Datacenter::machine(2048)).await?;
        objects.apply_workers("prod", "workers", MANY, "small").await?;
        let first = self.running(MANY).await?;
        self.is_cheap(position).await?;
        told("all machines run");

        objects.merge("MachineDeployment", "workers", json!({"spec": {"replicas": FEW}})).await?;
        let left = self.running(FEW).await?;
        ensure!(left.is_subset(&first), "{left:?} of {first:?}");
        for gone in first.difference(&left) {
            node_vanishes(&objects.client, gone, PATIENCE).await?;
        }
        told("a few of them are left");

        objects.apply_template("big", &Datacenter::machine(4096)).await?;
        let template = json!({"spec": {"infrastructureRef": reference("VSphereMachineTemplate", "big")}});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": FEW}});
        let change = json!({"spec": {"template": template, "rollout": {"strategy": strategy}}});
        objects.merge("MachineDeployment", "workers", change).await?;
        objects
            .all_become("VSphereMachine", "all of the new template", |all| {
                all.iter().all(|one| one["spec"]["memoryMiB"] == 4096) && all.len() == FEW
            })
            .await?;
        let rolled = self.running(FEW).await?;
        ensure!(rolled.is_disjoint(&left), "{rolled:?} after {left:?}");
        told("machines of another template run");

        self.heal(&rolled).await?;
        told("a lost one is replaced");

        zones::apply(objects, datacenter).await?;
        let all = self.running(FEW + zones::MANY).await?;
        zones::check(objects, datacenter).await?;
        told("machines run in two failure domains");

        objects.delete("Cluster", "prod").await?;
        objects.vanishes("Cluster", "prod").await?;
        objects.none_are_left(&["VSphereMachine", "VSphereVM", "VSphereCluster"]).await?;
        datacenter.is_empty()?;
        zones::remove(objects).await?;
        for name in all {
            node_vanishes(&objects.client, &name, PATIENCE).await?;
        }
        told("everything is gone");
        Ok(())
    }

    /// That the first machines were made with few calls to vCenter and few writes.
    async fn is_cheap(&self, position: u64) -> anyhow::Result<()> {
        /// Also how vCenter is asked for a Node that the inventory does not show yet, as often as there is time for.
        const OF_NODES: [&str; 2] = ["soap:FindAllByUuid", "soap:RetrievePropertiesEx"];
        const OF_MACHINES: [&str; 2] = ["vspheremachines", "vspherevms"];
        let mut calls = self.datacenter.calls()?;
        calls.retain(|method, _| {
            !WATCH_CALLS.contains(&method.as_str()) && !OF_NODES.contains(&method.as_str())
        });
        let machines = u64::try_from(MANY)?;
        ensure!(calls.values().sum::<u64>() <= MAX_CALLS * machines, "{calls:?}");
        let mut writes = self.management.control_plane.writes_after(position, shipped_roles::USER)?;
        writes.retain(|what, _| OF_MACHINES.iter().any(|resource| what.contains(resource)));
        println!("{MANY} machines: {calls:?}, {writes:?}");
        let made = self.objects.list("VSphereMachine").await?;
        let took = made.iter().map(time_until_ready).collect::<anyhow::Result<Vec<_>>>()?;
        let waits: u64 = took.iter().map(|time| time.as_secs() / WRITTEN_WAIT.as_secs()).sum();
        ensure!(writes.values().sum::<u64>() <= MAX_WRITES * machines + 2 * waits, "{writes:?} in {took:?}");
        Ok(())
    }

    /// Waits until this many machines run, and checks everything about them. Returns their names.
    async fn running(&self, count: usize) -> anyhow::Result<BTreeSet<String>> {
        let all = self.objects.machines_run(count).await?;
        let names = all.keys().cloned().collect();
        self.datacenter.runs(&names)?;
        for (name, machine) in &all {
            self.check(machine).await.with_context(|| name.clone())?;
        }
        Ok(names)
    }

    /// What a machine is in vCenter, as an object of the provider, as a Machine of the core, and as a Node.
    async fn check(&self, machine: &Value) -> anyhow::Result<()> {
        let name = name(machine);
        let vm = self.datacenter.machines()?.remove(name).context("no virtual machine")?;
        let id = format!("vsphere://{}", vm.uuid);
        // The name comes from the guest, maybe after its address.
        let has_name = |one: &Value| one["status"]["addresses"].to_string().contains("Hostname");
        let infra = self.objects.becomes("VSphereMachine", name, "with its host name", has_name).await?;
        ensure!(infra["spec"]["providerID"] == id.as_str(), "{infra}");
        let told = |one: &Value| one["status"]["ready"] == true && is(one, "Ready", "True");
        let companion = self.objects.becomes("VSphereVM", name, "ready", told).await?;
        ensure!(companion["spec"]["biosUUID"] == vm.uuid.as_str(), "{companion}");
        ensure!(machine["spec"]["providerID"] == id.as_str(), "{machine}");
        // The core may have read the object before its last address came.
        let machine = &self
            .objects
            .becomes("Machine", name, "with its addresses", |one| {
                one["status"]["addresses"] == infra["status"]["addresses"]
            })
            .await
            .with_context(|| infra.to_string())?;
        ensure!(machine["status"]["nodeRef"]["name"] == name, "{machine}");

        let node = self.objects.node_of(name).await?;
        ensure!(provider_id(&node) == Some(id), "{node:?}");
        let addresses = addresses(&node);
        let internal =
            addresses.iter().find_map(|one| one.strip_prefix("InternalIP ")).context("an address")?;
        let of_machine = machine["status"]["addresses"].to_string();
        ensure!(of_machine.contains(&format!("{internal:?}")), "{internal} is not in {of_machine}");
        Ok(())
    }

    /// A virtual machine is destroyed by hand. Its machine says so and is not made again, and a health check replaces it.
    async fn heal(&self, before: &BTreeSet<String>) -> anyhow::Result<()> {
        let objects = &self.objects;
        let lost = before.first().context("a machine")?;
        let began = Instant::now();
        self.datacenter.destroy(lost)?;
        for (kind, its, reason) in [
            ("VSphereMachine", "Ready", "MachineLost"),
            ("VSphereVM", "Ready", "NotFoundByBIOSUUID"),
            ("Machine", "InfrastructureReady", "MachineLost"),
        ] {
            let told = |object: &Value| condition(object, its)["reason"] == reason;
            objects.becomes(kind, lost, "is lost", told).await?;
            println!("the {kind} tells that it is lost after {:.1?}", began.elapsed());
        }
        ensure!(!self.datacenter.machines()?.contains_key(lost), "it was made again");
        // Its Node is gone too, which counts at once. The condition is also false while a machine is being made.
        let spec = json!({
            "clusterName": "prod",
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "workers"}},
            "checks": {
                "nodeStartupTimeoutSeconds": 0,
                "unhealthyMachineConditions": [
                    {"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 600},
                ],
            },
        });
        objects.apply("MachineHealthCheck", "workers", json!({"spec": spec})).await?;
        objects.vanishes("Machine", lost).await?;
        node_vanishes(&objects.client, lost, PATIENCE).await?;
        let after = self.running(FEW).await?;
        ensure!(!after.contains(lost) && after.intersection(before).count() == FEW - 1, "{after:?}");
        Ok(())
    }
}
