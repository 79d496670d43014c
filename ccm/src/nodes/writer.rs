//! Writes to Nodes: patches that touch only our fields, and guarded deletions.

use std::time::Duration;

use cloudprovider::error_chain;
use http::{Request, header};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Preconditions},
    core::{Status, response::StatusCause},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

/// Deadline of one write. The API server's own is 60 s; a patch of a Node takes milliseconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The form of answer that is asked for: only metadata, which is 1 kB where the whole Node is 12 kB.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// By default the API server searches a patched object for unknown fields, to warn of them. That is 7 % of its memory
/// allocations for a patch of a Node. The fields here are all known.
const UNCHECKED: &str = "fieldValidation=Ignore";

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

/// `metadata.resourceVersion` after a write.
pub type WrittenVersion = String;

/// What is read of the response to a patch.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    metadata: WrittenMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenMetadata {
    resource_version: WrittenVersion,
}

/// Why a write failed. There is one case for each thing that a caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The Node changed meanwhile (a failed `test`, another version): look at it again.
    #[error("the Node changed meanwhile: {0}")]
    Stale(String),
    /// The Node is gone, and another one may have its name.
    #[error("the Node does not exist any more")]
    Gone,
    /// Anything else: the API server refused or did not answer.
    #[error("{0}")]
    Failed(String),
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
    pub async fn patch(&self, name: &str, patch: &NodePatch) -> Result<WrittenVersion, WriteError> {
        let (subresource, content_type, body) = match patch {
            NodePatch::Json(body) => ("", "application/json-patch+json", body),
            NodePatch::Merge(body) => ("", "application/merge-patch+json", body),
            NodePatch::Strategic(body) => ("", "application/strategic-merge-patch+json", body),
            NodePatch::Status(body) => ("/status", "application/strategic-merge-patch+json", body),
        };
        let request = Request::patch(format!("/api/v1/nodes/{name}{subresource}?{UNCHECKED}"))
            .header(header::ACCEPT, METADATA_ONLY)
            .header(header::CONTENT_TYPE, content_type)
            .body(body.to_string().into_bytes())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        let mut answer = within_deadline(self.client.request::<Written>(request)).await;
        if let (NodePatch::Json(operations), Err(WriteError::Stale(_))) = (patch, &answer)
            && let Some(uid) = tested_uid(operations)
            && self.is_replaced(name, uid).await
        {
            answer = Err(WriteError::Gone);
        }
        if let Err(error @ (WriteError::Stale(_) | WriteError::Failed(_))) = &answer {
            tracing::debug!(node = name, %body, %error, "patch refused");
        }
        Ok(answer?.metadata.resource_version)
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

async fn within_deadline<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    before(Instant::now() + WRITE_TIMEOUT, call).await
}

async fn before<T>(deadline: Instant, call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    let began = Instant::now();
    match timeout_at(deadline, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(refused(&status)),
        Ok(Err(error)) => Err(WriteError::Failed(error_chain(&error))),
        Err(_) => {
            let time = deadline.saturating_duration_since(began);
            Err(WriteError::Failed(format!("no answer from the API server within {time:?}")))
        }
    }
}

fn refused(status: &Status) -> WriteError {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    match status.code {
        404 => WriteError::Gone,
        // The patch names the UID of a Node that was replaced by another one. No other patch of ours names a UID.
        422 if causes.iter().any(|cause| cause.field == "metadata.uid") => WriteError::Gone,
        409 => WriteError::Stale(status.message.clone()),
        // A `test` of a JSON Patch failed. The API server does not say which. An invalid object has causes in its answer.
        422 if causes.is_empty() => WriteError::Stale(status.message.clone()),
        code => WriteError::Failed(format!("{} ({code})", with_causes(&status.message, causes))),
    }
}

/// The message with the causes that it does not contain itself.
fn with_causes(message: &str, causes: &[StatusCause]) -> String {
    let more: Vec<String> = causes
        .iter()
        .filter(|cause| !message.contains(&cause.message) || !message.contains(&cause.field))
        .map(|cause| match &*cause.field {
            "" => cause.message.clone(),
            field => format!("{field}: {}", cause.message),
        })
        .collect();
    if more.is_empty() { message.to_owned() } else { format!("{message}: {}", more.join("; ")) }
}

#[cfg(test)]
mod tests {
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

    fn status(code: u16, message: &str, causes: &Value) -> Status {
        serde_json::from_value(json!({
            "status": "Failure", "code": code, "message": message, "reason": "Invalid", "details": {"causes": causes},
        }))
        .expect("a status")
    }

    #[test]
    fn a_refusal_says_what_is_wrong() {
        let told = |status: &Status| refused(status).to_string();
        let causes = json!([
            {"reason": "FieldValueInvalid", "field": "metadata.labels", "message": "Invalid value: \"a b\""},
            {"reason": "FieldValueRequired", "field": "spec.taints[0].key", "message": "Required value"},
        ]);
        let words = "Node \"n\" is invalid: metadata.labels: Invalid value: \"a b\"";
        assert_eq!(
            told(&status(422, words, &causes)),
            format!("{words}: spec.taints[0].key: Required value (422)")
        );
        assert_eq!(told(&status(500, "no", &json!([{"message": "because"}]))), "no: because (500)");
        assert!(matches!(refused(&status(404, "gone", &json!([]))), WriteError::Gone));
        // A `test` that fails has no causes.
        assert!(matches!(refused(&status(422, "rejected", &json!([]))), WriteError::Stale(_)));
        assert!(matches!(refused(&status(409, "conflict", &causes)), WriteError::Stale(_)));
        // Another Node has the name.
        let causes = json!([{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}]);
        assert!(matches!(refused(&status(422, "invalid", &causes)), WriteError::Gone));
    }
}
