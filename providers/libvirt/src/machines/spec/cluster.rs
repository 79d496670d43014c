//! What a user says about a cluster.

use cloudprovider::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::Deserialize;

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

/// Addresses from which a cluster without `controlPlaneEndpoint` gets one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.network == oldSelf.network", "message": "network cannot change"},
    {"rule": "!has(oldSelf.hypervisor) || (has(self.hypervisor) && self.hypervisor == oldSelf.hypervisor)",
     "message": "hypervisor cannot change"},
]))]
pub(crate) struct EndpointPoolSpec {
    /// The hypervisor that has the network, by its name in the provider's configuration. Needed if there are several.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hypervisor: Option<String>,
    /// The libvirt network that keeps the addresses, as host entries of its DHCP server. It need not be active.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^/]+$"))]
    pub(crate) network: String,
    /// IPv4 addresses of the network's subnet, outside of its DHCP ranges: single ones, ranges such as
    /// `192.168.122.200-192.168.122.209`, or networks such as `192.168.122.208/28`.
    #[schemars(length(min = 1, max = 32), inner(length(min = 7, max = 31)))]
    pub(crate) addresses: Vec<String>,
    /// The port of the API server. Default: 6443.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) port: u16,
}

fn default_port() -> u16 {
    6443
}

impl EndpointPoolSpec {
    /// The hypervisor that has the network, among these.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the configuration does not have it, and [`ErrorKind::InvalidInput`] if there are several
    /// and the spec names none.
    pub(crate) fn hypervisor_of<'a>(&self, names: &[&'a str]) -> Result<&'a str> {
        let known = || names.join(", ");
        match (&self.hypervisor, names) {
            (Some(wanted), _) => names.iter().find(|name| *name == wanted).copied().ok_or_else(|| {
                let words = format!(
                    "spec.controlPlaneEndpointPool.hypervisor: the configuration has no hypervisor {wanted:?}"
                );
                Error::new(ErrorKind::NotFound, words).with_log_detail(format!("it has {}", known()))
            }),
            (None, [only]) => Ok(only),
            (None, _) => {
                let words = "spec.controlPlaneEndpointPool.hypervisor: is missing; say which hypervisor has the network";
                Err(Error::new(ErrorKind::InvalidInput, words)
                    .with_log_detail(format!("there are {}", known())))
            }
        }
    }
}
