//! The machines and Nodes that both CPI and our binary get.

use k8s_openapi::api::core::v1::Node;
use sandbox::kubelet;
use serde_json::json;
use test_env::{StartError, Vcsim, VcsimOptions};

use crate::support::uuid;

/// One network and nothing special.
pub(super) const PLAIN: usize = 0;
/// Two networks, the public one first, addresses of both families.
pub(super) const TWO_NETWORKS: usize = 1;
/// Both families on one interface.
pub(super) const BOTH_FAMILIES: usize = 2;
/// Interfaces that the guest made itself, link-local and loopback addresses.
pub(super) const PODS: usize = 3;
/// Has a virtual IP before the address that `guestinfo.metadata` configures.
pub(super) const STATIC: usize = 4;
/// Powered off.
pub(super) const OFF: usize = 5;
/// The kubelet's `--node-ip` is its first address.
pub(super) const NODE_IP_FIRST: usize = 6;
/// The kubelet's `--node-ip` is its second address.
pub(super) const NODE_IP_SECOND: usize = 7;
/// The Node has the UUID in the byte order of old firmware.
pub(super) const SWAPPED: usize = 8;
/// The Node has the UUID in capitals.
pub(super) const CAPITALS: usize = 9;
/// Has another size and another guest.
pub(super) const LARGE: usize = 10;
/// The Node has a UUID that does not identify a machine, so only its name does.
pub(super) const BY_NAME: usize = 11;
/// The guest's host name differs from the Node's name.
pub(super) const OTHER_NAME: usize = 12;
/// Without VMware Tools.
pub(super) const NO_TOOLS: usize = 13;
/// Has no Node at first.
pub(super) const LATE: usize = 14;
/// Its zone is on itself, and its region on the cluster: no path upwards has both.
pub(super) const SPLIT: usize = 16;
/// Has a region and no zone.
pub(super) const NO_ZONE: usize = 17;

/// All machines that have a Node.
pub(super) const WITH_NODE: [usize; 16] = [
    PLAIN,
    TWO_NETWORKS,
    BOTH_FAMILIES,
    PODS,
    STATIC,
    OFF,
    NODE_IP_FIRST,
    NODE_IP_SECOND,
    SWAPPED,
    CAPITALS,
    LARGE,
    BY_NAME,
    OTHER_NAME,
    NO_TOOLS,
    SPLIT,
    NO_ZONE,
];

const IN_A_DATACENTER: usize = 8;

/// Three datacenters with a cluster of two hosts each. Zones and regions:
///
/// | | Zone | Region |
/// |---|---|---|
/// | DC0 | `z0` on the cluster | `r0` on the datacenter |
/// | DC1 | `z1` on the first host, `z2` on the cluster | `r1` on the datacenter |
/// | DC2 | `z3` on the machine [`SPLIT`] | `r2` on the cluster |
pub(super) fn simulator() -> Result<Vcsim, StartError> {
    let options = VcsimOptions {
        datacenters: 3,
        machines: u32::try_from(IN_A_DATACENTER).unwrap_or(8),
        ..Default::default()
    };
    let vcsim = Vcsim::start(&options)?;
    for (category, tag, kind, object) in [
        ("k8s-zone", "z0", "ClusterComputeResource", "DC0_C0"),
        ("k8s-region", "r0", "Datacenter", "DC0"),
        ("k8s-zone", "z1", "HostSystem", "DC1_C0_H0"),
        ("k8s-zone", "z2", "ClusterComputeResource", "DC1_C0"),
        ("k8s-region", "r1", "Datacenter", "DC1"),
        ("k8s-zone", "z3", "VirtualMachine", machine(SPLIT).as_str()),
        ("k8s-region", "r2", "ClusterComputeResource", "DC2_C0"),
        // this category is not configured
        ("rack", "z9", "HostSystem", "DC0_C0_H0"),
    ] {
        vcsim.attach_tag(category, tag, kind, object)?;
    }
    // network: {ethernets: {a: {addresses: [10.20.4.4/16]}}}
    let metadata = "bmV0d29yazoge2V0aGVybmV0czoge2E6IHthZGRyZXNzZXM6IFsxMC4yMC40LjQvMTZdfX19Cg==";
    let nic = |network: &str, ips: &[&str]| json!({"network": network, "ips": ips});
    for (number, guest) in [
        (
            TWO_NETWORKS,
            json!({"nics": [
                nic("Public", &["192.0.2.1/24", "2001:db8::1/64"]),
                nic("VM Network", &["10.20.1.1/16", "10.20.1.2/16", "fd00::1:1/64"]),
            ]}),
        ),
        (BOTH_FAMILIES, json!({"nics": [nic("VM Network", &["fd00::2/64", "10.20.2.2/16"])]})),
        (
            PODS,
            json!({"nics": [
                {"network": "", "deviceConfigId": -1, "ips": ["10.244.0.1/24", "fd01::1/64"]},
                nic("VM Network", &["169.254.1.1/16", "fe80::3/64", "127.0.0.1/8", "10.20.3.3/16", "fd00::3/64"]),
            ]}),
        ),
        (
            STATIC,
            json!({
                "nics": [nic("VM Network", &["10.20.0.99/16", "10.20.4.4/16"])],
                "extraConfig": {"guestinfo.metadata": metadata, "guestinfo.metadata.encoding": "base64"},
            }),
        ),
        (NODE_IP_FIRST, json!({"nics": [nic("VM Network", &["10.20.6.6/16", "10.20.6.7/16"])]})),
        (NODE_IP_SECOND, json!({"nics": [nic("VM Network", &["10.20.7.7/16", "10.20.7.8/16"])]})),
        (LARGE, json!({"cpus": 8, "memoryMiB": 16_384 + 512, "guestId": "vmwarePhoton64Guest"})),
        (NO_TOOLS, json!({"tools": "guestToolsNotRunning", "hostName": "", "nics": []})),
    ] {
        vcsim.set_guest(&machine(number), guest)?;
    }
    vcsim.act(&machine(OFF), "power-off", "")?;
    // the others stay where the simulator put them
    vcsim.act(&machine(LARGE), "move", "DC1_C0_H0")?;
    vcsim.act(&machine(CAPITALS), "move", "DC1_C0_H1")?;
    Ok(vcsim)
}

