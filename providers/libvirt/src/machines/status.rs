//! What steps of a machine remember. Only hints: everything is found again in libvirt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The provider's part of the status of a `LibvirtMachine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LibvirtMachineStatus {
    /// The hypervisor that was chosen for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hypervisor: Option<String>,
    /// When the guest was asked to shut down before the machine is deleted, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) soft_power_off_since: Option<i64>,
    /// Whether the bootstrap data were wiped from the hypervisor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_bootstrap_data_removed: bool,
}

/// The provider's part of the status of a `LibvirtCluster`: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LibvirtClusterStatus {}
