//! What the controller remembers and tells: the statuses of the kinds, in version v1beta2.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::{CloneMode, VSphereIdentityReference};

/// The provider's part of the status of a `VSphereMachine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VSphereMachineStatus {
    /// The managed object ID of the task that runs for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_ref: Option<String>,
    /// How the virtual machine was really cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::spec::text")]
    pub(crate) clone_mode: Option<CloneMode>,
    /// The snapshot from which it was cloned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    /// The version to which its hardware was upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hardware_version: Option<String>,
    /// When the guest was asked to shut down before the machine is deleted, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) soft_power_off_since: Option<i64>,
    /// The cluster module that keeps it away from the hosts of others.
    #[serde(rename = "moduleUUID", skip_serializing_if = "Option::is_none")]
    pub(crate) module_uuid: Option<String>,
    /// Whether the bootstrap data were removed from vCenter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_bootstrap_data_removed: bool,
    /// What the network devices have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) network: Vec<NetworkStatus>,
    /// The instance UUID of the vCenter where the virtual machine is made with the credentials of the configuration. What was made on one
    /// vCenter is not gone because another one does not have it.
    #[serde(rename = "vCenterUUID", skip_serializing_if = "Option::is_none")]
    pub(crate) vcenter_uuid: Option<String>,
    /// Whose credentials are used, and where. A deletion needs them if the object of the cluster was removed by force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<UsedLogin>,
    /// What readers of older versions still want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<DeprecatedStatus>,
}

/// The credentials that a cluster names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsedLogin {
    /// The vCenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Its instance UUID, which stays where it gets another address.
    #[serde(rename = "vCenterUUID", skip_serializing_if = "Option::is_none")]
    pub(crate) vcenter_uuid: Option<String>,
    /// The fingerprint of its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thumbprint: Option<String>,
    /// Whose credentials.
    pub(crate) identity_ref: VSphereIdentityReference,
}

/// The provider's part of the status of a `VSphereCluster`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VSphereClusterStatus {
    /// The version of the vCenter.
    #[serde(rename = "vCenterVersion", skip_serializing_if = "Option::is_none")]
    pub(crate) vcenter_version: Option<String>,
    /// What readers of older versions still want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<DeprecatedStatus>,
}

/// The status of a `VSphereVM`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VSphereVMStatus {
    /// What is known about it. Ready is the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(crate) conditions: Vec<Condition>,
    /// The host that the virtual machine is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// Whether the virtual machine runs and has addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<bool>,
    /// The addresses of the virtual machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<String>,
    /// How the virtual machine was really cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::spec::text")]
    pub(crate) clone_mode: Option<CloneMode>,
    /// The snapshot from which it was cloned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    /// Until when Cluster API Provider vSphere does not try a failed task again. Not set here, and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub(crate) retry_after: Option<String>,
    /// The managed object ID of the task that runs for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_ref: Option<String>,
    /// What the network devices have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) network: Vec<NetworkStatus>,
    /// The cluster module that keeps it away from the hosts of others.
    #[serde(rename = "moduleUUID", skip_serializing_if = "Option::is_none")]
    pub(crate) module_uuid: Option<String>,
    /// The managed object ID of the virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vm_ref: Option<String>,
    /// What readers of older versions still want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<DeprecatedStatus>,
}

/// The status of a `VSphereDeploymentZone` and of a `VSphereClusterIdentity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ReadyStatus {
    /// What is known about it. Ready is the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub(crate) conditions: Vec<Condition>,
    /// Whether it can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<bool>,
    /// What readers of older versions still want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deprecated: Option<DeprecatedStatus>,
}

/// What a network device has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkStatus {
    /// Whether it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connected: Option<bool>,
    /// The addresses that the guest reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ip_addrs: Vec<String>,
    /// The MAC address.
    pub(crate) mac_addr: String,
    /// The network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_name: Option<String>,
}

/// A condition as in all of Kubernetes (`metav1.Condition`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    #[schemars(regex(
        pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    ))]
    pub(crate) kind: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub(crate) status: String,
    /// Why, for programs.
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub(crate) reason: String,
    /// Why, for people.
    #[schemars(length(max = 32768))]
    pub(crate) message: String,
    /// When the status changed last.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_transition_time: String,
    /// The `metadata.generation` that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) observed_generation: Option<i64>,
}

/// What readers of older versions still want.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeprecatedStatus {
    /// What readers of v1beta1 want.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) v1beta1: Option<V1Beta1Status>,
}

/// What readers of v1beta1 want.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct V1Beta1Status {
    /// The conditions by the names of v1beta1. They follow those of v1beta2; others stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<V1Beta1Condition>,
    /// Why another program has given it up, for programs. Not set here, and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_reason: Option<String>,
    /// Why another program has given it up, for people. Not set here, and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_message: Option<String>,
}

/// A condition in the form of Cluster API's v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct V1Beta1Condition {
    /// Its type.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub(crate) kind: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// How bad it is that it does not hold: `Error`, `Warning` or `Info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub(crate) severity: Option<String>,
    /// When the status changed last.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_transition_time: String,
    /// Why, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub(crate) reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub(crate) message: Option<String>,
}
