//! Writes to Services.

use kube::Client;
use serde_json::{Value, json};

use super::{Service, wire::WireService};
use crate::{
    cache::CachedObject as _,
    writes::{STRATEGIC_MERGE_PATCH, WHOLE_OBJECT, WriteError, WrittenVersion, patch, patch_as},
};

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

    /// As [`patch_status`](Self::patch_status), and gives the Service as it is then. Also for a patch that changes nothing,
    /// which costs the API server no write: what a watch shows may be old, and this is not.
    pub async fn patch_status_and_read(&self, service: &Service, body: Value) -> Result<Service, WriteError> {
        let (path, body) = request(service, body);
        let answer =
            patch_as::<WireService>(&self.client, &path, STRATEGIC_MERGE_PATCH, &body, WHOLE_OBJECT).await;
        said(service, &body, answer).map(Service::from)
    }

    /// Sends a strategic merge patch to `services/status`, through which metadata can be changed too. Another Service of the
    /// same name stays as it is: the patch gets the UID of this one.
    ///
    /// # Errors
    /// [`WriteError::Gone`]: this Service does not exist any more.
    pub async fn patch_status(&self, service: &Service, body: Value) -> Result<WrittenVersion, WriteError> {
        let (path, body) = request(service, body);
        said(service, &body, patch(&self.client, &path, STRATEGIC_MERGE_PATCH, &body).await)
    }
}

/// The path of the patch, and its body with the UID.
fn request(service: &Service, mut body: Value) -> (String, Value) {
    if body["metadata"].is_null() {
        body["metadata"] = json!({});
    }
    body["metadata"]["uid"] = service.uid().into();
    let (namespace, name) = (&service.content.namespace, &service.content.name);
    (format!("/api/v1/namespaces/{namespace}/services/{name}/status"), body)
}

fn said<T>(service: &Service, body: &Value, answer: Result<T, WriteError>) -> Result<T, WriteError> {
    if let Err(error @ (WriteError::Stale(_) | WriteError::Failed(_))) = &answer {
        tracing::debug!(service = %service.key(), %body, %error, "patch refused");
    }
    answer
}
