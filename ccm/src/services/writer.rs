//! Writes to Services.

use kube::Client;
use serde_json::{Value, json};

use super::Service;
use crate::writes::{STRATEGIC_MERGE_PATCH, WriteError, WrittenVersion, patch};

/// Writes Services through the API server.
#[derive(Clone)]
pub struct ServiceWriter {
    client: Client,
}

impl std::fmt::Debug for ServiceWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceWriter").finish_non_exhaustive()
    }
}

impl ServiceWriter {
    /// A writer over this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends a strategic merge patch to `services/status`, through which metadata can be changed too. Another Service of the
    /// same name stays as it is: the patch gets the UID of this one.
    ///
    /// # Errors
    /// [`WriteError::Gone`]: this Service does not exist any more.
    pub async fn patch_status(
        &self,
        service: &Service,
        mut body: Value,
    ) -> Result<WrittenVersion, WriteError> {
        if body["metadata"].is_null() {
            body["metadata"] = json!({});
        }
        body["metadata"]["uid"] = service.uid().into();
        let (namespace, name) = (&service.content.namespace, &service.content.name);
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}/status");
        let answer = patch(&self.client, &path, STRATEGIC_MERGE_PATCH, &body).await;
        if let Err(error @ (WriteError::Stale(_) | WriteError::Failed(_))) = &answer {
            tracing::debug!(service = format!("{namespace}/{name}"), %body, %error, "patch refused");
        }
        answer
    }
}
