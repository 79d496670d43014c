//! What daemons ask of the API server, in order. A request may be a trap in which a daemon dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::{
    in_flight::InFlight,
    trap::{Side, Trap},
};

/// The requests of all daemons of a world. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    state: Arc<Mutex<State>>,
    in_flight: InFlight,
    /// Where a daemon dies: it counts every request, or the writes of one resource.
    pub(super) trap: Trap,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<Write>,
    /// How many requests of each kind there were.
    kinds: BTreeMap<String, usize>,
    /// The resource whose writes alone the trap counts.
    counted: Option<&'static str>,
}

/// One write of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// Such as `fakemachines`.
    pub(super) resource: String,
    pub(super) name: String,
    /// `object`, `status`, `created` or `deleted`, and the status code of a refusal.
    pub(super) what: String,
    pub(super) body: String,
}

impl Write {
    /// Whether it says that the object is not ready. A wait is told once it has lasted, so the number of these depends on how fast the
    /// machine is.
    pub(super) fn tells_a_wait(&self) -> bool {
        let says_so = |one: &Value| one["type"] == "Ready" && one["status"] == "False";
        let found = serde_json::from_str::<Value>(&self.body).is_ok_and(|body| {
            let parts = [&body["status"]["conditions"], &body["conditions"]];
            let patched = body.as_array().into_iter().flatten();
            let patched = patched.flat_map(|part| [&part["value"]["conditions"], &part["value"]]);
            parts.into_iter().chain(patched).filter_map(Value::as_array).flatten().any(says_so)
        });
        self.what.starts_with("status") && found
    }
}

impl Tape {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The writes of this object so far: `object` or `status`.
    pub(super) fn of(&self, resource: &str, name: &str) -> Vec<String> {
        let state = self.lock();
        let own = state.writes.iter().filter(|write| write.resource == resource && write.name == name);
        own.map(|write| write.what.clone()).collect()
    }

    /// Waits until every write of an object of this name that the API server shows is on the tape.
    pub(super) async fn has_writes_of(&self, name: &str) {
        self.in_flight.none_of(name).await;
    }

    /// All writes so far.
    pub(super) fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    /// The trap counts only what writes this resource from now on.
    pub(super) fn counts_only(&self, resource: &'static str) {
        self.lock().counted = Some(resource);
    }

    fn is_counted<B>(&self, request: &Request<B>) -> bool {
        let counted = self.lock().counted;
        counted.is_none_or(|resource| {
            request.method() != Method::GET && kind_of(request).split(&[' ', '/']).nth(1) == Some(resource)
        })
    }

    pub(super) fn clear(&self) {
        self.lock().writes.clear();
    }

    /// The kinds of requests so far, such as `GET secrets`, `PATCH fakemachines/status`, `WATCH machines` or `DISCOVER`.
    pub(super) fn kinds(&self) -> BTreeSet<String> {
        self.lock().kinds.keys().cloned().collect()
    }

    /// How many requests of this kind there were so far, such as `GET secrets`.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.lock().kinds.get(kind).copied().unwrap_or_default()
    }

    /// The same client, whose requests are on the tape.
    pub(super) fn client(&self, client: &Client) -> Client {
        let parts = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, tape) = parts.clone();
            async move {
                *tape.lock().kinds.entry(kind_of(&request)).or_default() += 1;
                let number = tape.is_counted(&request).then(|| tape.trap.pass());
                if let Some(number) = number {
                    tape.trap.stumble(number, Side::Before).await;
                }
                let answer = match written(&request) {
                    Some(write) => tape.write(&client, request, write).await?,
                    None => client.send(request).await?,
                };
                if let Some(number) = number {
                    tape.trap.stumble(number, Side::After).await;
                }
                Ok::<_, kube::Error>(answer)
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
        let _flight = self.in_flight.enter(&name);
        let answer = client.send(Request::from_parts(head, Body::from(body))).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let what = if head.status.is_success() { what } else { format!("{what} {}", head.status.as_u16()) };
        self.lock().writes.push(Write { resource, name, what, body: text });
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

/// Verb and resource of a request.
fn kind_of<B>(request: &Request<B>) -> String {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let resource = match path.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => match rest {
            [] => return "DISCOVER".to_owned(),
            ["namespaces", _, resource, _, part] => format!("{resource}/{part}"),
            ["namespaces", _, resource, ..] | [resource, ..] => (*resource).to_owned(),
        },
        _ => path.join("/"),
    };
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    format!("{} {resource}", if is_watch { "WATCH" } else { request.method().as_str() })
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
