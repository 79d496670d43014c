//! Nodes in `/v3/nodes`: a mirror of the cluster's own Nodes, and those that registered before Kubernetes.

use cloudprovider::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::machine::{KnownAddresses, Machine};
use crate::norman::{
    client::Client,
    reply::{or_default, plain},
};

/// What a role in Rancher has to do.
pub(super) const SHOWS_NODES: &str = "shows its nodes, such as nodes-view (View Nodes)";

/// A node of a listing. Fields that only mirror the Node are left out: a Node that got back its own values
/// could never change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManagementNode {
    /// `<ID of the cluster>:<name>`.
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) cluster_id: Option<String>,
    /// The name of the cluster's Node, once there is one.
    #[serde(default)]
    pub(crate) node_name: Option<String>,
    #[serde(default)]
    pub(crate) requested_hostname: Option<String>,
    #[serde(default)]
    pub(crate) hostname: Option<String>,
    #[serde(default)]
    pub(crate) provider_id: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// What the machine said of itself when it registered, before Kubernetes.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) custom_config: CustomConfig,
}

/// The addresses of a machine that registered before Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CustomConfig {
    /// The public one.
    pub(crate) address: Option<String>,
    pub(crate) internal_address: Option<String>,
}

/// A node of a listing, or why it cannot be read. So one odd node does not spoil a listing.
#[derive(Debug)]
pub(crate) struct ListedNode(pub(crate) Result<ManagementNode, String>);

impl<'de> Deserialize<'de> for ListedNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(Self(serde_json::from_value(value).map_err(|error| error.to_string())))
    }
}

/// The machines of a cluster, by a listing of nodes.
#[derive(Debug, Default)]
pub(crate) struct ListedMachines {
    pub(crate) machines: Vec<Machine>,
    /// Which nodes cannot be read and are left out, in words, if there are any.
    pub(crate) unreadable: Option<String>,
}

/// All nodes of a cluster.
///
/// # Errors
/// If any page cannot be read.
pub(super) async fn list(client: &Client, cluster: &str) -> Result<ListedMachines> {
    let listed = client.list("nodes", &[("clusterId", cluster)]).await;
    Ok(machines(listed.map_err(|error| needs_role(error, cluster))?, cluster))
}

/// A refusal names the role that shows the nodes.
fn needs_role(error: Error, cluster: &str) -> Error {
    if error.kind() != ErrorKind::PermissionDenied {
        return error;
    }
    error.wrap(format!("the token's user needs a role on cluster {cluster} in Rancher that {SHOWS_NODES}"))
}

/// The machines of a cluster among these nodes.
pub(crate) fn machines(listed: Vec<ListedNode>, cluster: &str) -> ListedMachines {
    let (mut machines, mut unreadable) = (Vec::new(), Vec::new());
    for ListedNode(node) in listed {
        match node {
            Ok(node) => machines.extend(machine(node, cluster)),
            Err(error) => unreadable.push(error),
        }
    }
    let unreadable = unreadable.first().map(|first| {
        let count = unreadable.len();
        format!("{count} nodes of the server cannot be read, and are left out; the first: {}", plain(first))
    });
    ListedMachines { machines, unreadable }
}

/// The key of the machine of a node. `None` if it is another cluster's: the server ignores filters that it
/// does not know.
fn machine_key(node: &ManagementNode, cluster: &str) -> Option<String> {
    let (of, key) = node.id.split_once(':')?;
    let same = of == cluster && node.cluster_id.as_deref().is_none_or(|id| id == cluster);
    (same && !key.is_empty()).then(|| key.to_owned())
}

/// The machine of a node. `None` if it is another cluster's.
pub(super) fn machine(node: ManagementNode, cluster: &str) -> Option<Machine> {
    let key = machine_key(&node, cluster)?;
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    let ips = |list: Option<&String>| -> Vec<_> {
        list.into_iter().flat_map(|list| list.split(',')).filter_map(|ip| ip.trim().parse().ok()).collect()
    };
    let custom = &node.custom_config;
    let (internal, external) = (ips(custom.internal_address.as_ref()), ips(custom.address.as_ref()));
    let names = [text(node.requested_hostname), text(node.hostname)];
    Some(Machine {
        shown: format!("node {}", node.id),
        key,
        provider_id: text(node.provider_id),
        node: text(node.node_name),
        names: names.into_iter().flatten().collect(),
        addresses: KnownAddresses::of(internal, external),
        is_leaving: matches!(node.state.as_deref(), Some("removing" | "removed")),
        ..Machine::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As a real server answered.
    #[test]
    fn what_mirrors_the_node_is_left_out() {
        let node: ManagementNode = serde_json::from_value(json!({
            "id": "local:machine-vs5ql", "type": "node", "clusterId": "local", "name": "", "nodeName": "node-1",
            "requestedHostname": "node-1", "hostname": null, "providerId": "", "ipAddress": "fd00::1",
            "externalIpAddress": "203.0.113.1", "state": "active", "imported": false, "customConfig": null,
            "labels": {"topology.kubernetes.io/zone": "a"},
        }))
        .expect("a node");
        let machine = machine(node.clone(), "local").expect("a machine");
        assert_eq!((machine.key.as_str(), machine.node.as_deref()), ("machine-vs5ql", Some("node-1")));
        assert_eq!((machine.provider_id, machine.addresses), (None, KnownAddresses::default()));
        assert!(machine.labels.is_empty());
        for other in ["c-abcde", "loca"] {
            assert!(
                super::machine(node.clone(), other).is_none(),
                "the server ignores what it does not know"
            );
        }
    }

    #[test]
    fn a_machine_that_registers_before_kubernetes_has_its_own_addresses() {
        let node: ManagementNode = serde_json::from_value(json!({
            "id": "c-abcde:m-0123456789ab", "clusterId": "c-abcde", "nodeName": null, "hostname": null,
            "requestedHostname": "node-7", "providerId": null, "state": "registering", "transitioning": "yes",
            "customConfig": {"address": "203.0.113.7", "internalAddress": "10.0.0.7", "label": {}},
        }))
        .expect("a node");
        let machine = machine(node, "c-abcde").expect("a machine");
        assert_eq!(machine.node, None);
        assert!(machine.names.contains("node-7"));
        assert_eq!(machine.addresses.internal, ["10.0.0.7".parse::<std::net::IpAddr>().expect("an IP")]);
        assert_eq!(machine.addresses.external, ["203.0.113.7".parse::<std::net::IpAddr>().expect("an IP")]);
    }
    #[test]
    fn odd_nodes_are_left_out_and_told_in_one_line() {
        let nodes = json!([
            {"id": "local:m-1"}, {"id": 7}, {"name": "without an ID"}, {"id": "local:m-2"}, {"id": "other:m-3"},
        ]);
        let listed = machines(serde_json::from_value(nodes).expect("nodes"), "local");
        assert_eq!(listed.machines.len(), 2);
        let words = listed.unreadable.expect("words");
        assert!(
            words.starts_with("2 nodes of the server cannot be read") && words.contains("invalid type"),
            "{words}"
        );
        assert_eq!(machines(Vec::new(), "local").unreadable, None);
    }
}
