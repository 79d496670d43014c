//! Harvester's `LoadBalancer`, `loadbalancer.harvesterhci.io/v1beta1`: the fields that are read or written
//! here.
//!
//! The resource has no subresource for its status: a write of the whole object writes the status too. So only
//! patches of single fields are sent.

use std::{collections::BTreeMap, net::IpAddr};

use kube::api::{ApiResource, GroupVersionKind, Object};
use serde::{Deserialize, Serialize};

pub(super) const GROUP: &str = "loadbalancer.harvesterhci.io";
pub(super) const VERSION: &str = "v1beta1";
pub(super) const KIND: &str = "LoadBalancer";
pub(super) const PLURAL: &str = "loadbalancers";

/// The kind of workload whose traffic is balanced inside of the guest cluster. Harvester only gives the
/// address.
pub(super) const CLUSTER: &str = "cluster";

/// The address that Harvester gives with `ipam: dhcp`: its announcer asks a DHCP server.
pub(super) const DHCP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// A `LoadBalancer` as the API server has it.
pub(super) type LoadBalancer = Object<Spec, Status>;

/// The resource, for the client.
pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL)
}

/// The `spec`. What is missing has its default, so that an object of another program can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workload_type: Option<String>,
    /// `pool` or `dhcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ipam: Option<String>,
    /// The name of an `IPPool`. Harvester picks one if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ip_pool: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) listeners: Vec<Listener>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) health_check: Option<HealthCheck>,
}

/// A port of the load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub(super) protocol: String,
    /// The node port.
    pub(super) backend_port: u16,
}

/// A check of the back ends by a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HealthCheck {
    /// The node port to connect to.
    pub(super) port: u32,
    pub(super) success_threshold: u32,
    pub(super) failure_threshold: u32,
    pub(super) period_seconds: u32,
    pub(super) timeout_seconds: u32,
}

/// The `status`, which Harvester's controller writes, but for `address`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    /// The address in use, for people. The guest cluster writes it.
    pub(super) address: String,
    pub(super) allocated_address: AllocatedAddress,
    pub(super) conditions: Vec<Condition>,
}

/// The address that Harvester gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AllocatedAddress {
    pub(super) ip: String,
    pub(super) ip_pool: String,
}

/// A condition. `Ready` is the only one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) message: String,
}

/// Labels or annotations of an object.
pub(super) type Words = BTreeMap<String, String>;
