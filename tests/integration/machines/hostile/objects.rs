//! What a tenant writes that is after what others have.

use serde_json::{Value, json};

/// The infrastructure of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Libvirt,
    VSphere,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Libvirt, Self::VSphere];

    /// The name of one of its kinds, such as that for `Machine`.
    pub(super) fn of(self, what: &str) -> String {
        format!("{self:?}{what}")
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Libvirt => "v1alpha1",
            Self::VSphere => "v1beta2",
        }
    }
}

/// An object of the attacker.
#[derive(Debug)]
pub(super) enum Hostile {
    /// The infrastructure of a machine, with this spec.
    Machine(Kind, String, Value),
    /// A `VSphereCluster` with a Secret of its own.
    Cluster(String, Value),
    /// A Service with these annotations and this spec.
    Service(String, Value, Value),
}

/// What there is that the attacker must not have, and how it is reached.
#[derive(Debug)]
pub(super) struct Things {
    /// Files that the daemon can read.
    pub(super) files: Vec<String>,
    /// A folder that the attacker may have images of, with a file.
    pub(super) own_image: String,
    /// The prefix of the names of a machine's volumes.
    pub(super) volumes: String,
    /// The port of a server that answers nothing, which the attacker may name.
    pub(super) slow_server: u16,
    /// The vCenter.
    pub(super) server: String,
    /// Words for a virtual machine of the other tenant.
    pub(super) machines: Vec<String>,
    /// Addresses for Services: of the other tenant's pool, of the API server, of nobody's pool.
    pub(super) addresses: Vec<String>,
    /// What no message may have, unless the object itself has it.
    pub(super) words: Vec<String>,
}

/// All objects of the attacker.
pub(super) struct Catalogue {
    objects: Vec<Hostile>,
    words: Vec<String>,
}

impl Catalogue {
    pub(super) fn new(count: usize, things: Things) -> Self {
        let objects = (0..count).map(|number| hostile(number, &things)).collect();
        Self { objects, words: things.words }
    }

    pub(super) fn objects(&self) -> &[Hostile] {
        &self.objects
    }

    pub(super) fn foreign_words(&self) -> &[String] {
        &self.words
    }

    /// How many objects of each kind get conditions, those included that the API server refuses.
    pub(super) fn answered(&self) -> usize {
        self.objects.iter().filter(|one| !matches!(one, Hostile::Service(..))).count()
    }
}

/// One of several, by a number.
fn one_of<T: Clone>(all: &[T], number: usize) -> T {
    all[number % all.len()].clone()
}

fn hostile(number: usize, things: &Things) -> Hostile {
    // Of each of the eleven sorts, the second number tells them apart.
    let (sort, number) = (number % 11, number / 11);
    match sort {
        0..=4 => {
            Hostile::Machine(Kind::Libvirt, format!("kvm-{sort}-{number}"), on_libvirt(sort, number, things))
        }
        5..=8 => {
            Hostile::Machine(Kind::VSphere, format!("vc-{sort}-{number}"), on_vsphere(sort, number, things))
        }
        9 => {
            let server = match number % 3 {
                0 => things.server.clone(),
                1 => format!("localhost:{}", number % 60_000 + 1),
                _ => format!("vc-{number}.invalid"),
            };
            Hostile::Cluster(format!("login-{number}"), json!({ "server": server }))
        }
        _ => service(number, things),
    }
}

/// A checksum that no file has.
fn checksum(number: usize) -> String {
    format!("sha256:{number:064x}")
}

pub(super) fn libvirt_machine(image: Value) -> Value {
    json!({"vcpus": 1, "memoryMiB": 64, "disks": [{"sizeGiB": 2}], "image": image})
}

