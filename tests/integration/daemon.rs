//! The daemon under test: in this process over any client, or the binary as a process of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, bail};
use ccm::{
    cloud_config::CloudConfig,
    daemon::{Parts, run_controllers, run_elected},
    files::FilesRead,
    flags::{self, Flags},
    leader_election::ElectionMetrics,
    metrics::{MetricSet, Metrics},
};
use cloudprovider::{CloudProvider, Registry};
use kube::Client;
use test_env::{Process, Signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The daemon's real code in this process.
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

    /// Starts one of several that elect a leader.
    pub(crate) fn start_elected(
        client: &Client,
        provider: Arc<dyn CloudProvider>,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        Self::run(client, provider, arguments, true)
    }

    /// Starts the controllers over these parts.
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

    /// Starts one whose provider is made from `--cloud-config`, which it follows.
    pub(crate) fn start_configured(
        client: &Client,
        registry: &Registry,
        arguments: &[&str],
        elect: bool,
    ) -> anyhow::Result<Self> {
        let flags = parse(arguments)?;
        let (config, files) = (CloudConfig::new(&flags, registry), FilesRead::new());
        let provider = config.create(&files)?;
        let parts = Parts { cloud_config: Some((config, files)), ..Parts::new(client.clone(), provider)? };
        Ok(Self::with(flags, parts, elect))
    }

    /// The same, elected or not.
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

    /// What one part of it counts.
    pub(crate) fn counted<M: MetricSet>(&self) -> M {
        self.metrics.get().expect("no name twice")
    }

    /// Whether it says that it leads.
    pub(crate) fn leads(&self) -> bool {
        let gauge = self.counted::<ElectionMetrics>().leader_election_master_status;
        gauge.with_label_values(&["cloud-controller-manager"]).get() == 1
    }

    /// Waits for an end that nobody asked for.
    pub(crate) async fn ended(self) -> anyhow::Result<()> {
        self.task.await?
    }

    /// Ends it as SIGKILL does.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Stops it as SIGTERM does, and waits.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

/// The flags of a daemon with a cloud of the test's.
pub(crate) fn parse(arguments: &[&str]) -> anyhow::Result<Flags> {
    let all = ["cloud-controller-manager", "--cloud-provider=test"].iter().chain(arguments);
    Ok(flags::parse(all.map(|argument| (*argument).to_owned()))?)
}

/// The binary: the one that `CCM_BINARY` names, or built now as cargo builds it.
pub(crate) fn binary() -> anyhow::Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BINARY.get_or_init(|| match std::env::var_os("CCM_BINARY") {
        Some(path) => Ok(path.into()),
        None => build().map_err(|error| format!("{error:#}")),
    });
    built.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

/// Cargo hands the path of a binary to the tests of its own package only; elsewhere it has to be asked for.
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

/// The binary as a process, stopped when dropped.
pub(crate) struct DaemonProcess {
    process: Process,
    log: PathBuf,
}

impl DaemonProcess {
    /// Starts it; its log goes to `log`.
    pub(crate) fn start(arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(binary()?);
        command.args(arguments);
        // Of several daemons on one machine only one could have the usual port.
        if !arguments.iter().any(|argument| argument.starts_with("--secure-port")) {
            command.arg("--secure-port=0");
        }
        Ok(Self { process: Process::spawn("cloud-controller-manager", &command, log)?, log: log.to_owned() })
    }

    /// The process, to be frozen or killed.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for an end that nobody asked for, and gives its exit code.
    pub(crate) fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<i32>> {
        Ok(self.process.wait(limit)?.code())
    }

    /// Stops it as Kubernetes does, and expects it to end well.
    pub(crate) fn terminate(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::Term)?;
        let status = self.process.wait(Duration::from_secs(15))?;
        if !status.success() {
            bail!("after SIGTERM the daemon ended with {status}; its log: {}", self.log());
        }
        Ok(())
    }
}
