//! Writes to Nodes: patches that touch only our fields, and guarded deletions.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::writes::{
    JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, WriteError, WrittenVersion, before, patch,
    within_deadline,
};

/// A patch of a Node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodePatch {
    /// JSON Patch of the Node: a list of operations, `test` among them.
    Json(Value),
    /// Merge patch of the Node.
    Merge(Value),
    /// Strategic merge patch of the Node.
    Strategic(Value),
    /// Strategic merge patch of `nodes/status`.
    Status(Value),
}

impl NodePatch {
    /// Limits this patch to one version of the Node: the API server refuses it for any other version. `None`
    /// removes the limit. A JSON Patch has its own `test` operations and stays as it is.
    pub fn set_version(&mut self, version: Option<&str>) {
        let (Self::Merge(body) | Self::Strategic(body) | Self::Status(body)) = self else { return };
        match version {
            Some(version) => body["metadata"]["resourceVersion"] = version.into(),
            None => {
                body["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
            }
        }
    }
}

/// Writes Nodes through the API server.
#[derive(Clone)]
pub struct NodeWriter {
    client: Client,
}

impl std::fmt::Debug for NodeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeWriter").finish_non_exhaustive()
    }
}

impl NodeWriter {
    /// A writer over this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Patches the Node called `name`.
    pub async fn patch(&self, name: &str, node_patch: &NodePatch) -> Result<WrittenVersion, WriteError> {
        let (subresource, content_type, body) = match node_patch {
            NodePatch::Json(body) => ("", JSON_PATCH, body),
            NodePatch::Merge(body) => ("", MERGE_PATCH, body),
            NodePatch::Strategic(body) => ("", STRATEGIC_MERGE_PATCH, body),
            NodePatch::Status(body) => ("/status", STRATEGIC_MERGE_PATCH, body),
        };
        let path = format!("/api/v1/nodes/{name}{subresource}");
        let mut answer = patch(&self.client, &path, content_type, body).await;
        if let (NodePatch::Json(operations), Err(WriteError::Stale(_))) = (node_patch, &answer)
            && let Some(uid) = tested_uid(operations)
            && self.is_replaced(name, uid).await
        {
            answer = Err(WriteError::Gone);
        }
        if let Err(error @ (WriteError::Stale(_) | WriteError::Failed(_))) = &answer {
            tracing::debug!(node = name, %body, %error, "patch refused");
        }
        answer
    }

    /// Deletes this very version of a Node. Another Node of the same name stays, and so does one that changed since it was
    /// judged. At `deadline` the request is given up, even where it still waits for its turn or to be sent again.
    pub async fn delete(&self, node: &super::Node, deadline: Instant) -> Result<(), WriteError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let preconditions = Preconditions {
            uid: Some(node.identity.uid.clone()),
            resource_version: Some(node.resource_version.clone()).filter(|version| !version.is_empty()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match before(deadline, api.delete(node.name(), &params)).await {
            Ok(_) | Err(WriteError::Gone) => Ok(()),
            Err(WriteError::Stale(_)) if self.is_replaced(node.name(), &node.identity.uid).await => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the API server has a Node with this name now, whatever a cache says.
    ///
    /// # Errors
    /// If the API server does not say.
    pub async fn is_there(&self, name: &str) -> Result<bool, WriteError> {
        // A text that cannot be a Node's name could mean something else in a selector.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) {
            return Ok(false);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        // The daemon may list Nodes, but may not get one.
        let one = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        within_deadline(api.list_metadata(&one)).await.map(|nodes| !nodes.items.is_empty())
    }

    /// Whether there is no Node with this name and UID any more. The API server does not say which precondition failed. A caller
    /// that waits for the watch to show it would send the write again and again.
    async fn is_replaced(&self, name: &str, uid: &str) -> bool {
        let api: Api<Node> = Api::all(self.client.clone());
        // The daemon may list Nodes, but may not get one.
        let one = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        match within_deadline(api.list_metadata(&one)).await {
            Ok(nodes) => !nodes.items.iter().any(|node| node.metadata.uid.as_deref() == Some(uid)),
            Err(_) => false,
        }
    }
}

/// The UID that a JSON Patch tests.
fn tested_uid(operations: &Value) -> Option<&str> {
    let is_test = |operation: &&Value| operation["op"] == "test" && operation["path"] == "/metadata/uid";
    operations.as_array()?.iter().find(is_test)?["value"].as_str()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_given_up_at_its_deadline() {
        let answer = |_: Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        };
        let writer = NodeWriter::new(Client::new(tower::service_fn(answer), "default"));
        let node = crate::nodes::Node::from_json(json!({"metadata": {"name": "n", "uid": "u"}}));
        let deadline = Instant::now() + Duration::from_secs(2);
        let outcome = writer.delete(&node, deadline).await;
        assert!(matches!(outcome, Err(WriteError::Failed(_))), "{outcome:?}");
        assert!(Instant::now() < deadline + Duration::from_secs(1));
    }
}
