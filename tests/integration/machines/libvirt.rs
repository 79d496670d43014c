//! The kinds of the libvirt provider on the real API server, and one machine on a real libvirtd: from an image to nothing.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use cloudprovider::{
    CloudProvider, DynMachines, InstanceLookup, Instances, NodeIdentity, StartContext,
    machines::{
        BootstrapData, BootstrapFormat, ClusterContext, Deletion, MachineReport, MachineRequest, Mark,
        PresentMachine, Record,
    },
};
use cloudprovider_libvirt::{Config, LibvirtProvider};
use machine_controller::crds::Definitions;
use serde_json::{Value, json};
use test_env::{Libvirtd, MicroGuestImage};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kinds::{Kinds, refused};
use crate::{
    api::Api,
    daemon::binary,
    guest::GUEST_PATIENCE,
    scenarios::Trials,
    trial::{Outcome, runtime},
};

const UID: &str = "5d0b0b0e-3c53-4c5c-9b5e-2f0f6c9a7a10";

/// Only the guest could print this line: it is not in the user data.
const USER_DATA: &str = "#!/bin/sh\necho \"GUEST says $(hostname) $((6 * 7))\"\n";
const SAYS: &str = "GUEST says worker-1 42";

/// The address that the network keeps for the guest.
const KEPT: &str = "192.168.122.77";

/// How soon the next step comes if nothing tells that it is due.
const INTERVAL: Duration = Duration::from_millis(300);

pub(super) fn trials() -> Trials {
    Trials::new()
        .api_server("machines::libvirt::the_api_server_checks_specs", definitions)
        .trial("apiserver::qemu::a_machine_from_image_to_nothing", from_image_to_nothing)
}

async fn definitions(api: &Api) -> Result<()> {
    let printed = Command::new(binary()?)
        .args(["manifests", "--provider=libvirt", "--machines", "--only-definitions"])
        .output()?;
    let printed = String::from_utf8(printed.stdout)?;
    for kind in ["LibvirtMachine", "LibvirtMachineTemplate", "LibvirtCluster", "LibvirtClusterTemplate"] {
        ensure!(printed.contains(&format!("kind: {kind}\n")), "no {kind} in {printed}");
    }
    let config = Config::parse("hypervisors: [{name: a, uri: 'test:///default'}]", None)?;
    let provider = LibvirtProvider::new(config);
    let machines = provider.machines().context("libvirt has machines")?;
    let definitions = Definitions::new("libvirt", &machines.kinds(), &machines.schemas())?;
    let kinds = Kinds::in_group(api.client.clone(), machines.kinds().group);
    kinds.establish(&definitions).await?;
    let outcome = specs(&kinds).await;
    kinds.remove(&definitions).await?;
    outcome
}

/// A spec with these fields beside the required ones.
fn machine(more: &Value) -> Value {
    let mut spec = json!({
        "vcpus": 2, "memoryMiB": 2048, "image": {"volume": {"name": "debian-12.qcow2"}}, "disks": [{"sizeGiB": 20}],
    });
    for (name, field) in more.as_object().into_iter().flatten() {
        spec[name] = field.clone();
    }
    json!({ "spec": spec })
}

async fn specs(kinds: &Kinds) -> Result<()> {
    let sum = format!("sha256:{}", "a".repeat(64));
    let url = json!({"url": "https://example.org/a.qcow2", "checksum": sum});
    for (name, more) in [
        ("small", json!({})),
        ("from-url", json!({"image": url, "cpu": {"mode": "host-model"}, "firmware": "uefi"})),
        (
            "interfaces",
            json!({"interfaces": [
                {"network": "default", "reservation": {}}, {"bridge": "br0"}, {"macvtap": {"device": "eth0"}},
            ]}),
        ),
    ] {
        kinds.apply("LibvirtMachine", name, &machine(&more)).await.with_context(|| name.to_owned())?;
    }
    let template = json!({"spec": {"template": machine(&json!({}))}});
    kinds.apply("LibvirtMachineTemplate", "workers", &template).await?;
    kinds.apply("LibvirtCluster", "prod", &json!({"spec": {"hypervisors": ["kvm1"]}})).await?;
    clusters(kinds).await?;
    for (more, words) in [
        (json!({"vcpus": 0}), "spec.vcpus"),
        (json!({"memory": 1}), "spec.memory"),
        (json!({"disks": []}), "spec.disks"),
        (json!({"image": {}}), "give one of volume, url and file"),
        (json!({"image": {"url": "https://example.org/a"}}), "checksum is required with url and file"),
        (json!({"image": {"url": "https://u:p@example.org/a", "checksum": sum}}), "spec.image.url"),
        (json!({"interfaces": [{"network": "a", "bridge": "b"}]}), "give one of network, bridge and macvtap"),
        (json!({"interfaces": [{"bridge": "b", "reservation": {}}]}), "reservation needs network"),
        (
            json!({"interfaces": [{"network": "a", "mac": "52:54:00:00:00:01", "reservation": {}}]}),
            "reservation is not possible together with mac",
        ),
        (
            json!({"interfaces": [{"network": "a", "reservation": {"address": "fd00::1"}}]}),
            "spec.interfaces[0].reservation.address",
        ),
        (json!({"cpu": {}}), "give either mode or model"),
        (json!({"firmware": "efi"}), "spec.firmware"),
    ] {
        let answer = kinds.apply("LibvirtMachine", "wrong", &machine(&more)).await;
        refused(&more.to_string(), answer, &[words])?;
    }
    for more in [
        json!({"vcpus": 4}),
        json!({"disks": [{"sizeGiB": 20, "pool": "other"}]}),
        json!({"interfaces": [{"network": "other"}]}),
    ] {
        let answer = kinds.apply("LibvirtMachine", "small", &machine(&more)).await;
        refused(&more.to_string(), answer, &["cannot change; make a new template"])?;
    }
    // A field that is left out is a change too.
    let answer = kinds.apply("LibvirtMachine", "interfaces", &machine(&json!({}))).await;
    refused("no interfaces", answer, &["interfaces cannot change; make a new template"])
}

