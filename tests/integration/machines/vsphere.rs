//! `VSphereMachine`s and their `VSphereVM`s, on the simulator of vCenter. The scenario does what Cluster API's core would do.

mod capv;
mod conversions;
mod pools;
mod tasks;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use test_env::{Vcsim, VcsimOptions};

use super::{
    core::{CORE, INFRASTRUCTURE, clear_core, definition_of, install, install_core},
    tape::{Tape, tells_a_wait},
    world::{NAMESPACE, ONLY, condition, is_ready},
};
use crate::{api::Api, daemon::InProcess, ipam::IPAM, scenarios::Trials, stage::eventually_or, vsphere};

/// The writes that a machine costs until it is ready, with its `VSphereVM`, besides those about long waits.
const MAX_WRITES: usize = 5;

/// The writes that its deletion costs: one that holds a move, the deletion of its `VSphereVM`, and the finalizer.
const MAX_WRITES_OF_DELETION: usize = 3;

/// The daemon looks at no object for this time by itself: what it tells of a destroyed virtual machine, vCenter has told it.
const SELDOM: &str = "--sync-period=24h";

const KINDS: [(&str, &str, &str, &str); 10] = [
    (INFRASTRUCTURE, "VSphereMachine", "vspheremachines", "Namespaced"),
    (INFRASTRUCTURE, "VSphereMachineTemplate", "vspheremachinetemplates", "Namespaced"),
    (INFRASTRUCTURE, "VSphereCluster", "vsphereclusters", "Namespaced"),
    (INFRASTRUCTURE, "VSphereVM", "vspherevms", "Namespaced"),
    (CORE, "Machine", "machines", "Namespaced"),
    (CORE, "Cluster", "clusters", "Namespaced"),
    (INFRASTRUCTURE, "VSphereDeploymentZone", "vspheredeploymentzones", "Cluster"),
    (INFRASTRUCTURE, "VSphereFailureDomain", "vspherefailuredomains", "Cluster"),
    (IPAM, "IPAddressClaim", "ipaddressclaims", "Namespaced"),
    (IPAM, "IPAddress", "ipaddresses", "Namespaced"),
];

/// Nearly all on the sandbox, with tokio's clock running. On the real API server the kinds are those of the manifests, with their webhook:
/// the life of a cluster on vSphere shows that.
pub(super) fn trials() -> Trials {
    Trials::in_real_time()
        .sandbox("vsphere::machines_have_their_vspherevms", told)
        .sandbox("vsphere::machines_keep_the_vspherevms_of_others", taken_over)
        .sandbox("vsphere::machines_get_addresses_of_pools", pools::addressed)
        .sandbox("vsphere::killed_at_each_write_of_a_claim", pools::killed)
        .sandbox("vsphere::machines_of_capv_are_taken_over", capv::taken_over)
        .sandbox("vsphere::clones_that_fail_are_told", tasks::failed)
        .sandbox("vsphere::tasks_that_run_are_named", tasks::named)
        .api_server("vsphere::machines_are_not_converted", conversions::counted)
}

struct World<'a> {
    api: &'a Api,
    vcsim: Vcsim,
    tape: Tape,
}

impl<'a> World<'a> {
    async fn new(api: &'a Api) -> anyhow::Result<Self> {
        Self::with_tasks(api, "").await
    }

    /// With the kinds of the core alone. Those of the provider are there.
    async fn on(api: &'a Api) -> anyhow::Result<Self> {
        install_core(api, &["v1beta2"]).await?;
        clear_core(api, NAMESPACE).await?;
        Self::with_simulator(api, "")
    }

    /// The same with tasks that take time, such as `CloneVm:8000`.
    async fn with_tasks(api: &'a Api, task_delays: &'static str) -> anyhow::Result<Self> {
        install_core(api, &["v1beta2"]).await?;
        for kind in KINDS.into_iter().filter(|kind| kind.0 == INFRASTRUCTURE) {
            install(api, &definition_of(kind, &["v1beta2"])?).await?;
        }
        Self::with_simulator(api, task_delays)
    }

