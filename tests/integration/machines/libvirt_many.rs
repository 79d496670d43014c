//! Many libvirt machines at once, on libvirt's test driver: what they cost the API server and the hypervisors.
//!
//! The driver refuses uploads, so the seeds have no content here. All else is as with any hypervisor.

use std::{collections::BTreeMap, fmt::Write as _, io::Write as _, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use cloudprovider::CloudProvider;
use cloudprovider_libvirt::{Config, LibvirtProvider, measured};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use machine_controller::crds::Definitions;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{
    core::{self, CORE, INFRASTRUCTURE},
    tape::{Tape, tells_a_wait},
    world::{NAMESPACE, ONLY, is_ready},
};
use crate::{
    api::{Api, Target},
    daemon::InProcess,
    scenarios::Trials,
    support::eventually,
    trial::{Outcome, runtime},
};

const HYPERVISORS: usize = 4;

/// How many machines there are, and then again.
const MACHINES: [usize; 2] = [40, 80];

/// How much more calls twice as many machines may cost, in percent.
const MAX_GROWTH: u64 = 220;

/// The writes that a machine may cost until it is ready, besides those about waits that last.
const MAX_WRITES: usize = 4;

/// The calls that a machine may cost the hypervisor that it is on, those that follow events included.
const MAX_CALLS: u64 = 29;

/// The calls that a machine may cost each hypervisor that could have parts of it.
const MAX_SEARCH_CALLS: u64 = 3;

/// The calls that the deletion of a machine may cost.
const MAX_DELETION_CALLS: u64 = 22;

/// How long all of it may take.
const PATIENCE: Duration = test_env::PATIENCE;

pub(crate) const IMAGE: &str = "debian-12.raw";

pub(super) fn trials() -> Trials {
    Trials::new().trial("sandbox::machines::libvirt::many_at_once", many_at_once)
}

/// A hypervisor with 1 TiB of memory, whose pool has the image.
pub(crate) fn hypervisor() -> Result<NamedTempFile> {
    let xml = format!(
        "<node><cpu><mhz>2000</mhz><model>x</model><active>64</active><nodes>1</nodes><sockets>1</sockets>
         <cores>64</cores><threads>1</threads></cpu><memory>1073741824</memory>
         <network><name>default</name><forward/><bridge name='virbr0'/>
         <ip address='192.168.122.1' netmask='255.255.255.0'>
         <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp></ip></network>
         <pool type='dir'><name>default</name><target><path>/default</path></target>
         <volume type='file'><name>{IMAGE}</name><capacity unit='bytes'>1073741824</capacity></volume></pool></node>"
    );
    let mut file = NamedTempFile::new()?;
    file.write_all(xml.as_bytes())?;
    Ok(file)
}

/// What some machines have cost.
struct Costs {
    /// Calls of all hypervisors until all machines were ready, and those of the deletion.
    calls: [BTreeMap<&'static str, u64>; 2],
    /// The writes of the machine that had most.
    writes: Vec<String>,
}

fn sum(calls: &BTreeMap<&'static str, u64>) -> u64 {
    calls.values().sum()
}

fn many_at_once() -> Outcome {
    runtime(false)?.block_on(async {
        let [few, many] = MACHINES;
        let (few, many) = (costs(few).await?, costs(many).await?);
        for (costs, machines) in [(&few, MACHINES[0] as u64), (&many, MACHINES[1] as u64)] {
            println!("{machines} machines, {} writes: {:?}", costs.writes.len(), costs.calls);
            ensure!(costs.writes.len() <= MAX_WRITES, "{} writes: {:#?}", costs.writes.len(), costs.writes);
            let most = machines * (MAX_CALLS + MAX_SEARCH_CALLS * HYPERVISORS as u64);
            ensure!(sum(&costs.calls[0]) <= most, "{most} calls: {:?}", costs.calls[0]);
            ensure!(sum(&costs.calls[1]) <= machines * MAX_DELETION_CALLS, "{:?}", costs.calls[1]);
        }
        for (few, many) in few.calls.iter().zip(&many.calls) {
            ensure!(sum(many) * 100 <= sum(few) * MAX_GROWTH, "{few:?} and then {many:?}");
        }
        Ok(())
    })?;
    Ok(())
}

/// The objects of a kind.
fn objects(api: &Api, group: &str, version: &str, kind: &str) -> kube::Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    kube::Api::namespaced_with(api.client.clone(), NAMESPACE, &ApiResource::from_gvk(&gvk))
}

/// What Cluster API's core makes.
struct Core<'a> {
    api: &'a Api,
    machines: kube::Api<DynamicObject>,
    clusters: kube::Api<DynamicObject>,
    own_machines: kube::Api<DynamicObject>,
    own_clusters: kube::Api<DynamicObject>,
}

