//! Services of type `LoadBalancer` wait when the manager starts; then Nodes come and go.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use super::{Cloud, Manager, Values, Working, number, used, values};
use crate::{
    cluster::{Cluster, STUCK},
    managers::COUNTS,
};

/// Nodes that are there from the beginning.
const NODES: usize = 10;
/// After this time without another call the manager has nothing left to do.
const QUIET: Duration = Duration::from_secs(5);
/// The pause between two looks at the calls.
const POLL: Duration = Duration::from_millis(100);

/// Only the service controller runs.
const ARGUMENTS: [&str; 2] = ["--leader-elect=false", "--controllers=service-lb-controller"];

#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) services: usize,
    /// How long the cloud takes for each call.
    pub(crate) delay_millis: u64,
}

impl Services {
    pub(super) fn variant(&self) -> String {
        format!("{} Services, {} ms a call", self.services, self.delay_millis)
    }

    /// `seconds` from the start of the process to the moment at which every Service has an address; what the process has
    /// used until then; `calls` of the cloud and `writes` of Services, for each Service; `more_calls` and `more_writes` in
    /// the seconds after that.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = Cluster::start().await?;
        cluster.post_initialized(0..NODES).await?;
        cluster.post_services(self.services).await?;
        let (began, writes) = (Instant::now(), cluster.changes_of("services").await?);
        let cloud = Cloud::Networks { delay_millis: self.delay_millis };
        let working = Working::start(manager, &cluster, cloud, &ARGUMENTS)?;
        let done = cluster.all_have_addresses(self.services).await?;
        let mut values = values([("seconds", (done - began).as_secs_f64())]);
        values.extend(used(&working.process)?);
        // The last calls are counted a moment after they end.
        sleep(POLL * 3).await;
        let (calls, written) = (working.calls()?, cluster.changes_of("services").await?);
        sleep(QUIET).await;
        let (later, written_later) = (working.calls()?, cluster.changes_of("services").await?);
        let per_service = |count: f64| count / number(self.services);
        values.extend(super::values([
            ("calls", per_service(sum(&calls))),
            ("writes", per_service(written - writes)),
            ("more_calls", sum(&later) - sum(&calls)),
            ("more_writes", written_later - written),
        ]));
        working.end()?;
        Ok(values)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ServiceNodes {
    pub(crate) services: usize,
    /// Nodes that come, change in nothing that matters, and go.
    pub(crate) nodes: usize,
    pub(crate) delay_millis: u64,
}

impl ServiceNodes {
    pub(super) fn variant(&self) -> String {
        format!("{} Nodes beside {} Services, {} ms a call", self.nodes, self.services, self.delay_millis)
    }

    /// `seconds` from the first Node that comes to the last call of the cloud after all have gone; `calls` of the cloud for
    /// each Service meanwhile; `idle_calls` while the Nodes only change a label.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = Cluster::start().await?;
        cluster.post_initialized(0..NODES).await?;
        cluster.post_services(self.services).await?;
        let cloud = Cloud::Networks { delay_millis: self.delay_millis };
        let working = Working::start(manager, &cluster, cloud, &ARGUMENTS)?;
        cluster.all_have_addresses(self.services).await?;
        working.until_quiet().await?;
        let before = working.calls()?;
        let (began, cpu) = (Instant::now(), used(&working.process)?);
        let coming = NODES..NODES + self.nodes;
        cluster.post_initialized(coming.clone()).await?;
        let _ = working.until_quiet().await?;
        let settled = working.calls()?;
        cluster.touch_nodes(coming.clone()).await?;
        working.until_quiet().await?;
        let touched = working.calls()?;
        cluster.delete_nodes(coming).await?;
        let last = working.until_quiet().await?;
        let after = working.calls()?;
        let mut values = used(&working.process)?;
        let cpu_before = cpu.get("cpu_seconds").copied().unwrap_or_default();
        values.entry("cpu_seconds".to_owned()).and_modify(|seconds| *seconds -= cpu_before);
        let idle = sum(&touched) - sum(&settled);
        values.extend(super::values([
            ("seconds", (last - began).as_secs_f64()),
            ("calls", (sum(&after) - sum(&before) - idle) / number(self.services)),
            ("idle_calls", idle),
        ]));
        working.end()?;
        Ok(values)
    }
}

fn sum(calls: &BTreeMap<String, f64>) -> f64 {
    calls.values().sum()
}

impl Working {
    /// How often each operation of the cloud's load balancers and routes was called.
    pub(super) fn calls(&self) -> Result<BTreeMap<String, f64>> {
        let path = self.folder().join(COUNTS);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error.into()),
        };
        serde_json::from_slice(&text).context("calls by operation")
    }

    /// Waits until the cloud is not called any more. Returns when the last call was.
    pub(super) async fn until_quiet(&self) -> Result<Instant> {
        let (mut calls, mut changed) = (self.calls()?, Instant::now());
        let began = changed;
        while changed.elapsed() < QUIET {
            sleep(POLL).await;
            let now = self.calls()?;
            if now != calls {
                (calls, changed) = (now, Instant::now());
            }
            ensure!(began.elapsed() < STUCK * 10, "the cloud is called without end: {calls:?}");
        }
        Ok(changed)
    }
}
