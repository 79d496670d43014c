//! The manifests of which both make a machine.

use serde_json::{Value, json};
use test_env::Vcsim;

use super::NAMESPACE;
use crate::vsphere::machine;

/// A machine that both make.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The spec of its `VSphereMachine`.
    spec: Value,
    /// The Secret with its bootstrap data.
    data: &'static str,
}

/// Templates that [`prepare`](super::prepare) changes: one gets a snapshot, the other another disk.
pub(super) const WITH_SNAPSHOT: usize = 1;
pub(super) const WITH_TWO_DISKS: usize = 2;

/// The values are others than those of the templates. `tag` is the ID of a tag.
pub(super) fn all(tag: &str) -> Vec<Case> {
    let spec = |template: usize, more: Value| {
        let mut spec = json!({
            "template": machine(template), "cloneMode": "fullClone", "datacenter": "DC0", "folder": "/DC0/vm",
            "resourcePool": "/DC0/host/DC0_C0/Resources", "datastore": "LocalDS_0", "powerOffMode": "hard",
            "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    let static_addresses = json!({
        "devices": [
            {"networkName": "VM Network", "dhcp4": true, "mtu": 1400},
            {
                "networkName": "DC0_DVPG0", "ipAddrs": ["192.0.2.10/24"], "gateway4": "192.0.2.254",
                "nameservers": ["192.0.2.53"], "searchDomains": ["example.com"],
                "routes": [{"to": "198.51.100.0/24", "via": "192.0.2.1", "metric": 7}],
            },
        ],
    });
    let two_families = json!({
        "routes": [{"to": "203.0.113.0/24", "via": "192.0.2.2", "metric": 9}],
        "devices": [{
            "networkName": "DC0_DVPG0", "deviceName": "lan0", "macAddr": "00:50:56:01:02:03",
            "ipAddrs": ["192.0.2.11/24", "2001:db8::11/64"], "gateway4": "192.0.2.254", "gateway6": "2001:db8::1",
            "nameservers": ["192.0.2.53", "2001:db8::53"],
        }],
    });
    vec![
        Case {
            name: "worker-0",
            spec: spec(
                0,
                json!({
                    "numCPUs": 4, "numCoresPerSocket": 2, "memoryMiB": 4096, "diskGiB": 20,
                    "customVMXKeys": {"vendor.key": "its value"}, "network": static_addresses,
                }),
            ),
            data: "data",
        },
        Case {
            name: "worker-1",
            spec: spec(WITH_SNAPSHOT, json!({"cloneMode": "linkedClone", "snapshot": "gold"})),
            data: "data",
        },
        Case {
            name: "worker-2",
            spec: spec(
                WITH_TWO_DISKS,
                json!({
                    "additionalDisksGiB": [3], "network": two_families,
                    "dataDisks": [
                        {"name": "a", "sizeGiB": 1, "provisioningMode": "Thin"},
                        {"name": "b", "sizeGiB": 2, "provisioningMode": "EagerlyZeroed"}, {"name": "c", "sizeGiB": 1},
                    ],
                }),
            ),
            data: "data",
        },
        Case {
            name: "worker-3",
            spec: spec(
                0,
                json!({
                    "storagePolicyName": "vSAN Default Storage Policy", "diskGiB": 20, "tagIDs": [tag], "hardwareVersion": "vmx-19",
                }),
            ),
            data: "data",
        },
        Case { name: "worker-4", spec: spec(0, json!({"numCPUs": 1, "memoryMiB": 1024})), data: "ignition" },
    ]
}

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const CORE: &str = "cluster.x-k8s.io/v1beta2";

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": version, "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"cluster.x-k8s.io/cluster-name": "prod"}},
    })
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name})
}

fn secret(name: &str, format: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"cluster.x-k8s.io/cluster-name": "prod"}},
        "stringData": {"value": value, "format": format},
    })
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// The cluster of the machines, in the versions that both serve.
pub(super) fn cluster(vcsim: &Vcsim) -> String {
    let endpoint = json!({"host": "192.0.2.1", "port": 6443});
    let server = format!("127.0.0.1:{}", vcsim.port());
    let cluster =
        json!({"controlPlaneEndpoint": endpoint, "infrastructureRef": reference("VSphereCluster", "prod")});
    list(&[
        // So long that it is compressed.
        secret("data", "cloud-config", &format!("#cloud-config\n{}", "# a line\n".repeat(100))),
        secret("ignition", "ignition", r#"{"ignition": {"version": "3.4.0"}}"#),
        object(
            INFRASTRUCTURE,
            "VSphereCluster",
            "prod",
            &json!({"server": server, "controlPlaneEndpoint": endpoint}),
        ),
        object(CORE, "Cluster", "prod", &cluster),
    ])
}

impl Case {
    /// Its objects.
    pub(super) fn objects(&self) -> String {
        let machine = json!({
            "clusterName": "prod", "bootstrap": {"dataSecretName": self.data},
            "infrastructureRef": reference("VSphereMachine", self.name),
        });
        list(&[
            object(INFRASTRUCTURE, "VSphereMachine", self.name, &self.spec),
            object(CORE, "Machine", self.name, &machine),
        ])
    }
}