impl<'a> Core<'a> {
    async fn new(api: &'a Api, provider: &LibvirtProvider) -> Result<Self> {
        core::install_core(api, &["v1beta2"]).await?;
        let machines = provider.machines().context("libvirt has machines")?;
        let kinds = machines.kinds();
        let definitions = Definitions::new("libvirt", &kinds, &machines.schemas())?;
        for crd in definitions.crds() {
            core::install(api, crd).await?;
        }
        Ok(Self {
            api,
            machines: objects(api, CORE, "v1beta2", "Machine"),
            clusters: objects(api, CORE, "v1beta2", "Cluster"),
            own_machines: objects(api, INFRASTRUCTURE, kinds.version, "LibvirtMachine"),
            own_clusters: objects(api, INFRASTRUCTURE, kinds.version, "LibvirtCluster"),
        })
    }

    /// A cluster whose infrastructure is provisioned.
    async fn add_cluster(&self) -> Result<()> {
        let infrastructure = json!({"apiGroup": INFRASTRUCTURE, "kind": "LibvirtCluster", "name": "prod"});
        let cluster = json!({"metadata": {"name": "prod"}, "spec": {"infrastructureRef": infrastructure}});
        let owner = make(&self.clusters, CORE, "v1beta2", "Cluster", cluster).await?;
        let metadata = owned(&owner, "Cluster", "prod");
        let endpoint = json!({"host": "192.0.2.1", "port": 6443});
        let own = json!({"metadata": metadata, "spec": {"controlPlaneEndpoint": endpoint}});
        make(&self.own_clusters, INFRASTRUCTURE, "v1alpha1", "LibvirtCluster", own).await?;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        self.clusters.patch_status("prod", &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    async fn add_machine(&self, name: &str) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-data"), "labels": {"cluster.x-k8s.io/cluster-name": "prod"}},
            "type": "cluster.x-k8s.io/secret",
            // "#cloud-config" and "cloud-config"
            "data": {"value": "I2Nsb3VkLWNvbmZpZwo=", "format": "Y2xvdWQtY29uZmln"},
        }))?;
        let secrets = kube::Api::<Secret>::namespaced(self.api.client.clone(), NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await?;
        let labels = json!({"cluster.x-k8s.io/cluster-name": "prod"});
        let infrastructure = json!({"apiGroup": INFRASTRUCTURE, "kind": "LibvirtMachine", "name": name});
        let machine = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "clusterName": "prod", "infrastructureRef": infrastructure,
                "bootstrap": {"dataSecretName": format!("{name}-data")},
            },
        });
        let owner = make(&self.machines, CORE, "v1beta2", "Machine", machine).await?;
        let spec = json!({
            "vcpus": 1, "memoryMiB": 64, "image": {"volume": {"name": IMAGE}, "format": "raw"}, "disks": [{"sizeGiB": 2}],
        });
        let own = json!({"metadata": owned(&owner, "Machine", name), "spec": spec});
        make(&self.own_machines, INFRASTRUCTURE, "v1alpha1", "LibvirtMachine", own).await?;
        Ok(())
    }
}

/// The metadata of what the core's object of this name owns.
fn owned(owner: &DynamicObject, kind: &str, name: &str) -> Value {
    let reference = json!({
        "apiVersion": format!("{CORE}/v1beta2"), "kind": kind, "name": name, "uid": owner.metadata.uid, "controller": true,
    });
    json!({
        "name": name, "labels": {"cluster.x-k8s.io/cluster-name": "prod"}, "ownerReferences": [reference],
    })
}

