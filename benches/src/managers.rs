//! Who is compared.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use test_env::{FrameworkCcm, Process, Signal};

/// Somebody who initialises Nodes of the ideal cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// This project's daemon at its defaults.
    Ours,
    /// The Go framework at its defaults.
    GoDefaults,
    /// The Go framework at its best flags: 64 workers, no client throttle.
    GoBest,
    /// The least client that can write the same patches.
    Floor,
}

/// A connection each, as the daemon writes at most.
const FLOOR_CONNECTIONS: &str = "64";

impl Manager {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::GoDefaults => "Go, defaults",
            Self::GoBest => "Go, best flags",
            Self::Floor => "floor",
        }
    }

    /// Its binary.
    pub(crate) fn program(self) -> Result<PathBuf> {
        match self {
            Self::Ours => beside_this_program("ideal"),
            Self::Floor => beside_this_program("floor"),
            Self::GoDefaults | Self::GoBest => Ok(FrameworkCcm::program()?),
        }
    }

    /// Starts it. `arguments` come last.
    pub(crate) fn start(self, setup: &Setup<'_>, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(self.program()?);
        let kubeconfig = setup.kubeconfig.display();
        if self == Self::Floor {
            command.args([kubeconfig.to_string(), FLOOR_CONNECTIONS.to_owned()]);
        } else {
            let cloud = setup.folder.join("cloud.json");
            std::fs::write(&cloud, format!("{{\"delayMillis\": {}}}", setup.delay_millis))?;
            command
                .args(["--cloud-provider=ideal", &format!("--cloud-config={}", cloud.display())])
                .arg(format!("--kubeconfig={kubeconfig}"))
                .arg(format!("--authentication-kubeconfig={kubeconfig}"))
                .arg(format!("--authorization-kubeconfig={kubeconfig}"))
                .arg("--authentication-tolerate-lookup-failure=true")
                .args(["--bind-address=127.0.0.1", &format!("--secure-port={}", setup.port)]);
            if self == Self::GoBest {
                command.args([
                    "--concurrent-node-syncs=64",
                    "--kube-api-qps=100000",
                    "--kube-api-burst=100000",
                ]);
            }
        }
        command.args(arguments);
        let log = format!("{}-{}.log", self.name().replace([' ', ','], ""), setup.port);
        Process::spawn(self.name(), &command, setup.folder.join(log))
    }
}

/// What a [`Manager`] is started with.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) kubeconfig: &'a Path,
    /// For its files and its log.
    pub(crate) folder: &'a Path,
    /// How long the cloud takes for an answer.
    pub(crate) delay_millis: u64,
    /// Where it serves, on 127.0.0.1.
    pub(crate) port: u16,
}

/// Ends it without waiting for what it would still like to do.
pub(crate) fn end(mut process: Process) -> Result<()> {
    process.signal(Signal::Kill)?;
    process.kill().map(drop)
}

fn beside_this_program(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.parent().context("a folder")?.join(name);
    anyhow::ensure!(path.exists(), "{} is not there: run `make bench`, which builds it", path.display());
    Ok(path)
}