/// The name of the machine with this number in the simulator.
fn machine(number: usize) -> String {
    format!("DC{}_C0_RP0_VM{}", number / IN_A_DATACENTER, number % IN_A_DATACENTER)
}

/// Whether a machine runs on the host that has its own zone.
pub(super) fn is_on_tagged_host(vcsim: &Vcsim, number: usize) -> anyhow::Result<bool> {
    let all = vcsim.inventory()?;
    Ok(all.iter().any(|one| one["name"] == machine(number) && one["host"] == "DC1_C0_H0"))
}

/// The name of the Node on the machine with this number.
pub(super) fn name(number: usize) -> String {
    match number {
        OTHER_NAME => "called-otherwise".to_owned(),
        _ => super::super::name(number),
    }
}

/// The Node on the machine with this number, as its kubelet registers it.
pub(super) fn node(number: usize) -> Node {
    let shown = match number {
        // as in SMBIOS before 2.6: the first three groups byte-reversed
        SWAPPED => format!("e00d3c5a-0000-0040-8000-{SWAPPED:012x}"),
        CAPITALS => uuid(CAPITALS).to_uppercase(),
        BY_NAME => "00000000-0000-0000-0000-000000000000".to_owned(),
        number => uuid(number),
    };
    let mut node = kubelet::node(&name(number), &shown);
    let node_ip = match number {
        NODE_IP_FIRST => Some("10.20.6.6"),
        NODE_IP_SECOND => Some("10.20.7.8"),
        _ => None,
    };
    if let Some(ip) = node_ip {
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("alpha.kubernetes.io/provided-node-ip".to_owned(), ip.to_owned());
    }
    node
}

/// The number of the second vCenter's only machine with a Node.
pub(super) const OF_SECOND: usize = 100;

/// Another vCenter, with [`OF_SECOND`] in the zone `z8` and the region `r8`.
pub(super) fn second() -> Result<Vcsim, StartError> {
    let vcsim = Vcsim::start(&VcsimOptions { machines: 1, nodes: false, ..VcsimOptions::default() })?;
    vcsim.attach_tag("k8s-zone", "z8", "ClusterComputeResource", "DC0_C0")?;
    vcsim.attach_tag("k8s-region", "r8", "Datacenter", "DC0")?;
    let guest = json!({
        "hostName": name(OF_SECOND), "uuid": uuid(OF_SECOND), "tools": "guestToolsRunning",
        "nics": [{"network": "VM Network", "ips": ["10.20.100.1/16", "fd00::100/64"]}],
    });
    vcsim.set_guest(&machine(0), guest)?;
    Ok(vcsim)
}
