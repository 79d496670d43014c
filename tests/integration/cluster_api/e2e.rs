//! From `kubectl apply` of a machine to a Node that takes pods, with nothing simulated: the real Cluster API, the daemon
//! in both of its roles, a virtual machine on libvirt with containerd and a kubelet, which joins with kubeadm.
//! `make e2e` runs this alone.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{ClusterApi, ControlPlane, KubeadmCluster, Libvirtd, NodeImage};
use tokio::time::sleep;

use super::{
    installed::Installed,
    management::{HOSTED_CONTROL_PLANES, MANAGERS, apply},
    objects::{Objects, is, name},
};
use crate::{
    api,
    daemon::{DaemonProcess, binary},
    machines::libvirt::{allow_folder_of, console, make_pool, sha256, things},
    scenarios::Trials,
    support::{
        UNINITIALIZED, addresses, condition_status, has_taint, label, node_vanishes, nodes, provider_id, tail,
    },
    trial::{Outcome, runtime},
};

/// How long a single step may take: an emulated machine boots a kubelet on what other tests leave of the cores. It only ends a hang.
const LIMIT: Duration = Duration::from_mins(15);
const INTERVAL: Duration = Duration::from_millis(500);

/// What a user applies. The words in capitals depend on the test's peers.
const CLUSTER: &str = "
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: default}
spec:
  controlPlaneEndpoint: {host: HOST, port: PORT}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: HostedControlPlane, name: prod}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtCluster, name: prod}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtCluster
metadata: {name: prod, namespace: default}
spec: {}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachineTemplate
metadata: {name: workers, namespace: default}
spec:
  template:
    spec:
      vcpus: 2
      memoryMiB: 1536
      domainType: qemu
      image: {file: 'IMAGE', checksum: 'SUM', format: raw}
      disks: [{sizeGiB: 1}]
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: workers, namespace: default}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          kubeletExtraArgs: [{name: cloud-provider, value: external}]
          # The first looks for the kernel's configuration and modules, which this small image lacks. The second gives the runtime two seconds
          # to answer, which an emulated processor may not make.
          ignorePreflightErrors: [SystemVerification, CRI]
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: default}
spec:
  clusterName: prod
  replicas: 1
  template:
    spec:
      clusterName: prod
      version: VERSION
      bootstrap:
        configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: workers}
      infrastructureRef:
        {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtMachineTemplate, name: workers}
---
# It tolerates nothing. There is no pod network.
apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: default}
spec:
  hostNetwork: true
  automountServiceAccountToken: false
  containers: [{name: sleep, image: 'localhost/sleep:1', imagePullPolicy: Never}]
";

pub(super) fn trials() -> Trials {
    Trials::new().trial("e2e::from_kubectl_apply_to_a_pod_that_runs", whole)
}

/// Everything that runs.
struct World {
    // Fields drop in this order: the daemon before its peers
    daemon: DaemonProcess,
    managers: ClusterApi,
    cluster: KubeadmCluster,
    control_plane: ControlPlane,
    libvirtd: Libvirtd,
    image: NodeImage,
    folder: TempDir,
}

fn whole() -> Outcome {
    binary()?;
    let image = NodeImage::find()?;
    let libvirtd = Libvirtd::start()?;
    make_pool(&libvirtd)?;
    let control_plane = ControlPlane::start(&KubeadmCluster::control_plane_options())?;
    let cluster = KubeadmCluster::start(&control_plane, &libvirtd)?;
    let managers = ClusterApi::start(&control_plane, &MANAGERS)?;
    apply(&control_plane, "control-planes.yaml", HOSTED_CONTROL_PLANES)?;
    let folder = TempDir::new()?;
    let config = folder.path().join("cloud.yaml");
    let text = format!(
        "hypervisors: [{{name: kvm1, uri: '{}', region: lab, zone: rack-1}}]\n\
         machines: {{reservedMemoryMiB: 0, allow: {}}}\n",
        libvirtd.uri(),
        allow_folder_of(&image.disk)
    );
    fs::write(&config, text).context("the configuration")?;
    let installed = Installed::apply(&control_plane, "libvirt", config)?;
    let log = folder.path().join("daemon.log");
    let daemon = installed.start(&control_plane, &[], &log)?;
    let world = World { daemon, managers, cluster, control_plane, libvirtd, image, folder };
    let outcome = runtime(false)?.block_on(async {
        let client = api::client(world.control_plane.kubeconfig()).await?;
        let objects = Objects::new(client, "default");
        let before = things(&world.libvirtd)?;
        let name = from_apply_to_node(&world, &objects).await?;
        nothing_is_left(&world, &objects, &name, &before).await
    });
    outcome.with_context(|| world.words())?;
    world.daemon.terminate()?;
    Ok(())
}

