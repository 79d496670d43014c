//! Machines of a vCenter that wait when the manager starts, and then their deletion, under Cluster API's own core manager.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use test_env::{Capv, ClusterApi, ClusterApiManager, Process, Vcsim, VcsimOptions};

use super::{Cloud, Manager, Values, number, used, values};
use crate::{
    cluster::{ACCOUNT_USER, Cluster, free_port},
    managers::{Setup, end},
};

/// Only the machine controller runs.
const ARGUMENTS: [&str; 2] = ["--leader-elect=false", "--controllers=machine-controller"];

/// With this flag the daemon converts objects and has no machines to work on.
const ELSEWHERE: &str = "--namespace=elsewhere";

/// Many machines, all with what they need.
#[derive(Clone, Debug)]
pub(crate) struct VsphereMachines {
    pub(crate) machines: usize,
    /// What each call to the vCenter takes at least.
    pub(crate) delay_millis: u64,
}

/// What has been counted so far.
struct Counts {
    soap: f64,
    rest: f64,
    writes: f64,
}

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
}

/// What our daemon is started with.
struct Ours<'f> {
    folder: &'f Path,
    config: PathBuf,
    kubeconfig: PathBuf,
    port: u16,
    webhook_port: u16,
}

impl<'f> Ours<'f> {
    fn install(cluster: &Cluster, vcsim: &Vcsim, folder: &'f Path) -> Result<Self> {
        let (config, port, webhook_port) = (folder.join("vsphere.yaml"), free_port()?, free_port()?);
        fs::write(&config, config_of(vcsim))?;
        let program = Manager::Ours.program_with_machines()?;
        let kubeconfig = cluster.apply_printed(&program, "vsphere", webhook_port)?;
        Ok(Self { folder, config, kubeconfig, port, webhook_port })
    }

    fn start(&self, more: &[&str]) -> Result<Process> {
        let Self { folder, config, kubeconfig, port, webhook_port } = self;
        let setup = Setup { kubeconfig, cloud: Cloud::Vsphere { config }, folder, port: *port };
        let webhook_port = format!("--webhook-secure-port={webhook_port}");
        let webhook = ["--webhook-bind-address=127.0.0.1", &webhook_port];
        Manager::Ours.start(&setup, &[&ARGUMENTS[..], &webhook, more].concat())
    }
}

impl VsphereMachines {
    pub(super) fn variant(&self) -> String {
        format!("{} machines, {} ms a call", self.machines, self.delay_millis)
    }

    /// `seconds` from the start of the process until the core has seen every machine provisioned; `soap_calls`, `rest_calls` and
    /// `writes` for each machine. Then the same for the deletion.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let cluster = Cluster::start().await?;
        let control_plane = cluster.control_plane();
        let options =
            VcsimOptions { machines: 1, nodes: false, boots_guests: true, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options)?;
        let folder = TempDir::new()?;
        let ours = match manager {
            Manager::Ours => Some(Ours::install(&cluster, &vcsim, folder.path())?),
            _ => {
                Capv::install(control_plane)?;
                None
            }
        };
        let user = if ours.is_some() { ACCOUNT_USER } else { Capv::USER };
        let _core = ClusterApi::start(control_plane, &[ClusterApiManager::Core])?;
        // The core reads the version that is not stored.
        let converter = ours.as_ref().map(|ours| ours.start(&[ELSEWHERE])).transpose()?;
        cluster.post_vsphere(&spec_of_cluster(&vcsim), &spec_of_machine(), self.machines).await?;
        converter.map(end).transpose()?;
        vcsim.reset_counts()?;
        if self.delay_millis > 0 {
            vcsim.set_rules(&json!([{"methods": ["*"], "delayMillis": self.delay_millis}]))?;
        }
        let position = control_plane.audit_position();
        let counts = || -> Result<Counts> {
            let calls = vcsim.counts()?;
            let of = |kind: &str| {
                let counted = calls.iter().filter(|(method, _)| method.starts_with(kind));
                number(counted.map(|(_, count)| count).sum::<u64>())
            };
            let written = control_plane.writes_after(position, user)?;
            Ok(Counts { soap: of("soap:"), rest: of("rest:"), writes: number(written.values().sum::<u64>()) })
        };

        let began = Instant::now();
        let mut working = match &ours {
            Some(ours) => Working::Ours(ours.start(&[])?),
            None => Working::Capv(Box::new(Capv::start(control_plane, &vcsim, manager.flags_of_capv())?)),
        };
        let done = cluster.all_have_infrastructure(self.machines).await;
        let done = done.with_context(|| working.process().log_tail())?;
        let per_machine = |count: f64| count / number(self.machines);
        let made = counts()?;
        let mut found = values([
            ("machines", number(self.machines)),
            ("seconds", (done - began).as_secs_f64()),
            ("soap_calls", per_machine(made.soap)),
            ("rest_calls", per_machine(made.rest)),
            ("writes", per_machine(made.writes)),
        ]);
        found.extend(used(working.process())?);
        let began = Instant::now();
        let gone = cluster.delete_all_machines(self.machines).await?;
        let removed = counts()?;
        found.extend(values([
            ("gone_seconds", (gone - began).as_secs_f64()),
            ("gone_soap_calls", per_machine(removed.soap - made.soap)),
            ("gone_writes", per_machine(removed.writes - made.writes)),
        ]));
        let left = vcsim.inventory()?.len();
        ensure!(left == 1, "{left} virtual machines are left, with the template");
        if let Working::Ours(process) = working {
            end(process)?;
        }
        Ok(found)
    }
}

/// The configuration that names the vCenter.
fn config_of(vcsim: &Vcsim) -> String {
    format!(
        "vcenter:\n  sim:\n    server: 127.0.0.1\n    port: {}\n    insecureFlag: true\n    user: {}\n    \
         password: \"{}\"\n",
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
