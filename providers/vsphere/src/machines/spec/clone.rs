//! What a virtual machine is cloned from, and what it gets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DataDisk, NetworkSpec, PciDeviceSpec, Resources};

/// How a virtual machine is cloned. Part of the specs of `VSphereMachine` and `VSphereVM`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VirtualMachineCloneSpec {
    /// The template: its name, its inventory path, its managed object ID or its instance UUID.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) template: String,
    /// `fullClone` copies the disks. `linkedClone` shares them with a snapshot of the template, whose disks cannot be
    /// resized then. Default: `linkedClone`, or `fullClone` if the template has no snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "clone_mode")]
    pub(crate) clone_mode: Option<CloneMode>,
    /// The snapshot from which a linked clone is made. Default: the template's current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) snapshot: Option<String>,
    /// The vCenter: a DNS name or an address, with a port if it is not 443. Default: the one of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) server: Option<String>,
    /// The fingerprint of the vCenter's certificate, SHA-1 or SHA-256, in hexadecimal with colons. Default: the one of
    /// the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) thumbprint: Option<String>,
    /// The datacenter: its name, its inventory path or its managed object ID. `*` stands for the only one there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) datacenter: Option<String>,
    /// The folder: its name, its inventory path or its managed object ID. Default: the datacenter's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) folder: Option<String>,
    /// The datastore: its name, its inventory path or its managed object ID. It may be a datastore cluster, of which Storage DRS recommends
    /// one. Default: one that the storage policy allows, or that of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) datastore: Option<String>,
    /// The name of the storage policy of the machine and its disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) storage_policy_name: Option<String>,
    /// The resource pool: its name, its inventory path or its managed object ID. Default: the only one there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) resource_pool: Option<String>,
    /// The network devices, which take the place of the template's.
    pub(crate) network: NetworkSpec,
    /// Number of virtual CPUs. Default: 2, which is also the least.
    #[serde(rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) num_cpus: Option<i32>,
    /// Number of cores of each socket. Default: 0, which leaves it to vCenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) num_cores_per_socket: Option<i32>,
    /// Memory in MiB. Default: 2048.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) memory_mib: Option<i64>,
    /// What the machine is promised, what it may use at most, and its weight among others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<Resources>,
    /// The size of the template's first disk in GiB, which can only grow. For full clones. Default: as in the template.
    #[serde(rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) disk_gib: Option<i32>,
    /// The sizes of the template's other disks in GiB, which can only grow. For full clones. Default: as in the
    /// template.
    #[serde(rename = "additionalDisksGiB", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub(crate) additional_disks_gib: Vec<i32>,
    /// New disks beside those of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 29))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) data_disks: Vec<DataDisk>,
    /// PCI devices of the host, and virtual GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub(crate) pci_devices: Vec<PciDeviceSpec>,
    /// The guest's operating system. Default: `Linux`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "operating_system")]
    pub(crate) os: Option<OperatingSystem>,
    /// The hardware version, such as `vmx-19`. A machine with a lower one is upgraded before it starts. Default: as in
    /// the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub(crate) hardware_version: Option<String>,
    /// Whether the guest may run virtual machines itself.
    #[serde(rename = "nestedHV", skip_serializing_if = "Option::is_none")]
    pub(crate) nested_hv: Option<bool>,
    /// Encryption of fault tolerance traffic: `ftEncryptionDisabled`, `ftEncryptionOpportunistic` or
    /// `ftEncryptionRequired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ft_encryption_mode")]
    pub(crate) ft_encryption_mode: Option<String>,
    /// Encryption of migrations: `disabled`, `opportunistic` or `required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "migrate_encryption")]
    pub(crate) migrate_encryption: Option<String>,
    /// The key with which the machine is encrypted. Not supported: a machine with it is not made.
    #[serde(rename = "cryptoKeyID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub(crate) crypto_key_id: Option<String>,
    /// The storage policy with which the machine is encrypted. Not supported: a machine with it is not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub(crate) crypto_profile: Option<String>,
    /// Options of the machine's extraConfig.
    #[serde(rename = "customVMXKeys", default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "vmx_keys")]
    pub(crate) custom_vmx_keys: BTreeMap<String, String>,
    /// IDs of tags for the machine, such as `urn:vmomi:InventoryServiceTag:1234:GLOBAL`.
    #[serde(rename = "tagIDs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 1024)))]
    pub(crate) tag_ids: Vec<String>,
}

/// How many options of extraConfig a machine may have, and the most characters of one.
pub(crate) const MAX_VMX_KEYS: usize = 64;
pub(crate) const MAX_VMX_VALUE: usize = 4096;

/// How a template's disks are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CloneMode {
    /// The disks are copied.
    FullClone,
    /// The disks are shared with a snapshot.
    LinkedClone,
    /// Anything else, as the API server lets it through in v1beta1.
    #[serde(untagged)]
    Other(String),
}

/// A guest's operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OperatingSystem {
    /// Linux.
    Linux,
    /// Windows. Names of its machines have at most 15 characters.
    Windows,
    /// Anything else, as the API server lets it through. An empty one is none.
    #[serde(untagged)]
    Other(String),
}

/// What the API server lets through in v1beta2. In v1beta1 it lets any text through, as in Cluster API Provider vSphere.
fn clone_mode(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["fullClone", "linkedClone"]})
}

/// The API server lets any text through, as in Cluster API Provider vSphere.
pub(crate) fn text(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string"})
}

fn vmx_keys(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let value = serde_json::json!({"type": "string", "maxLength": MAX_VMX_VALUE});
    schemars::json_schema!({"type": "object", "maxProperties": MAX_VMX_KEYS, "additionalProperties": value})
}

fn operating_system(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "minLength": 1, "maxLength": 128})
}

fn ft_encryption_mode(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let modes = ["ftEncryptionDisabled", "ftEncryptionOpportunistic", "ftEncryptionRequired"];
    schemars::json_schema!({"type": "string", "enum": modes})
}

fn migrate_encryption(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["disabled", "opportunistic", "required"]})
}
