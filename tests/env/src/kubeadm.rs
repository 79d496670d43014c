//! A cluster that virtual machines join: what kubeadm leaves in it, the controllers of Kubernetes, and the image of its
//! machines.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::PATIENCE;
use crate::ports::free_port;
use crate::process::{Process, run};
use crate::scratch::Scratch;
use crate::{ControlPlane, ControlPlaneOptions, Libvirtd, StartError, built};

/// A control plane that virtual machines of a [`Libvirtd`] join with `kubeadm join`. kube-controller-manager runs with
/// all its controllers, among others those that sign a kubelet's certificate and those that say which Nodes are alive,
/// and kube-scheduler binds pods. Stopped when dropped.
///
/// There is no pod network.
#[derive(Debug)]
pub struct KubeadmCluster {
    // Fields drop in this order: the processes before their folder
    controller_manager: Process,
    _scheduler: Process,
    version: String,
    _scratch: Scratch,
}

impl KubeadmCluster {
    /// Options of a control plane that can become one: its certificate is valid for the address at which the machines
    /// see it, and it has the plugins that a control plane of kubeadm has for its machines.
    pub fn control_plane_options() -> ControlPlaneOptions {
        ControlPlaneOptions::default()
            .also_at(Libvirtd::GATEWAY)
            .api_server_flag("--enable-bootstrap-token-auth=true")
            .api_server_flag("--enable-admission-plugins=NodeRestriction")
    }

    /// Makes the control plane reachable for the machines, lets `kubeadm init` upload what it uploads, and starts
    /// kube-controller-manager and kube-scheduler. If the programs are not in the cache, they are built first, which takes two minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot run the programs, [`StartError::Failed`] if one of them fails.
    pub fn start(control_plane: &ControlPlane, libvirtd: &Libvirtd) -> Result<Self, StartError> {
        let programs = built("kubeadm")?;
        let scratch = Scratch::new("kubeadm")?;
        let kubeadm = programs.join("kubeadm");
        let version = run(Command::new(&kubeadm).args(["version", "--output=short"]))?.trim().to_owned();
        libvirtd.relay(control_plane.port())?;
        upload(&scratch, &kubeadm, &version, control_plane, libvirtd)?;
        let start = |name, flags: &[String]| start(&scratch, &programs, name, flags, control_plane);
        let controller_manager = start("kube-controller-manager", &controller_manager_flags(control_plane))?;
        let scheduler = start("kube-scheduler", &[])?;
        Ok(Self { controller_manager, _scheduler: scheduler, version, _scratch: scratch })
    }

    /// The version of Kubernetes, such as `v1.37.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The last lines that kube-controller-manager has logged.
    pub fn log_tail(&self) -> String {
        self.controller_manager.log_tail()
    }
}

/// The two phases of `kubeadm init` that machines need in order to join: configurations, and the rights of bootstrap
/// tokens. They run where the machines are, since the server's address in their kubeconfig is that for the machines.
fn upload(
    scratch: &Scratch,
    kubeadm: &Path,
    version: &str,
    control_plane: &ControlPlane,
    libvirtd: &Libvirtd,
) -> Result<()> {
    let (address, port) = (Libvirtd::GATEWAY, control_plane.port());
    let kubeconfig = scratch.write(
        "admin.conf",
        &format!(
            "apiVersion: v1\n\
             kind: Config\n\
             current-context: admin\n\
             clusters:\n- name: test\n  cluster:\n    server: https://{address}:{port}\n    \
             certificate-authority: {}\n\
             contexts:\n- name: admin\n  context: {{cluster: test, user: admin}}\n\
             users:\n- name: admin\n  user: {{token: {}}}\n",
            control_plane.ca_pem().display(),
            control_plane.admin_token(),
        ),
    )?;
    let config = scratch.write(
        "kubeadm.yaml",
        &format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\n\
             kind: InitConfiguration\n\
             localAPIEndpoint: {{advertiseAddress: {address}, bindPort: {port}}}\n\
             nodeRegistration: {{criSocket: 'unix:///run/containerd/containerd.sock'}}\n\
             ---\n\
             apiVersion: kubeadm.k8s.io/v1beta4\n\
             kind: ClusterConfiguration\n\
             kubernetesVersion: {version}\n\
             controlPlaneEndpoint: {address}:{port}\n\
             ---\n\
             apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             cgroupDriver: cgroupfs\n\
             makeIPTablesUtilChains: false\n"
        ),
    )?;
    for phase in [&["upload-config", "all"][..], &["bootstrap-token", "--skip-token-print"]] {
        let mut command = libvirtd.in_network(kubeadm.to_str().context("a path is text")?);
        command.args(["init", "phase"]).args(phase);
        command.arg(format!("--config={}", config.display()));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        run(&mut command)?;
    }
    Ok(())
}

fn controller_manager_flags(control_plane: &ControlPlane) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", control_plane.key_file(name).display());
    vec![
        file("root-ca-file", "ca.crt"),
        file("cluster-signing-cert-file", "ca.crt"),
        file("cluster-signing-key-file", "ca.key"),
        file("service-account-private-key-file", "service-accounts.key"),
        // the two that kubeadm adds
        "--controllers=*,bootstrap-signer-controller,token-cleaner-controller".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
    ]
}

/// Starts one of Kubernetes' own programs as the user of its name, and waits until it says that it is well.
fn start(
    scratch: &Scratch,
    programs: &Path,
    name: &str,
    flags: &[String],
    control_plane: &ControlPlane,
) -> Result<Process> {
    let kubeconfig = control_plane.kubeconfig_for(&format!("system:{name}"), &[])?;
    let port = free_port()?;
    let mut command = Command::new(programs.join(name));
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(format!("--{flag}={}", kubeconfig.display()));
    }
    command.arg(format!("--cert-dir={}", scratch.make(name)?.display()));
    command.args(["--leader-elect=false", "--bind-address=127.0.0.1"]);
    command.arg(format!("--secure-port={port}")).args(flags);
    let mut process = Process::spawn(name, &command, scratch.join(format!("{name}.log")))?;
    let health = format!("https://127.0.0.1:{port}/healthz");
    process.wait_until(PATIENCE, || {
        // its certificate is its own
        let asks = ["--silent", "--fail", "--insecure", "--noproxy", "*", "--max-time", "20", &health];
        run(Command::new("curl").args(asks)).is_ok()
    })?;
    Ok(process)
}

/// The image of a machine with containerd, a kubelet and kubeadm, and a container image `localhost/sleep:1`, which does what Cluster API's kubeadm bootstrap
/// manager writes into its user data.
#[derive(Debug, Clone)]
pub struct NodeImage {
    /// A raw disk that boots from a BIOS.
    pub disk: PathBuf,
}

impl NodeImage {
    /// The image in the cache folder. If it is missing, it is made first (seconds, once its programs are built).
    ///
    /// # Errors
    /// [`StartError::Unavailable`] if this machine cannot make it.
    pub fn find() -> Result<Self, StartError> {
        Ok(Self { disk: built("node")?.join("disk.raw") })
    }
}