    fn with_simulator(api: &'a Api, task_delays: &'static str) -> anyhow::Result<Self> {
        let options =
            VcsimOptions { machines: 1, boots_guests: true, task_delays, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options)?;
        Ok(Self { api, vcsim, tape: Tape::default() })
    }

    fn start(&self) -> anyhow::Result<InProcess> {
        let provider = cloudprovider_vsphere::VSphereProvider::new(cloudprovider_vsphere::Config::parse(
            &vsphere::config(&[&self.vcsim])?,
            &cloudprovider_vsphere::Environment::default(),
        )?);
        InProcess::start(&self.tape.client(&self.api.client), std::sync::Arc::new(provider), &[ONLY, SELDOM])
    }

    fn objects(&self, kind: &str) -> kube::Api<DynamicObject> {
        let (group, kind, plural, scope) = KINDS.into_iter().find(|row| row.1 == kind).expect("a kind");
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1beta2", kind), plural);
        match scope {
            "Cluster" => kube::Api::all_with(self.api.client.clone(), &resource),
            _ => kube::Api::namespaced_with(self.api.client.clone(), NAMESPACE, &resource),
        }
    }

    async fn create(&self, kind: &str, name: &str, mut object: Value) -> anyhow::Result<Value> {
        let group = KINDS.into_iter().find(|row| row.1 == kind).expect("a kind").0;
        object["apiVersion"] = format!("{group}/v1beta2").into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        let made = self.objects(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await;
        Ok(serde_json::to_value(made.with_context(|| format!("{kind} {name}"))?)?)
    }

    async fn get(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        Ok(self.objects(kind).get_opt(name).await?.map(serde_json::to_value).transpose()?.unwrap_or_default())
    }

    async fn set_status(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.objects(kind).patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn becomes(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let look = || async { Ok(Some(self.get(kind, name).await?).filter(&check)) };
        let describe = async { format!("{:?}", self.get(kind, name).await) };
        let what = format!("{kind} {name}: {what}");
        let object = eventually_or(vsphere::LIMIT, &what, look, describe).await?;
        self.tape.has_writes_of(name).await;
        Ok(object)
    }

    /// The owner reference that the core puts on the infrastructure of its objects.
    fn owned(owner: &Value) -> Value {
        json!({
            "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": [{
                "apiVersion": format!("{CORE}/v1beta2"), "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "controller": true,
            }],
        })
    }

    async fn add_cluster(&self) -> anyhow::Result<()> {
        let spec = json!({"infrastructureRef": {"apiGroup": INFRASTRUCTURE, "kind": "VSphereCluster", "name": "prod"}});
        let cluster = self.create("Cluster", "prod", json!({"spec": spec})).await?;
        let spec = json!({
            "server": format!("127.0.0.1:{}", self.vcsim.port()),
            "controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443},
        });
        let metadata = Self::owned(&cluster);
        self.create("VSphereCluster", "prod", json!({"metadata": metadata, "spec": spec})).await?;
        self.set_status("Cluster", "prod", json!({"initialization": {"infrastructureProvisioned": true}}))
            .await
    }

    async fn add_machine(&self, name: &str) -> anyhow::Result<Value> {
        self.add_machine_with(name, json!({})).await
    }

    async fn add_machine_with(&self, name: &str, more: Value) -> anyhow::Result<Value> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-data")},
            "data": {"value": "I2Nsb3VkLWNvbmZpZwo=", "format": "Y2xvdWQtY29uZmln"},
        }))?;
        let secrets = kube::Api::<Secret>::namespaced(self.api.client.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await?;
        let machine = json!({
            "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "prod"}},
            "spec": {"clusterName": "prod", "bootstrap": {"dataSecretName": format!("{name}-data")}},
        });
        let machine = self.create("Machine", name, machine).await?;
        let mut spec = json!({
            "template": vsphere::machine(0), "datacenter": "DC0", "folder": "/DC0/vm", "datastore": "LocalDS_0",
            "resourcePool": "DC0_C0/Resources", "cloneMode": "fullClone", "powerOffMode": "hard",
            "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
            "numCPUs": 2, "memoryMiB": 2048,
        });
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        self.create("VSphereMachine", name, json!({"metadata": Self::owned(&machine), "spec": spec})).await
    }

    /// Removes what is not the daemon's.
    async fn remove_owner(&self, name: &str) -> anyhow::Result<()> {
        let secrets = kube::Api::<Secret>::namespaced(self.api.client.clone(), NAMESPACE);
        secrets.delete(&format!("{name}-data"), &DeleteParams::default()).await?;
        self.objects("Machine").delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// That each machine was written at most so often since the tape was empty, which it is again.
    fn wrote(&self, what: &str, most: usize) -> anyhow::Result<()> {
        let mut writes = BTreeMap::<String, Vec<String>>::new();
        let writes_of_machines = self.tape.steps().into_iter().filter(|write| write.name != "prod");
        for write in writes_of_machines.filter(|write| !tells_a_wait(write)) {
            writes.entry(write.name).or_default().push(format!("{} {}", write.resource, write.what));
        }
        println!("vsphere: {what}: {writes:?}");
        ensure!(writes.values().all(|all| all.len() <= most), "{what}: {writes:?}");
        self.tape.clear();
        Ok(())
    }

    /// Deletes the machines and the cluster, and waits until they are gone.
    async fn delete(&self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            self.objects("VSphereMachine").delete(name, &DeleteParams::default()).await?;
        }
        for name in names {
            self.becomes("VSphereMachine", name, "is gone", Value::is_null).await?;
            self.becomes("VSphereVM", name, "is gone", Value::is_null).await?;
            self.remove_owner(name).await?;
        }
        self.objects("VSphereCluster").delete("prod", &DeleteParams::default()).await?;
        self.becomes("VSphereCluster", "prod", "is gone", Value::is_null).await?;
        self.objects("Cluster").delete("prod", &DeleteParams::default()).await?;
        Ok(())
    }

    async fn end(self, names: &[&str], daemon: InProcess) -> anyhow::Result<()> {
        self.delete(names).await?;
        let left = self.vcsim.inventory()?;
        ensure!(left.len() == 1, "{left:?}");
        daemon.stop().await
    }
}

