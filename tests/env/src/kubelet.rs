//! A real kubelet with a real container runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::PATIENCE;
use crate::error::{StartError, need_programs};
use crate::namespace::{Daemon, Namespace, need_namespaces};
use crate::ports::free_port;
use crate::process::{Process, Signal};
use crate::scratch::Scratch;
use crate::{ControlPlane, built};

/// Options of a [`Kubelet`].
#[derive(Debug, Clone, Default)]
pub struct KubeletOptions {
    /// `--node-ip`: one address, or one of each family separated by a comma. Any address works: the kubelet
    /// gets a network namespace with these addresses.
    pub node_ip: Option<String>,
    /// The UUID that it reports as `status.nodeInfo.systemUUID`, unchanged; by default the machine's.
    pub system_uuid: Option<String>,
    /// The ID that it reports as `status.nodeInfo.machineID`. The default is `system_uuid` without dashes if
    /// that is set, and otherwise the machine's.
    pub machine_id: Option<String>,
    /// Whether the runtime reports that its network is ready, so that the Node becomes Ready. Pods cannot run
    /// either way.
    pub network_ready: bool,
    /// Further flags, `--name=value`.
    pub flags: Vec<String>,
}

/// A kubelet with `--cloud-provider=external` and its containerd. Stopped and removed when dropped.
///
/// Both have a folder of their own, and are in a network namespace from which only the API server is
/// reachable. They see copies of the kernel settings that a kubelet changes. The kubelet is the user
/// `system:node:NAME`. There is no runtime for containers: a Node registers, sends heartbeats and reports its
/// status, and pods stay in `ContainerCreating`.
#[derive(Debug)]
pub struct Kubelet {
    // Fields drop in this order: the namespaces, with all processes in them, before the folder
    namespace: Namespace,
    daemon: Daemon,
    _containerd: Daemon,
    _way_out: Process,
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    scratch: Scratch,
}

impl Kubelet {
    /// Starts containerd and a kubelet and waits up to 30 s for the Node. If the programs are not in the
    /// cache, they are built first, which takes minutes.
    ///
    /// # Errors
    /// [`StartError::Unavailable`] without root or if this machine cannot run the programs,
    /// [`StartError::Failed`] if the Node does not appear; the error contains the end of the kubelet's log.
    pub fn start(
        control_plane: &ControlPlane,
        node_name: &str,
        options: &KubeletOptions,
    ) -> Result<Self, StartError> {
        need_programs(&["setpriv", "unshare", "nsenter", "ip", "socat"])?;
        need_namespaces()?;
        let program = built("kubelet")?.join("kubelet");
        let containerd = built("containerd")?.join("containerd");

        let scratch = Scratch::new("node")?;
        let system_uuid = options.system_uuid.clone().unwrap_or_default();
        let machine_id = options.machine_id.clone().unwrap_or_else(|| system_uuid.replace('-', ""));
        let way_out = way_out(&scratch, control_plane.port())?;
        let mut for_namespace = vec![
            scratch.path().display().to_string(),
            control_plane.port().to_string(),
            system_uuid,
            machine_id,
        ];
        for_namespace.extend(options.node_ip.iter().flat_map(|list| list.split(',')).map(str::to_owned));
        let namespace = Namespace::start(&scratch, "kubelet/namespace.sh", &["--net"], for_namespace)?;
        let socket = scratch.join("containerd.sock");
        let runtime = start_containerd(&namespace, &scratch, &containerd, &socket, options.network_ready)?;
        let kubeconfig =
            control_plane.kubeconfig_for(&format!("system:node:{node_name}"), &["system:nodes"])?;
        let arguments = arguments(&scratch, &kubeconfig, node_name, &socket, options)?;

        let started = Self {
            daemon: Daemon::default(),
            _containerd: runtime,
            _way_out: way_out,
            namespace,
            name: node_name.to_owned(),
            program,
            arguments,
            scratch,
        };
        let node = format!("/api/v1/nodes/{node_name}");
        started.run(|| control_plane.get(&node).is_ok())?;
        Ok(started)
    }

    /// The name of its Node.
    pub fn node_name(&self) -> &str {
        &self.name
    }

    /// Log file of the kubelet.
    pub fn log(&self) -> PathBuf {
        self.scratch.join("kubelet.log")
    }

    /// Log file of containerd.
    pub fn runtime_log(&self) -> PathBuf {
        self.scratch.join("containerd.log")
    }

