//! Disks, PCI devices, reservations and limits of a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A new disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DataDisk {
    /// The disk's name, unique in the machine.
    #[schemars(length(max = 1024))]
    pub(crate) name: String,
    /// The size in GiB.
    #[serde(rename = "sizeGiB")]
    #[schemars(range(min = 1))]
    pub(crate) size_gib: i32,
    /// How the space is taken from the datastore. Default: as the storage policy says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provisioning_mode: Option<ProvisioningMode>,
}

/// How the space of a disk is taken from the datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum ProvisioningMode {
    /// As it is written.
    Thin,
    /// At once.
    Thick,
    /// At once, and zeroed.
    EagerlyZeroed,
}

/// A PCI device of the host, by `deviceId` and `vendorId`, or a virtual GPU, by `vGPUProfile`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PciDeviceSpec {
    /// The device's ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device_id: Option<i32>,
    /// The vendor's ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vendor_id: Option<i32>,
    /// The profile of a virtual GPU.
    #[serde(rename = "vGPUProfile", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) vgpu_profile: Option<String>,
    /// The hardware label of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) custom_label: Option<String>,
}

/// What a machine is promised, what it may use at most, and its weight among others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct Resources {
    /// What the machine is promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<ResourceAmounts>,
    /// What the machine may use at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limits: Option<ResourceAmounts>,
    /// The machine's weight among others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shares: Option<ResourceShares>,
}

/// Amounts of CPU and memory, as quantities of Kubernetes. They are rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct ResourceAmounts {
    /// CPU in Hz, such as `2G`. vCenter counts in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub(crate) cpu: Option<Quantity>,
    /// Memory in bytes, such as `2Gi`. vCenter counts in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub(crate) memory: Option<Quantity>,
}

/// The weight of a machine among others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub(crate) struct ResourceShares {
    /// Shares of CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) cpu: Option<i32>,
    /// Shares of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) memory: Option<i32>,
}

/// A quantity as it is written: a number or a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Quantity {
    /// Without a unit.
    Number(i64),
    /// With a unit, such as `2Gi`.
    Text(String),
}

fn quantity(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    })
}
