//! `--dry-run`: writes are not sent. They are logged once and answered as if they had succeeded.

mod overlay;
mod patch;

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use serde_json::{Value, json};

use super::{answer::AnswerBody, target::Target};
use overlay::{Overlays, Written};
use patch::{refusal, without_times};

/// Maximum number of remembered writes. In a cluster with more, a write is logged again from time to time.
const MOST_REMEMBERED: usize = 100_000;

/// Maximum length of a logged write in bytes. A list of addresses and labels is far shorter.
const LONGEST_SHOWN: usize = 4_000;

/// The writes that were logged, their number, and the state that they would have led to.
pub(super) struct DryRun {
    said: Mutex<HashSet<u64>>,
    overlays: Overlays,
    writes: IntCounterVec,
}

/// Whether a request changes anything. Reviews and token requests only ask, although their method is POST.
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
        Self { said: Mutex::default(), overlays: Overlays::default(), writes }
    }

    /// Logs the write, and answers with the object that would result. `read` sends a request that only reads.
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
        // The result of an event is not used, and a writer of events need not be allowed to read them.
        if target.resource == "events" {
            return Ok(respond(StatusCode::OK, &created(body)));
        }
        let object = match self.current(&parts, &target, read).await? {
            Ok(object) => object,
            Err(response) => return Ok(response),
        };
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let write = Written::new(target.subresource, content_type.unwrap_or_default(), body);
        Ok(match self.overlays.write(whole(path, &target), object, write) {
            Ok(object) => respond(StatusCode::OK, &object),
            Err(refusal) => {
                let code = refusal["code"].as_u64().and_then(|code| u16::try_from(code).ok());
                let status = code.and_then(|code| StatusCode::from_u16(code).ok());
                respond(status.unwrap_or(StatusCode::UNPROCESSABLE_ENTITY), &refusal)
            }
        })
    }

    /// The current object, or the response that says why it cannot be read. It is read with a list, which the
    /// daemon's permissions allow. They do not allow reading a Node by its name.
    async fn current<F>(
        &self,
        patch: &http::request::Parts,
        target: &Target<'_>,
        read: impl Fn(Request<Body>) -> F,
    ) -> Result<Result<Value, Response<AnswerBody>>, kube::Error>
    where
        F: Future<Output = Result<Response<AnswerBody>, kube::Error>>,
    {
        let whole = whole(patch.uri.path(), target);
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
            return Ok(Err(respond(StatusCode::NOT_FOUND, &refusal("NotFound", 404, &message))));
        };
        // The elements of a list do not contain their kind.
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
            // The event's own name says nothing and is different each time.
            body.pointer("/involvedObject/name").and_then(Value::as_str).unwrap_or_default()
        } else {
            body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
        };
        // Repeats of an event are not logged.
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
        let mut said = self.said.lock();
        if said.len() >= MOST_REMEMBERED {
            said.clear();
        }
        said.insert(hasher.finish())
    }
}

/// The path of the object. `path` may be that of a subresource.
fn whole<'p>(path: &'p str, target: &Target<'_>) -> &'p str {
    match target.subresource {
        "" => path,
        subresource => path.strip_suffix(subresource).map_or(path, |rest| rest.trim_end_matches('/')),
    }
}

/// The object with the fields that the API server adds to a new object.
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
    use crate::{api_client::ClientMetrics, metrics::MetricSet as _};

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
        let dry_run = DryRun::new(ClientMetrics::unregistered().expect("metrics").dry_run_writes);
        let target = Target::of("/api/v1/nodes/n/status").expect("a target");
        let condition = |time: &str, status: &str| json!({"status": {"conditions": [{"type": "X", "status": status, "lastTransitionTime": time}]}});
        for (time, status) in [("1", "True"), ("2", "True"), ("3", "False"), ("4", "True")] {
            dry_run.say(&Method::PATCH, &target, &condition(time, status));
        }
        assert_eq!(dry_run.writes.with_label_values(&["patch", "nodes/status"]).get(), 2);
    }
}
