//! Cluster API's own managers, on a control plane of the tests.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::PATIENCE;
use crate::error::need_programs;
use crate::network::Netns;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::{ControlPlane, StartError, built, keys};

mod manifests;

/// One of Cluster API's managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterApiManager {
    /// The owner of Clusters, Machines, their sets, deployments and health checks.
    Core,
    /// Makes the bootstrap data of machines that join with kubeadm.
    KubeadmBootstrap,
    /// Makes the machines of control planes that kubeadm sets up.
    KubeadmControlPlane,
    /// Another author's provider: the machines of `DevMachine`s and the API servers of `DevCluster`s are in its memory.
    InMemory,
}

impl ClusterApiManager {
    /// Those of a release, in the order in which they depend on each other.
    pub const ALL: [Self; 3] = [Self::Core, Self::KubeadmBootstrap, Self::KubeadmControlPlane];

    fn program(self) -> &'static str {
        match self {
            Self::Core => "core-manager",
            Self::KubeadmBootstrap => "kubeadm-bootstrap-manager",
            Self::KubeadmControlPlane => "kubeadm-control-plane-manager",
            Self::InMemory => "in-memory-manager",
        }
    }

    /// The folder with its program and, in `providers`, its release.
    fn folder(self) -> Result<PathBuf, StartError> {
        match self {
            Self::Core | Self::KubeadmBootstrap | Self::KubeadmControlPlane => built("cluster-api"),
            Self::InMemory => built("in-memory"),
        }
    }

    /// Its name as clusterctl's label has it, and as its folder in [`ClusterApiPrograms::providers`] is called.
    pub fn provider(self) -> &'static str {
        match self {
            Self::Core => "cluster-api",
            Self::KubeadmBootstrap => "bootstrap-kubeadm",
            Self::KubeadmControlPlane => "control-plane-kubeadm",
            Self::InMemory => "infrastructure-docker",
        }
    }

    /// The file with all of its objects.
    pub fn components(self) -> &'static str {
        match self {
            Self::Core => "core-components.yaml",
            Self::KubeadmBootstrap => "bootstrap-components.yaml",
            Self::KubeadmControlPlane => "control-plane-components.yaml",
            Self::InMemory => "infrastructure-components.yaml",
        }
    }

    fn namespace(self) -> &'static str {
        match self {
            Self::Core => "capi-system",
            Self::KubeadmBootstrap => "capi-kubeadm-bootstrap-system",
            Self::KubeadmControlPlane => "capi-kubeadm-control-plane-system",
            Self::InMemory => "capd-system",
        }
    }

    fn service_account(self) -> &'static str {
        match self {
            Self::Core => "capi-manager",
            Self::KubeadmBootstrap => "capi-kubeadm-bootstrap-manager",
            Self::KubeadmControlPlane => "capi-kubeadm-control-plane-manager",
            Self::InMemory => "capd-manager",
        }
    }

    /// Its user name, as RBAC and the audit log have it.
    pub fn user(self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace(), self.service_account())
    }

    /// Ports in the network namespace that the managers share.
    fn ports(self) -> Ports {
        let first = match self {
            Self::Core => 9440,
            Self::KubeadmBootstrap => 9450,
            Self::KubeadmControlPlane => 9460,
            Self::InMemory => 9470,
        };
        Ports { health: first, diagnostics: first + 1, webhooks: first + 3 }
    }
}

struct Ports {
    health: u16,
    diagnostics: u16,
    webhooks: u16,
}

/// Runs the program `$0` where the file is that tells a pod its namespace: the managers look for their Leases there.
const IN_CLUSTER: &str = "
mount -t tmpfs none /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
printf %s \"$POD_NAMESPACE\" >/run/secrets/kubernetes.io/serviceaccount/namespace
exec \"$0\" \"$@\"
";

/// Leases that expire soon.
const ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=20s",
    "--leader-elect-renew-deadline=15s",
    "--leader-elect-retry-period=1s",
];

/// What a release of Cluster API consists of.
#[derive(Debug, Clone)]
pub struct ClusterApiPrograms {
    folder: PathBuf,
}

impl ClusterApiPrograms {
    /// Those of the cache folder. They are built if they are missing, which takes two minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot build them.
    pub fn find() -> Result<Self, StartError> {
        Ok(Self { folder: built("cluster-api")? })
    }

    /// The command-line tool.
    pub fn clusterctl(&self) -> PathBuf {
        self.folder.join("clusterctl")
    }

    /// The folder with the providers, laid out as clusterctl's local repositories are:
    /// `PROVIDER/VERSION/FILE`.
    pub fn providers(&self) -> PathBuf {
        self.folder.join("providers")
    }

    /// The folder with the rollouts that the core manager's planner was recorded with: `rollingupdate` and `ondelete`.
    pub fn rollouts(&self) -> PathBuf {
        self.folder.join("rollouts")
    }

