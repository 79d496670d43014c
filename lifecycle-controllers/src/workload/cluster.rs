//! One workload cluster, as controllers work with it.

use std::fmt;

use cloudprovider::dns;
use controller_kit::writes::{self, MERGE_PATCH, WriteError};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{ClusterKey, Node, Nodes, node::WireNode, node_sync::NodePatch, words::in_words};

/// A workload cluster that is connected. A clone is cheap. Requests fail once the cluster is away; writes also fail once the
/// term of the management cluster's leader is over.
#[derive(Clone)]
pub struct WorkloadCluster {
    key: ClusterKey,
    client: Client,
    nodes: Nodes,
}

impl fmt::Debug for WorkloadCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkloadCluster").field(&self.key).finish()
    }
}

impl WorkloadCluster {
    pub(super) fn new(key: ClusterKey, client: Client, nodes: Nodes) -> Self {
        Self { key, client, nodes }
    }

    /// The Cluster.
    pub fn key(&self) -> &ClusterKey {
        &self.key
    }

    /// The client of its API server, within the limits of [`workload`](super) and behind the fence of the term. Texts that the
    /// API server answers with may be long, so callers cut them before they write them elsewhere.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its Nodes as the watch shows them.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// A Node as its API server has it now.
    ///
    /// # Errors
    /// The API server's.
    pub async fn read_node(&self, name: &str) -> Result<Option<Node>, WriteError> {
        if !dns::is_subdomain(name) {
            return Ok(None);
        }
        let api: Api<WireNode> = Api::all(self.client.clone());
        let found = writes::within_deadline(api.get_opt(name)).await.map_err(in_words)?;
        Ok(found.and_then(WireNode::read))
    }

    /// Patches a Node as [`node_sync`](super::node_sync) decided. While the watch does not show the last patch of it, nothing is done:
    /// what was decided on is what was before.
    ///
    /// # Errors
    /// The API server's: [`WriteError::Gone`] if another Node has the name, [`WriteError::Stale`] if taints change and the Node
    /// has changed since.
    pub async fn patch_node(&self, node: &Node, patch: &NodePatch) -> Result<(), WriteError> {
        if self.nodes.is_late(node) {
            return Ok(());
        }
        let written =
            writes::patch(&self.client, &path_of(&node.name)?, MERGE_PATCH, &patch.body(node)).await;
        self.nodes.wrote(&node.name, written.map_err(in_words)?);
        Ok(())
    }

    /// Makes a Node unschedulable, if it is not yet. Its UID is a condition and its version is none: the kubelet writes often.
    ///
    /// # Errors
    /// The API server's; [`WriteError::Gone`] if there is no such Node, or another one of its name.
    pub async fn cordon(&self, node: &Node) -> Result<(), WriteError> {
        if node.unschedulable {
            return Ok(());
        }
        let body = json!({"metadata": {"uid": node.uid}, "spec": {"unschedulable": true}});
        writes::patch(&self.client, &path_of(&node.name)?, MERGE_PATCH, &body)
            .await
            .map(drop)
            .map_err(in_words)
    }

    /// Deletes this Node, and no other of its name. Success if it does not exist any more.
    ///
    /// # Errors
    /// The API server's.
    pub async fn delete_node(&self, node: &Node) -> Result<(), WriteError> {
        let body: Value = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": node.uid},
        });
        match writes::delete(&self.client, &path_of(&node.name)?, &body).await {
            Ok(()) | Err(WriteError::Gone) => Ok(()),
            // The API server does not say whether the UID was the reason.
            Err(error @ WriteError::Stale(_)) => match self.read_node(&node.name).await? {
                Some(there) if there.uid == node.uid => Err(in_words(error)),
                _ => Ok(()),
            },
            Err(error) => Err(in_words(error)),
        }
    }
}

fn path_of(node: &str) -> Result<String, WriteError> {
    if dns::is_subdomain(node) { Ok(format!("/api/v1/nodes/{node}")) } else { Err(WriteError::Gone) }
}
