//! Libvirt machines that wait when the manager starts, and then their deletion.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use test_env::{Libvirtd, Process};
use tokio::time::sleep;

use super::{Cloud, Manager, Values, Working, number, used, values};
use crate::cluster::{Cluster, LIBVIRT_MACHINES};

/// Only the machine controller runs.
const ARGUMENTS: [&str; 2] = ["--leader-elect=false", "--controllers=machine-controller"];

/// Each of them is a libvirtd with libvirt's test driver.
const HYPERVISORS: usize = 5;

/// The pools of a hypervisor. The test driver's pools have 100 GiB, and count a disk at its full size.
const POOLS: usize = 10;

/// How long the counts of the calls take to come to the file, with a reserve.
const COUNTED: Duration = Duration::from_secs(1);

/// Many machines, all with what they need.
#[derive(Clone, Debug)]
pub(crate) struct Machines {
    pub(crate) machines: usize,
}

/// A libvirtd with an empty world of the test driver, which lives as long as somebody is connected.
struct Hypervisor {
    uri: String,
    _connected: Process,
    _libvirtd: Libvirtd,
}

impl Hypervisor {
    fn start(folder: &TempDir, number: usize) -> Result<Self> {
        let libvirtd = Libvirtd::start()?;
        let uri = libvirtd.test_driver_uri();
        let mut watch = Command::new("virsh");
        watch.args(["--connect", &uri, "event", "--all", "--loop"]);
        let log = folder.path().join(format!("virsh-{number}.log"));
        let connected = Process::spawn("virsh", &watch, log)?;
        // Once it is connected, the world stays.
        std::thread::sleep(Duration::from_secs(1));
        let mut script = "destroy test; undefine test".to_owned();
        for pool in 0..POOLS {
            let target = format!("/pool-{pool}");
            // a String takes everything
            let _ = write!(
                script,
                "; pool-define-as pool-{pool} dir --target {target}; pool-start pool-{pool}; \
                 vol-create-as pool-{pool} base 1M --format raw"
            );
        }
        let output = Command::new("virsh").args(["--quiet", "--connect", &uri, &script]).output()?;
        ensure!(output.status.success(), "virsh: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { uri, _connected: connected, _libvirtd: libvirtd })
    }
}

/// The hypervisors, and the configuration that names them.
struct Hypervisors {
    config: PathBuf,
    folder: TempDir,
    _started: Vec<Hypervisor>,
}

impl Hypervisors {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let started = (0..HYPERVISORS).map(|number| Hypervisor::start(&folder, number));
        let hypervisors = started.collect::<Result<Vec<_>>>()?;
        // 3 GiB of memory is what the test driver says that it has.
        let pools: Vec<_> = (0..POOLS).map(|pool| format!("pool-{pool}")).collect();
        let volumes: Vec<_> = pools.iter().map(|pool| format!("{{pool: {pool}}}")).collect();
        let mut text = format!(
            "machines: {{cpuOvercommit: 100, memoryOvercommit: 10, reservedMemoryMiB: 0, \
             allow: [{{imageVolumes: [{}], pools: [{}]}}]}}\n",
            volumes.join(", "),
            pools.join(", ")
        );
        text += "hypervisors:\n";
        for (number, hypervisor) in hypervisors.iter().enumerate() {
            // a String takes everything
            let _ = writeln!(text, "- {{name: kvm{number}, uri: '{}'}}", hypervisor.uri);
        }
        let config = folder.path().join("libvirt.yaml");
        fs::write(&config, text)?;
        Ok(Self { config, folder, _started: hypervisors })
    }

    fn cloud(&self) -> Cloud<'_> {
        Cloud::LibvirtTestDriver { config: &self.config }
    }

    /// The calls of libvirt so far, by operation, on each hypervisor.
    fn calls(&self) -> Result<BTreeMap<String, BTreeMap<String, f64>>> {
        let text = fs::read(self.folder.path().join("counts.json"))?;
        serde_json::from_slice(&text).context("calls by hypervisor and operation")
    }
}

fn sum(calls: &BTreeMap<String, f64>) -> f64 {
    calls.values().sum()
}

/// All calls, and those of the hypervisor with most.
fn totals(calls: &BTreeMap<String, BTreeMap<String, f64>>) -> (f64, f64) {
    let sums = || calls.values().map(sum);
    (sums().sum(), sums().fold(0.0, f64::max))
}

impl Machines {
    pub(super) fn variant(&self) -> String {
        format!("{} machines", self.machines)
    }

    /// `seconds` from the start of the process until every machine is provisioned; `writes` of its object and `events` for
    /// each machine; `calls` of libvirt for each machine, and `calls_of_one` hypervisor altogether. Then the same for the
    /// deletion.
    pub(super) async fn run(&self, manager: Manager) -> Result<Values> {
        let (cluster, hypervisors) = (Cluster::start().await?, Hypervisors::start()?);
        cluster.prepare_machines().await?;
        let spec = |number: usize| {
            let pool = format!("pool-{}", number % POOLS);
            json!({
                "vcpus": 1, "memoryMiB": 64, "image": {"volume": {"name": "base"}, "format": "raw"},
                "disks": [{"sizeGiB": 1, "pool": pool}],
            })
        };
        cluster.post_machines(self.machines, spec).await?;
        let per_machine = |count: f64| count / number(self.machines);
        let (writes, events) = self.written(&cluster).await?;
        let began = Instant::now();
        let working = Working::start(manager, &cluster, hypervisors.cloud(), &ARGUMENTS)?;
        let done = cluster.all_provisioned(self.machines).await?;
        let of_process = used(&working.process)?;
        sleep(COUNTED).await;
        let (made, (written, told)) = (hypervisors.calls()?, self.written(&cluster).await?);
        let (calls, of_one) = totals(&made);
        let mut found = values([
            ("machines", number(self.machines)),
            ("nodes", number(self.machines)),
            ("seconds", (done - began).as_secs_f64()),
            ("writes", per_machine(written - writes)),
            ("events", per_machine(told - events)),
            ("calls", per_machine(calls)),
            ("calls_of_one", of_one),
        ]);
        found.extend(of_process);
        for (operation, count) in by_operation(&made) {
            found.insert(format!("call_{operation}"), per_machine(count));
        }
        let began = Instant::now();
        let gone = cluster.delete_machines(self.machines).await?;
        sleep(COUNTED).await;
        let after = hypervisors.calls()?;
        let removed = totals(&after).0 - calls;
        let (written_later, _) = self.written(&cluster).await?;
        found.extend(values([
            ("gone_seconds", (gone - began).as_secs_f64()),
            ("gone_writes", per_machine(written_later - written)),
            ("gone_calls", per_machine(removed)),
        ]));
        working.end()?;
        Ok(found)
    }

    /// The changes of machines' objects and the events that the API server has counted so far.
    async fn written(&self, cluster: &Cluster) -> Result<(f64, f64)> {
        Ok((cluster.changes_of(LIBVIRT_MACHINES).await?, cluster.posts_of("events").await?))
    }
}

fn by_operation(calls: &BTreeMap<String, BTreeMap<String, f64>>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (operation, count) in calls.values().flatten() {
        *sums.entry(operation.clone()).or_default() += count;
    }
    sums
}