async fn make(
    all: &kube::Api<DynamicObject>,
    group: &str,
    version: &str,
    kind: &str,
    mut content: Value,
) -> Result<DynamicObject> {
    content["apiVersion"] = format!("{group}/{version}").into();
    content["kind"] = kind.into();
    let object = serde_json::from_value(content)?;
    all.create(&PostParams::default(), &object).await.with_context(|| kind.to_owned())
}

async fn costs(count: usize) -> Result<Costs> {
    let files: Vec<_> = (0..HYPERVISORS).map(|_| hypervisor()).collect::<Result<_>>()?;
    let mut config =
        "machines: {cpuOvercommit: 100, allow: [{imageVolumes: [{pool: default}]}]}\nhypervisors:\n"
            .to_owned();
    for (number, file) in files.iter().enumerate() {
        // a String takes everything
        let _ = writeln!(config, "- {{name: kvm{number}, uri: 'test://{}'}}", file.path().display());
    }
    let provider = Arc::new(measured::provider_on_test_driver(Config::parse(&config, None)?));
    let api = Api::connect(Target::Sandbox).await.map_err(anyhow::Error::from)?;
    let core = Core::new(&api, &provider).await?;
    let tape = Tape::default();
    let daemon = InProcess::start(&tape.client(&api.client), Arc::clone(&provider) as _, &[ONLY])?;
    core.add_cluster().await?;
    eventually(PATIENCE, "the hypervisors are live", || async {
        Ok(provider.hypervisors().all(|one| one.is_live()).then_some(()))
    })
    .await?;
    let before = provider.call_counts();
    for number in 0..count {
        core.add_machine(&format!("m-{number}")).await?;
    }
    let are_ready = || async {
        let all = core.own_machines.list(&ListParams::default()).await?;
        let ready = all.iter().map(|one| Ok(is_ready(&serde_json::to_value(one)?)));
        let ready = ready.collect::<Result<Vec<_>>>()?;
        Ok((ready.len() == count && ready.into_iter().all(|is| is)).then_some(()))
    };
    let outcome = eventually(PATIENCE, "all are ready", are_ready).await;
    outcome.with_context(|| format!("{:?}", tape.steps().last()))?;
    let made = provider.call_counts();
    let mut writes = BTreeMap::<String, Vec<String>>::new();
    let of_machines = tape.steps().into_iter().filter(|write| write.resource == "libvirtmachines");
    for write in of_machines.filter(|write| !tells_a_wait(write)) {
        writes.entry(write.name).or_default().push(format!("{} {}", write.what, write.body));
    }
    let residents: Vec<_> = provider.hypervisors().map(|one| one.domain_names().len()).collect();
    ensure!(residents.iter().all(|number| *number == count / HYPERVISORS), "spread: {residents:?}");
    for number in 0..count {
        core.own_machines.delete(&format!("m-{number}"), &DeleteParams::default()).await?;
    }
    eventually(PATIENCE, "all are gone", || async {
        Ok(core.own_machines.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await?;
    let removed = provider.call_counts();
    nothing_is_left(&provider).await?;
    daemon.stop().await?;
    Ok(Costs {
        calls: [difference(&made, &before), difference(&removed, &made)],
        writes: writes.into_values().max_by_key(Vec::len).unwrap_or_default(),
    })
}

fn difference(
    after: &BTreeMap<&'static str, u64>,
    before: &BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    let count = |(name, count): (&&'static str, &u64)| (*name, count - before.get(name).unwrap_or(&0));
    after.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

pub(crate) async fn nothing_is_left(provider: &LibvirtProvider) -> Result<()> {
    for hypervisor in provider.hypervisors() {
        let look = |connect: &cloudprovider_libvirt::virt::connect::Connect| {
            let domains = connect.list_all_domains(0)?.len();
            let volumes = connect.lookup_storage_pool_by_name("default")?.list_volumes()?;
            Ok::<_, cloudprovider_libvirt::virt::error::Error>((domains, volumes))
        };
        let left = hypervisor.with_connection(look).await??;
        ensure!(left == (0, vec![IMAGE.to_owned()]), "{}: {left:?}", hypervisor.name());
    }
    Ok(())
}
