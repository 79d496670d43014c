//! `--dry-run`: writes are answered here as if they had worked, and said once instead of sent.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use prometheus::IntCounterVec;
use serde_json::{Value, json};

use super::{answer::AnswerBody, target::Target};

/// Writes remembered at most. In a cluster that big they are said again now and then.
const MOST_REMEMBERED: usize = 100_000;

/// Longest part of a write that is logged; a list of addresses and labels is far shorter.
const LONGEST_SHOWN: usize = 4_000;

/// What was said already, and how much of it.
pub(super) struct DryRun {
    said: Mutex<HashSet<u64>>,
    writes: IntCounterVec,
}

/// Whether a request changes anything. Reviews and requests of tokens are questions, in spite of their method.
pub(super) fn is_write(request: &Request<Body>) -> bool {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return false;
    }
    let Some(target) = Target::of(request.uri().path()) else { return true };
    let is_review = matches!(target.group, "authentication.k8s.io" | "authorization.k8s.io")
        && target.resource.ends_with("reviews");
    let is_token = target.resource == "serviceaccounts" && target.subresource == "token";
    !(*request.method() == Method::POST && (is_review || is_token))
}

impl DryRun {
    pub(super) fn new(writes: IntCounterVec) -> Self {
        Self { said: Mutex::default(), writes }
    }

    /// Says what would be written, and answers with what would be there then. `read` sends a request that only reads.
    pub(super) async fn answer<F>(
        &self,
        request: Request<Body>,
        read: impl Fn(Request<Body>) -> F,
    ) -> Result<Response<AnswerBody>, kube::Error>
    where
        F: Future<Output = Result<Response<AnswerBody>, kube::Error>>,
    {
        let (parts, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await?).unwrap_or_default();
        let path = parts.uri.path();
        let target = Target::of(path).unwrap_or_default();
        self.say(&parts.method, &target, &body);
        if parts.method == Method::POST {
            return Ok(respond(StatusCode::CREATED, &created(body)));
        }
        if parts.method == Method::DELETE {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
            return Ok(respond(StatusCode::OK, &status));
        }
        if parts.method == Method::PUT {
            return Ok(respond(StatusCode::OK, &body));
        }
        // What an event would become matters to nobody, and who writes events need not be allowed to read them.
        if target.resource == "events" {
            return Ok(respond(StatusCode::OK, &created(body)));
        }
        let mut object = match self.current(&parts, &target, read).await? {
            Ok(object) => object,
            Err(response) => return Ok(response),
        };
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if let Some(refusal) = apply(&mut object, content_type.unwrap_or_default(), &body) {
            return Ok(respond(StatusCode::UNPROCESSABLE_ENTITY, &refusal));
        }
        Ok(respond(StatusCode::OK, &object))
    }

