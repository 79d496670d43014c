//! The virtual machines that Cluster API Provider vSphere makes of some manifests, and those that this daemon makes of the same ones,
//! field by field. So are the requests with which they are cloned, since the simulator takes no notice of much that they say.

mod cases;
mod facts;
mod request;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use test_env::{Capv, ControlPlane, StartError, Vcsim, VcsimOptions};

use self::{
    cases::{WITH_SNAPSHOT, WITH_TWO_DISKS},
    facts::facts,
    request::Request,
};
use super::PATIENCE;
use crate::{
    cluster_api::{
        installed::Installed,
        management::{Management, apply},
    },
    documented::{BESIDE_CAPV, Differences, is_one},
    support::tail,
    trial::Outcome,
    vsphere::{config, machine},
};

const NAMESPACE: &str = "lab";

/// How long nothing is looked at again.
const PAUSE: Duration = Duration::from_millis(500);

/// The documentation has the differences in a table: it names those facts that are different, and says why.
const TITLE: &str = "### The virtual machine, beside CAPV's";

/// What is another one for each machine, whoever makes it. A star stands for anything.
const OF_EACH: [&str; 12] = [
    "config.uuid",
    "config.instanceUuid",
    "config.changeVersion",
    "config.modified",
    "config.createDate",
    "config.datastoreUrl[*",
    "config.hardware.device[*].macAddress",
    "config.hardware.device[*].backing.uuid",
    "config.hardware.device[*].backing.port.*",
    "config.hardware.device[VirtualCdrom *].backing.deviceName",
    "metadata.network.ethernets.*.match.macaddress",
    "CloneSpec.config.instanceUuid",
];

/// Who makes the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Capv,
    Ours,
}

/// A machine that was made, and the request that made it.
struct Made {
    facts: BTreeMap<String, String>,
    request: Request,
}

pub(super) fn whole() -> Outcome {
    let (theirs, ours) = (machines_of(Maker::Capv)?, machines_of(Maker::Ours)?);
    let mut differences = Differences::documented(BESIDE_CAPV, TITLE)?;
    for (name, their) in &theirs {
        let our = ours.get(name).with_context(|| name.clone())?;
        compare(&their.facts, &our.facts, &mut differences);
        compare(&their.request.facts, &our.request.facts, &mut differences);
        check_order(&their.request, &our.request)?;
    }
    Ok(differences.check()?)
}

/// Has the machines made, and gives all that they are.
fn machines_of(maker: Maker) -> Result<BTreeMap<String, Made>, StartError> {
    let options = VcsimOptions { machines: 3, nodes: false, boots_guests: true, ..VcsimOptions::default() };
    let vcsim = Vcsim::start(&options)?;
    prepare(&vcsim)?;
    let tag = vcsim.attach_tag_with_id("team", "payments", "Datacenter", "DC0")?;
    let management = Management::start()?;
    let control_plane = &management.control_plane;
    control_plane.kubectl_output(&["create", "namespace", NAMESPACE])?;
    let folder = TempDir::new().context("a folder")?;
    match maker {
        Maker::Capv => {
            Capv::install(control_plane)?;
            let capv = Capv::start(control_plane, &vcsim, &[])?;
            let made = made(control_plane, &vcsim, &tag);
            Ok(made.with_context(|| format!("the manager said: {}", tail(&capv.log())))?)
        }
        Maker::Ours => {
            let file = folder.path().join("cloud.yaml");
            fs::write(&file, config(&[&vcsim])?).context("the configuration")?;
            let installed = Installed::apply(control_plane, "vsphere", file)?;
            let daemon = installed.start(control_plane, &[], &folder.path().join("daemon.log"))?;
            let made = made(control_plane, &vcsim, &tag);
            let made = made.with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
            daemon.terminate()?;
            Ok(made)
        }
    }
}

