//! Requests that would change something.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use crate::workload::{Access, ClusterKey, Connector};

/// So many of a pass are shown. A set may create hundreds of Machines.
const MOST: usize = 8;

/// What would have been sent. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Note>>>);

struct Note {
    method: Method,
    path: String,
    /// Server-side apply, by which objects are created too.
    is_apply: bool,
    body: Value,
}

impl Notes {
    /// A client of this API server that reads, and notes what it would write. A write is answered with a refusal.
    pub(super) fn client(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Noting { client, notes: self.clone() }, namespace)
    }

    /// The same for workload clusters.
    pub(super) fn connector(&self, connector: Arc<dyn Connector>) -> impl Connector + 'static {
        NotingConnector { connector, notes: self.clone() }
    }

    /// `before` are the conditions of the object whose passes these are.
    pub(super) fn in_words(&self, before: &[Value]) -> Vec<String> {
        let notes = self.0.lock();
        let mut all: Vec<_> = notes.iter().take(MOST).map(|note| note.in_words(before)).collect();
        if notes.len() > MOST {
            all.push(format!("and {} more of these", notes.len() - MOST));
        }
        all
    }
}

impl Note {
    /// Such as `patch machines/a/status: Ready False Deleting`. Of Secrets nothing but the name.
    fn in_words(&self, before: &[Value]) -> String {
        let verb = match self.method {
            Method::POST => "create",
            Method::DELETE => "delete",
            Method::PUT => "update",
            _ if self.is_apply => "apply",
            _ => "patch",
        };
        let object = object_of(&self.path);
        let name = match self.body["metadata"]["name"].as_str() {
            Some(name) if self.method == Method::POST && !object.ends_with("/eviction") => format!("/{name}"),
            _ => String::new(),
        };
        let changes = if object.starts_with("secrets") { Vec::new() } else { self.changes(before) };
        match changes.join(", ") {
            changes if changes.is_empty() => format!("{verb} {object}{name}"),
            changes => format!("{verb} {object}{name}: {changes}"),
        }
    }

    /// The fields of a merge patch, and the conditions that become others.
    fn changes(&self, before: &[Value]) -> Vec<String> {
        if self.method != Method::PATCH || self.is_apply {
            return Vec::new();
        }
        let mut changes = Vec::new();
        for (part, fields) in self.body.as_object().into_iter().flatten() {
            for (field, value) in fields.as_object().into_iter().flatten() {
                match (part.as_str(), field.as_str()) {
                    ("metadata", "uid" | "resourceVersion" | "name" | "namespace") => {}
                    ("status", "conditions") => {
                        let all = value.as_array().into_iter().flatten();
                        changes.extend(all.filter(|one| is_other(one, before)).map(condition));
                    }
                    _ => changes.push(format!("{part}.{field}")),
                }
            }
        }
        changes
    }
}

/// The resource, the name and the subresource in the path of a request: `machines/a/status`.
fn object_of(path: &str) -> String {
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let rest = match &parts[..] {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        other => other,
    };
    match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest.join("/"),
        rest => rest.join("/"),
    }
}

fn is_other(condition: &Value, before: &[Value]) -> bool {
    let of_type = before.iter().find(|one| one["type"] == condition["type"]);
    of_type
        .is_none_or(|one| ["status", "reason", "message"].iter().any(|field| one[field] != condition[field]))
}

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason: one word.
    pub reason: String,
    /// The message, with a line for each condition that it sums up.
    pub message: String,
    /// Since when it has this status. Empty: the object does not say.
    pub last_transition_time: String,
}

impl From<&Value> for ExplainedCondition {
    fn from(condition: &Value) -> Self {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        Self {
            kind: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            last_transition_time: text("lastTransitionTime"),
        }
    }
}

impl std::fmt::Display for ExplainedCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, status, reason, message, .. } = self;
        // A list begins on a line of its own.
        let separator = if message.starts_with("* ") { "\n" } else { " " };
        f.write_str(format!("{kind} {status} {reason}{separator}{message}").trim_end())
    }
}

fn condition(condition: &Value) -> String {
    ExplainedCondition::from(condition).to_string()
}

struct NotingConnector {
    connector: Arc<dyn Connector>,
    notes: Notes,
}

impl Connector for NotingConnector {
    fn connect(&self, cluster: &ClusterKey, access: &Access) -> Result<Client, String> {
        Ok(self.notes.client(self.connector.connect(cluster, access)?))
    }
}

#[derive(Clone)]
struct Noting {
    client: Client,
    notes: Notes,
}

impl Service<Request<Body>> for Noting {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, notes } = self.clone();
        Box::pin(async move {
            if [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
                return Ok(client.send(request).await?);
            }
            let (parts, body) = request.into_parts();
            let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let is_apply = content_type.is_some_and(|text| text.starts_with("application/apply-patch"));
            let body = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
            let note = Note { method: parts.method, path: parts.uri.path().to_owned(), is_apply, body };
            notes.0.lock().push(note);
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "an explanation writes nothing",
            });
            let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
            *answer.status_mut() = StatusCode::FORBIDDEN;
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_of_a_request() {
        for (path, object) in [
            ("/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machines/a/status", "machines/a/status"),
            ("/apis/cluster.x-k8s.io/v1beta2/namespaces/team/machines", "machines"),
            ("/api/v1/namespaces/team/pods/p/eviction", "pods/p/eviction"),
            ("/api/v1/nodes/n", "nodes/n"),
            ("/api/v1/namespaces/team", "namespaces/team"),
        ] {
            assert_eq!(object_of(path), object, "{path}");
        }
    }

    #[test]
    fn a_note_in_words() {
        let note = |method: Method, path: &str, body: Value| Note {
            method,
            path: path.to_owned(),
            is_apply: false,
            body,
        };
        let before = [json!({"type": "Ready", "status": "True", "reason": "Ready", "message": ""})];
        let status = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "status": {
            "phase": "Deleting",
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready", "message": ""},
                {"type": "Deleting", "status": "True", "reason": "Drain", "message": "Pods are left"},
            ],
        }});
        for (note, words) in [
            (
                note(Method::PATCH, "/apis/g/v1/namespaces/t/machines/a/status", status),
                "patch machines/a/status: Deleting True Drain Pods are left, status.phase",
            ),
            (
                note(
                    Method::PATCH,
                    "/apis/g/v1/namespaces/t/machines/a",
                    json!({"metadata": {"uid": "u", "finalizers": []}}),
                ),
                "patch machines/a: metadata.finalizers",
            ),
            (
                note(Method::POST, "/apis/g/v1/namespaces/t/machines", json!({"metadata": {"name": "a"}})),
                "create machines/a",
            ),
            (
                note(
                    Method::POST,
                    "/api/v1/namespaces/t/pods/p/eviction",
                    json!({"metadata": {"name": "p"}}),
                ),
                "create pods/p/eviction",
            ),
            (note(Method::DELETE, "/apis/g/v1/namespaces/t/machines/a", json!({})), "delete machines/a"),
            (
                note(Method::PATCH, "/api/v1/namespaces/t/secrets/s", json!({"data": {"password": "eA=="}})),
                "patch secrets/s",
            ),
        ] {
            assert_eq!(note.in_words(&before), words);
        }
    }
}
