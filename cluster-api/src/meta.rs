//! Types of Cluster API.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// `ContractVersionedObjectReference` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContractVersionedObjectReference {
    /// `kind`.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub kind: String,
    /// `name`.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,
    /// `apiGroup`.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub api_group: String,
}

/// `Condition` of Cluster API.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `type`.
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub type_: String,
    /// `status`.
    pub status: ConditionStatus,
    /// `observedGeneration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// `lastTransitionTime`.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
    /// `reason`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// `message`.
    #[schemars(length(max = 32768))]
    pub message: String,
}

impl Default for Condition {
    fn default() -> Self {
        Self {
            type_: String::new(),
            status: ConditionStatus::Unknown,
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
            reason: String::new(),
            message: String::new(),
        }
    }
}

/// `StatusVersion` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusVersion {
    /// `version`.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
}

/// `StatusUpgradePlanVersion` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusUpgradePlanVersion {
    /// `version`.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
}

/// `MachineTaint` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTaint {
    /// `key`.
    #[schemars(
        length(min = 1, max = 317),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
        )
    )]
    pub key: String,
    /// `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))]
    pub value: Option<String>,
    /// `effect`.
    pub effect: TaintEffect,
    /// `propagation`.
    pub propagation: MachineTaintPropagation,
}

/// `MachineAddress` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineAddress {
    /// `type`.
    pub type_: MachineAddressType,
    /// `address`.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// `ObjectMeta` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ObjectMeta {
    /// `labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `annotations`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// `ConditionPolarity` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ConditionPolarity {
    /// `Positive`.
    Positive,
    /// `Negative`.
    Negative,
}

/// `ConditionStatus` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum ConditionStatus {
    /// `True`.
    #[default]
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

/// `TaintEffect` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum TaintEffect {
    /// `NoSchedule`.
    #[default]
    NoSchedule,
    /// `PreferNoSchedule`.
    PreferNoSchedule,
    /// `NoExecute`.
    NoExecute,
}

/// `MachineTaintPropagation` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineTaintPropagation {
    /// `Always`.
    #[default]
    Always,
    /// `OnInitialization`.
    OnInitialization,
}

/// `MachineAddressType` of Cluster API.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineAddressType {
    /// `Hostname`.
    #[default]
    Hostname,
    /// `ExternalIP`.
    ExternalIP,
    /// `InternalIP`.
    InternalIP,
    /// `ExternalDNS`.
    ExternalDNS,
    /// `InternalDNS`.
    InternalDNS,
}
