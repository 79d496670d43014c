//! The objects of the management cluster that say what machines there are: the fields that matter, and how
//! they are put together.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use kube::core::{ApiResource, Object, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::machine::{KnownAddresses, Machine};

/// The label of a Machine that registered itself ("custom"): the name of its Node.
const NODE_NAME_LABEL: &str = "rke.cattle.io/node-name";

/// Comma-separated addresses, on the `RKEBootstrap` of such a Machine.
const INTERNAL_ADDRESS: &str = "rke.cattle.io/internal-address";
const ADDRESS: &str = "rke.cattle.io/address";

/// Groups of infrastructure machines whose addresses Rancher copies from the Node. They say nothing new.
const MIRRORING_GROUPS: [&str; 3] = ["rke-machine.cattle.io", "rke.cattle.io", "elemental.cattle.io"];

/// A `cluster.x-k8s.io` Machine. `v1beta1` and `v1beta2` have these fields in common.
pub(super) type MachineObject = Object<MachineSpec, MachineStatus>;

/// Its `spec`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MachineSpec {
    /// It never changes.
    pub(super) cluster_name: String,
    pub(super) bootstrap: Bootstrap,
    pub(super) infrastructure_ref: Reference,
    #[serde(rename = "providerID")]
    pub(super) provider_id: Option<String>,
    pub(super) failure_domain: Option<String>,
}

/// `spec.bootstrap`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Bootstrap {
    pub(super) config_ref: Option<Reference>,
}

/// A reference to an object in the same namespace. `v1beta1` has an `apiVersion`, `v1beta2` an `apiGroup`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reference {
    pub(super) api_group: Option<String>,
    pub(super) api_version: Option<String>,
    pub(super) kind: String,
    pub(super) name: String,
}

impl Reference {
    fn group(&self) -> &str {
        let version = self.api_version.as_deref().and_then(|version| version.split_once('/'));
        self.api_group.as_deref().or(version.map(|(group, _)| group)).unwrap_or_default()
    }
}

/// The `status` of a Machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MachineStatus {
    pub(super) node_ref: Option<Reference>,
    pub(super) addresses: Vec<MachineAddress>,
    pub(super) failure_domain: Option<String>,
}

/// An element of `status.addresses`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MachineAddress {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) address: String,
}

/// Decodes a Machine, and the metadata of something else. Returns how much of it is known. For fuzzing.
pub(crate) fn decode(bytes: &[u8]) -> usize {
    let mut objects = Objects::default();
    if let Ok(metadata) = serde_json::from_slice::<ObjectMeta>(bytes) {
        objects.put_bootstrap(&metadata);
        objects.set_infrastructure(&metadata, true);
    }
    let machine = serde_json::from_slice::<MachineObject>(bytes).ok();
    let is_known = machine.and_then(|machine| objects.put_machine(machine)).is_some();
    usize::from(is_known) + objects.owners.len() + objects.bootstraps.len()
}

/// The kinds that are watched.
pub(super) fn machines(version: &str) -> ApiResource {
    resource("cluster.x-k8s.io", version, "Machine", "machines")
}

pub(super) fn bootstraps() -> ApiResource {
    resource("rke.cattle.io", "v1", "RKEBootstrap", "rkebootstraps")
}

