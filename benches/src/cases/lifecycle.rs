//! Machines of a `MachineDeployment` on Cluster API's in-memory provider, whose objects our lifecycle controllers or Cluster API's own
//! managers serve: their creation, rest and deletion.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tempfile::TempDir;
use test_env::{ClusterApi, ClusterApiManager, Process};
use tokio::time::sleep;

use super::{Manager, SETTLES, Values, number, used, values};
use crate::{
    cluster::{ACCOUNT_USER, Cluster},
    managers::end,
};

/// Many machines in one deployment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifecycle {
    pub(crate) machines: usize,
    /// How long the settled machines are watched.
    pub(crate) rest_minutes: u64,
}

/// What Cluster API's managers do, our daemon does alone.
const MANAGERS: [ClusterApiManager; 2] = [ClusterApiManager::Core, ClusterApiManager::KubeadmBootstrap];

/// What is written for a machine, the owner references of what others have defined included.
const OF_MACHINES: [&str; 8] = [
    "machinedeployments",
    "machinesets",
    "machines",
    "kubeadmconfigs",
    "kubeadmconfigtemplates",
    "devmachines",
    "devmachinetemplates",
    "secrets",
];

/// Who serves the objects.
enum Working {
    Ours(Process),
    ClusterApi,
}

struct Bed {
    working: Working,
    // Fields drop in this order: the managers before their API server
    managers: ClusterApi,
    _folder: TempDir,
    cluster: Cluster,
}

impl Bed {
    async fn make(manager: Manager) -> Result<Self> {
        let cluster = Cluster::start().await?;
        let folder = TempDir::new()?;
        let flags = manager.flags_of_cluster_api();
        let control_plane = cluster.control_plane();
        let (working, managers) = if manager == Manager::Ours {
            let program = Manager::Ours.program_with_machines()?;
            let kubeconfig = cluster.apply_lifecycle(&program)?;
            let managers = ClusterApi::start_with(control_plane, &[ClusterApiManager::InMemory], flags)?;
            let mut command = managers.beside(&program);
            command
                .args(["--controllers=lifecycle", "--leader-elect=false", "--secure-port=0"])
                .arg(format!("--kubeconfig={}", kubeconfig.display()))
                // Where the API servers in memory listen.
                .arg("--workload-cluster-cidrs=127.0.0.0/8");
            let process = Process::spawn("ours", &command, folder.path().join("ours.log"))?;
            (Working::Ours(process), managers)
        } else {
            let all = [&MANAGERS[..], &[ClusterApiManager::InMemory]].concat();
            (Working::ClusterApi, ClusterApi::start_with(control_plane, &all, flags)?)
        };
        Ok(Self { working, managers, _folder: folder, cluster })
    }

    /// CPU time and memory so far, of all processes together.
    fn used(&mut self) -> Result<Values> {
        let mut sum = Values::new();
        let mut add = |process: &Process| -> Result<()> {
            for (name, value) in used(process)? {
                *sum.entry(name).or_default() += value;
            }
            Ok(())
        };
        match &self.working {
            Working::Ours(process) => add(process)?,
            Working::ClusterApi => {
                for manager in MANAGERS {
                    add(self.managers.process(manager)?)?;
                }
            }
        }
        Ok(sum)
    }

    /// The writes since this position of the audit log, by verb and resource.
    fn writes(&self, position: u64) -> Result<BTreeMap<String, u64>> {
        let users = match self.working {
            Working::Ours(_) => vec![ACCOUNT_USER.to_owned()],
            Working::ClusterApi => MANAGERS.map(ClusterApiManager::user).to_vec(),
        };
        let mut sum = BTreeMap::new();
        for user in users {
            for (what, count) in self.cluster.control_plane().writes_after(position, &user)? {
                let resource = what.split([' ', '/']).nth(1).unwrap_or_default();
                if OF_MACHINES.contains(&resource) {
                    *sum.entry(what).or_default() += count;
                }
            }
        }
        Ok(sum)
    }

    /// The end of the logs, for an error.
    fn words(&self) -> String {
        match &self.working {
            Working::Ours(process) => process.log_tail(),
            Working::ClusterApi => MANAGERS.map(|manager| tail(&self.managers.log(manager))).join("\n"),
        }
    }
}

fn tail(text: &str) -> String {
    let start = text.char_indices().rev().nth(2000).map_or(0, |(start, _)| start);
    text.get(start..).unwrap_or_default().to_owned()
}

fn sum(writes: &BTreeMap<String, u64>) -> f64 {
    number(writes.values().sum::<u64>())
}

impl Lifecycle {
    pub(super) fn variant(self) -> String {
        format!("{} machines", self.machines)
    }

    /// `seconds` from the creation of the `MachineDeployment` until all of its machines are available; `writes` for each machine.
    /// Then `rest_writes` altogether while nothing happens, and the same as in the beginning for the deletion. CPU time and memory
    /// are those of creation and deletion.
    pub(super) async fn run(self, manager: Manager) -> Result<Values> {
        let mut bed = Bed::make(manager).await?;
        bed.cluster.post_in_memory().await.with_context(|| bed.words())?;
        sleep(SETTLES).await;
        let before = bed.used()?;
        let position = bed.cluster.control_plane().audit_position();
        let began = Instant::now();
        let done = bed.cluster.deploy_in_memory(self.machines).await.with_context(|| bed.words())?;
        let per_machine = |count: f64| count / number(self.machines);
        sleep(SETTLES).await;
        let made = bed.writes(position)?;
        let of_creation = bed.used()?;

        let position = bed.cluster.control_plane().audit_position();
        sleep(Duration::from_secs(60 * self.rest_minutes)).await;
        let rested = sum(&bed.writes(position)?);
        let of_rest = bed.used()?;

        let position = bed.cluster.control_plane().audit_position();
        let deleted = Instant::now();
        let gone = bed.cluster.delete_deployment().await.with_context(|| bed.words())?;
        let removed = bed.writes(position)?;
        let after = bed.used()?;
        let cpu = |values: &Values| values.get("cpu_seconds").copied().unwrap_or_default();
        let mut found = values([
            ("machines", number(self.machines)),
            ("seconds", (done - began).as_secs_f64()),
            ("writes", per_machine(sum(&made))),
            ("cpu_seconds", cpu(&of_creation) - cpu(&before)),
            ("peak_bytes", after.get("peak_bytes").copied().unwrap_or_default()),
            ("gone_seconds", (gone - deleted).as_secs_f64()),
            ("gone_writes", per_machine(sum(&removed))),
            ("gone_cpu_seconds", cpu(&after) - cpu(&of_rest)),
        ]);
        if self.rest_minutes > 0 {
            found.insert("rest_writes".to_owned(), rested);
        }
        for (prefix, writes) in [("made", &made), ("gone", &removed)] {
            for (what, count) in writes {
                found.insert(format!("{prefix} {what}"), per_machine(number(*count)));
            }
        }
        match bed.working {
            Working::Ours(process) => end(process)?,
            Working::ClusterApi => {}
        }
        Ok(found)
    }
}