impl World {
    /// What everybody said, for a failure's message.
    fn words(&self) -> String {
        let mut words = vec![
            ("the machine's console".to_owned(), console(&self.libvirtd)),
            ("the daemon".to_owned(), self.daemon.log()),
            ("kube-controller-manager".to_owned(), self.cluster.log_tail()),
        ];
        words.extend(MANAGERS.map(|manager| (format!("{manager:?}"), self.managers.log(manager))));
        let parts = words.iter().map(|(who, said)| format!("{who}:\n{}", tail(said)));
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Applies what whoever hosts the control plane has, and then, as a user, the cluster. Returns when that happened.
    async fn apply(&self, objects: &Objects) -> Result<Instant> {
        objects.apply_secrets("prod", &self.control_plane).await?;
        let version = self.cluster.version();
        objects.apply("HostedControlPlane", "prod", json!({"spec": {"version": version}})).await?;
        objects.control_plane_is_there("prod", version).await?;
        let text = CLUSTER
            .replace("HOST,", &format!("{},", Libvirtd::GATEWAY))
            .replace("PORT}", &format!("{}}}", self.control_plane.port()))
            .replace("IMAGE", &self.image.disk.display().to_string())
            .replace("SUM", &sha256(&self.image.disk)?)
            .replace("VERSION", version);
        let file = self.folder.path().join("cluster.yaml");
        fs::write(&file, text)?;
        let file = file.display().to_string();
        let began = Instant::now();
        self.control_plane.kubectl_output(&["apply", "--filename", &file])?;
        Ok(began)
    }
}

/// Waits until all is done, and prints how long each part of it took. Nobody helps.
async fn from_apply_to_node(world: &World, objects: &Objects) -> Result<String> {
    let began = world.apply(objects).await?;
    let mut seen = BTreeMap::new();
    let mut last_step = Instant::now();
    let (name, node) = loop {
        let now = State::read(world, objects).await?;
        for (what, is_so) in now.steps() {
            if is_so && !seen.contains_key(what) {
                seen.insert(what, began.elapsed());
                last_step = Instant::now();
                println!("{:>6.1} s: {what}", began.elapsed().as_secs_f64());
            }
        }
        if now.missing().is_empty() {
            break (now.name().to_owned(), now.node.context("a Node")?);
        }
        ensure!(
            last_step.elapsed() < LIMIT,
            "no step within {LIMIT:?}. Not yet: {:?}; after {seen:?}; {:?}",
            now.missing(),
            now.node
        );
        sleep(INTERVAL).await;
    };
    check(world, objects, &name, &node).await?;
    Ok(name)
}

/// The objects of the one machine.
struct State {
    infra: Value,
    machine: Value,
    node: Option<Node>,
    pod: Value,
    console: String,
}

impl State {
    async fn read(world: &World, objects: &Objects) -> Result<Self> {
        let one = |list: Vec<Value>| list.into_iter().next().unwrap_or_default();
        let machine = one(objects.list("Machine").await?);
        let node = nodes(&objects.client).list(&ListParams::default()).await?.items.pop();
        let infra = one(objects.list("LibvirtMachine").await?);
        let pod = objects.get("Pod", "waiting").await?.unwrap_or_default();
        Ok(Self { infra, machine, node, pod, console: console(&world.libvirtd) })
    }

    fn name(&self) -> &str {
        name(&self.machine)
    }

    /// The steps that are not done.
    fn missing(&self) -> Vec<&'static str> {
        self.steps().into_iter().filter(|(_, is_so)| !is_so).map(|(what, _)| what).collect()
    }

