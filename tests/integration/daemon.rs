//! The daemon under test: in this process with any client, or the binary as a separate process.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, bail};
use ccm::{
    daemon::{Parts, ProviderParts, run_controllers, run_elected},
    flags::{self, Flags},
    leader_election::ElectionMetrics,
    metrics::{MetricSet, Metrics},
};
use cloudprovider::{CloudProvider, Registry};
use controller_kit::clients::Clients;
use kube::Client;
use test_env::{ClusterApi, PATIENCE, Process, Signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The daemon's real code, running in this process.
pub(crate) struct InProcess {
    pub(crate) metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl InProcess {
    /// Starts the controllers with these flags.
    pub(crate) fn start(
        client: &Client,
        provider: Arc<dyn CloudProvider>,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        Self::run(client, provider, arguments, false)
    }

    /// Starts one of several candidates for leadership.
    pub(crate) fn start_elected(
        client: &Client,
        provider: Arc<dyn CloudProvider>,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        Self::run(client, provider, arguments, true)
    }

    /// Starts the controllers with these parts.
    pub(crate) fn start_parts(parts: Parts, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::run_parts(parts, arguments, false)
    }

    fn run(
        client: &Client,
        provider: Arc<dyn CloudProvider>,
        arguments: &[&str],
        elect: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self::with(parse(arguments)?, Parts::new(client.clone(), provider)?, elect))
    }

    /// Starts a daemon whose provider is made from `--cloud-config`, and which follows changes of that file.
    pub(crate) fn start_configured(
        client: &Client,
        registry: &Registry,
        arguments: &[&str],
        elect: bool,
    ) -> anyhow::Result<Self> {
        let flags = parse(arguments)?;
        let parts = Parts {
            provider: ProviderParts::of_cloud_provider(&flags, registry)?,
            machine_providers: ProviderParts::of_machines(&flags, registry)?,
            ..Parts::without_provider(Clients::same(client))?
        };
        Ok(Self::with(flags, parts, elect))
    }

    /// Starts the controllers with these parts, with or without an election.
    pub(crate) fn run_parts(parts: Parts, arguments: &[&str], elect: bool) -> anyhow::Result<Self> {
        Ok(Self::with(parse(arguments)?, parts, elect))
    }

    fn with(flags: Flags, parts: Parts, elect: bool) -> Self {
        let stop = CancellationToken::new();
        let metrics = parts.metrics.clone();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                if elect {
                    Box::pin(run_elected(&flags, parts, stop)).await
                } else {
                    Box::pin(run_controllers(&flags, parts, stop)).await
                }
            }
        });
        Self { metrics, stop, task }
    }

    /// The metrics of one part of it.
    pub(crate) fn counted<M: MetricSet>(&self) -> M {
        self.metrics.get().expect("no name twice")
    }

    /// Whether it reports that it leads.
    pub(crate) fn leads(&self) -> bool {
        let gauge = self.counted::<ElectionMetrics>().leader_election_master_status;
        gauge.with_label_values(&["cloud-controller-manager"]).get() == 1
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        self.task.await?
    }

    /// Ends it as SIGKILL would.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Stops it as SIGTERM would, and waits.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

/// Parses flags, for a daemon with the test's cloud.
pub(crate) fn parse(arguments: &[&str]) -> anyhow::Result<Flags> {
    let all = ["cloud-controller-manager", "--cloud-provider=test"].iter().chain(arguments);
    Ok(flags::parse(all.map(|argument| (*argument).to_owned()))?)
}

/// The binary: that in `CCM_BINARY`, or one built by cargo.
pub(crate) fn binary() -> anyhow::Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BINARY.get_or_init(|| match std::env::var_os("CCM_BINARY") {
        Some(path) => Ok(path.into()),
        None => build().map_err(|error| format!("{error:#}")),
    });
    built.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

/// Cargo passes the path of a binary only to tests of its own package; other tests have to ask for it.
fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package=cloud-controller-manager",
            "--bin=cloud-controller-manager",
            "--message-format=json",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .context("cargo does not start")?;
    if !output.status.success() {
        bail!("the binary does not build: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo does not say where the binary is")
}

/// A term of leadership that ends by itself after the test alone: on a machine with much else to do, the API server may answer a
/// renewal later than the default term allows.
pub(crate) const LONG_TERM: [&str; 2] =
    ["--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=50m"];

/// The binary as a process, stopped when dropped.
pub(crate) struct DaemonProcess {
    process: Process,
    log: PathBuf,
}

impl DaemonProcess {
    /// Starts it with its log in `log`.
    pub(crate) fn start(arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        Self::run(Command::new(binary()?), arguments, log)
    }

    /// The same in the network of these managers.
    pub(crate) fn start_beside(
        managers: &ClusterApi,
        arguments: &[String],
        log: &Path,
    ) -> anyhow::Result<Self> {
        Self::run(managers.beside(binary()?), arguments, log)
    }

    fn run(mut command: Command, arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        command.args(arguments);
        // Only one of several daemons on a machine could use the default port.
        if !arguments.iter().any(|argument| argument.starts_with("--secure-port")) {
            command.arg("--secure-port=0");
        }
        Ok(Self { process: Process::spawn("cloud-controller-manager", &command, log)?, log: log.to_owned() })
    }

    /// The process, to freeze or kill it.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its peak memory so far, in MiB.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        peak_memory(self.process.id())
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it ends by itself, and returns its exit code.
    pub(crate) fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<i32>> {
        Ok(self.process.wait(limit.max(PATIENCE))?.code())
    }

    /// Stops it as Kubernetes does, and expects success.
    pub(crate) fn terminate(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::Term)?;
        let status = self.process.wait(PATIENCE)?;
        if !status.success() {
            bail!("after SIGTERM the daemon ended with {status}; its log: {}", self.log());
        }
        Ok(())
    }
}

/// The peak memory of a process in MiB.
pub(crate) fn peak_memory(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024)
}