    /// The object as it is now, or the answer that it cannot be had. Read by a list, which the daemon's own permissions
    /// allow; reading a Node by its name is none of them.
    async fn current<F>(
        &self,
        patch: &http::request::Parts,
        target: &Target<'_>,
        read: impl Fn(Request<Body>) -> F,
    ) -> Result<Result<Value, Response<AnswerBody>>, kube::Error>
    where
        F: Future<Output = Result<Response<AnswerBody>, kube::Error>>,
    {
        let path = patch.uri.path();
        let whole = match target.subresource {
            "" => path,
            subresource => path.strip_suffix(subresource).map_or(path, |rest| rest.trim_end_matches('/')),
        };
        let list = whole.strip_suffix(target.name).map_or(whole, |rest| rest.trim_end_matches('/'));
        let uri = format!("{list}?fieldSelector=metadata.name%3D{}", target.name);
        let mut get = Request::get(uri).body(Body::empty()).map_err(kube::Error::HttpError)?;
        get.headers_mut().clone_from(&patch.headers);
        get.headers_mut().remove(header::CONTENT_TYPE);
        get.headers_mut().remove(header::CONTENT_LENGTH);
        get.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        let response = read(get).await?;
        if !response.status().is_success() {
            return Ok(Err(response));
        }
        let content = response.into_body().collect().await?.to_bytes();
        let mut list: Value = serde_json::from_slice(&content).map_err(kube::Error::SerdeError)?;
        let Some(mut object) = list["items"].as_array_mut().and_then(Vec::pop) else {
            let message = format!("{} {:?} not found", target.resource, target.name);
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "NotFound", "code": 404, "message": message,
            });
            return Ok(Err(respond(StatusCode::NOT_FOUND, &status)));
        };
        // The elements of a list do not say what they are.
        let kind = list["kind"].as_str().unwrap_or_default();
        object["kind"] = kind.strip_suffix("List").unwrap_or(kind).into();
        object["apiVersion"] = list["apiVersion"].take();
        Ok(Ok(object))
    }

    fn say(&self, method: &Method, target: &Target<'_>, body: &Value) {
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "write",
        };
        let named = if target.resource == "events" {
            // Its own name says nothing and is another one each time.
            body.pointer("/involvedObject/name").and_then(Value::as_str).unwrap_or_default()
        } else {
            body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
        };
        // The repeats of an event.
        if target.resource == "events" && verb == "patch" {
            return;
        }
        let name = target.full_name(if target.name.is_empty() { named } else { target.name });
        let resource = target.resource_with_subresource();
        let shown = match verb {
            "delete" => String::new(),
            _ => without_times(body.clone()).to_string(),
        };
        if self.is_new(&(verb, &resource, &name, &shown)) {
            self.writes.with_label_values(&[verb, &resource]).inc();
            let shown = shown.get(..shown.floor_char_boundary(LONGEST_SHOWN)).unwrap_or_default();
            tracing::info!(verb, resource, name, content = shown, "dry run: would write");
        }
    }

    fn is_new(&self, write: &(&str, &str, &str, &str)) -> bool {
        let mut hasher = DefaultHasher::new();
        write.hash(&mut hasher);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST_REMEMBERED {
            said.clear();
        }
        said.insert(hasher.finish())
    }
}

/// Leaves out what differs each time though nothing else does: times, versions and the names of events.
fn without_times(mut body: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| {
                    !key.ends_with("Time") && !key.ends_with("Timestamp") && key != "resourceVersion"
                });
                map.values_mut().for_each(strip);
            }
            Value::Array(values) => {
                values.retain(|value| value["path"] != "/metadata/resourceVersion");
                values.iter_mut().for_each(strip);
            }
            _ => {}
        }
    }
    strip(&mut body);
    if body.get("involvedObject").is_some() {
        body["metadata"] = json!({});
    }
    body
}

/// Applies a patch as the API server would; what it would say where that cannot be done.
fn apply(object: &mut Value, content_type: &str, patch: &Value) -> Option<Value> {
    match content_type {
        "application/merge-patch+json" => json_patch::merge(object, patch),
        "application/json-patch+json" => {
            let applied = serde_json::from_value::<json_patch::Patch>(patch.clone())
                .map_err(|error| error.to_string())
                .and_then(|patch| json_patch::patch(object, &patch).map_err(|error| error.to_string()));
            if let Err(message) = applied {
                return Some(json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": "Invalid", "code": 422, "message": message,
                }));
            }
        }
        "application/strategic-merge-patch+json" => merge_strategically(object, patch),
        _ => {}
    }
    None
}

/// A strategic merge patch of what a controller writes: lists with a merge key are merged by it, others replaced.
fn merge_strategically(object: &mut Value, patch: &Value) {
    let (Some(fields), Some(object)) = (patch.as_object(), object.as_object_mut()) else { return };
    for (name, new) in fields.iter().filter(|(name, _)| !name.starts_with('$')) {
        if new.is_null() {
            object.remove(name);
            continue;
        }
        let old = object.entry(name.clone()).or_insert(Value::Null);
        match (merge_key(name, new), old.as_array_mut()) {
            (Some(key), Some(old)) => merge_list(old, new, key),
            (Some(key), None) => {
                let mut merged = Vec::new();
                merge_list(&mut merged, new, key);
                *old = merged.into();
            }
            (None, _) if new.is_object() => {
                if !old.is_object() {
                    *old = json!({});
                }
                merge_strategically(old, new);
            }
            (None, _) => old.clone_from(new),
        }
    }
}

