//! What a user says about a part of vSphere that can fail as a whole, and about a place for machines in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AddressPoolReference, DhcpOverrides};

/// The spec of a `VSphereFailureDomain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VSphereFailureDomainSpec {
    /// The region.
    pub(crate) region: FailureDomain,
    /// The zone in the region.
    pub(crate) zone: FailureDomain,
    /// What it is made of.
    pub(crate) topology: Topology,
}

/// A region or a zone: a tag of vSphere, and what carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureDomain {
    /// The name of the tag.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) name: String,
    /// What carries the tag.
    #[serde(rename = "type")]
    pub(crate) kind: FailureDomainType,
    /// The category of the tag.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) tag_category: String,
}

/// What a region or a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum FailureDomainType {
    /// A datacenter.
    Datacenter,
    /// A cluster of hosts.
    ComputeCluster,
    /// A group of hosts of a cluster. Not for regions.
    HostGroup,
}

/// What a failure domain is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Topology {
    /// The datacenter: its name or its inventory path.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) datacenter: String,
    /// The cluster of hosts: its name or its inventory path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) compute_cluster: Option<String>,
    /// The hosts of the cluster that belong to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<FailureDomainHosts>,
    /// Names of networks, which take the place of those of a machine's devices, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 2048)))]
    pub(crate) networks: Vec<String>,
    /// The same with more than a name. Give either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["networkName"]))]
    #[schemars(length(max = 128))]
    pub(crate) network_configurations: Vec<NetworkConfiguration>,
    /// The datastore or datastore cluster: its name or its inventory path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) datastore: Option<String>,
}

/// Hosts of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureDomainHosts {
    /// The VM group that machines are put into.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) vm_group_name: String,
    /// The host group that the VM group is tied to.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) host_group_name: String,
}

/// What a network of a failure domain says about the devices in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkConfiguration {
    /// The network: its name or its inventory path.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) network_name: String,
    /// Whether the guest asks for an IPv4 address by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp4: Option<bool>,
    /// Whether the guest asks for an IPv6 address by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp6: Option<bool>,
    /// Addresses of DNS servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 64)))]
    pub(crate) nameservers: Vec<String>,
    /// Domains that the guest appends to short names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 1024)))]
    pub(crate) search_domains: Vec<String>,
    /// What the guest does with an answer of DHCP for IPv4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp4_overrides: Option<DhcpOverrides>,
    /// What the guest does with an answer of DHCP for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp6_overrides: Option<DhcpOverrides>,
    /// Pools of an IPAM provider. The device gets one address of each by an `IPAddressClaim`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub(crate) addresses_from_pools: Vec<AddressPoolReference>,
}

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
