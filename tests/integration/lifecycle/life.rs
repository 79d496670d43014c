//! The life of a deployment of machines on libvirt's test driver: they get their bootstrap data, become Nodes, are scaled, replaced,
//! upgraded and deleted.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use cloudprovider_libvirt::{Config, LibvirtProvider, measured};
use k8s_openapi::api::core::v1::Node;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use test_env::PATIENCE;
use tokio::runtime::Handle;

use super::site::Site;
use crate::{
    cluster_api::{
        kubelets::{Kubelets, Seen},
        life::{Infrastructure, Life},
        objects::{Objects, is, name},
    },
    daemon::InProcess,
    machines::libvirt_many::{IMAGE, hypervisor, nothing_is_left},
    support::{eventually, nodes, provider_id},
    trial::Outcome,
};

const NAMESPACE: &str = "lifecycle";

/// What the daemon of the hypervisors does, with short times.
pub(super) const FLAGS: [&str; 5] = [
    "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,machine-controller",
    "--namespace=lifecycle",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-minimum-age=0s",
];

/// The version to which the machines are upgraded.
const NEXT_VERSION: &str = "v1.36.4";

/// The hypervisor of a trial: its provider and the file that describes it.
pub(super) struct TestDriver {
    pub(super) provider: Arc<LibvirtProvider>,
    _description: tempfile::NamedTempFile,
}

impl TestDriver {
    pub(super) fn new() -> Result<Self> {
        let description = hypervisor()?;
        let config = format!(
            "machines: {{cpuOvercommit: 100, allow: [{{imageVolumes: [{{pool: default}}]}}]}}\n\
             hypervisors: [{{name: kvm0, uri: 'test://{}'}}]\n",
            description.path().display()
        );
        let provider = Arc::new(measured::provider_on_test_driver(Config::parse(&config, None)?));
        Ok(Self { provider, _description: description })
    }
}

/// The spec of a machine with this much memory.
pub(super) fn machine(memory_mib: u32) -> Value {
    json!({
        "vcpus": 1, "memoryMiB": memory_mib, "image": {"volume": {"name": IMAGE}, "format": "raw"},
        "disks": [{"sizeGiB": 2}],
    })
}

pub(super) fn whole() -> Outcome {
    let driver = TestDriver::new()?;
    Site::run(&*driver.provider, "Libvirt", NAMESPACE, async |site, objects| {
        life(site, objects, &driver).await
    })
}

async fn life(site: &Site, objects: &Objects, driver: &TestDriver) -> Result<()> {
    // Libvirt's test driver lives in the process that uses it.
    let hypervisors = InProcess::start(&objects.client, Arc::clone(&driver.provider) as _, &FLAGS)?;
    let lifecycle = site.start().await?;
    let _kubelets = kubelets(objects);
    objects.apply_cluster("prod", &site.control_plane, json!({"spec": {}})).await?;
    let is_up =
        |one: &Value| one["status"]["phase"] == "Provisioned" && is(one, "ControlPlaneInitialized", "True");
    objects.becomes("Cluster", "prod", "is provisioned", is_up).await?;
    let cluster = objects.get("Cluster", "prod").await?.context("a Cluster")?;
    let infrastructure = objects.get("LibvirtCluster", "prod").await?.context("a LibvirtCluster")?;
    let owners = &infrastructure["metadata"]["ownerReferences"];
    ensure!(owners[0]["uid"] == cluster["metadata"]["uid"], "{infrastructure}");

    let life = Life::new(objects, driver);
    let first = life.begins(2, &machine(64)).await?;
    is_available(objects, 2).await?;
    ensure!(lifecycle.ready().await? == 200, "{}", lifecycle.state_of_core().await?);
    life.note("two machines run");
    let left = life.is_scaled(&first, 1).await?;
    is_available(objects, 1).await?;
    let rolled = life.is_rolled(&left, &machine(128), "memoryMiB").await?;
    is_available(objects, 1).await?;

    let upgrade = json!({"spec": {"template": {"spec": {"version": NEXT_VERSION}}}});
    objects.merge("MachineDeployment", "workers", upgrade).await?;
    let is_new = |all: &[Value]| all.len() == 1 && all[0]["spec"]["version"] == NEXT_VERSION;
    objects.all_become("Machine", "of the next version", is_new).await?;
    let upgraded = life.running(1).await?;
    ensure!(upgraded.is_disjoint(&rolled), "{upgraded:?} after {rolled:?}");
    // What a kubelet of that version would say. Until then the machine is not what the deployment wants.
    for name in &upgraded {
        let is_other = |one: &Value| is(one, "UpToDate", "False");
        objects.becomes("Machine", name, "has a kubelet of another version", is_other).await?;
        let version = Patch::Merge(json!({"status": {"nodeInfo": {"kubeletVersion": NEXT_VERSION}}}));
        nodes(&objects.client).patch_status(name, &PatchParams::default(), &version).await?;
    }
    is_available(objects, 1).await?;
    life.note("a machine of the next version runs");

    life.ends(&["LibvirtMachine", "LibvirtCluster"], &upgraded).await?;
    nothing_is_left(&driver.provider).await?;
    lifecycle.process.terminate()?;
    hypervisors.stop().await
}

