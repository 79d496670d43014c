//! A settled cluster, where nothing happens but heartbeats.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use sandbox::kubelet;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use super::{IDEAL, Manager, SETTLES, Values, Working, number, settled_cluster, values};
use crate::{
    cluster::{Cluster, NodeSize, name},
    usage::Usage,
};

#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) nodes: usize,
    pub(crate) minutes: u64,
}

/// How often a kubelet renews its Lease.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// How often a kubelet writes its Node's status when nothing has changed.
const STATUS_EVERY: Duration = Duration::from_secs(300);

impl Settled {
    pub(super) fn variant(&self) -> String {
        format!("{} Nodes, {} minutes", self.nodes, self.minutes)
    }

    /// Heartbeats do not change what a kubelet reports. Measures the manager's usage and requests meanwhile:
    /// `cpu_seconds`, `memory_bytes` at the end, `grown_bytes` since the beginning, `writes`. For the floor,
    /// which receives the watch and keeps nothing of it, only the first value has a meaning.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = settled_cluster(self.nodes).await?;
        let heartbeats = beat(&cluster, self.nodes);
        let is_floor = manager == Manager::Floor;
        let argument = if is_floor { "watch" } else { "--leader-elect=false" };
        let working = Working::start(manager, &cluster, IDEAL, &[argument])?;
        if !is_floor {
            cluster.join(self.nodes, NodeSize::Real).await?;
        }
        let writes = || (!is_floor).then(|| writes(&cluster, &working)).transpose();
        // One period of the controllers, so that what they do at the start is over.
        sleep(SETTLES * 12).await;
        let (before, writes_before) = (Usage::of(working.process.id())?, writes()?);
        sleep(Duration::from_secs(60 * self.minutes)).await;
        let (after, writes_after) = (Usage::of(working.process.id())?, writes()?);
        for task in heartbeats {
            task.abort();
        }
        working.end()?;
        let mut used = values([("cpu_seconds", (after.cpu.saturating_sub(before.cpu)).as_secs_f64())]);
        if let (Some(writes_before), Some(writes_after)) = (writes_before, writes_after) {
            used.extend(values([
                ("memory_bytes", number(after.memory)),
                ("grown_bytes", number(after.memory) - number(before.memory)),
                ("writes", writes_after - writes_before),
            ]));
        }
        Ok(used)
    }
}

/// How many requests that write Nodes the manager has sent so far, by its own metric.
fn writes(cluster: &Cluster, working: &Working) -> Result<f64> {
    working
        .get(cluster, "/metrics")?
        .lines()
        .filter(|line| line.starts_with("rest_client_requests_total{") && !line.contains("method=\"GET\""))
        // Reviews of the client that reads the metrics, and events, are not writes to Nodes.
        .filter(|line| {
            line.contains("method=\"PATCH\"")
                || line.contains("method=\"PUT\"")
                || line.contains("method=\"DELETE\"")
        })
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).context("no number"))
        .sum()
}

/// Leases and statuses as kubelets write them, spread over their periods.
fn beat(cluster: &Cluster, nodes: usize) -> [JoinHandle<()>; 2] {
    let client = cluster.client.0.clone();
    let leases = tokio::spawn(async move {
        let leases: Api<Lease> = Api::namespaced(client, kubelet::LEASE_NAMESPACE);
        every(RENEWED_EVERY, nodes, |number| {
            let (leases, name) = (leases.clone(), name(number));
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {
                    "holderIdentity": name, "leaseDurationSeconds": 40,
                    "renewTime": format!("{:.6}", Timestamp::now()),
                },
            });
            async move {
                // A lost heartbeat is followed by another one.
                let _ =
                    leases.patch(&name, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await;
            }
        })
        .await;
    });
    let client = cluster.client.0.clone();
    let statuses = tokio::spawn(async move {
        let all: Api<Node> = Api::all(client);
        every(STATUS_EVERY, nodes, |number| {
            let (all, now) = (all.clone(), Timestamp::now());
            let condition = |kind: &str| json!({"type": kind, "lastHeartbeatTime": format!("{now:.0}")});
            let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
            let status = json!({"status": {"conditions": kinds.map(condition)}});
            async move {
                let _ =
                    all.patch_status(&name(number), &PatchParams::default(), &Patch::Strategic(status)).await;
            }
        })
        .await;
    });
    [leases, statuses]
}

/// Calls `beat` for each Node once in a period, at even intervals, some calls at the same time.
async fn every<B: Future<Output = ()> + Send>(
    period: Duration,
    nodes: usize,
    beat: impl Fn(usize) -> B + Send + Sync,
) {
    let step = period / u32::try_from(nodes).unwrap_or(u32::MAX);
    let began = Instant::now();
    stream::iter((0..nodes).cycle().zip(0u32..))
        .for_each_concurrent(16, |(number, turn)| {
            let beat = &beat;
            async move {
                sleep_until(began + step * turn).await;
                beat(number).await;
            }
        })
        .await;
}
