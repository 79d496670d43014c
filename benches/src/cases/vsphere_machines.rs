//! Machines of a vCenter under Cluster API's own core manager: those that wait when the manager starts, their deletion, and one that is
//! destroyed behind the manager's back.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use test_env::{Capv, ClusterApi, ClusterApiManager, Process, Vcsim, VcsimOptions, WATCH_CALLS};
use tokio::time::sleep;

use super::{Cloud, Manager, Values, number, used, values};
use crate::{
    cluster::{ACCOUNT_USER, Cluster, free_port},
    managers::{Setup, end},
};

/// Only the machine controller runs.
const ARGUMENTS: [&str; 2] = ["--leader-elect=false", "--controllers=machine-controller"];

/// Many machines, all with what they need.
#[derive(Clone, Debug)]
pub(crate) struct VsphereMachines {
    pub(crate) machines: usize,
    /// What each call to the vCenter takes at least.
    pub(crate) delay_millis: u64,
}

/// A machine that is destroyed by hand, in a cluster that has come to rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VsphereLost {
    pub(crate) machines: usize,
}

/// What has been counted so far.
struct Counts {
    soap: f64,
    rest: f64,
    /// Of both, those that follow objects and tasks.
    watch: f64,
    writes: f64,
}

/// How long a cluster rests before something happens to it. CAPV looks at each machine again some seconds after it was made.
const RESTS: Duration = Duration::from_secs(90);

/// CAPV notices a lost machine with its resync, every 10 minutes and some more.
const NOTICED_WITHIN: Duration = Duration::from_secs(12 * 60);

/// The pause between two reads of the objects that tell of a lost machine.
const POLL: Duration = Duration::from_millis(20);

/// The manager that is measured.
enum Working {
    Ours(Process),
    Capv(Box<Capv>),
}

impl Working {
    fn process(&mut self) -> &mut Process {
        match self {
            Self::Ours(process) => process,
            Self::Capv(capv) => capv.process(),
        }
    }

    /// CAPV ends when it is dropped.
    fn end(self) -> Result<()> {
        match self {
            Self::Ours(process) => end(process),
            Self::Capv(_) => Ok(()),
        }
    }
}

/// What our daemon is started with.
struct Ours {
    config: PathBuf,
    kubeconfig: PathBuf,
    port: u16,
    webhook_port: u16,
}

/// A management cluster with machines that wait, and the vCenter.
struct Bed {
    cluster: Cluster,
    vcsim: Vcsim,
    _core: ClusterApi,
    folder: TempDir,
    /// `None` for CAPV.
    ours: Option<Ours>,
}

impl Ours {
    fn install(cluster: &Cluster, vcsim: &Vcsim, folder: &TempDir) -> Result<Self> {
        let (config, port, webhook_port) = (folder.path().join("vsphere.yaml"), free_port()?, free_port()?);
        fs::write(&config, config_of(vcsim))?;
        let program = Manager::Ours.program_with_machines()?;
        let kubeconfig = cluster.apply_machines(&program, "vsphere", webhook_port)?;
        Ok(Self { config, kubeconfig, port, webhook_port })
    }

    fn start(&self, folder: &TempDir) -> Result<Process> {
        let Self { config, kubeconfig, port, webhook_port } = self;
        let setup =
            Setup { kubeconfig, cloud: Cloud::Vsphere { config }, folder: folder.path(), port: *port };
        let webhook_port = format!("--webhook-secure-port={webhook_port}");
        let webhook = ["--webhook-bind-address=127.0.0.1", &webhook_port];
        Manager::Ours.start(&setup, &[&ARGUMENTS[..], &webhook].concat())
    }
}

impl Bed {
    async fn make(manager: Manager, machines: usize) -> Result<Self> {
        let cluster = Cluster::start().await?;
        let control_plane = cluster.control_plane();
        let options =
            VcsimOptions { machines: 1, nodes: false, boots_guests: true, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options)?;
        let folder = TempDir::new()?;
        let ours = match manager {
            Manager::Ours => Some(Ours::install(&cluster, &vcsim, &folder)?),
            _ => {
                Capv::install(control_plane)?;
                None
            }
        };
        let core = ClusterApi::start(control_plane, &[ClusterApiManager::Core])?;
        let bed = Self { cluster, vcsim, _core: core, folder, ours };
        let (cluster, machine) = (spec_of_cluster(&bed.vcsim), spec_of_machine());
        bed.cluster.post_vsphere(bed.stored(), &cluster, &machine, machines).await?;
        Ok(bed)
    }

    /// The version that is stored, the only one that CAPV has.
    fn stored(&self) -> &'static str {
        if self.ours.is_some() { "v1beta2" } else { "v1beta1" }
    }

    fn start(&self, manager: Manager) -> Result<Working> {
        Ok(match &self.ours {
            Some(ours) => Working::Ours(ours.start(&self.folder)?),
            None => {
                let control_plane = self.cluster.control_plane();
                Working::Capv(Box::new(Capv::start(control_plane, &self.vcsim, manager.flags_of_capv())?))
            }
        })
    }

    /// What was counted since the vCenter's counts were reset and the audit log was at this position.
    fn counts(&self, position: u64) -> Result<Counts> {
        let calls = self.vcsim.counts()?;
        let of = |is_one: &dyn Fn(&str) -> bool| {
            number(calls.iter().filter(|(method, _)| is_one(method)).map(|(_, count)| count).sum::<u64>())
        };
        let user = if self.ours.is_some() { ACCOUNT_USER } else { Capv::USER };
        let written = self.cluster.control_plane().writes_after(position, user)?;
        Ok(Counts {
            soap: of(&|method| method.starts_with("soap:")),
            rest: of(&|method| method.starts_with("rest:")),
            watch: of(&|method| WATCH_CALLS.contains(&method)),
            writes: number(written.values().sum::<u64>()),
        })
    }

    /// Waits until the core has seen every machine provisioned.
    async fn all_are_made(&self, machines: usize, working: &mut Working) -> Result<Instant> {
        let done = self.cluster.all_have_infrastructure(machines).await;
        done.with_context(|| working.process().log_tail())
    }
}

