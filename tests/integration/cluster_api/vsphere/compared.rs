//! The virtual machine that Cluster API Provider vSphere makes of a manifest, and the one that this daemon makes of the same one, field by
//! field.

mod facts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_env::{Capv, StartError, Vcsim, VcsimOptions};

use self::facts::facts;
use super::PATIENCE;
use crate::{
    cluster_api::{
        installed::Installed,
        management::{Management, apply},
    },
    support::tail,
    trial::Outcome,
    vsphere::{config, machine},
};

const NAMESPACE: &str = "lab";
const NAME: &str = "worker-0";

/// How long nothing is looked at again.
const PAUSE: Duration = Duration::from_millis(500);

/// The documentation has the differences in a table: it names those facts that are different, and says why.
const DOCUMENTATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/vsphere.md");
const TITLE: &str = "### The virtual machine, beside CAPV's";

/// What is another one for each machine, whoever makes it. A name ends with `*` if it stands for all that begin with it.
const OF_EACH: [&str; 11] = [
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
];

/// Who makes the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Capv,
    Ours,
}

pub(super) fn whole() -> Outcome {
    let (theirs, ours) = (machine_of(Maker::Capv)?, machine_of(Maker::Ours)?);
    Ok(compare(&facts(&theirs)?, &facts(&ours)?)?)
}

/// Has a machine made, and gives all that it is.
fn machine_of(maker: Maker) -> Result<Value, StartError> {
    let options = VcsimOptions { machines: 1, nodes: false, boots_guests: true, ..VcsimOptions::default() };
    let vcsim = Vcsim::start(&options)?;
    let management = Management::start()?;
    let control_plane = &management.control_plane;
    control_plane.kubectl_output(&["create", "namespace", NAMESPACE])?;
    let folder = TempDir::new().context("a folder")?;
    let objects = objects(&vcsim).to_string();
    let made = || -> anyhow::Result<Value> {
        apply(control_plane, "machine.json", &objects)?;
        let kind = "vspheremachines.v1beta1.infrastructure.cluster.x-k8s.io";
        let began = Instant::now();
        loop {
            let found = control_plane.kubectl_output(&["get", kind, NAME, "-n", NAMESPACE, "-o", "json"])?;
            let found: Value = serde_json::from_str(&found)?;
            if found["status"]["ready"] == true {
                return vcsim.machine(NAME);
            }
            ensure!(began.elapsed() < PATIENCE, "it is not ready: {found}");
            sleep(PAUSE);
        }
    };
    match maker {
        Maker::Capv => {
            Capv::install(control_plane)?;
            let capv = Capv::start(control_plane, &vcsim, &[])?;
            Ok(made().with_context(|| format!("the manager said: {}", tail(&capv.log())))?)
        }
        Maker::Ours => {
            let file = folder.path().join("cloud.yaml");
            fs::write(&file, config(&[&vcsim])?).context("the configuration")?;
            let installed = Installed::apply(control_plane, "vsphere", file)?;
            let daemon = installed.start(control_plane, &[], &folder.path().join("daemon.log"))?;
            let made = made().with_context(|| format!("the daemon said: {}", tail(&daemon.log())))?;
            daemon.terminate()?;
            Ok(made)
        }
    }
}

/// A cluster with one machine, in the version that both serve. The values are others than those of the template.
fn objects(vcsim: &Vcsim) -> Value {
    let infrastructure = "infrastructure.cluster.x-k8s.io/v1beta1";
    let core = "cluster.x-k8s.io/v1beta2";
    let reference = |kind: &str, name: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
    let labels = json!({"cluster.x-k8s.io/cluster-name": "prod"});
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        })
    };
    let endpoint = json!({"host": "192.0.2.1", "port": 6443});
    let server = format!("127.0.0.1:{}", vcsim.port());
    let spec = json!({
        "template": machine(0), "cloneMode": "fullClone", "datacenter": "DC0", "folder": "/DC0/vm",
        "resourcePool": "/DC0/host/DC0_C0/Resources", "datastore": "LocalDS_0", "numCPUs": 4, "numCoresPerSocket": 2,
        "memoryMiB": 4096, "diskGiB": 20, "powerOffMode": "hard", "customVMXKeys": {"vendor.key": "its value"},
        "network": {"devices": [
            {"networkName": "VM Network", "dhcp4": true, "mtu": 1400},
            {
                "networkName": "DC0_DVPG0", "ipAddrs": ["192.0.2.10/24"], "gateway4": "192.0.2.254",
                "nameservers": ["192.0.2.53"], "searchDomains": ["example.com"],
                "routes": [{"to": "198.51.100.0/24", "via": "192.0.2.1", "metric": 7}],
            },
        ]},
    });
    let cluster = json!({
        "controlPlaneEndpoint": endpoint, "infrastructureRef": reference("VSphereCluster", "prod"),
    });
    let machine = json!({
        "clusterName": "prod", "bootstrap": {"dataSecretName": "data"},
        "infrastructureRef": reference("VSphereMachine", NAME),
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": "data", "namespace": NAMESPACE, "labels": labels},
        // So long that it is compressed.
        "stringData": {"value": format!("#cloud-config\n{}", "# a line\n".repeat(100)), "format": "cloud-config"},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [
        secret,
        object(infrastructure, "VSphereCluster", "prod", json!({"server": server, "controlPlaneEndpoint": endpoint})),
        object(core, "Cluster", "prod", cluster),
        object(infrastructure, "VSphereMachine", NAME, spec),
        object(core, "Machine", NAME, machine),
    ]})
}

/// That each difference is in the table, and each row of the table is one.
fn compare(theirs: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let names: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    let wanted = documented()?;
    let mut unused: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let mut unknown = Vec::new();
    for name in names {
        let (their, our) = (theirs.get(name), ours.get(name));
        if their == our || OF_EACH.iter().any(|pattern| is_one(name, pattern)) {
            continue;
        }
        unused.retain(|pattern| !is_one(name, pattern));
        if !wanted.iter().any(|pattern| is_one(name, pattern)) {
            unknown.push(format!("{name}: theirs {their:?}, ours {our:?}"));
        }
    }
    ensure!(unknown.is_empty(), "differences that nobody wanted:\n{}", unknown.join("\n"));
    ensure!(unused.is_empty(), "no difference any more: {unused:?}");
    Ok(())
}

/// Whether this is the name of such a fact. A star stands for anything.
fn is_one(name: &str, pattern: &str) -> bool {
    let Some((start, after)) = pattern.split_once('*') else { return name == pattern };
    let Some(rest) = name.strip_prefix(start) else { return false };
    (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|end| is_one(end, after)))
}

/// The names in the first column of the table: what is between backticks.
fn documented() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(DOCUMENTATION).context(DOCUMENTATION)?;
    let (_, section) = text.split_once(TITLE).with_context(|| format!("no {TITLE:?} in {DOCUMENTATION}"))?;
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let first = rows.filter_map(|row| row.split('|').nth(1));
    Ok(first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect())
}
