//! From `kubectl apply` to machines that run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::sleep;

use super::{LIMIT, manifest::MEMORY, world::World};
use crate::{
    cluster_api::{
        libvirt::hypervisor::Hypervisor,
        life::Life,
        objects::{Objects, is},
    },
    support::{UNINITIALIZED, condition_status, has_taint, label, nodes},
};

const INTERVAL: Duration = Duration::from_millis(500);

const UNTAINTED: &str = "the Node has no taint";

/// Applies the cluster with this many machines, and waits until they and a pod run. Prints how long each step took.
pub(super) async fn from_apply_to_nodes(
    world: &World,
    life: &Life<'_, Hypervisor>,
    count: usize,
) -> Result<BTreeSet<String>> {
    let objects = life.objects;
    world.has_control_plane(objects).await?;
    let began = Instant::now();
    world.apply(count)?;
    let mut seen = BTreeMap::new();
    let mut last_step = Instant::now();
    loop {
        let now = State::read(world, objects, count).await?;
        for (what, is_so) in now.steps() {
            if is_so && !seen.contains_key(what) {
                seen.insert(what, began.elapsed());
                last_step = Instant::now();
                println!("{:>6.1} s: {what}", began.elapsed().as_secs_f64());
            }
        }
        let missing = now.missing();
        if missing.is_empty() {
            break;
        }
        ensure!(
            last_step.elapsed() < LIMIT,
            "no step within {LIMIT:?}. Not yet: {missing:?}; after {seen:?}; {:?}",
            now.nodes
        );
        sleep(INTERVAL).await;
    }
    let untainted = seen[UNTAINTED].as_secs_f64();
    println!("{untainted:.1} s from kubectl apply to Nodes without taints, of {count} machines");
    let names = life.running(count).await?;
    for name in &names {
        check(world, objects, name).await?;
    }
    Ok(names)
}

/// The objects of all machines.
struct State {
    count: usize,
    infrastructure: Vec<Value>,
    machines: Vec<Value>,
    nodes: Vec<Node>,
    pod: Value,
    consoles: Vec<String>,
}

impl State {
    async fn read(world: &World, objects: &Objects, count: usize) -> Result<Self> {
        Ok(Self {
            count,
            infrastructure: objects.list("LibvirtMachine").await?,
            machines: objects.list("Machine").await?,
            nodes: nodes(&objects.client).list(&ListParams::default()).await?.items,
            pod: objects.get("Pod", "waiting").await?.unwrap_or_default(),
            consoles: world.hypervisor.consoles()?.into_values().collect(),
        })
    }

    /// The steps that are not done.
    fn missing(&self) -> Vec<&'static str> {
        self.steps().into_iter().filter(|(_, is_so)| !is_so).map(|(what, _)| what).collect()
    }

    /// What has to be true of each machine in the end, in the order in which it usually comes true.
    fn steps(&self) -> [(&'static str, bool); 11] {
        let says = |words: &str| self.all(&self.consoles, |said| said.contains(words));
        let has_node = |check: fn(&Node) -> bool| self.all(&self.nodes, check);
        [
            (
                "the virtual machine is defined",
                self.all(&self.infrastructure, |one| one["spec"]["providerID"].is_string()),
            ),
            ("the guest runs containerd", says("GUEST containerd")),
            (
                "the machine has an address",
                self.all(&self.machines, |one| is(one, "InfrastructureReady", "True")),
            ),
            ("kubeadm has configured the kubelet", says("GUEST kubelet")),
            ("the Node is registered", has_node(|_| true)),
            ("the daemon has initialized the Node", has_node(|node| !has_taint(node, UNINITIALIZED))),
            ("kubeadm has joined", says("GUEST user-data ended with 0")),
            (
                "the Node is ready",
                has_node(|node| condition_status(node, "Ready").as_deref() == Some("True")),
            ),
            (
                UNTAINTED,
                has_node(|node| {
                    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).next().is_none()
                }),
            ),
            (
                "the Machine is running and available",
                self.all(&self.machines, |one| {
                    one["status"]["phase"] == "Running" && is(one, "Available", "True")
                }),
            ),
            ("the pod that waited runs on a Node", self.pod["status"]["phase"] == "Running"),
        ]
    }

    /// Whether there is one for each machine, and all are so.
    fn all<T>(&self, of: &[T], is_so: impl Fn(&T) -> bool) -> bool {
        of.len() == self.count && of.iter().all(is_so)
    }
}

/// What a Node has of its machine beside what every machine of this hypervisor is checked for.
async fn check(world: &World, objects: &Objects, name: &str) -> Result<()> {
    let node = objects.node_of(name).await?;
    for (key, value) in [
        ("topology.kubernetes.io/region", "lab"),
        ("node.kubernetes.io/instance-type", &format!("2c-{MEMORY}m")),
    ] {
        ensure!(label(&node, key) == Some(value), "{key} is {:?}", label(&node, key));
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref()).context("what it runs")?;
    ensure!(info.kubelet_version == world.cluster.version(), "{info:?}");
    ensure!(info.container_runtime_version.starts_with("containerd://"), "{info:?}");
    println!(
        "{} with {}, kernel {}",
        info.kubelet_version, info.container_runtime_version, info.kernel_version
    );
    token_is_secret(world, objects, name).await
}

/// The bootstrap token is in the machine's user data and nowhere in the daemon's log.
async fn token_is_secret(world: &World, objects: &Objects, name: &str) -> Result<()> {
    let machine = objects.get("Machine", name).await?.context("a Machine")?;
    let data = objects.bootstrap_data(&machine).await?;
    let token = data.lines().find_map(|line| line.trim().strip_prefix("token: "));
    let token = token.context("a bootstrap token")?;
    let secret = token.split_once('.').context("a bootstrap token has two parts")?.1.trim_matches('"');
    ensure!(!world.daemon.log().contains(secret), "the daemon logs the token");
    Ok(())
}