/// The pool of a cluster cannot go away, nor move to another network: its claim would be left behind.
async fn clusters(kinds: &Kinds) -> Result<()> {
    let cluster = |pool: Value| json!({"spec": {"controlPlaneEndpointPool": pool}});
    let pool = |network: &str| json!({"network": network, "addresses": ["192.168.122.200"]});
    let mut named = pool("default");
    named["hypervisor"] = json!("kvm1");
    let mut wider = named.clone();
    wider["addresses"] = json!(["192.168.122.200-192.168.122.209"]);
    for allowed in [pool("default"), named, wider] {
        kinds.apply("LibvirtCluster", "pooled", &cluster(allowed)).await?;
    }
    kinds.apply("LibvirtCluster", "plain", &json!({})).await.context("all fields have defaults")?;
    for (wrong, words) in [
        (cluster(pool("default")), "hypervisor cannot change"),
        (cluster(pool("other")), "network cannot change"),
        (json!({"spec": {"hypervisors": ["kvm1"]}}), "controlPlaneEndpointPool cannot be removed"),
        (cluster(json!({"network": "default"})), "spec.controlPlaneEndpointPool.addresses"),
    ] {
        let answer = kinds.apply("LibvirtCluster", "pooled", &wrong).await;
        refused(&wrong.to_string(), answer, &[words])?;
    }
    Ok(())
}

fn from_image_to_nothing() -> Outcome {
    let libvirtd = Libvirtd::start()?;
    let image = MicroGuestImage::find()?;
    make_pool(&libvirtd)?;
    runtime(false)?.block_on(async {
        let text = format!(
            "hypervisors: [{{name: kvm1, uri: '{}', zone: rack-1}}]\n\
            machines: {{reservedMemoryMiB: 0, allow: {}}}\n",
            libvirtd.uri(),
            allow_folder_of(&image.disk)
        );
        let provider = LibvirtProvider::new(Config::parse(&text, None)?);
        let stop = CancellationToken::new();
        provider.start(StartContext::new(stop.clone(), "kubernetes")).await?;
        let outcome = life(&provider, &libvirtd, &image).await;
        stop.cancel();
        provider.ended().await;
        outcome
    })?;
    Ok(())
}

/// The pool `default`, empty.
pub(crate) fn make_pool(libvirtd: &Libvirtd) -> Result<()> {
    libvirtd.define_xml(
        "pool-define",
        "<pool type='dir'><name>default</name><target><path>/var/lib/libvirt/images</path></target></pool>",
    )?;
    fs::create_dir_all(libvirtd.data_folder().join("images"))?;
    libvirtd.virsh_output(&["pool-start", "default"]).map(drop)
}

/// What there is on the hypervisor, images aside: domains, volumes, DHCP reservations and NVRAM.
pub(crate) fn things(libvirtd: &Libvirtd) -> Result<Vec<String>> {
    let domains = libvirtd.virsh_output(&["list", "--all", "--name"])?;
    libvirtd.virsh_output(&["pool-refresh", "default"])?;
    let volumes = libvirtd.virsh_output(&["vol-list", "default"])?;
    let network = libvirtd.virsh_output(&["net-dumpxml", "default"])?;
    let nvram = fs::read_dir(libvirtd.data_folder().join("qemu/nvram")).into_iter().flatten();
    let mut all: Vec<String> = domains.split_whitespace().map(str::to_owned).collect();
    all.extend(volumes.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned));
    all.extend(network.lines().filter(|line| line.contains("<host ")).map(|line| line.trim().to_owned()));
    all.extend(nvram.flatten().map(|file| file.path().display().to_string()));
    // Images stay: they are shared.
    all.retain(|one| !one.starts_with("ccm-image-"));
    all.sort();
    Ok(all)
}

/// What a configuration allows for machines whose image is this file: its folder.
pub(crate) fn allow_folder_of(image: &std::path::Path) -> String {
    let folder = image.parent().unwrap_or(image).display();
    format!("[{{imageFolders: ['{folder}']}}]")
}