/// The field that tells the elements of a list apart, by the Go types of Nodes and Services and their metadata.
fn merge_key(list: &str, value: &Value) -> Option<&'static str> {
    let key = match list {
        "conditions" | "addresses" => "type",
        "ownerReferences" => "uid",
        _ => return None,
    };
    value.is_array().then_some(key)
}

fn merge_list(list: &mut Vec<Value>, patch: &Value, key: &str) {
    let elements = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    // Wherever it stands, it concerns the whole list.
    if elements.iter().any(|new| new["$patch"] == "replace") {
        *list = elements.iter().filter(|new| new["$patch"].is_null()).cloned().collect();
        return;
    }
    for new in elements {
        match list.iter_mut().find(|old| old[key] == new[key]) {
            Some(_) if new["$patch"] == "delete" => list.retain(|old| old[key] != new[key]),
            Some(old) => merge_strategically(old, new),
            None if new["$patch"].is_null() => list.push(new.clone()),
            None => {}
        }
    }
}

/// What the API server adds to a new object.
fn created(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("uid").or_insert_with(|| uuid::Uuid::new_v4().to_string().into());
        metadata.entry("resourceVersion").or_insert_with(|| "1".into());
    }
    object
}

fn respond(status: StatusCode, object: &Value) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::new(Body::from(Bytes::from(object.to_string()))));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str) -> Request<Body> {
        Request::builder().method(method).uri(path).body(Body::empty()).expect("a request")
    }

    #[test]
    fn questions_are_no_writes() {
        for (method, path, expected) in [
            ("GET", "/api/v1/nodes?watch=true", false),
            ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", false),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false),
            ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", false),
            ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/n/token", false),
            ("POST", "/api/v1/namespaces/kube-system/serviceaccounts", true),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/k/leases/l", true),
            ("PATCH", "/api/v1/nodes/n/status", true),
            ("DELETE", "/api/v1/nodes/n", true),
            ("POST", "/something", true),
        ] {
            assert_eq!(is_write(&request(method, path)), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_same_write_is_said_once() {
        let dry_run = DryRun::new(crate::metrics::Metrics::new().expect("metrics").dry_run_writes);
        let target = Target::of("/api/v1/nodes/n/status").expect("a target");
        let condition = |time: &str, status: &str| json!({"status": {"conditions": [{"type": "X", "status": status, "lastTransitionTime": time}]}});
        for (time, status) in [("1", "True"), ("2", "True"), ("3", "False"), ("4", "True")] {
            dry_run.say(&Method::PATCH, &target, &condition(time, status));
        }
        assert_eq!(dry_run.writes.with_label_values(&["patch", "nodes/status"]).get(), 2);
    }

    const STRATEGIC: &str = "application/strategic-merge-patch+json";

    #[test]
    fn patches_are_applied() {
        let mut object = json!({"metadata": {"uid": "1", "labels": {"a": "1"}}});
        let merge = json!({"metadata": {"labels": {"a": null, "b": "2"}}});
        assert!(apply(&mut object, "application/merge-patch+json", &merge).is_none());
        assert_eq!(object["metadata"]["labels"], json!({"b": "2"}));
        let good = json!([{"op": "test", "path": "/metadata/uid", "value": "1"}, {"op": "add", "path": "/spec", "value": {}}]);
        assert!(apply(&mut object, "application/json-patch+json", &good).is_none());
        assert_eq!(object["spec"], json!({}));
        let status = json!({"status": {
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "phase": "x",
        }});
        assert!(apply(&mut object, STRATEGIC, &status).is_none());
        let patch = json!({"status": {
            "$setElementOrder/conditions": [{"type": "B"}],
            "conditions": [{"type": "B", "status": "False"}],
            "addresses": [
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "fd00::2"},
                {"$patch": "replace"},
            ],
            "phase": null,
        }});
        assert!(apply(&mut object, STRATEGIC, &patch).is_none());
        let expected = json!({
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "fd00::1"}, {"type": "InternalIP", "address": "fd00::2"}],
        });
        assert_eq!(object["status"], expected);
        let stale = json!([{"op": "test", "path": "/metadata/uid", "value": "2"}]);
        let refusal = apply(&mut object, "application/json-patch+json", &stale).expect("refused");
        assert_eq!(refusal["code"], 422);
    }
}