impl VsphereMachines {
    pub(super) fn variant(&self) -> String {
        format!("{} machines, {} ms a call", self.machines, self.delay_millis)
    }

    /// `seconds` from the start of the process until the core has seen every machine provisioned; `soap_calls`, `rest_calls`,
    /// `other_calls` (of both, without those that follow objects) and `writes` for each machine. Then the same for the deletion.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let bed = Bed::make(manager, self.machines).await?;
        bed.vcsim.reset_counts()?;
        if self.delay_millis > 0 {
            bed.vcsim.set_rules(&json!([{"methods": ["*"], "delayMillis": self.delay_millis}]))?;
        }
        let position = bed.cluster.control_plane().audit_position();
        let began = Instant::now();
        let mut working = bed.start(manager)?;
        let done = bed.all_are_made(self.machines, &mut working).await?;
        let per_machine = |count: f64| count / number(self.machines);
        let made = bed.counts(position)?;
        let mut found = values([
            ("machines", number(self.machines)),
            ("seconds", (done - began).as_secs_f64()),
            ("soap_calls", per_machine(made.soap)),
            ("rest_calls", per_machine(made.rest)),
            ("other_calls", per_machine(made.soap + made.rest - made.watch)),
            ("writes", per_machine(made.writes)),
        ]);
        found.extend(used(working.process())?);
        let began = Instant::now();
        let gone = bed.cluster.delete_all_machines(self.machines).await?;
        let removed = bed.counts(position)?;
        let others = |counts: &Counts| counts.soap + counts.rest - counts.watch;
        found.extend(values([
            ("gone_seconds", (gone - began).as_secs_f64()),
            ("gone_soap_calls", per_machine(removed.soap - made.soap)),
            ("gone_other_calls", per_machine(others(&removed) - others(&made))),
            ("gone_writes", per_machine(removed.writes - made.writes)),
        ]));
        let left = bed.vcsim.inventory()?.len();
        ensure!(left == 1, "{left} virtual machines are left, with the template");
        working.end()?;
        Ok(found)
    }
}

impl VsphereLost {
    pub(super) fn variant(self) -> String {
        format!("one of {} machines", self.machines)
    }

    /// From the destruction of a machine until its objects tell of it: `vm_seconds` for the `VSphereVM`; `machine_seconds` for the
    /// `VSphereMachine` and `core_seconds` for the Machine, on which CAPV tells nothing.
    pub(super) async fn run(self, manager: Manager) -> Result<Values> {
        let bed = Bed::make(manager, self.machines).await?;
        let mut working = bed.start(manager)?;
        bed.all_are_made(self.machines, &mut working).await?;
        sleep(RESTS).await;
        let lost = "machine-0";
        let began = Instant::now();
        bed.vcsim.act(lost, "power-off", "")?;
        bed.vcsim.act(lost, "destroy", "")?;
        let told = |group: &str, resource: &str, reason: &str| {
            let path = format!("/apis/{group}/namespaces/default/{resource}/{lost}");
            let reason = format!("\"reason\":\"{reason}\"");
            let cluster = &bed.cluster;
            async move { cluster.until_it_says(&path, &reason, POLL, NOTICED_WITHIN).await }
        };
        let infrastructure = &format!("infrastructure.cluster.x-k8s.io/{}", bed.stored());
        let vm = told(infrastructure, "vspherevms", "NotFoundByBIOSUUID").await?;
        let mut found = values([("vm_seconds", (vm - began).as_secs_f64())]);
        if bed.ours.is_some() {
            let machine = told(infrastructure, "vspheremachines", "MachineLost").await?;
            let core = told("cluster.x-k8s.io/v1beta2", "machines", "MachineLost").await?;
            found.extend(values([
                ("machine_seconds", (machine - began).as_secs_f64()),
                ("core_seconds", (core - began).as_secs_f64()),
            ]));
        }
        working.end()?;
        Ok(found)
    }
}

/// The configuration that names the vCenter.
fn config_of(vcsim: &Vcsim) -> String {
    format!(
        "vcenter:\n  sim:\n    server: 127.0.0.1\n    port: {}\n    insecureFlag: true\n    user: {}\n    \
         password: \"{}\"\nmachines:\n  allow:\n  - {{templates: ['*'], machinesAsTemplates: true, folders: ['*'], \
         resourcePools: ['*'], datastores: ['*'], networks: ['*']}}\n",
        vcsim.port(),
        vcsim.user(),
        vcsim.password()
    )
}

fn spec_of_cluster(vcsim: &Vcsim) -> serde_json::Value {
    json!({"server": format!("127.0.0.1:{}", vcsim.port())})
}

/// It means the same in both versions.
fn spec_of_machine() -> serde_json::Value {
    json!({
        "template": "DC0_C0_RP0_VM0", "cloneMode": "fullClone", "datacenter": "DC0", "folder": "/DC0/vm",
        "resourcePool": "/DC0/host/DC0_C0/Resources", "datastore": "LocalDS_0", "numCPUs": 2, "memoryMiB": 2048,
        "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]}, "powerOffMode": "hard",
    })
}
