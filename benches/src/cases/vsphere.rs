//! Nodes that are machines of a vCenter.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use test_env::{Vcsim, VcsimOptions};
use tokio::time::sleep;

use super::{Cloud, Manager, SETTLES, Values, Working, number, used, values};
use crate::cluster::{Cluster, NodeSize, STUCK, has_taint, name};

/// Many uninitialised Nodes wait when the manager starts.
#[derive(Clone, Debug)]
pub(crate) struct Vsphere {
    pub(crate) nodes: usize,
}

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VsphereChange {
    /// The machine is switched off. Ends when its Node has the shutdown taint.
    PoweredOff,
    /// The machine is destroyed. Ends when the manager knows that, which only ours shows before it acts.
    Noticed,
    /// The machine is destroyed. Ends when its Node is gone.
    Destroyed,
}

/// Only the controller that initialises. The Nodes here are not Ready, and CPI's other controller would ask
/// vCenter about each of them every 5 s.
const ARGUMENTS: &[&str] = &["--leader-elect=false", "--controllers=cloud-node-controller"];

/// How many machines there are when one of them changes.
const FEW: usize = 10;
const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A vCenter with as many machines as there are Nodes, and the configuration that names it.
struct Vcenter {
    vcsim: Vcsim,
    config: PathBuf,
    _folder: TempDir,
}

impl Vcenter {
    fn start(machines: usize) -> Result<Self> {
        let options = VcsimOptions { machines: u32::try_from(machines)?, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options)?;
        for (category, tag) in [("k8s-region", "region-1"), ("k8s-zone", "zone-1")] {
            vcsim.attach_tag(category, tag, "ClusterComputeResource", "DC0_C0")?;
        }
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("vsphere.conf");
        let text = format!(
            "global:\n  port: {}\n  insecureFlag: true\n  user: {}\n  password: \"{}\"\n\
             vcenter:\n  sim:\n    server: 127.0.0.1\n    datacenters: [DC0]\n\
             labels:\n  region: k8s-region\n  zone: k8s-zone\n",
            vcsim.port(),
            vcsim.user(),
            vcsim.password(),
        );
        fs::write(&config, text)?;
        vcsim.reset_counts()?;
        Ok(Self { vcsim, config, _folder: folder })
    }

    fn cloud(&self) -> Cloud<'_> {
        Cloud::Vsphere { config: &self.config }
    }
}

impl Vsphere {
    pub(super) fn variant(&self) -> String {
        format!("{} Nodes", self.nodes)
    }

    /// As `initialize`, and the `round_trips` to the vCenter meanwhile.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let (cluster, vcenter) = (Cluster::start().await?, Vcenter::start(self.nodes)?);
        cluster.post(0..self.nodes, NodeSize::Real).await?;
        let progress = cluster.watch().await?;
        let began = Instant::now();
        let working = Working::start(manager, &cluster, vcenter.cloud(), ARGUMENTS)?;
        let done = cluster.all_complete(self.nodes, &progress).await?;
        let mut values = values([
            ("seconds", (done.at - began).as_secs_f64()),
            ("round_trips", number(vcenter.vcsim.counts()?.values().sum::<u64>())),
        ]);
        values.extend(used(&working.process)?);
        working.end()?;
        Ok(values)
    }
}

impl VsphereChange {
    pub(super) fn variant(self) -> String {
        match self {
            Self::PoweredOff => "powered off: until its taint",
            Self::Noticed => "destroyed: until that is noticed",
            Self::Destroyed => "destroyed: until its Node is gone",
        }
        .to_owned()
    }

    /// `seconds` from the change until the Node, or the manager, shows it. The kubelets are not ready, as
    /// when a machine is gone.
    pub(super) async fn run(self, manager: Manager) -> Result<Values> {
        let (cluster, vcenter) = (Cluster::start().await?, Vcenter::start(FEW)?);
        cluster.post(0..FEW, NodeSize::Real).await?;
        let progress = cluster.watch().await?;
        let working = Working::start(manager, &cluster, vcenter.cloud(), &["--leader-elect=false"])?;
        cluster.all_complete(FEW, &progress).await?;
        sleep(SETTLES).await;
        let host = name(0);
        let machines = vcenter.vcsim.inventory()?;
        let machine = machines.iter().find(|machine| machine["hostName"] == host.as_str());
        let machine = machine.and_then(|machine| machine["name"].as_str()).context("the machine")?;
        let began = Instant::now();
        vcenter.vcsim.act(machine, "power-off", "")?;
        if self != Self::PoweredOff {
            vcenter.vcsim.act(machine, "destroy", "")?;
        }
        match self {
            Self::PoweredOff => {
                cluster.until(&host, |node| node.is_some_and(|node| has_taint(node, SHUTDOWN_TAINT))).await?;
            }
            Self::Noticed => {
                while !is_known_to_be_gone(&working, &cluster, &host)? {
                    ensure!(began.elapsed() < STUCK, "nobody notices that {host} is gone");
                    sleep(Duration::from_millis(5)).await;
                }
            }
            Self::Destroyed => cluster.until(&host, |node| node.is_none()).await?,
        }
        let took = began.elapsed();
        working.end()?;
        Ok(values([("seconds", took.as_secs_f64())]))
    }
}

fn is_known_to_be_gone(working: &Working, cluster: &Cluster, node: &str) -> Result<bool> {
    let state: Value = serde_json::from_str(&working.get(cluster, "/debug/state")?)?;
    Ok(state["cloud-node-lifecycle-controller"]["nodes"][node]["lastAnswer"] == "Absent")
}