    /// What has to be true in the end, in the order in which it usually comes true.
    fn steps(&self) -> [(&'static str, bool); 11] {
        let tainted = |key| self.node.as_ref().is_none_or(|node| has_taint(node, key));
        let taints = self.node.iter().filter_map(|node| node.spec.as_ref()?.taints.as_ref()).flatten();
        let ready = self.node.as_ref().and_then(|node| condition_status(node, "Ready"));
        [
            ("the virtual machine is defined", self.infra["spec"]["providerID"].is_string()),
            ("the guest runs containerd", self.console.contains("GUEST containerd")),
            ("the machine has an address", is(&self.machine, "InfrastructureReady", "True")),
            ("kubeadm has configured the kubelet", self.console.contains("GUEST kubelet")),
            ("the Node is registered", self.node.is_some()),
            ("the daemon has initialized the Node", !tainted(UNINITIALIZED)),
            ("kubeadm has joined", self.console.contains("GUEST user-data ended with 0")),
            ("the Node is ready", ready.as_deref() == Some("True")),
            ("the Node has no taint", self.node.is_some() && taints.count() == 0),
            (
                "the Machine is running and available",
                self.machine["status"]["phase"] == "Running" && is(&self.machine, "Available", "True"),
            ),
            ("the pod that waited runs on the Node", self.pod["status"]["phase"] == "Running"),
        ]
    }
}

/// Everything about the Node comes from its machine.
async fn check(world: &World, objects: &Objects, name: &str, node: &Node) -> Result<()> {
    let infra = objects.get("LibvirtMachine", name).await?.context("a LibvirtMachine")?;
    let machine = objects.get("Machine", name).await?.context("a Machine")?;
    let uid = infra["metadata"]["uid"].as_str().context("a UID")?;
    let id = format!("libvirt:///{uid}");
    ensure!(provider_id(node).as_ref() == Some(&id), "{node:?}");
    ensure!(infra["spec"]["providerID"] == id && machine["spec"]["providerID"] == id, "{machine}");
    ensure!(machine["status"]["nodeRef"]["name"] == name, "{machine}");
    let leases = world.libvirtd.virsh_output(&["net-dhcp-leases", "default"])?;
    let internal =
        addresses(node).into_iter().find_map(|one| Some(one.strip_prefix("InternalIP ")?.to_owned()));
    let internal = internal.context("an address")?;
    ensure!(leases.contains(&format!(" {internal}/")), "{internal} is not in {leases}");
    for (key, value) in [
        ("topology.kubernetes.io/zone", "rack-1"),
        ("topology.kubernetes.io/region", "lab"),
        ("node.kubernetes.io/instance-type", "2c-1536m"),
    ] {
        ensure!(label(node, key) == Some(value), "{key} is {:?}", label(node, key));
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref()).context("what it runs")?;
    ensure!(info.system_uuid == uid && info.kubelet_version == world.cluster.version(), "{info:?}");
    ensure!(info.container_runtime_version.starts_with("containerd://"), "{info:?}");
    println!(
        "{} with {}, kernel {}",
        info.kubelet_version, info.container_runtime_version, info.kernel_version
    );
    token_is_secret(world, objects, name).await?;
    let refused = world.control_plane.refusals_after(0)?;
    let ours: Vec<_> = refused.iter().filter(|one| one.user.ends_with(":cloud-controller-manager")).collect();
    ensure!(ours.is_empty(), "refused to the daemon: {ours:?}");
    Ok(())
}

/// The bootstrap token is in the machine's user data and nowhere in the daemon's log.
async fn token_is_secret(world: &World, objects: &Objects, name: &str) -> Result<()> {
    let config = objects.get("KubeadmConfig", name).await?.context("a KubeadmConfig")?;
    let discovery = &config["spec"]["joinConfiguration"]["discovery"];
    let token = discovery["bootstrapToken"]["token"].as_str().context("a bootstrap token")?;
    let secret = token.split_once('.').context("a bootstrap token has two parts")?.1;
    ensure!(!world.daemon.log().contains(secret), "the daemon logs the token");
    Ok(())
}

async fn nothing_is_left(world: &World, objects: &Objects, name: &str, before: &[String]) -> Result<()> {
    let began = Instant::now();
    objects.delete("Cluster", "prod").await?;
    while objects.get("Cluster", "prod").await?.is_some() {
        ensure!(began.elapsed() < LIMIT, "the Cluster is not deleted");
        sleep(INTERVAL).await;
    }
    ensure!(things(&world.libvirtd)? == before, "left: {:?}", things(&world.libvirtd)?);
    println!("nothing is left on libvirt {:.1} s after the deletion", began.elapsed().as_secs_f64());
    // The core leaves the Nodes of a cluster that goes away as a whole. The daemon judges one when its kubelet has been
    // silent for so long that kube-controller-manager says so.
    node_vanishes(&objects.client, name, LIMIT).await?;
    println!("the Node is deleted {:.1} s after the deletion", began.elapsed().as_secs_f64());
    Ok(())
}
