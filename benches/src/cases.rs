//! What is measured. Each case starts all that it needs, measures one run, and ends it.

mod handover;
mod initialize;
mod join;
mod lifecycle;
mod machines;
mod restart;
mod routes;
mod services;
mod settled;
mod startup;
mod vsphere;
mod vsphere_machines;

use std::{collections::BTreeMap, path::Path, process::Command, time::Duration};

use anyhow::{Result, ensure};
use test_env::Process;

pub(crate) use handover::{End, Handover};
pub(crate) use initialize::Initialize;
pub(crate) use join::Join;
pub(crate) use lifecycle::Lifecycle;
pub(crate) use machines::Machines;
pub(crate) use restart::Restart;
pub(crate) use routes::Routes;
pub(crate) use services::{ServiceNodes, Services};
pub(crate) use settled::Settled;
pub(crate) use startup::Startup;
pub(crate) use vsphere::{Vsphere, VsphereChange};
pub(crate) use vsphere_machines::{VsphereLost, VsphereMachines};

use crate::{
    cluster::{Cluster, NodeSize, free_port},
    managers::{Cloud, Manager, Setup, end},
    results::Measurement,
    usage::Usage,
};

/// One thing to measure, once.
#[derive(Clone, Debug)]
pub(crate) enum Case {
    Initialize(Initialize),
    Join(Join),
    Settled(Settled),
    Restart(Restart),
    Handover(Handover),
    Startup(Startup),
    Vsphere(Vsphere),
    VsphereChange(VsphereChange),
    Services(Services),
    ServiceNodes(ServiceNodes),
    Routes(Routes),
    Machines(Machines),
    VsphereMachines(VsphereMachines),
    VsphereLost(VsphereLost),
    Lifecycle(Lifecycle),
}

impl Case {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Initialize(_) => "initialize",
            Self::Join(_) => "join",
            Self::Settled(_) => "settled",
            Self::Restart(_) => "restart",
            Self::Handover(_) => "hand-over",
            Self::Startup(_) => "startup",
            Self::Vsphere(_) => "vsphere",
            Self::VsphereChange(_) => "vsphere-change",
            Self::Services(_) => "services",
            Self::ServiceNodes(_) => "service-nodes",
            Self::Routes(_) => "routes",
            Self::Machines(_) => "machines",
            Self::VsphereMachines(_) => "vsphere-machines",
            Self::VsphereLost(_) => "vsphere-lost",
            Self::Lifecycle(_) => "lifecycle",
        }
    }

    pub(crate) fn variant(&self) -> String {
        match self {
            Self::Initialize(case) => case.variant(),
            Self::Join(case) => case.variant(),
            Self::Settled(case) => case.variant(),
            Self::Restart(case) => case.variant(),
            Self::Handover(case) => case.variant(),
            Self::Startup(_) => String::new(),
            Self::Vsphere(case) => case.variant(),
            Self::VsphereChange(case) => case.variant(),
            Self::Services(case) => case.variant(),
            Self::ServiceNodes(case) => case.variant(),
            Self::Routes(case) => case.variant(),
            Self::Machines(case) => case.variant(),
            Self::VsphereMachines(case) => case.variant(),
            Self::VsphereLost(case) => case.variant(),
            Self::Lifecycle(case) => case.variant(),
        }
    }

    /// Measures one run of `manager`.
    pub(crate) async fn run(&self, manager: Manager) -> Result<Measurement> {
        let values = match self {
            Self::Initialize(case) => case.run(manager).await,
            Self::Join(case) => case.run(manager).await,
            Self::Settled(case) => case.run(manager).await,
            Self::Restart(case) => case.run(manager).await,
            Self::Handover(case) => case.run(manager).await,
            Self::Startup(case) => case.run(manager).await,
            Self::Vsphere(case) => case.run(manager).await,
            Self::VsphereChange(case) => case.run(manager).await,
            Self::Services(case) => case.run(manager).await,
            Self::ServiceNodes(case) => case.run(manager).await,
            Self::Routes(case) => case.run(manager).await,
            Self::Machines(case) => case.run(manager).await,
            Self::VsphereMachines(case) => Box::pin(case.run(manager)).await,
            Self::VsphereLost(case) => Box::pin(case.run(manager)).await,
            Self::Lifecycle(case) => Box::pin(case.run(manager)).await,
        }?;
        Ok(Measurement {
            case: self.name().to_owned(),
            variant: self.variant(),
            manager: manager.name().to_owned(),
            values,
        })
    }
}

/// Values by name.
type Values = BTreeMap<String, f64>;

fn values<const N: usize>(pairs: [(&str, f64); N]) -> Values {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "bytes and counts far below 2^52")]
fn number(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or_default() as f64
}

fn used(process: &Process) -> Result<Values> {
    let usage = Usage::of(process.id())?;
    Ok(values([("cpu_seconds", usage.cpu.as_secs_f64()), ("peak_bytes", number(usage.peak_memory))]))
}

/// A manager that runs in a cluster.
struct Working {
    process: Process,
    port: u16,
    folder: tempfile::TempDir,
}

impl Working {
    fn start(manager: Manager, cluster: &Cluster, cloud: Cloud<'_>, arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = free_port()?;
        let setup = Setup { kubeconfig: cluster.kubeconfig(), cloud, folder: folder.path(), port };
        Ok(Self { process: manager.start(&setup, arguments)?, port, folder })
    }

    /// What the manager serves under this path.
    fn get(&self, cluster: &Cluster, path: &str) -> Result<String> {
        let output = Command::new("curl")
            .args(["--silent", "--insecure", "--fail", "--noproxy", "*", "--max-time", "10", "--header"])
            .arg(format!("Authorization: Bearer {}", cluster.admin_token()))
            .arg(format!("https://127.0.0.1:{}{path}", self.port))
            .output()?;
        ensure!(output.status.success(), "no {path}: {}", self.process.log_tail());
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Where its files are.
    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn end(self) -> Result<()> {
        end(self.process)
    }
}

/// A cluster whose Nodes are all initialised, by the fastest program.
async fn settled_cluster(nodes: usize) -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    let progress = cluster.watch().await?;
    cluster.post_ready(0..nodes, NodeSize::Real).await?;
    let floor = Working::start(Manager::Floor, &cluster, IDEAL, &[])?;
    cluster.all_complete(nodes, &progress).await?;
    floor.end()?;
    Ok(cluster)
}

/// The ideal cloud, which answers at once.
const IDEAL: Cloud<'static> = Cloud::Ideal { delay_millis: 0 };

/// How long a manager has to settle after its first work.
const SETTLES: Duration = Duration::from_secs(5);
