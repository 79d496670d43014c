//! Types that several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{patterns, schema};

/// A reference to an object in the same namespace. The version is the one that the definition of the kind
/// names for the contract.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContractVersionedObjectReference {
    /// The kind of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = patterns::KIND))]
    pub kind: String,
    /// The name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = patterns::OBJECT_NAME))]
    pub name: String,
    /// The group of the kind, without version.
    #[schemars(length(min = 1, max = 253), regex(pattern = patterns::OBJECT_NAME))]
    pub api_group: String,
}

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, such as `Ready`. A prefix with a domain belongs to other controllers.
    #[schemars(length(max = 316), regex(pattern = patterns::QUALIFIED_NAME))]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The `metadata.generation` that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When the status changed last.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
    /// A word for programs.
    #[schemars(length(min = 1, max = 1024), regex(pattern = patterns::REASON))]
    pub reason: String,
    /// Text for people, up to 32 KiB.
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

/// Machines of one version of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusVersion {
    /// The version, such as `v1.35.0`.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
    /// How many Machines have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
}

/// A step of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusUpgradePlanVersion {
    /// The version that the step leads to.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
}

/// A taint that the Node of a Machine gets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTaint {
    /// The key, with or without a domain.
    #[schemars(length(min = 1, max = 317), regex(pattern = patterns::TAINT_KEY))]
    pub key: String,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = patterns::LABEL_VALUE))]
    pub value: Option<String>,
    /// What it does to Pods.
    pub effect: TaintEffect,
    /// Whether it is kept on the Node or set once.
    pub propagation: MachineTaintPropagation,
}

/// An address of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineAddress {
    /// What kind of address it is.
    pub type_: MachineAddressType,
    /// The address or the name.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// Labels and annotations of objects that are made from a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ObjectMeta {
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Which value of a condition is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum ConditionPolarity {
    /// True is good.
    Positive,
    /// False is good.
    Negative,
}

/// The value of a condition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum ConditionStatus {
    /// It holds.
    #[default]
    True,
    /// It does not hold.
    False,
    /// Nobody knows.
    Unknown,
}

/// What a taint does to Pods that do not tolerate it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum TaintEffect {
    /// No new ones come.
    #[default]
    NoSchedule,
    /// New ones come only if no other Node has room.
    PreferNoSchedule,
    /// No new ones come, and those that run are evicted.
    NoExecute,
}

/// How long a taint is kept on a Node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineTaintPropagation {
    /// It is set again whenever it is missing.
    #[default]
    Always,
    /// It is set once, when the Node is new.
    OnInitialization,
}

/// A kind of address.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
pub enum MachineAddressType {
    /// The name of the host.
    #[default]
    Hostname,
    /// An IP address that is reached from outside.
    ExternalIP,
    /// An IP address inside of the infrastructure.
    InternalIP,
    /// A DNS name that is known outside.
    ExternalDNS,
    /// A DNS name inside of the infrastructure.
    InternalDNS,
}
