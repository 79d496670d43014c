//! Every write that an API server has accepted: who sent it, and what the object is then.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use sandbox::Sandbox;
use serde_json::Value;

pub(super) type Boxed = UnsyncBoxBody<Bytes, tower::BoxError>;

pub(super) fn boxed<B>(body: B) -> Boxed
where
    B: http_body::Body<Data = Bytes, Error: Into<tower::BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    User,
    Provider,
    /// The daemon of this number. The first one has 0.
    Daemon(usize),
}

/// One write.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) by: By,
    /// The management cluster of the client: a daemon writes to the workload cluster too.
    pub(super) place: usize,
    pub(super) verb: Method,
    pub(super) plural: String,
    pub(super) name: String,
    /// The object after it. `None`: it is gone.
    pub(super) after: Option<Value>,
}

type Observer = Box<dyn Fn(&Write) + Send + Sync>;

/// Clones share it. By default nothing is recorded.
#[derive(Clone, Default)]
pub(super) struct Record(Arc<OnceLock<Observer>>);

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

impl Record {
    /// Calls `observer` for each write, in their order, before the one who sent it has its answer.
    pub(super) fn new(observer: impl Fn(&Write) + Send + Sync + 'static) -> Self {
        let record = Self::default();
        record.0.get_or_init(|| Box::new(observer));
        record
    }

    /// A connection to this server.
    pub(super) fn tap(&self, by: By, place: usize, to: &Sandbox) -> Tap {
        Tap { record: self.clone(), by, place, server: to.service() }
    }

    /// A client of this server.
    pub(super) fn client(&self, by: By, place: usize, to: &Sandbox) -> Client {
        Client::new(self.tap(by, place, to), "default")
    }
}

/// A connection whose writes are recorded.
#[derive(Clone)]
pub(super) struct Tap {
    record: Record,
    by: By,
    place: usize,
    server: sandbox::Service,
}

impl tower::Service<Request<Body>> for Tap {
    type Response = Response<Boxed>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut tap = self.clone();
        Box::pin(async move {
            let observer = tap.record.0.get().filter(|_| request.method() != Method::GET);
            let Some(observer) = observer else {
                return tap.server.call(request).await.map(|answer| answer.map(boxed));
            };
            let (verb, path) = (request.method().clone(), request.uri().path().to_owned());
            let (parts, body) = tap.server.call(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            if parts.status.is_success()
                && let Ok(mut answer) = serde_json::from_slice::<Value>(&body)
            {
                if answer["kind"] == "PartialObjectMetadata" {
                    let whole = Request::get(&path).body(Body::empty())?;
                    let whole = tap.server.call(whole).await?.into_body().collect().await?.to_bytes();
                    answer = serde_json::from_slice(&whole)?;
                }
                if let Some(write) = write(tap.by, tap.place, verb, &path, answer) {
                    observer(&write);
                }
            }
            Ok(Response::from_parts(parts, boxed(Full::from(body))))
        })
    }
}

/// What a request to this path with this answer has written. `None`: nothing that matters.
fn write(by: By, place: usize, verb: Method, path: &str, answer: Value) -> Option<Write> {
    let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    parts.drain(..if parts[0] == "api" { 2 } else { 3 });
    if parts[0] == "namespaces" && parts.len() > 2 {
        parts.drain(..2);
    }
    if parts[0] == "events" {
        return None;
    }
    let metadata = &answer["metadata"];
    let name = parts.get(1).copied().or(metadata["name"].as_str())?.to_owned();
    let is_going = verb == Method::DELETE || metadata["deletionTimestamp"].is_string();
    let is_held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    let plural = parts[0].to_owned();
    Some(Write { by, place, verb, plural, name, after: Some(answer).filter(|_| !is_going || is_held) })
}