pub(super) fn custom_machines() -> ApiResource {
    resource("rke.cattle.io", "v1", "CustomMachine", "custommachines")
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// What has been seen of a cluster's objects, by their names.
#[derive(Debug, Default)]
pub(super) struct Objects {
    machines: HashMap<String, MachineObject>,
    /// The addresses that a bootstrap names.
    bootstraps: HashMap<String, KnownAddresses>,
    /// The Machine of each bootstrap, by name.
    by_bootstrap: HashMap<String, String>,
    /// The UIDs of the Machines that own infrastructure which this provider sees.
    pub(super) owners: HashMap<String, String>,
}

impl Objects {
    /// Takes over a Machine. Returns what it is now.
    pub(super) fn put_machine(&mut self, object: MachineObject) -> Option<Machine> {
        let name = object.metadata.name.clone()?;
        if let Some(bootstrap) = &object.spec.bootstrap.config_ref {
            self.by_bootstrap.insert(bootstrap.name.clone(), name.clone());
        }
        self.machines.insert(name.clone(), object);
        self.machine(&name)
    }

    /// Forgets a Machine. Returns its UID.
    pub(super) fn remove_machine(&mut self, object: &MachineObject) -> Option<String> {
        if let Some(bootstrap) = &object.spec.bootstrap.config_ref {
            self.by_bootstrap.remove(&bootstrap.name);
        }
        self.machines.remove(object.metadata.name.as_deref()?);
        object.metadata.uid.clone()
    }

    /// Takes over a bootstrap. Returns its Machine as it is now, if there is one.
    pub(super) fn put_bootstrap(&mut self, metadata: &ObjectMeta) -> Option<Machine> {
        let name = metadata.name.clone()?;
        let ips = |key: &str| -> Vec<IpAddr> {
            let text = metadata.annotations.as_ref().and_then(|all| all.get(key)).map_or("", String::as_str);
            text.split(',').filter_map(|ip| ip.trim().parse().ok()).collect()
        };
        let addresses = KnownAddresses::of(ips(INTERNAL_ADDRESS), ips(ADDRESS));
        let machine = self.by_bootstrap.get(&name).cloned();
        self.bootstraps.insert(name, addresses);
        self.machine(&machine?)
    }

    /// Forgets a bootstrap. Returns its Machine as it is now, if there is one.
    pub(super) fn remove_bootstrap(&mut self, metadata: &ObjectMeta) -> Option<Machine> {
        let name = metadata.name.as_deref()?;
        self.bootstraps.remove(name);
        self.machine(&self.by_bootstrap.get(name)?.clone())
    }

    /// Takes over the infrastructure of a Machine, or forgets it. Returns the UID of the Machine.
    pub(super) fn set_infrastructure(&mut self, metadata: &ObjectMeta, exists: bool) -> Option<String> {
        let name = metadata.name.as_ref()?;
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Machine")?;
        if exists {
            self.owners.insert(owner.uid.clone(), name.clone());
        } else {
            self.owners.remove(&owner.uid);
        }
        Some(owner.uid.clone())
    }

    /// All machines.
    pub(super) fn machines(&self) -> Vec<Machine> {
        self.machines.keys().filter_map(|name| self.machine(name)).collect()
    }

    fn machine(&self, name: &str) -> Option<Machine> {
        let object = self.machines.get(name)?;
        let (metadata, spec) = (&object.metadata, &object.spec);
        let status = object.status.clone().unwrap_or_default();
        let labels: BTreeMap<_, _> = metadata.labels.clone().unwrap_or_default();
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let bootstrap =
            spec.bootstrap.config_ref.as_ref().and_then(|config| self.bootstraps.get(&config.name));
        let addresses = match bootstrap {
            Some(addresses) if *addresses != KnownAddresses::default() => addresses.clone(),
            _ if MIRRORING_GROUPS.contains(&spec.infrastructure_ref.group()) => KnownAddresses::default(),
            _ => of_status(&status.addresses),
        };
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let node = status.node_ref.map(|node| node.name);
        Some(Machine {
            key: metadata.uid.clone()?,
            shown: format!("Machine {namespace}/{name}"),
            provider_id: text(spec.provider_id.clone()),
            node: text(node).or_else(|| labels.get(NODE_NAME_LABEL).cloned()),
            names: [name.to_owned(), spec.infrastructure_ref.name.clone()].into(),
            addresses,
            labels,
            failure_domain: text(status.failure_domain).or_else(|| text(spec.failure_domain.clone())),
            instance_type: Some(spec.infrastructure_ref.kind.clone()).filter(|kind| !kind.is_empty()),
            is_leaving: metadata.deletion_timestamp.is_some(),
        })
    }
}

fn of_status(addresses: &[MachineAddress]) -> KnownAddresses {
    let of = |kind: &str| -> Vec<IpAddr> {
        addresses.iter().filter(|one| one.kind == kind).filter_map(|one| one.address.parse().ok()).collect()
    };
    KnownAddresses::of(of("InternalIP"), of("ExternalIP"))
}

#[cfg(test)]
mod tests;
