//! Writes to objects of the API server, and why they fail.

use std::time::Duration;

use cloudprovider::error_chain;
use http::{Request, header};
use kube::{
    Client,
    core::{Status, response::StatusCause},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

/// The form of answer that has the whole object.
pub const WHOLE_OBJECT: &str = "application/json";

/// The content type of a JSON Patch.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// The content type of a merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// The content type of a server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// The content type of a strategic merge patch.
pub const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// Deadline of one write. The API server's own is 60 s; a patch of a Node takes milliseconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The form of answer that is asked for: only metadata, which is 1 kB where the whole Node is 12 kB.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// By default the API server searches a patched object for unknown fields, to warn of them. That is 7 % of its memory
/// allocations for a patch of a Node. The fields here are all known.
const UNCHECKED: &str = "fieldValidation=Ignore";

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

/// The API server may say that an object does not exist while the watch still shows it. After this time it is tried again: the answer
/// may have come from something in between, such as a proxy, or from an API server that does not serve the kind yet.
pub const GONE_FOR: Duration = Duration::from_secs(60);

/// Why a write failed. There is one case for each thing that a caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object changed meanwhile (a failed `test`, another version): look at it again.
    #[error("it changed meanwhile: {0}")]
    Stale(String),
    /// The object is gone, and another one may have its name.
    #[error("it does not exist any more")]
    Gone,
    /// Anything else: the API server refused or did not answer.
    #[error("{0}")]
    Failed(String),
}

/// Sends a patch to `path` and gives the version that the object has then.
pub async fn patch(
    client: &Client,
    path: &str,
    content_type: &'static str,
    body: &Value,
) -> Result<WrittenVersion, WriteError> {
    Ok(patch_as::<Written>(client, path, content_type, body, METADATA_ONLY).await?.metadata.resource_version)
}

/// Sends a patch to `path` and gives the answer, which `accept` asks for.
pub async fn patch_as<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    content_type: &'static str,
    body: &Value,
    accept: &'static str,
) -> Result<T, WriteError> {
    let request = Request::patch(format!("{path}?{UNCHECKED}"))
        .header(header::ACCEPT, accept)
        .header(header::CONTENT_TYPE, content_type)
        .body(body.to_string().into_bytes())
        .map_err(|error| WriteError::Failed(error.to_string()))?;
    within_deadline(client.request::<T>(request)).await
}

/// Sends a patch to `path` in the name of a field manager, and gives the object as it is then. An [`APPLY_PATCH`] creates an object that does
/// not exist, and takes the fields that it has from other managers.
pub async fn patch_by<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    content_type: &'static str,
    manager: &str,
    body: &Value,
) -> Result<T, WriteError> {
    let force = if content_type == APPLY_PATCH { "&force=true" } else { "" };
    let request = Request::patch(format!("{path}?{UNCHECKED}&fieldManager={manager}{force}"))
        .header(header::ACCEPT, WHOLE_OBJECT)
        .header(header::CONTENT_TYPE, content_type)
        .body(body.to_string().into_bytes())
        .map_err(|error| WriteError::Failed(error.to_string()))?;
    within_deadline(client.request::<T>(request)).await
}

/// Makes an object at `path`, which is that of all objects of its kind, and gives it as it is then. One that exists already is
/// [`WriteError::Stale`].
pub async fn create_as<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    body: &Value,
) -> Result<T, WriteError> {
    let request = Request::post(format!("{path}?{UNCHECKED}"))
        .header(header::ACCEPT, WHOLE_OBJECT)
        .header(header::CONTENT_TYPE, WHOLE_OBJECT)
        .body(body.to_string().into_bytes())
        .map_err(|error| WriteError::Failed(error.to_string()))?;
    within_deadline(client.request::<T>(request)).await
}

/// Deletes the object at `path` under the preconditions in `body`. Finalizers may keep it a while.
pub async fn delete(client: &Client, path: &str, body: &Value) -> Result<(), WriteError> {
    let request = Request::delete(path)
        .header(header::CONTENT_TYPE, WHOLE_OBJECT)
        .body(body.to_string().into_bytes())
        .map_err(|error| WriteError::Failed(error.to_string()))?;
    within_deadline(client.request::<Value>(request)).await.map(drop)
}

/// The answer to a request of the API server, or the error of one that took longer than a write may.
pub async fn within_deadline<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    before(Instant::now() + WRITE_TIMEOUT, call).await
}

/// The same until `deadline`, which several requests can share.
pub async fn before<T>(
    deadline: Instant,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, WriteError> {
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

fn causes_of(status: &Status) -> &[StatusCause] {
    status.details.as_ref().map_or(&[], |details| &details.causes)
}

/// Whether a patch was refused because it names the UID of an object that another one of the same name has replaced.
pub fn is_of_another(status: &Status) -> bool {
    status.code == 422 && causes_of(status).iter().any(|cause| cause.field == "metadata.uid")
}

fn refused(status: &Status) -> WriteError {
    let causes = causes_of(status);
    match status.code {
        404 => WriteError::Gone,
        422 if is_of_another(status) => WriteError::Gone,
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
