//! What daemons write about the objects of the provider's kinds, in order. A write may be a trap in which a daemon dies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use tokio::sync::Notify;

/// Before or after what a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// The writes of all daemons of a world. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    writes: Vec<Write>,
    passed: usize,
    trap: Option<(usize, Side, Arc<Notify>)>,
}

/// One write of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// Such as `fakemachines`.
    pub(super) resource: String,
    pub(super) name: String,
    /// `object` or `status`, and the status code of a refusal.
    pub(super) what: String,
    pub(super) body: String,
}

impl Tape {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writes of this object so far: `object` or `status`.
    pub(super) fn of(&self, resource: &str, name: &str) -> Vec<String> {
        let state = self.lock();
        let own = state.writes.iter().filter(|write| write.resource == resource && write.name == name);
        own.map(|write| write.what.clone()).collect()
    }

    /// All writes so far.
    pub(super) fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    pub(super) fn clear(&self) {
        self.lock().writes.clear();
    }

    /// The write with this number, counted from now, never returns. The result says when it is there.
    pub(super) fn set_trap(&self, at: usize, side: Side) -> Arc<Notify> {
        let caught = Arc::<Notify>::default();
        let mut state = self.lock();
        state.passed = 0;
        state.trap = Some((at, side, Arc::clone(&caught)));
        caught
    }

    pub(super) fn remove_trap(&self) {
        self.lock().trap = None;
    }

    fn pass(&self) -> usize {
        let mut state = self.lock();
        state.passed += 1;
        state.passed - 1
    }

    /// Hangs if the trap is here.
    async fn stumble(&self, number: usize, side: Side) {
        let caught = {
            let state = self.lock();
            let trap = state.trap.as_ref().filter(|(at, of, _)| *at == number && *of == side);
            trap.map(|(.., caught)| Arc::clone(caught))
        };
        if let Some(caught) = caught {
            caught.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// The same client, whose writes are on the tape.
    pub(super) fn client(&self, client: &Client) -> Client {
        let parts = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, tape) = parts.clone();
            async move {
                let Some((resource, name, what)) = written(&request) else {
                    return client.send(request).await;
                };
                let number = tape.pass();
                tape.stumble(number, Side::Before).await;
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let text = String::from_utf8_lossy(&body).into_owned();
                let answer = client.send(Request::from_parts(head, Body::from(body))).await?;
                let (head, body) = answer.into_parts();
                let body = body.collect().await?.to_bytes();
                let what =
                    if head.status.is_success() { what } else { format!("{what} {}", head.status.as_u16()) };
                tape.lock().writes.push(Write { resource, name, what, body: text });
                tape.stumble(number, Side::After).await;
                Ok::<_, kube::Error>(Response::from_parts(head, Body::from(body)))
            }
        });
        Client::new(service, "default")
    }
}

/// Resource, name and part of what a request writes.
fn written<B>(request: &Request<B>) -> Option<(String, String, String)> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    match path.as_slice() {
        ["apis", "infrastructure.cluster.x-k8s.io", _, "namespaces", _, resource, name, part @ ..]
            if request.method() != Method::GET =>
        {
            let what = part.first().copied().unwrap_or("object");
            Some(((*resource).to_owned(), (*name).to_owned(), what.to_owned()))
        }
        _ => None,
    }
}