/// The checksum of a file, as specs have it.
pub(crate) fn sha256(path: &std::path::Path) -> Result<String> {
    let output = Command::new("sha256sum").arg(path).output()?;
    let text = String::from_utf8(output.stdout)?;
    let digits = text.split_whitespace().next().context("sha256sum prints nothing")?;
    Ok(format!("sha256:{digits}"))
}

async fn life(provider: &LibvirtProvider, libvirtd: &Libvirtd, image: &MicroGuestImage) -> Result<()> {
    let machines = provider.machines().context("libvirt has machines")?;
    let before = things(libvirtd)?;
    let spec = json!({
        "vcpus": 1, "memoryMiB": 256, "domainType": "qemu",
        "image": { "file": image.disk, "checksum": sha256(&image.disk)?, "format": "raw" },
        "disks": [{ "sizeGiB": 1 }, { "sizeGiB": 1, "name": "data" }],
        "interfaces": [{ "network": "default", "reservation": { "address": KEPT } }],
    });
    let mark = Mark::machine(UID, "default", "prod", "worker-1");
    let mut request = MachineRequest::new(mark, spec, ClusterContext::new(json!({})))
        .with_object_uid(UID)
        .with_bootstrap(BootstrapData::new(BootstrapFormat::CloudConfig, USER_DATA));
    let mut record = Record::default();
    let began = Instant::now();
    let machine = made(machines, &mut request, &mut record).await.with_context(|| console(libvirtd))?;
    println!("from nothing to an address: {:?}", began.elapsed());

    let id = format!("libvirt:///{UID}");
    ensure!(request.provider_id.as_ref() == Some(&id), "{:?}", request.provider_id);
    ensure!(machine.failure_domain.as_deref() == Some("rack-1"), "{:?}", machine.failure_domain);
    let node = NodeIdentity {
        name: "worker-1".to_owned(),
        system_uuid: Some(UID.to_owned()),
        ..NodeIdentity::default()
    };
    match provider.lookup(&[&node]).await.pop() {
        Some(InstanceLookup::Present(instance)) => {
            ensure!(instance.provider_id.is_some_and(|found| found.as_str() == id), "another provider ID");
        }
        other => bail!("its Node is {other:?}"),
    }
    while !console(libvirtd).contains(SAYS) {
        ensure!(began.elapsed() < GUEST_PATIENCE, "no user data: {}", console(libvirtd));
        tokio::time::sleep(INTERVAL).await;
    }
    // The domain, two disks, the seed, the log, and the entry of the address.
    ensure!(things(libvirtd)?.len() == before.len() + 6, "{:?}", things(libvirtd)?);
    let leases = libvirtd.virsh_output(&["net-dhcp-leases", "default"])?;
    ensure!(leases.lines().any(|line| line.contains(KEPT) && line.contains("worker-1")), "{leases}");
    let reported: Vec<_> =
        machine.instance.metadata.addresses.iter().map(|one| one.address.as_str()).collect();
    ensure!(reported.contains(&KEPT), "{reported:?}");

    request.bootstrap = None;
    loop {
        match machines.delete_machine(&request, &mut record).await? {
            Deletion::Gone => break,
            Deletion::Deleting(wait) => println!("{}", wait.message),
        }
        ensure!(began.elapsed() < GUEST_PATIENCE, "it is not deleted");
        tokio::time::sleep(INTERVAL).await;
    }
    ensure!(things(libvirtd)? == before, "left: {:?}", things(libvirtd)?);
    Ok(())
}

/// Steps until nothing is left to do.
async fn made(
    machines: &dyn DynMachines,
    request: &mut MachineRequest<Value, Value>,
    record: &mut Record<Value>,
) -> Result<PresentMachine> {
    let began = Instant::now();
    let mut said = String::new();
    loop {
        let now = match machines.ensure_machine(request, record).await {
            Ok(MachineReport::Present(machine)) => {
                request.provider_id = machine.instance.provider_id.as_ref().map(|id| id.as_str().to_owned());
                match &machine.wait {
                    None => return Ok(*machine),
                    Some(wait) => wait.message.to_string(),
                }
            }
            Ok(MachineReport::Creating(wait)) => wait.message.to_string(),
            Ok(MachineReport::Lost { message }) => bail!("lost: {message}"),
            Err(error) if error.is_retryable() => error.report(),
            Err(error) => bail!("{}", error.report()),
        };
        if said != now {
            println!("{:?}: {now}", began.elapsed());
            said = now;
        }
        ensure!(began.elapsed() < GUEST_PATIENCE, "it waits: {said}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What the guest has printed.
pub(crate) fn console(libvirtd: &Libvirtd) -> String {
    let images = fs::read_dir(libvirtd.data_folder().join("images")).into_iter().flatten().flatten();
    let log = images.map(|file| file.path()).find(|path| path.to_string_lossy().contains("console.log"));
    let bytes = log.and_then(|log| fs::read(log).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