async fn is_available(objects: &Objects, count: usize) -> Result<()> {
    let is_deployed = |one: &Value| {
        is(one, "Available", "True")
            && ["availableReplicas", "upToDateReplicas", "replicas"]
                .iter()
                .all(|of| one["status"][of] == count)
    };
    objects.becomes("MachineDeployment", "workers", "available", is_deployed).await.map(drop)
}

/// Posts a Node for each machine that runs.
pub(super) fn kubelets(objects: &Objects) -> Kubelets {
    let of = Objects::new(objects.client.clone(), &objects.namespace).on("Libvirt", PATIENCE);
    let handle = Handle::current();
    Kubelets::follow(&objects.client, move || {
        let mut seen = Seen::default();
        for machine in handle.block_on(of.list("LibvirtMachine"))? {
            let id = machine["spec"]["providerID"].as_str().and_then(|id| id.strip_prefix("libvirt:///"));
            let Some(uuid) = id else { continue };
            seen.there.insert(uuid.to_owned());
            if machine["status"]["initialization"]["provisioned"] == true {
                seen.joined.insert(uuid.to_owned(), name(&machine).to_owned());
            }
        }
        Ok(seen)
    })
}

impl TestDriver {
    fn domains(&self) -> BTreeSet<String> {
        self.provider.hypervisors().flat_map(|one| one.domain_names()).collect()
    }
}

impl Infrastructure for TestDriver {
    fn runs(&self, names: &BTreeSet<String>) -> Result<()> {
        let domains = self.domains();
        ensure!(domains.len() == names.len(), "the domains are {domains:?}, wanted {names:?}");
        Ok(())
    }

    fn is_empty(&self) -> Result<()> {
        ensure!(self.domains().is_empty(), "{:?}", self.domains());
        Ok(())
    }

    async fn check(&self, objects: &Objects, machine: &Value) -> Result<()> {
        let name = name(machine);
        let what = format!("{name} has the addresses of its LibvirtMachine");
        let (machine, infra) = &eventually(PATIENCE, &what, || async {
            let infra = objects.get("LibvirtMachine", name).await?;
            let machine = objects.get("Machine", name).await?;
            Ok(machine
                .zip(infra)
                .filter(|(one, other)| one["status"]["addresses"] == other["status"]["addresses"]))
        })
        .await?;
        let id = machine["spec"]["providerID"].as_str().context("a provider ID")?;
        ensure!(infra["spec"]["providerID"] == id, "{infra}");
        ensure!(machine["status"]["nodeRef"]["name"] == name, "{machine}");
        ensure!(machine["metadata"]["finalizers"] == json!(["machine.cluster.x-k8s.io"]), "{machine}");
        is_owned(infra, "Machine", machine)?;
        let set = machine["metadata"]["labels"]["cluster.x-k8s.io/set-name"].as_str().context("a label")?;
        let set = objects.get("MachineSet", set).await?.context("a MachineSet")?;
        is_owned(machine, "MachineSet", &set)?;
        let deployment = objects.get("MachineDeployment", "workers").await?.context("a MachineDeployment")?;
        is_owned(&set, "MachineDeployment", &deployment)?;
        let bootstrap = machine["spec"]["bootstrap"]["configRef"]["name"].as_str().context("a reference")?;
        let bootstrap = objects.get("KubeadmConfig", bootstrap).await?.context("a KubeadmConfig")?;
        is_owned(&bootstrap, "Machine", machine)?;
        let data = &machine["spec"]["bootstrap"]["dataSecretName"];
        ensure!(data.is_string() && *data == bootstrap["status"]["dataSecretName"], "{machine} {bootstrap}");

        let node = objects.node_of(name).await?;
        ensure!(provider_id(&node).as_deref() == Some(id), "{node:?}");
        says_its_machine(&node, objects, machine)
    }
}

/// That this object is the only one that controls the other one.
fn is_owned(object: &Value, kind: &str, owner: &Value) -> Result<()> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let controlling: Vec<_> = owners.into_iter().flatten().filter(|one| one["controller"] == true).collect();
    let is_it = |one: &Value| one["kind"] == kind && one["uid"] == owner["metadata"]["uid"];
    ensure!(matches!(&controlling[..], [one] if is_it(one)), "{kind} {}: {object}", name(owner));
    Ok(())
}

/// That the annotations of a Node name its Machine.
fn says_its_machine(node: &Node, objects: &Objects, machine: &Value) -> Result<()> {
    let set = &machine["metadata"]["labels"]["cluster.x-k8s.io/set-name"];
    for (key, value) in [
        ("cluster-name", "prod"),
        ("cluster-namespace", &objects.namespace),
        ("machine", name(machine)),
        ("owner-kind", "MachineSet"),
        ("owner-name", set.as_str().unwrap_or_default()),
    ] {
        let found = node.annotations().get(&format!("cluster.x-k8s.io/{key}")).map(String::as_str);
        ensure!(found == Some(value), "{key} is {found:?}, wanted {value:?}: {node:?}");
    }
    Ok(())
}
