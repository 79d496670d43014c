//! The file `network-config` of `NoCloud`, in version 2 (the format of netplan).

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::mac::Mac;

/// The network configuration of a guest. NICs that it does not name are left as the guest's image has them, in
/// most images without any configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkConfig {
    /// In the order of the domain's NICs.
    pub(crate) interfaces: Vec<InterfaceConfig>,
}

/// The configuration of one NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceConfig {
    /// Finds the NIC in the guest, whose name for it is not known.
    pub(crate) mac: Mac,
    /// Whether addresses come by DHCP.
    pub(crate) dhcp4: bool,
    /// Whether addresses come by `DHCPv6`.
    pub(crate) dhcp6: bool,
    /// Static addresses with the length of their network's prefix.
    pub(crate) addresses: Vec<IpNet>,
    /// Default routes.
    pub(crate) gateways: Vec<IpAddr>,
    /// DNS servers.
    pub(crate) nameservers: Vec<IpAddr>,
    /// Domains in which DNS names are searched.
    pub(crate) search: Vec<String>,
}

impl InterfaceConfig {
    /// A NIC without any address.
    pub(crate) fn new(mac: Mac) -> Self {
        Self {
            mac,
            dhcp4: false,
            dhcp6: false,
            addresses: Vec::new(),
            gateways: Vec::new(),
            nameservers: Vec::new(),
            search: Vec::new(),
        }
    }
}

impl NetworkConfig {
    /// The file's text: JSON, which is YAML too.
    pub(super) fn render(&self) -> String {
        let ethernets: Map<String, Value> = self
            .interfaces
            .iter()
            .enumerate()
            .map(|(i, interface)| (format!("nic{i}"), ethernet(interface)))
            .collect();
        let mut text = json!({ "version": 2, "ethernets": ethernets }).to_string();
        text.push('\n');
        text
    }
}

fn ethernet(interface: &InterfaceConfig) -> Value {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| drop(fields.insert(key.to_owned(), value));
    set("match", json!({ "macaddress": interface.mac.to_string() }));
    set("dhcp4", interface.dhcp4.into());
    set("dhcp6", interface.dhcp6.into());
    if !interface.addresses.is_empty() {
        set("addresses", texts(&interface.addresses));
    }
    if !interface.gateways.is_empty() {
        let routes: Vec<Value> = interface.gateways.iter().map(default_route).collect();
        set("routes", routes.into());
    }
    if !interface.nameservers.is_empty() || !interface.search.is_empty() {
        let (addresses, search) = (texts(&interface.nameservers), texts(&interface.search));
        set("nameservers", json!({ "addresses": addresses, "search": search }));
    }
    fields.into()
}

/// A default route as a network, since `default` is unknown to older guests.
fn default_route(gateway: &IpAddr) -> Value {
    let to = if gateway.is_ipv6() { "::/0" } else { "0.0.0.0/0" };
    json!({ "to": to, "via": gateway.to_string() })
}

fn texts(list: &[impl ToString]) -> Value {
    list.iter().map(ToString::to_string).collect()
}
