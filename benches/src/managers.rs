//! The programs that are compared.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::json;
use test_env::{ClusterApiManager, FrameworkCcm, Process, Signal, built};

/// A program that initialises Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// This project's daemon at its defaults.
    Ours,
    /// The Go framework at its defaults.
    GoDefaults,
    /// The Go framework at its best flags: 64 workers, no client throttle.
    GoBest,
    /// The minimal client that writes the same patches or, with the argument `watch`, receives the same
    /// watch.
    Floor,
    /// vSphere's own manager (CPI) at its defaults.
    CpiDefaults,
    /// CPI at its best flags.
    CpiBest,
    /// Cluster API Provider vSphere (CAPV) at its defaults.
    CapvDefaults,
    /// CAPV at its best flags: no client throttle.
    CapvBest,
    /// Cluster API's core and kubeadm bootstrap manager at their defaults.
    ClusterApiDefaults,
    /// The same at their best flags: more workers, no client throttle.
    ClusterApiBest,
}

/// The cloud that a manager works with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cloud<'a> {
    /// A cloud with an instance for each Node, which takes this many milliseconds for an answer.
    Ideal { delay_millis: u64 },
    /// The same with load balancers and routes. It writes how often it was called into the file [`COUNTS`].
    Networks { delay_millis: u64 },
    /// The vCenter that this configuration file names.
    Vsphere { config: &'a Path },
    /// The hypervisors that this configuration file names, all of libvirt's test driver. How often each operation was called
    /// is written into `counts.json` beside the file.
    LibvirtTestDriver { config: &'a Path },
}

/// Where the cloud writes how often each operation of load balancers and routes was called, in the manager's folder.
pub(crate) const COUNTS: &str = "counts.json";

/// As many connections as the daemon uses at most for its writes.
const FLOOR_CONNECTIONS: &str = "32";

/// The flags with which Go's managers are fastest: as many workers as make a difference, and no throttle in
/// the client.
const BEST_FLAGS: [&str; 4] = [
    "--concurrent-node-syncs=64",
    "--concurrent-service-syncs=64",
    "--kube-api-qps=100000",
    "--kube-api-burst=100000",
];

/// The provider of the machines is the same beside each manager, and waits for nothing.
const OF_IN_MEMORY: &[&str] = &["--kube-api-qps=1000", "--kube-api-burst=2000"];

/// A flag that only the framework of 1.37 has.
const BEST_FLAG_OF_GO: &str = "--concurrent-node-lifecycle-syncs=64";

impl Manager {
    /// In the order of the report.
    pub(crate) const ALL: [Self; 10] = [
        Self::Ours,
        Self::Floor,
        Self::GoBest,
        Self::GoDefaults,
        Self::CpiBest,
        Self::CpiDefaults,
        Self::CapvBest,
        Self::CapvDefaults,
        Self::ClusterApiBest,
        Self::ClusterApiDefaults,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::GoDefaults => "Go, defaults",
            Self::GoBest => "Go, best flags",
            Self::Floor => "floor",
            Self::CpiDefaults => "CPI, defaults",
            Self::CpiBest => "CPI, best flags",
            Self::CapvDefaults => "CAPV, defaults",
            Self::CapvBest => "CAPV, best flags",
            Self::ClusterApiDefaults => "Cluster API, defaults",
            Self::ClusterApiBest => "Cluster API, best flags",
        }
    }

    /// Its binary with only the ideal cloud.
    pub(crate) fn program(self) -> Result<PathBuf> {
        self.program_for(Cloud::Ideal { delay_millis: 0 })
    }

    fn program_for(self, cloud: Cloud<'_>) -> Result<PathBuf> {
        match (self, cloud) {
            (Self::Ours, Cloud::Ideal { .. } | Cloud::Networks { .. }) => beside_this_program("ideal"),
            (Self::Ours, Cloud::Vsphere { .. }) => beside_this_program("cloud-controller-manager"),
            (Self::Ours, Cloud::LibvirtTestDriver { .. }) => beside_this_program("libvirt_test_driver"),
            (Self::Floor, _) => beside_this_program("floor"),
            (Self::GoDefaults | Self::GoBest, _) => Ok(FrameworkCcm::program()?),
            (Self::CpiDefaults | Self::CpiBest, _) => {
                Ok(built("cpi")?.join("vsphere-cloud-controller-manager"))
            }
            (Self::CapvDefaults | Self::CapvBest | Self::ClusterApiDefaults | Self::ClusterApiBest, _) => {
                anyhow::bail!("{} is started in another way", self.name())
            }
        }
    }

    /// The daemon's binary with all of its providers.
    pub(crate) fn program_with_machines(self) -> Result<PathBuf> {
        self.program_for(Cloud::Vsphere { config: Path::new("") })
    }

    /// The flags with which CAPV is started. More workers only add conflicts.
    pub(crate) fn flags_of_capv(self) -> &'static [&'static str] {
        match self {
            Self::CapvBest => &["--kube-api-qps=1000", "--kube-api-burst=2000"],
            _ => &[],
        }
    }

    /// The flags with which Cluster API's managers are started.
    pub(crate) fn flags_of_cluster_api(self) -> fn(ClusterApiManager) -> &'static [&'static str] {
        match self {
            Self::ClusterApiBest => |manager| match manager {
                ClusterApiManager::Core => &[
                    "--kube-api-qps=1000",
                    "--kube-api-burst=2000",
                    "--clustercache-client-qps=1000",
                    "--clustercache-client-burst=2000",
                    "--machine-concurrency=50",
                    "--machineset-concurrency=50",
                ],
                ClusterApiManager::KubeadmBootstrap => &[
                    "--kube-api-qps=1000",
                    "--kube-api-burst=2000",
                    "--clustercache-client-qps=1000",
                    "--clustercache-client-burst=2000",
                    "--kubeadmconfig-concurrency=50",
                ],
                _ => OF_IN_MEMORY,
            },
            _ => |manager| match manager {
                ClusterApiManager::InMemory => OF_IN_MEMORY,
                _ => &[],
            },
        }
    }

    /// Starts it. `arguments` come last.
    pub(crate) fn start(self, setup: &Setup<'_>, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(self.program_for(setup.cloud)?);
        let kubeconfig = setup.kubeconfig.display();
        if self == Self::Floor {
            command.arg(kubeconfig.to_string());
            if arguments.is_empty() {
                command.arg(FLOOR_CONNECTIONS);
            }
        } else {
            let (provider, config) = match setup.cloud {
                Cloud::Ideal { delay_millis } => {
                    let path = setup.folder.join("cloud.json");
                    std::fs::write(&path, format!("{{\"delayMillis\": {delay_millis}}}"))?;
                    ("ideal", path)
                }
                Cloud::Networks { delay_millis } => {
                    let path = setup.folder.join("cloud.json");
                    let counts = setup.folder.join(COUNTS);
                    let config = json!({"delayMillis": delay_millis, "networks": true, "counts": counts});
                    std::fs::write(&path, config.to_string())?;
                    ("ideal", path)
                }
                Cloud::Vsphere { config } => ("vsphere", config.to_owned()),
                Cloud::LibvirtTestDriver { config } => ("libvirt", config.to_owned()),
            };
            command
                .arg(format!("--cloud-provider={provider}"))
                .arg(format!("--cloud-config={}", config.display()))
                .arg(format!("--kubeconfig={kubeconfig}"))
                .arg(format!("--authentication-kubeconfig={kubeconfig}"))
                .arg(format!("--authorization-kubeconfig={kubeconfig}"))
                .arg("--authentication-tolerate-lookup-failure=true")
                .args(["--bind-address=127.0.0.1", &format!("--secure-port={}", setup.port)]);
            if matches!(self, Self::GoBest | Self::CpiBest) {
                command.args(BEST_FLAGS);
            }
            if self == Self::GoBest {
                command.arg(BEST_FLAG_OF_GO);
            }
        }
        command.args(arguments);
        let log = format!("{}-{}.log", self.name().replace([' ', ','], ""), setup.port);
        Process::spawn(self.name(), &command, setup.folder.join(log))
    }
}

/// What a manager is started with.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) kubeconfig: &'a Path,
    pub(crate) cloud: Cloud<'a>,
    /// For its files and its log.
    pub(crate) folder: &'a Path,
    /// Where it serves, on 127.0.0.1.
    pub(crate) port: u16,
}

/// Ends the process without waiting for an orderly stop.
pub(crate) fn end(mut process: Process) -> Result<()> {
    process.signal(Signal::Kill)?;
    process.kill().map(drop)
}

fn beside_this_program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.parent().context("a folder")?.join(name);
    anyhow::ensure!(path.exists(), "{} is not there: run `make bench`, which builds it", path.display());
    Ok(path)
}
