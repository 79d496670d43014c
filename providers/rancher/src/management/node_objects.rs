//! The objects of the management cluster that stand behind `/v3/nodes`.

use kube::core::{ApiResource, Object};
use serde::{Deserialize, Serialize};

use super::{
    nodes::{CustomConfig, ManagementNode},
    objects::MachineAddress,
};
use crate::norman::reply::or_default;

/// The label with the name of the cluster's Node.
const NODE_NAME_LABEL: &str = "management.cattle.io/nodename";

/// A `management.cattle.io` Node: the fields that matter. Its namespace is the ID of its cluster.
pub(super) type NodeObject = Object<NodeObjectSpec, NodeObjectStatus>;

/// Its `spec`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeObjectSpec {
    requested_hostname: Option<String>,
    #[serde(deserialize_with = "or_default")]
    internal_node_spec: InternalNodeSpec,
    #[serde(deserialize_with = "or_default", skip_serializing)]
    custom_config: CustomConfig,
}

/// The `spec` of the cluster's Node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct InternalNodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

/// The `status` of such an object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeObjectStatus {
    node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    internal_node_status: InternalNodeStatus,
}

/// The `status` of the cluster's Node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct InternalNodeStatus {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<MachineAddress>,
}

/// The kind.
pub(super) fn kind() -> ApiResource {
    ApiResource {
        group: "management.cattle.io".to_owned(),
        version: "v3".to_owned(),
        api_version: "management.cattle.io/v3".to_owned(),
        kind: "Node".to_owned(),
        plural: "nodes".to_owned(),
    }
}

/// The node as `/v3/nodes` shows it.
pub(super) fn node(object: NodeObject) -> Option<ManagementNode> {
    let (metadata, spec, status) = (object.metadata, object.spec, object.status.unwrap_or_default());
    let cluster = metadata.namespace?;
    let label = || metadata.labels.as_ref()?.get(NODE_NAME_LABEL).cloned();
    let hostname = status.internal_node_status.addresses.into_iter().find(|one| one.kind == "Hostname");
    Some(ManagementNode {
        id: format!("{cluster}:{}", metadata.name?),
        node_name: status.node_name.filter(|name| !name.is_empty()).or_else(label),
        requested_hostname: spec.requested_hostname,
        hostname: hostname.map(|hostname| hostname.address),
        provider_id: spec.internal_node_spec.provider_id,
        state: metadata.deletion_timestamp.is_some().then(|| "removing".to_owned()),
        custom_config: spec.custom_config,
        cluster_id: Some(cluster),
    })
}

/// Decodes such an object. Returns whether it is one. For fuzzing.
pub(crate) fn decode(bytes: &[u8]) -> bool {
    serde_json::from_slice(bytes).ok().and_then(node).is_some()
}