/// The conditions with this status that a reader of v1beta1 finds in an object.
fn for_readers_of_v1beta1(object: &Value, status: &str) -> anyhow::Result<Vec<String>> {
    let read = cloudprovider_vsphere::convert(object.clone(), "v1beta1")?;
    ensure!(
        cloudprovider_vsphere::convert(read.clone(), "v1beta2")? == *object,
        "{object} is not the same as {read}"
    );
    let all = read["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.filter(|one| one["status"] == status && (status == "True") == one["severity"].is_null());
    Ok(found.filter_map(|one| one["type"].as_str().map(str::to_owned)).collect())
}

async fn told(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    let daemon = world.start()?;
    world.add_cluster().await?;
    let cluster = world.becomes("VSphereCluster", "prod", "is ready", is_ready).await?;
    ensure!(cluster["status"]["vCenterVersion"].is_string(), "{cluster}");
    ensure!(for_readers_of_v1beta1(&cluster, "True")? == ["Ready", "VCenterAvailable"], "{cluster}");
    let names = ["worker-0", "worker-1"];
    for name in names {
        world.add_machine(name).await?;
    }
    let mut identities = BTreeMap::new();
    for name in names {
        let machine = world.becomes("VSphereMachine", name, "is ready", is_ready).await?;
        let vm = world.becomes("VSphereVM", name, "is ready", is_ready).await?;
        let id = machine["spec"]["providerID"].as_str().unwrap_or_default().to_owned();
        ensure!(format!("vsphere://{}", vm["spec"]["biosUUID"].as_str().unwrap_or_default()) == id, "{vm}");
        ensure!(vm["spec"]["server"] == format!("127.0.0.1:{}", world.vcsim.port()), "{vm}");
        ensure!(vm["spec"]["template"] == vsphere::machine(0), "{vm}");
        let status = &vm["status"];
        ensure!(
            status["ready"] == true && status["addresses"].as_array().is_some_and(|all| !all.is_empty()),
            "{vm}"
        );
        ensure!(status["vmRef"].as_str().is_some_and(|id| id.starts_with("vm-")), "{vm}");
        ensure!(status["host"].as_str().is_some_and(|host| host.starts_with("DC0_C0")), "{vm}");
        ensure!(status["network"][0]["macAddr"].is_string() && status["cloneMode"] == "fullClone", "{vm}");
        ensure!(vm["metadata"]["ownerReferences"][0]["uid"] == machine["metadata"]["uid"], "{vm}");
        for (object, expected) in [
            (&machine, &["Ready", "VMProvisioned"][..]),
            (&vm, &["Ready", "VCenterAvailable", "VMProvisioned"]),
        ] {
            ensure!(condition(object, "VirtualMachineProvisioned")["reason"] == "Provisioned", "{object}");
            ensure!(for_readers_of_v1beta1(object, "True")? == expected, "{object}");
        }
        ensure!(condition(&vm, "VCenterAvailable")["reason"] == "Available", "{vm}");
        identities.insert(name, id);
    }
    world.wrote("made", MAX_WRITES)?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(world.tape.steps().is_empty(), "{:?}", world.tape.steps());

    // Somebody destroys one.
    let began = Instant::now();
    world.vcsim.act("worker-0", "destroy", "")?;
    let is_lost = |machine: &Value| condition(machine, "Ready")["reason"] == "MachineLost";
    world.becomes("VSphereMachine", "worker-0", "is lost", is_lost).await?;
    let is_lost = |vm: &Value| {
        condition(vm, "Ready")["reason"] == "NotFoundByBIOSUUID" && vm["status"]["ready"] == false
    };
    world.becomes("VSphereVM", "worker-0", "is lost", is_lost).await?;
    println!("vsphere: a destroyed virtual machine is told after {} ms", began.elapsed().as_millis());
    for kind in ["VSphereMachine", "VSphereVM"] {
        let object = world.get(kind, "worker-0").await?;
        let provisioned = condition(&object, "VirtualMachineProvisioned");
        ensure!(
            provisioned["reason"] == "NotFoundByBIOSUUID" && provisioned["status"] == "False",
            "{object}"
        );
        ensure!(for_readers_of_v1beta1(&object, "False")? == ["Ready", "VMProvisioned"], "{object}");
    }

    world.tape.clear();
    world.objects("VSphereMachine").delete("worker-1", &DeleteParams::default()).await?;
    world.becomes("VSphereMachine", "worker-1", "is gone", Value::is_null).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.wrote("deleted", MAX_WRITES_OF_DELETION)?;
    world.remove_owner("worker-1").await?;
    world.end(&["worker-0"], daemon).await
}

/// Cluster API Provider vSphere has made the `VSphereVM`, and is no longer there.
async fn taken_over(api: &Api) -> anyhow::Result<()> {
    let world = World::new(api).await?;
    world.add_cluster().await?;
    let machine = world.add_machine("worker-0").await?;
    let metadata = json!({
        "finalizers": ["vspherevm.infrastructure.cluster.x-k8s.io"],
        "ownerReferences": [{
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta1"), "kind": "VSphereMachine", "name": "worker-0",
            "uid": machine["metadata"]["uid"],
        }],
    });
    let spec = json!({"template": "as it was", "numCPUs": 8, "network": {"devices": []}});
    let made = world.create("VSphereVM", "worker-0", json!({"metadata": metadata, "spec": spec})).await?;
    let daemon = world.start()?;
    world.becomes("VSphereMachine", "worker-0", "is ready", is_ready).await?;
    let vm = world.becomes("VSphereVM", "worker-0", "is ready", is_ready).await?;
    ensure!(vm["metadata"]["uid"] == made["metadata"]["uid"], "{vm}");
    ensure!(vm["spec"]["template"] == "as it was" && vm["spec"]["numCPUs"] == 8, "{vm}");
    ensure!(vm["spec"]["biosUUID"].is_string() && vm["spec"]["powerOffMode"] == "hard", "{vm}");
    world.end(&["worker-0"], daemon).await
}
