//! What a user says about a cluster.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::machines::endpoint::EndpointPoolSpec;

/// The spec of a `LibvirtCluster`. The failure domains of a cluster are the zones of its hypervisors; a hypervisor
/// without a zone is a failure domain of its own, with its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(oldSelf.controlPlaneEndpointPool) || has(self.controlPlaneEndpointPool)",
     "message": "controlPlaneEndpointPool cannot be removed"},
]))]
pub(crate) struct LibvirtClusterSpec {
    /// The hypervisors that the cluster's machines may be on, by their names in the provider's configuration.
    /// Default: all.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub(crate) hypervisors: Vec<String>,
    /// The failure domains that machines of the control plane may be in. Default: all.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub(crate) control_plane_failure_domains: Vec<String>,
    /// Addresses from which `controlPlaneEndpoint` is chosen where it is not given. Something in the guests, such as
    /// kube-vip, must announce the address.
    #[serde(default)]
    pub(crate) control_plane_endpoint_pool: Option<EndpointPoolSpec>,
}