/// Gives one template a snapshot, and another one a second disk.
fn prepare(vcsim: &Vcsim) -> Result<()> {
    let inventory = vcsim.inventory()?;
    let reference = |number| -> Result<String> {
        let found = inventory.iter().find(|one| one["name"] == machine(number)).context("a template")?;
        let whole = found["ref"].as_str().context("a reference")?;
        Ok(whole.rsplit(':').next().unwrap_or_default().to_owned())
    };
    let devices = vcsim.machine(&machine(WITH_TWO_DISKS))?["config"]["hardware"]["device"].take();
    let disk = devices.as_array().into_iter().flatten().find(|device| device["_typeName"] == "VirtualDisk");
    let controller = disk.and_then(|disk| disk["controllerKey"].as_i64()).context("a disk")?;
    let snapshot = format!(
        "<CreateSnapshot_Task xmlns=\"urn:vim25\"><_this type=\"VirtualMachine\">{}</_this><name>gold</name>\
         <memory>false</memory><quiesce>false</quiesce></CreateSnapshot_Task>",
        reference(WITH_SNAPSHOT)?
    );
    let second_disk = format!(
        "<ReconfigVM_Task xmlns=\"urn:vim25\"><_this type=\"VirtualMachine\">{}</_this><spec><deviceChange>\
         <operation>add</operation><fileOperation>create</fileOperation><device xsi:type=\"VirtualDisk\"><key>-1</key>\
         <backing xsi:type=\"VirtualDiskFlatVer2BackingInfo\"><fileName></fileName><diskMode>persistent</diskMode>\
         <thinProvisioned>true</thinProvisioned></backing><controllerKey>{controller}</controllerKey>\
         <unitNumber>1</unitNumber><capacityInKB>2097152</capacityInKB></device></deviceChange></spec></ReconfigVM_Task>",
        reference(WITH_TWO_DISKS)?
    );
    vcsim.call(&[&snapshot, &second_disk])?;
    let began = Instant::now();
    loop {
        let has_snapshot = !vcsim.machine(&machine(WITH_SNAPSHOT))?["snapshot"].is_null();
        let config = vcsim.machine(&machine(WITH_TWO_DISKS))?["config"].take();
        let devices = config["hardware"]["device"].as_array().into_iter().flatten();
        if has_snapshot && devices.filter(|device| device["_typeName"] == "VirtualDisk").count() == 2 {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "no snapshot, or no second disk");
        sleep(PAUSE);
    }
}

/// The simulator keeps the last request, so the machines begin one after the other. Then all go on.
fn made(control_plane: &ControlPlane, vcsim: &Vcsim, tag: &str) -> Result<BTreeMap<String, Made>> {
    apply(control_plane, "cluster.json", &cases::cluster(vcsim))?;
    let cases = cases::all(tag);
    let mut requests = BTreeMap::new();
    for case in &cases {
        apply(control_plane, "machine.json", &case.objects())?;
        let began = Instant::now();
        while !vcsim.inventory()?.iter().any(|one| one["name"] == case.name) {
            ensure!(
                began.elapsed() < PATIENCE,
                "{} is not cloned: {}",
                case.name,
                told(control_plane, case.name)?
            );
            sleep(PAUSE);
        }
        let sent = vcsim.last_requests()?.remove("soap:CloneVM_Task").context("a clone")?;
        requests.insert(case.name, request::read(&sent, case.name)?);
    }
    let began = Instant::now();
    let mut all = BTreeMap::new();
    for case in &cases {
        loop {
            let found = told(control_plane, case.name)?;
            if found["status"]["ready"] == true {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "{} is not ready: {found}", case.name);
            sleep(PAUSE);
        }
        let facts = facts(&vcsim.machine(case.name)?)?;
        let request = requests.remove(case.name).context("a request")?;
        all.insert(case.name.to_owned(), Made { facts, request });
    }
    Ok(all)
}

/// The `VSphereMachine` of this name.
fn told(control_plane: &ControlPlane, name: &str) -> Result<Value> {
    let kind = "vspheremachines.v1beta1.infrastructure.cluster.x-k8s.io";
    let found = control_plane.kubectl_output(&["get", kind, name, "-n", NAMESPACE, "-o", "json"])?;
    Ok(serde_json::from_str(&found)?)
}

fn compare(
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    differences: &mut Differences,
) {
    let names: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    for name in names.into_iter().filter(|name| !OF_EACH.iter().any(|pattern| is_one(name, pattern))) {
        differences.see(name, theirs.get(name), ours.get(name));
    }
}

/// That the fields which both send are in the same order: a real vCenter wants them in that of its schema.
fn check_order(theirs: &Request, ours: &Request) -> Result<()> {
    for (name, their) in &theirs.orders {
        let Some(our) = ours.orders.get(name) else { continue };
        let common = |fields: &[String], others: &[String]| {
            fields.iter().filter(|field| others.contains(field)).cloned().collect::<Vec<_>>()
        };
        let (their, our) = (common(their, our), common(our, their));
        ensure!(their == our, "{name}: theirs {their:?}, ours {our:?}");
    }
    Ok(())
}
