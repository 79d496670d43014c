//! Types of Cluster API.

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Arg;
use crate::SecretText;
use crate::schema;
use crate::serde_with::is_default;

/// `InitConfiguration` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct InitConfiguration {
    /// `bootstrapTokens`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub bootstrap_tokens: Vec<BootstrapToken>,
    /// `nodeRegistration`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_registration: NodeRegistrationOptions,
    /// `localAPIEndpoint`.
    #[serde(rename = "localAPIEndpoint", default, skip_serializing_if = "is_default")]
    pub local_api_endpoint: APIEndpoint,
    /// `skipPhases`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub skip_phases: Vec<String>,
    /// `patches`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub patches: Patches,
    /// `timeouts`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
}

/// `BootstrapToken` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapToken {
    /// `token`.
    #[schemars(length(min = 1, max = 23))]
    pub token: SecretText,
    /// `description`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub description: Option<String>,
    /// `ttlSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds: Option<i32>,
    /// `expires`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub expires: Option<Time>,
    /// `usages`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub usages: Vec<String>,
    /// `groups`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
}

/// `NodeRegistrationOptions` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct NodeRegistrationOptions {
    /// `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// `criSocket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub cri_socket: Option<String>,
    /// `taints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Option<Vec<Taint>>,
    /// `kubeletExtraArgs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "value"], "x-kubernetes-validations" = [{"message": "kubeletExtraArgs name must be unique", "rule": "self.all(x, self.exists_one(y, x.name == y.name))"}]))]
    pub kubelet_extra_args: Vec<Arg>,
    /// `ignorePreflightErrors`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ignore_preflight_errors: Vec<String>,
    /// `imagePullPolicy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// `imagePullSerial`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_serial: Option<bool>,
}

/// `APIEndpoint` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct APIEndpoint {
    /// `advertiseAddress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 39))]
    pub advertise_address: Option<String>,
    /// `bindPort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub bind_port: Option<i32>,
}

/// `Patches` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Patches {
    /// `directory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub directory: Option<String>,
}

/// `Timeouts` of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct Timeouts {
    /// `controlPlaneComponentHealthCheckSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub control_plane_component_health_check_seconds: Option<i32>,
    /// `kubeletHealthCheckSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub kubelet_health_check_seconds: Option<i32>,
    /// `kubernetesAPICallSeconds`.
    #[serde(rename = "kubernetesAPICallSeconds", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub kubernetes_api_call_seconds: Option<i32>,
    /// `etcdAPICallSeconds`.
    #[serde(rename = "etcdAPICallSeconds", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub etcd_api_call_seconds: Option<i32>,
    /// `tlsBootstrapSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub tls_bootstrap_seconds: Option<i32>,
    /// `discoverySeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub discovery_seconds: Option<i32>,
}

/// `PullPolicy` of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum PullPolicy {
    /// `Always`.
    Always,
    /// `IfNotPresent`.
    IfNotPresent,
    /// `Never`.
    Never,
}
