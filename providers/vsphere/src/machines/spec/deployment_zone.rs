//! What a user says about a place for machines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The spec of a `VSphereDeploymentZone`: a failure domain for Cluster API, with its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VSphereDeploymentZoneSpec {
    /// The vCenter: a DNS name or an address, with a port if it is not 443.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) server: Option<String>,
    /// The `VSphereFailureDomain` that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, length(min = 1, max = 253))]
    pub(crate) failure_domain: Option<String>,
    /// Whether machines of the control plane may be here. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) control_plane: Option<bool>,
    /// Where in the failure domain the machines are. Default: wherever their own spec says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) placement_constraint: Option<PlacementConstraint>,
}

/// Where machines are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlacementConstraint {
    /// The resource pool: its name or its inventory path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) resource_pool: Option<String>,
    /// The folder: its name or its inventory path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) folder: Option<String>,
}
