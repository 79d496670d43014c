//! What a user says about a cluster, and about credentials that clusters share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LabelSelector;

/// The spec of a `VSphereCluster`, without `controlPlaneEndpoint`, which is the controller's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VSphereClusterSpec {
    /// The vCenter: a DNS name or an address, with a port if it is not 443.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) server: Option<String>,
    /// The fingerprint of the vCenter's certificate, SHA-1 or SHA-256, in hexadecimal with colons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) thumbprint: Option<String>,
    /// Whose credentials are used. Default: those of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity_ref: Option<VSphereIdentityReference>,
    /// The cluster modules of vCenter that keep machines on different hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub(crate) cluster_modules: Vec<ClusterModule>,
    /// Whether no cluster modules are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disable_cluster_module: Option<bool>,
    /// Which `VSphereDeploymentZones` are failure domains of the cluster, by their labels. `{}` selects all.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure_domain_selector: Option<LabelSelector>,
}

/// An object with credentials for a vCenter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VSphereIdentityReference {
    /// What it is.
    pub(crate) kind: IdentityKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
}

/// What credentials come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum IdentityKind {
    /// An object for all namespaces that it allows.
    VSphereClusterIdentity,
    /// A Secret in the namespace of the cluster, with the keys `username` and `password`.
    Secret,
}

/// A cluster module of vCenter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterModule {
    /// Whether the machines are those of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub(crate) control_plane: Option<bool>,
    /// The name of the object that owns the machines, such as a `MachineDeployment`.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) target_object_name: String,
    /// The module's ID.
    #[serde(rename = "moduleUUID")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) module_uuid: String,
}

/// The spec of a `VSphereClusterIdentity`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["secretName"]))]
pub(crate) struct VSphereClusterIdentitySpec {
    /// The Secret with the keys `username` and `password`, in the namespace of the controller.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) secret_name: String,
    /// Which namespaces may use it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_namespaces: Option<AllowedNamespaces>,
}

/// Namespaces that may use an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AllowedNamespaces {
    /// By their labels. `{}` selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) selector: Option<LabelSelector>,
}
