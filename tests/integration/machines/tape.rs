//! What daemons ask of the API server, in order. Each request is a step at which a daemon may die.

use std::{ops::Deref, sync::Arc};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;

use crate::stage::{self, Step, kind_of};

/// The writes of objects of infrastructure providers. What is done to one is `object`, `status`, `created` or `deleted`, with the
/// status code of a refusal.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    steps: stage::Tape,
    /// The resource whose writes alone are steps at which a daemon may die.
    counted: Arc<Mutex<Option<&'static str>>>,
}

impl Deref for Tape {
    type Target = stage::Tape;

    fn deref(&self) -> &stage::Tape {
        &self.steps
    }
}

/// Whether a step says that the object is not ready. A wait is told once it has lasted, so the number of these depends on how fast the
/// machine is.
pub(super) fn tells_a_wait(step: &Step) -> bool {
    let says_so = |one: &Value| one["type"] == "Ready" && one["status"] == "False";
    let found = serde_json::from_str::<Value>(&step.body).is_ok_and(|body| {
        let parts = [&body["status"]["conditions"], &body["conditions"]];
        let patched = body.as_array().into_iter().flatten();
        let patched = patched.flat_map(|part| [&part["value"]["conditions"], &part["value"]]);
        parts.into_iter().chain(patched).filter_map(Value::as_array).flatten().any(says_so)
    });
    step.what.starts_with("status") && found
}

impl Tape {
    /// A daemon dies only at what writes this resource from now on.
    pub(super) fn counts_only(&self, resource: &'static str) {
        *self.counted.lock() = Some(resource);
    }

    fn is_counted<B>(&self, request: &Request<B>) -> bool {
        self.counted.lock().is_none_or(|resource| {
            request.method() != Method::GET && kind_of(request).split(&[' ', '/']).nth(1) == Some(resource)
        })
    }

    /// The same client, whose requests are on the tape.
    pub(super) fn client(&self, client: &Client) -> Client {
        let parts = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, tape) = parts.clone();
            async move {
                tape.count_request(&request);
                let is_counted = tape.is_counted(&request);
                let send = async {
                    match written(&request) {
                        Some(write) => tape.write(&client, request, write).await,
                        None => client.send(request).await,
                    }
                };
                if is_counted { tape.trapped(send).await } else { send.await }
            }
        });
        Client::new(service, "default")
    }

    /// Sends what writes an object, and takes note of it.
    async fn write(
        &self,
        client: &Client,
        request: Request<Body>,
        (resource, name, what): (String, String, String),
    ) -> kube::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        // A new object says its name itself.
        let named =
            || Some(serde_json::from_str::<Value>(&text).ok()?["metadata"]["name"].as_str()?.to_owned());
        let name = if name.is_empty() { named().unwrap_or_default() } else { name };
        let _flight = self.in_flight(&name);
        let answer = client.send(Request::from_parts(head, Body::from(body))).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let what = if head.status.is_success() { what } else { format!("{what} {}", head.status.as_u16()) };
        self.record(&resource, &name, what, text);
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

/// Resource, name and part of what a request writes.
fn written<B>(request: &Request<B>) -> Option<(String, String, String)> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    match path.as_slice() {
        ["apis", "infrastructure.cluster.x-k8s.io", _, "namespaces", _, resource, name, part @ ..]
            if request.method() != Method::GET =>
        {
            let what = if request.method() == Method::DELETE { "deleted" } else { "object" };
            let what = part.first().copied().unwrap_or(what);
            Some(((*resource).to_owned(), (*name).to_owned(), what.to_owned()))
        }
        ["apis", "infrastructure.cluster.x-k8s.io", _, "namespaces", _, resource]
            if request.method() == Method::POST =>
        {
            Some(((*resource).to_owned(), String::new(), "created".to_owned()))
        }
        _ => None,
    }
}