/// Images and parts of the hypervisor.
fn on_libvirt(sort: usize, number: usize, things: &Things) -> Value {
    match sort {
        0 => {
            let file = one_of(&things.files, number);
            libvirt_machine(json!({"file": file, "checksum": checksum(number), "format": "raw"}))
        }
        1 => {
            let volume = ["seed", "root", "ignition"].map(|what| format!("{}{what}", things.volumes));
            let volume = one_of(
                &[&volume[..], &["../../etc".to_owned(), "debian-12.raw".to_owned()]].concat(),
                number,
            );
            libvirt_machine(
                json!({"volume": {"name": volume.replace('/', "_"), "pool": "default"}, "format": "raw"}),
            )
        }
        2 => {
            let hosts = [
                "127.0.0.1",
                "169.254.169.254",
                "10.0.0.1",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "localhost",
                "[fe80::1]",
                "0.0.0.0",
                "192.168.122.1",
                "0x7f.1",
            ];
            let url = format!("http://{}/image-{number}", one_of(&hosts, number));
            libvirt_machine(json!({"url": url, "checksum": checksum(number), "format": "raw"}))
        }
        3 => {
            // What the attacker may read, as often and as slowly as it can, and never with the right checksum.
            let image = match number % 2 {
                0 => json!({"file": things.own_image}),
                _ => json!({"url": format!("http://127.0.0.1:{}/{number}", things.slow_server)}),
            };
            let mut spec = libvirt_machine(image);
            spec["image"]["checksum"] = checksum(number).into();
            spec["image"]["format"] = "raw".into();
            spec
        }
        _ => {
            let image = json!({"file": things.own_image, "checksum": checksum(number), "format": "raw"});
            let mut spec = libvirt_machine(image);
            match number % 7 {
                0 => spec["interfaces"] = json!([{"bridge": "virbr0"}]),
                1 => spec["interfaces"] = json!([{"macvtap": {"device": "eth0", "mode": "passthrough"}}]),
                2 => spec["interfaces"] = json!([{"network": "management"}]),
                3 => spec["interfaces"] = json!([{"network": "default", "mac": "52:54:00:00:00:01"}]),
                4 => spec["disks"] = json!([{"sizeGiB": 65_536, "pool": "of-others"}]),
                5 => spec["hypervisor"] = one_of(&["of-others", "kvm2"], number / 7).into(),
                // Malformed: the API server refuses it.
                _ => spec["disks"] = json!([{"sizeGiB": -1}]),
            }
            spec
        }
    }
}

pub(super) fn vsphere_machine(template: &str) -> Value {
    json!({
        "template": template, "datacenter": "DC0", "folder": "/DC0/vm", "resourcePool": "DC0_C0/Resources",
        "datastore": "LocalDS_0", "cloneMode": "fullClone", "numCPUs": 2, "memoryMiB": 2048,
        "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
    })
}

/// Templates, places and options.
fn on_vsphere(sort: usize, number: usize, things: &Things) -> Value {
    let machine = one_of(&things.machines, number);
    match sort {
        5 => vsphere_machine(&machine),
        6 => {
            let mut spec = vsphere_machine("DC0_C0_RP0_VM0");
            match number % 4 {
                0 => spec["server"] = format!("vc-{number}.invalid").into(),
                1 => spec["datacenter"] = format!("DC-{number}").into(),
                2 => spec["folder"] = "/DC0/vm/of-others".into(),
                _ => spec["datastore"] = "/nowhere/at/all/LocalDS_0".into(),
            }
            spec
        }
        7 => {
            let mut spec = vsphere_machine("/DC0/vm/DC0_C0_RP0_VM0");
            match number % 5 {
                0 => spec["customVMXKeys"] = json!({"RemoteDisplay.vnc.enabled": "true"}),
                1 => spec["tagIDs"] = json!(["urn:vmomi:InventoryServiceTag:1234:GLOBAL"]),
                2 => spec["network"]["devices"][0]["macAddr"] = "00:50:56:00:00:01".into(),
                3 => spec["naming"] = json!({"template": "{{ .machine"}),
                // Malformed: the API server refuses it.
                _ => spec["numCPUs"] = "many".into(),
            }
            spec
        }
        _ => {
            // Options as long as they may be, of 16 KiB in all.
            let mut spec = vsphere_machine(&machine);
            let fillers =
                (0..4).map(|option| (format!("guestinfo.filler-{option}"), json!("x".repeat(4096))));
            spec["customVMXKeys"] = Value::Object(fillers.collect());
            spec
        }
    }
}

fn service(number: usize, things: &Things) -> Hostile {
    let address = one_of(&things.addresses, number);
    let mut spec = json!({
        "type": "LoadBalancer", "ports": [{"port": 1 + number % 60_000}], "selector": {"app": "x"},
        "allocateLoadBalancerNodePorts": false,
    });
    let annotations = match number % 4 {
        0 => {
            spec["loadBalancerIP"] = address.into();
            json!({})
        }
        1 => json!({"kube-vip.io/loadbalancerIPs": address}),
        2 => json!({"metallb.io/loadBalancerIPs": address}),
        _ => json!({"service.cloudprovider.kubernetes.io/address-pool": "reserved"}),
    };
    Hostile::Service(format!("lb-{number}"), annotations, spec)
}
