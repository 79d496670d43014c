//! The life of a cluster on vSphere: the machines of a deployment boot and become Nodes, are scaled, replaced, healed and
//! deleted, by Cluster API's own managers and one daemon in both of its roles.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};
use test_env::{ControlPlane, WATCH_CALLS};
use tokio::time::Instant;

use super::{
    datacenter::{Datacenter, NAMESPACE, kubelets},
    zones,
};
use crate::{
    cluster_api::{
        installed::{beside_the_daemon, by_the_daemon_alone},
        life::{Infrastructure, Life},
        objects::{Objects, condition, is, name},
    },
    shipped_roles,
    support::{addresses, provider_id},
    trial::Outcome,
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

/// The flags of the daemon.
fn flags() -> Vec<&'static str> {
    [&SOON[..], &[ALL_AT_ONCE, SELDOM]].concat()
}

pub(super) fn whole() -> Outcome {
    let datacenter = Arc::new(Datacenter::start("")?);
    let story = async |api: &ControlPlane, objects: &Objects| life(api, objects, &datacenter).await;
    beside_the_daemon("vsphere", "VSphere", datacenter.config(), &flags(), NAMESPACE, story)?;
    no_session_is_left(&datacenter)
}

/// The same without Cluster API's managers.
pub(super) fn whole_without_managers() -> Outcome {
    let datacenter = Arc::new(Datacenter::start("")?);
    let story = async |api: &ControlPlane, objects: &Objects| life(api, objects, &datacenter).await;
    by_the_daemon_alone("vsphere", "VSphere", datacenter.config(), &flags(), NAMESPACE, story)?;
    no_session_is_left(&datacenter)
}

fn no_session_is_left(datacenter: &Datacenter) -> Outcome {
    let sessions = datacenter.vcsim.sessions()?;
    if (sessions.0, sessions.2) != (0, 0) {
        return Err(anyhow::anyhow!("sessions are left: {sessions:?}").into());
    }
    Ok(())
}

