//! What a user says about a machine, and the controller about its virtual machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VirtualMachineCloneSpec;

/// The spec of a `VSphereMachine`, without `providerID`, which is the controller's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VSphereMachineSpec {
    /// What the virtual machine is cloned from, and what it gets.
    #[serde(flatten)]
    pub(crate) clone: VirtualMachineCloneSpec,
    /// The `VSphereDeploymentZone` of the machine. Default: that of its Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_domain: Option<String>,
    /// How the machine is powered off before it is deleted. Default: `hard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) power_off_mode: Option<PowerOffMode>,
    /// With `trySoft`: after how many seconds a guest that has not shut down is powered off. Default: 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) guest_soft_power_off_timeout_seconds: Option<i32>,
    /// The name of the `VSphereVM` and of the virtual machine. Default: that of the `VSphereMachine`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) naming: Option<NamingSpec>,
}

/// How a machine is powered off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PowerOffMode {
    /// At once, as if the power failed.
    #[default]
    Hard,
    /// The guest is asked to shut down, and the deletion waits until it has, however long that takes.
    Soft,
    /// The guest is asked to shut down. If it cannot, or after the timeout, it is powered off.
    TrySoft,
}

/// The name of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NamingSpec {
    /// A Go template with `.machine.name`, the name of the Machine, and functions such as `trimSuffix` and `trunc`. Names are cut at
    /// 63 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) template: Option<String>,
}

/// The spec of a `VSphereVM`. The controller makes one for each `VSphereMachine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VSphereVMSpec {
    /// What the virtual machine is cloned from, and what it gets.
    #[serde(flatten)]
    pub(crate) clone: VirtualMachineCloneSpec,
    /// The Secret with the bootstrap data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bootstrap_ref: Option<BootstrapReference>,
    /// The virtual machine's BIOS UUID, set once it exists.
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) bios_uuid: Option<String>,
    /// How the machine is powered off before it is deleted. Default: `hard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) power_off_mode: Option<PowerOffMode>,
    /// With `trySoft`: after how many seconds a guest that has not shut down is powered off. Default: 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) guest_soft_power_off_timeout_seconds: Option<i32>,
}

/// A Secret with bootstrap data, in the namespace of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BootstrapReference {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
}
