//! The network devices of a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The network devices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NetworkSpec {
    /// The devices, in the order in which the guest sees them.
    #[schemars(length(max = 128))]
    pub(crate) devices: Vec<NetworkDeviceSpec>,
    /// Static routes that belong to no device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub(crate) routes: Vec<NetworkRouteSpec>,
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkDeviceSpec {
    /// The network: its name, its inventory path or its managed object ID.
    #[schemars(length(max = 2048))]
    pub(crate) network_name: String,
    /// The device's name in the guest. Default: `eth` and its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) device_name: Option<String>,
    /// Whether the guest asks for an IPv4 address by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp4: Option<bool>,
    /// Whether the guest asks for an IPv6 address by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp6: Option<bool>,
    /// The IPv4 gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub(crate) gateway4: Option<String>,
    /// The IPv6 gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub(crate) gateway6: Option<String>,
    /// Static addresses with the length of their prefix, such as `192.0.2.10/24`. Not for templates, whose machines
    /// would all have the same ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub(crate) ip_addrs: Vec<String>,
    /// The largest packet in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<i64>,
    /// The MAC address. Default: a locally administered one, made from the UID of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 23))]
    pub(crate) mac_addr: Option<String>,
    /// Addresses of DNS servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 64)))]
    pub(crate) nameservers: Vec<String>,
    /// Static routes by this device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub(crate) routes: Vec<NetworkRouteSpec>,
    /// Domains that the guest appends to short names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 1024)))]
    pub(crate) search_domains: Vec<String>,
    /// Pools of an IPAM provider. The device gets one address of each by an `IPAddressClaim`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub(crate) addresses_from_pools: Vec<AddressPoolReference>,
    /// What the guest does with an answer of DHCP for IPv4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp4_overrides: Option<DhcpOverrides>,
    /// What the guest does with an answer of DHCP for IPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dhcp6_overrides: Option<DhcpOverrides>,
    /// Whether the device may stay without an address, such as one for a second network of pods.
    #[serde(rename = "skipIPAllocation", skip_serializing_if = "Option::is_none")]
    pub(crate) skip_ip_allocation: Option<bool>,
}

/// A static route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NetworkRouteSpec {
    /// The destination: an address or a CIDR.
    pub(crate) to: String,
    /// The address of the next hop.
    #[schemars(length(max = 39))]
    pub(crate) via: String,
    /// The route's metric: of two routes, the lower one wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub(crate) metric: Option<i32>,
}

/// What a guest does with an answer of DHCP, in the words of netplan. What is missing is as the guest has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DhcpOverrides {
    /// The host name that is sent in place of the guest's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub(crate) hostname: Option<String>,
    /// The metric of the routes that come by DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "integer")]
    pub(crate) route_metric: Option<i64>,
    /// Whether the host name is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) send_hostname: Option<bool>,
    /// Whether the DNS servers are used.
    #[serde(rename = "useDNS", skip_serializing_if = "Option::is_none")]
    pub(crate) use_dns: Option<bool>,
    /// Whether the domains are used: `true`, `false`, or `route` for routing of DNS questions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub(crate) use_domains: Option<String>,
    /// Whether the guest takes the host name that comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) use_hostname: Option<bool>,
    /// Whether the device takes the MTU that comes.
    #[serde(rename = "useMTU", skip_serializing_if = "Option::is_none")]
    pub(crate) use_mtu: Option<bool>,
    /// Whether the time servers are used.
    #[serde(rename = "useNTP", skip_serializing_if = "Option::is_none")]
    pub(crate) use_ntp: Option<bool>,
    /// Whether the routes are used: `true` or `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub(crate) use_routes: Option<String>,
}

/// A pool of an IPAM provider, in the namespace of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub(crate) struct AddressPoolReference {
    /// The API group of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, length(min = 1, max = 253))]
    pub(crate) api_group: Option<String>,
    /// The kind of the pool.
    #[schemars(length(min = 1, max = 63))]
    pub(crate) kind: String,
    /// The name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub(crate) name: String,
}

/// A whole number without a format, as in Cluster API Provider vSphere.
fn integer(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "integer", "minimum": 0})
}