    /// Kills the kubelet, as a power failure of its machine would: heartbeats stop, and the Node stays.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(&self) -> Result<()> {
        self.daemon.end(Signal::Kill)
    }

    /// Starts a stopped kubelet again. It registers again if its Node is gone. Returns when the process runs.
    /// Does nothing if it is running.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_again(&self) -> Result<()> {
        self.run(|| true)
    }

    fn run(&self, ready: impl FnMut() -> bool) -> Result<()> {
        let mut command = self.namespace.enter(&["--mount", "--net", "--pid"], &self.program);
        command.args(&self.arguments);
        self.daemon.start("kubelet", &command, &self.log(), PATIENCE, ready)
    }
}

/// A relay to the API server on a Unix socket, which is reachable from all network namespaces.
fn way_out(scratch: &Scratch, port: u16) -> Result<Process> {
    let socket = scratch.join("api-server.sock");
    let mut command = Command::new("socat");
    command
        .arg(format!("UNIX-LISTEN:{},fork", socket.display()))
        .arg(format!("TCP-CONNECT:127.0.0.1:{port}"));
    let mut process = Process::spawn("socat", &command, scratch.join("socat.log"))?;
    process.wait_until(PATIENCE, || socket.exists())?;
    Ok(process)
}

fn start_containerd(
    namespace: &Namespace,
    scratch: &Scratch,
    program: &Path,
    socket: &Path,
    network_ready: bool,
) -> Result<Daemon> {
    let folder = scratch.path().display();
    for name in ["containerd-root", "containerd-state", "cni", "opt"] {
        scratch.make(name)?;
    }
    if network_ready {
        // the runtime reports its network as ready as soon as there is a configuration, and does not read it
        // further
        scratch.write(
            "cni/10-none.conflist",
            "{\"cniVersion\": \"0.4.0\", \"name\": \"none\", \"plugins\": [{\"type\": \"none\"}]}\n",
        )?;
    }
    let config = scratch.write(
        "containerd.toml",
        &format!(
            "version = 3\n\
             root = \"{folder}/containerd-root\"\n\
             state = \"{folder}/containerd-state\"\n\
             [grpc]\naddress = \"{}\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{folder}/opt\"\n\
             [plugins.\"io.containerd.cri.v1.runtime\".cni]\n\
             conf_dir = \"{folder}/cni\"\nbin_dirs = [\"{folder}/cni\"]\n",
            socket.display()
        ),
    )?;
    let mut command = namespace.enter(&["--mount", "--net", "--pid"], program);
    command.arg("--config").arg(config);
    let daemon = Daemon::default();
    daemon.start("containerd", &command, &scratch.join("containerd.log"), PATIENCE, || {
        std::os::unix::net::UnixStream::connect(socket).is_ok()
    })?;
    Ok(daemon)
}

fn arguments(
    scratch: &Scratch,
    kubeconfig: &Path,
    node_name: &str,
    socket: &Path,
    options: &KubeletOptions,
) -> Result<Vec<String>> {
    let folder = scratch.path().display();
    // Without control groups and evictions: it runs on a developer's machine, whatever its load.
    let config = scratch.write(
        "kubelet.yaml",
        &format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             address: 127.0.0.1\n\
             port: {}\n\
             readOnlyPort: 0\n\
             healthzBindAddress: 127.0.0.1\n\
             healthzPort: {}\n\
             containerRuntimeEndpoint: unix://{}\n\
             authentication:\n  anonymous: {{enabled: true}}\n  webhook: {{enabled: false}}\n\
             authorization: {{mode: AlwaysAllow}}\n\
             cgroupDriver: cgroupfs\n\
             cgroupsPerQOS: false\n\
             enforceNodeAllocatable: []\n\
             failSwapOn: false\n\
             failCgroupV1: false\n\
             localStorageCapacityIsolation: false\n\
             makeIPTablesUtilChains: false\n\
             oomScoreAdj: 0\n\
             resolvConf: \"\"\n\
             evictionHard: {{memory.available: \"0%\", nodefs.available: \"0%\", imagefs.available: \"0%\"}}\n\
             podLogsDir: {folder}/pod-logs\n\
             staticPodPath: \"\"\n\
             volumePluginDir: {folder}/volume-plugins\n",
            free_port()?,
            free_port()?,
            socket.display(),
        ),
    )?;
    let mut arguments = vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--cloud-provider=external".into(),
        format!("--hostname-override={node_name}"),
        format!("--root-dir={folder}/kubelet"),
        format!("--cert-dir={folder}/kubelet-certs"),
        "--v=2".into(),
    ];
    if let Some(node_ip) = &options.node_ip {
        arguments.push(format!("--node-ip={node_ip}"));
    }
    arguments.extend(options.flags.iter().cloned());
    Ok(arguments)
}