    /// The version of all of them, such as `v1.14.2`.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn version(&self) -> Result<String> {
        let folder = self.providers().join(ClusterApiManager::Core.provider());
        let version = fs::read_dir(&folder)?.next().context("no version of Cluster API")??;
        Ok(version.file_name().to_string_lossy().into_owned())
    }

    /// The file with all objects of a manager.
    ///
    /// # Errors
    /// If the folder cannot be read, or the manager of another author cannot be built.
    pub fn components(&self, manager: ClusterApiManager) -> Result<PathBuf, StartError> {
        let releases = manager.folder()?.join("providers").join(manager.provider());
        // Another author's provider has the version of the release.
        Ok(releases.join(self.version()?).join(manager.components()))
    }

    /// The file with the kinds of cert-manager that the objects need.
    pub fn cert_manager() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster-api/cert-manager.yaml")
    }
}

/// Cluster API's managers as processes, each as its service account with the roles of the release. Stopped and
/// removed when dropped; their objects stay.
///
/// They are in a network namespace of their own, since their webhooks listen on all addresses. Their API server
/// is reachable there, and other servers only after [`reach`](Self::reach).
///
/// The API server calls their webhooks, so objects are defaulted, validated and converted as in any cluster.
/// There is no cert-manager: certificates are made here. There is no kube-controller-manager: its aggregation of
/// roles is done once, at the start.
#[derive(Debug)]
pub struct ClusterApi {
    // Fields drop in this order: the processes before their network and their folder
    managers: Vec<Running>,
    netns: Netns,
    scratch: Scratch,
}

#[derive(Debug)]
struct Running {
    manager: ClusterApiManager,
    command: Command,
    process: Process,
}

impl ClusterApi {
    /// Installs these managers with their definitions, roles and webhooks, starts them, and waits up to 60 s for
    /// each until it is ready. If the programs are not in the cache, they are built first, which takes two
    /// minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the programs, [`StartError::Failed`] if a manager
    /// does not become ready.
    pub fn start(control_plane: &ControlPlane, managers: &[ClusterApiManager]) -> Result<Self, StartError> {
        install(control_plane, managers)?;
        Self::start_installed(control_plane, managers)
    }

