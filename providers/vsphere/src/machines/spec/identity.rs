//! What a user says about credentials that several namespaces share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LabelSelector;

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