async fn life(
    control_plane: &ControlPlane,
    objects: &Objects,
    datacenter: &Arc<Datacenter>,
) -> anyhow::Result<()> {
    let _kubelets = kubelets(&objects.client, datacenter);
    let life = Life::new(objects, &**datacenter);
    // The daemon has two sessions: its own, and that of the cluster.
    let (cluster, secret) = datacenter.cluster_of_template("prod")?;
    let secrets = kube::Api::<Secret>::namespaced(objects.client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let cluster = json!({ "spec": cluster });
    objects.apply_cluster("prod", control_plane, cluster).await?;
    objects.becomes("Cluster", "prod", "provisioned", |one| is(one, "InfrastructureReady", "True")).await?;
    let has_version = |one: &Value| one["status"]["vCenterVersion"].is_string();
    objects.becomes("VSphereCluster", "prod", "with the version of its vCenter", has_version).await?;
    datacenter.vcsim.reset_counts()?;
    let position = control_plane.audit_position();
    let first = life.begins(MANY, &Datacenter::machine(2048)).await?;
    is_cheap(control_plane, objects, datacenter, position).await?;
    life.note("all machines run");
    let left = life.is_scaled(&first, FEW).await?;
    let rolled = life.is_rolled(&left, &Datacenter::machine(4096), "memoryMiB").await?;

    let lost = BTreeSet::from([rolled.first().context("a machine")?.clone()]);
    is_lost(objects, datacenter, &lost).await?;
    life.is_watched().await?;
    life.is_healed(&rolled, &lost).await?;

    zones::apply(objects, datacenter).await?;
    let all = life.running(FEW + zones::MANY).await?;
    zones::check(objects, datacenter).await?;
    life.note("machines run in two failure domains");
    life.ends(&["VSphereMachine", "VSphereVM", "VSphereCluster"], &all).await?;
    zones::remove(objects).await
}

/// Virtual machines are destroyed by hand. Their machines say so and are not made again.
async fn is_lost(objects: &Objects, datacenter: &Datacenter, lost: &BTreeSet<String>) -> anyhow::Result<()> {
    for name in lost {
        let began = Instant::now();
        datacenter.destroy(name)?;
        for (kind, its, reason) in [
            ("VSphereMachine", "Ready", "MachineLost"),
            ("VSphereVM", "Ready", "NotFoundByBIOSUUID"),
            ("Machine", "InfrastructureReady", "MachineLost"),
        ] {
            let told = |object: &Value| condition(object, its)["reason"] == reason;
            objects.becomes(kind, name, "is lost", told).await?;
            println!("the {kind} tells that it is lost after {:.1?}", began.elapsed());
        }
        ensure!(!datacenter.machines()?.contains_key(name), "it was made again");
    }
    Ok(())
}

/// How long it took to make a machine.
fn time_until_ready(machine: &Value) -> anyhow::Result<Duration> {
    let time = |text: &Value| text.as_str().unwrap_or_default().parse::<Timestamp>();
    let ready = time(&condition(machine, "Ready")["lastTransitionTime"]);
    let made = time(&machine["metadata"]["creationTimestamp"]);
    let took = made.and_then(|made| Ok(ready?.duration_since(made)));
    Ok(took.with_context(|| format!("no times in {machine}"))?.unsigned_abs())
}

/// That the first machines were made with few calls to vCenter and few writes.
async fn is_cheap(
    control_plane: &ControlPlane,
    objects: &Objects,
    datacenter: &Datacenter,
    position: u64,
) -> anyhow::Result<()> {
    /// Also how vCenter is asked for a Node that the inventory does not show yet, as often as there is time for.
    const OF_NODES: [&str; 2] = ["soap:FindAllByUuid", "soap:RetrievePropertiesEx"];
    const OF_MACHINES: [&str; 2] = ["vspheremachines", "vspherevms"];
    let mut calls = datacenter.calls()?;
    calls.retain(|method, _| !WATCH_CALLS.contains(&method.as_str()) && !OF_NODES.contains(&method.as_str()));
    let machines = u64::try_from(MANY)?;
    ensure!(calls.values().sum::<u64>() <= MAX_CALLS * machines, "{calls:?}");
    let mut writes = control_plane.writes_after(position, shipped_roles::USER)?;
    writes.retain(|what, _| OF_MACHINES.iter().any(|resource| what.contains(resource)));
    println!("{MANY} machines: {calls:?}, {writes:?}");
    let made = objects.list("VSphereMachine").await?;
    let took = made.iter().map(time_until_ready).collect::<anyhow::Result<Vec<_>>>()?;
    let waits: u64 = took.iter().map(|time| time.as_secs() / WRITTEN_WAIT.as_secs()).sum();
    ensure!(writes.values().sum::<u64>() <= MAX_WRITES * machines + 2 * waits, "{writes:?} in {took:?}");
    Ok(())
}

impl Infrastructure for Datacenter {
    fn runs(&self, names: &BTreeSet<String>) -> anyhow::Result<()> {
        self.runs(names)
    }

    fn is_empty(&self) -> anyhow::Result<()> {
        self.is_empty()
    }

    async fn check(&self, objects: &Objects, machine: &Value) -> anyhow::Result<()> {
        let name = name(machine);
        let vm = self.machines()?.remove(name).context("no virtual machine")?;
        let id = format!("vsphere://{}", vm.uuid);
        // The name comes from the guest, maybe after its address.
        let has_name = |one: &Value| one["status"]["addresses"].to_string().contains("Hostname");
        let infra = objects.becomes("VSphereMachine", name, "with its host name", has_name).await?;
        ensure!(infra["spec"]["providerID"] == id.as_str(), "{infra}");
        let told = |one: &Value| one["status"]["ready"] == true && is(one, "Ready", "True");
        let companion = objects.becomes("VSphereVM", name, "ready", told).await?;
        ensure!(companion["spec"]["biosUUID"] == vm.uuid.as_str(), "{companion}");
        ensure!(machine["spec"]["providerID"] == id.as_str(), "{machine}");
        // The core may have read the object before its last address came.
        let machine = &objects
            .becomes("Machine", name, "with its addresses", |one| {
                one["status"]["addresses"] == infra["status"]["addresses"]
            })
            .await
            .with_context(|| infra.to_string())?;
        ensure!(machine["status"]["nodeRef"]["name"] == name, "{machine}");

        let node = objects.node_of(name).await?;
        ensure!(provider_id(&node) == Some(id), "{node:?}");
        let addresses = addresses(&node);
        let internal =
            addresses.iter().find_map(|one| one.strip_prefix("InternalIP ")).context("an address")?;
        let of_machine = machine["status"]["addresses"].to_string();
        ensure!(of_machine.contains(&format!("{internal:?}")), "{internal} is not in {of_machine}");
        Ok(())
    }
}