    /// The same with managers that work only while they hold their Leases, as the release's Deployments run them. A candidate
    /// waits until a Lease has expired: they release none.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_elected(
        control_plane: &ControlPlane,
        managers: &[ClusterApiManager],
    ) -> Result<Self, StartError> {
        install(control_plane, managers)?;
        Self::run(control_plane, managers, |_| &[], true)
    }

    /// The same for managers whose objects are there already, for example through `clusterctl init`. They have the
    /// feature gates that their Deployments say.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_installed(
        control_plane: &ControlPlane,
        managers: &[ClusterApiManager],
    ) -> Result<Self, StartError> {
        Self::run(control_plane, managers, |_| &[], false)
    }

    /// The same with further arguments, which each manager gets by itself.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        control_plane: &ControlPlane,
        managers: &[ClusterApiManager],
        arguments: fn(ClusterApiManager) -> &'static [&'static str],
    ) -> Result<Self, StartError> {
        install(control_plane, managers)?;
        Self::run(control_plane, managers, arguments, false)
    }

    fn run(
        control_plane: &ControlPlane,
        managers: &[ClusterApiManager],
        arguments: fn(ClusterApiManager) -> &'static [&'static str],
        is_elected: bool,
    ) -> Result<Self, StartError> {
        need_programs(&["openssl", "setpriv", "curl"])?;
        let scratch = Scratch::new("capi")?;
        keys::server(&scratch, &[])?;
        let certificates = scratch.make("certificates")?;
        for (file, name) in [("server.crt", "tls.crt"), ("server.key", "tls.key")] {
            fs::copy(scratch.join(file), certificates.join(name))?;
        }

        let netns = Netns::new("cluster-api")?;
        netns.relay(control_plane.port())?;
        for manager in managers {
            let port = netns.expose(manager.ports().webhooks)?;
            manifests::lead_webhooks_to(control_plane, &scratch, manager.provider(), port)?;
        }
        manifests::aggregate_roles(control_plane, &scratch)?;

        let mut started = Self { managers: Vec::new(), netns, scratch };
        for manager in managers {
            let command =
                started.command(*manager, control_plane, &certificates, arguments(*manager), is_elected)?;
            let log = started.scratch.join(format!("{}.log", manager.program()));
            let process = Process::spawn(manager.program(), &command, log)?;
            started.managers.push(Running { manager: *manager, command, process });
        }
        for running in &mut started.managers {
            running.wait_until_ready(&started.netns)?;
        }
        Ok(started)
    }

    fn command(
        &self,
        manager: ClusterApiManager,
        control_plane: &ControlPlane,
        certificates: &Path,
        arguments: &[&str],
        is_elected: bool,
    ) -> Result<Command, StartError> {
        let kubeconfig =
            control_plane.kubeconfig_for_service_account(manager.namespace(), manager.service_account())?;
        let ports = manager.ports();
        let program = manager.folder()?.join(manager.program());
        let mut command = if is_elected {
            let mut shell = self.netns.command("unshare");
            shell.args(["--mount", "--", "sh", "-ec", IN_CLUSTER]).arg(program);
            shell
        } else {
            self.netns.command(program)
        };
        if is_elected {
            command.args(ELECTION);
        }
        command
            .args(manifests::feature_gates(control_plane, manager.namespace())?)
            .env("POD_NAMESPACE", manager.namespace())
            .env("POD_NAME", manager.program())
            .env("POD_UID", manager.program())
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--webhook-cert-dir={}", certificates.display()))
            .arg(format!("--webhook-port={}", ports.webhooks))
            .arg(format!("--health-addr=127.0.0.1:{}", ports.health))
            .arg(format!("--diagnostics-address=127.0.0.1:{}", ports.diagnostics))
            .arg("--insecure-diagnostics")
            .args(arguments);
        if manager == ClusterApiManager::InMemory {
            // The API servers of its clusters listen there.
            command.env("POD_IP", "127.0.0.1");
        }
        Ok(command)
    }

    /// A command that runs `program` in the network of the managers, where the API servers of [`ClusterApiManager::InMemory`] are.
    pub fn beside(&self, program: impl AsRef<OsStr>) -> Command {
        self.netns.command(program)
    }

    /// The process of a manager, to see what it uses.
    ///
    /// # Errors
    /// If it was not started.
    pub fn process(&mut self, manager: ClusterApiManager) -> Result<&mut Process> {
        Ok(&mut self.running(manager)?.process)
    }

    /// Makes the API server of another control plane reachable for the managers, under the address of its own
    /// kubeconfig: that of a workload cluster.
    ///
    /// # Errors
    /// If the relay does not start.
    pub fn reach(&self, control_plane: &ControlPlane) -> Result<()> {
        self.netns.relay(control_plane.port())
    }

    /// The log of a manager so far. Empty if it was not started.
    pub fn log(&self, manager: ClusterApiManager) -> String {
        let running = self.managers.iter().find(|running| running.manager == manager);
        running.and_then(|running| fs::read_to_string(running.process.log()).ok()).unwrap_or_default()
    }

    /// Whether a manager runs. One that loses its Lease ends.
    ///
    /// # Errors
    /// If it was not started.
    pub fn is_running(&mut self, manager: ClusterApiManager) -> Result<bool> {
        Ok(self.running(manager)?.process.is_running())
    }

    /// Kills a manager. The others go on.
    ///
    /// # Errors
    /// If it was not started or cannot be killed.
    pub fn kill(&mut self, manager: ClusterApiManager) -> Result<()> {
        self.running(manager)?.process.kill().map(drop)
    }

    /// Stops a manager. The others go on.
    ///
    /// # Errors
    /// If it was not started or cannot be stopped.
    pub fn stop(&mut self, manager: ClusterApiManager) -> Result<()> {
        self.running(manager)?.process.stop().map(drop)
    }

    /// Starts a stopped manager again and waits until it is ready.
    ///
    /// # Errors
    /// If it was not started before, or is not ready within [`PATIENCE`].
    pub fn start_again(&mut self, manager: ClusterApiManager) -> Result<()> {
        let place = self.managers.iter().position(|running| running.manager == manager);
        let running = place.and_then(|place| self.managers.get_mut(place)).context("it never ran")?;
        running.process = Process::spawn(manager.program(), &running.command, running.process.log())?;
        running.wait_until_ready(&self.netns)
    }

    fn running(&mut self, manager: ClusterApiManager) -> Result<&mut Running> {
        let name = manager.program();
        let running = self.managers.iter_mut().find(|running| running.manager == manager);
        running.with_context(|| format!("{name} was not started"))
    }
}

/// Applies the objects of these managers.
fn install(control_plane: &ControlPlane, managers: &[ClusterApiManager]) -> Result<(), StartError> {
    let programs = ClusterApiPrograms::find()?;
    manifests::install(control_plane, &ClusterApiPrograms::cert_manager())?;
    for manager in managers {
        manifests::install(control_plane, &programs.components(*manager)?)?;
    }
    Ok(())
}

impl Running {
    /// The manager is ready when its webhooks answer.
    fn wait_until_ready(&mut self, netns: &Netns) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.manager.ports().health);
        self.process.wait_until(PATIENCE, || {
            let mut curl = netns.command("curl");
            curl.args(["--silent", "--fail", "--noproxy", "*", "--max-time", "20", &url]);
            curl.output().is_ok_and(|output| output.status.success())
        })
    }
}
