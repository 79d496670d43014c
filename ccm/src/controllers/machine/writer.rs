//! Reads and writes of single objects.

use cloudprovider::machines::Kinds;
use component::api_client::describe;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use serde_json::{Map, Value, json};

use super::{object::InfraObject, subject::SubjectKind, surroundings::Bootstrap};
use crate::writes::{JSON_PATCH, MERGE_PATCH, WHOLE_OBJECT, WriteError, patch_as, within_deadline};

/// Reads and writes objects of the provider's kinds, and reads Secrets.
#[derive(Clone)]
pub(super) struct ObjectWriter {
    client: Client,
    kinds: Kinds,
}

impl std::fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectWriter").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl ObjectWriter {
    /// A writer over this client.
    pub(super) fn new(client: Client, kinds: Kinds) -> Self {
        Self { client, kinds }
    }

    fn path(&self, kind: SubjectKind, object: &InfraObject) -> String {
        let Kinds { group, version, .. } = self.kinds;
        let (namespace, plural, name) = (object.namespace(), kind.plural(&self.kinds), object.name());
        format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
    }

    /// Sends a merge patch that carries UID and version, and gives the object as it is then.
    pub(super) async fn patch(
        &self,
        kind: SubjectKind,
        object: &InfraObject,
        body: &Value,
    ) -> Result<InfraObject, WriteError> {
        let path = self.path(kind, object);
        let answer = patch_as::<InfraObject>(&self.client, &path, MERGE_PATCH, body, WHOLE_OBJECT).await;
        answer.map(InfraObject::lean)
    }

    /// Writes this whole status to this very version of the object, and gives the object as it is then.
    pub(super) async fn write_status(
        &self,
        kind: SubjectKind,
        object: &InfraObject,
        status: &Map<String, Value>,
    ) -> Result<InfraObject, WriteError> {
        let path = format!("{}/status", self.path(kind, object));
        let body = json!([
            {"op": "test", "path": "/metadata/uid", "value": object.metadata.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": object.metadata.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let answer = patch_as::<InfraObject>(&self.client, &path, JSON_PATCH, &body, WHOLE_OBJECT).await;
        answer.map(InfraObject::lean)
    }

    /// The object as it is now.
    ///
    /// # Errors
    /// [`WriteError::Gone`] if it does not exist any more, or if another one has its name.
    pub(super) async fn read(
        &self,
        kind: SubjectKind,
        object: &InfraObject,
    ) -> Result<InfraObject, WriteError> {
        let request = http::Request::get(self.path(kind, object))
            .body(Vec::new())
            .map_err(|error| WriteError::Failed(error.to_string()))?;
        let found = within_deadline(self.client.request::<InfraObject>(request)).await?;
        if found.metadata.uid == object.metadata.uid { Ok(found.lean()) } else { Err(WriteError::Gone) }
    }

    /// The bootstrap data in this Secret.
    ///
    /// # Errors
    /// The API server does not answer. A refusal is no error: it is said in a condition.
    pub(super) async fn bootstrap(&self, namespace: &str, name: &str) -> Result<Bootstrap, WriteError> {
        let secrets = kube::Api::<Secret>::namespaced(self.client.clone(), namespace);
        let read = async {
            match secrets.get_opt(name).await {
                Err(error @ kube::Error::Api(_)) if is_refusal(&error) => {
                    Ok(Bootstrap::Unusable(format!("it cannot be read: {}", describe(&error))))
                }
                Err(error) => Err(error),
                Ok(None) => Ok(Bootstrap::Missing),
                Ok(Some(secret)) => {
                    let data = secret.data.unwrap_or_default();
                    Ok(Bootstrap::from_secret(|key| data.get(key).map(|content| content.0.as_slice())))
                }
            }
        };
        within_deadline(read).await
    }
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}
