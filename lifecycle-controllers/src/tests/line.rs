//! The connection of the controllers to the API servers, which counts their writes, and which can be cut: they then are as dead as a
//! daemon that was killed.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyStream, Full, StreamBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use sandbox::Sandbox;
use serde_json::json;
use tokio::sync::watch;
use tower::Service as _;

use super::record::{Boxed, By, Record, Tap, boxed};

/// On which side of a write the line is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The API server does not get it.
    Before,
    /// The API server has it, and its answer is lost.
    After,
}

/// Clones share the line.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Arc<State>);

#[derive(Debug, Default)]
struct State {
    record: Record,
    place: usize,
    number: usize,
    writes: AtomicUsize,
    cut: Mutex<Option<(usize, Side)>>,
    is_cut: watch::Sender<bool>,
    is_fenced: watch::Sender<bool>,
    noise: Mutex<Option<Noise>>,
    /// The plural whose watches show nothing.
    held: watch::Sender<Option<&'static str>>,
}

#[derive(Debug)]
struct Noise {
    random: fastrand::Rng,
    /// The API server refuses requests too, and takes its time.
    is_full: bool,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    Breaks(Side),
    Answer(u16, &'static str),
    /// The API server gets it after this time, whatever becomes of the daemon.
    Late(Duration),
}

impl Noise {
    fn next(&mut self, is_write: bool) -> Option<Mishap> {
        let random = &mut self.random;
        match (random.u8(..20), self.is_full, is_write) {
            (0, _, true) => Some(Mishap::Breaks(Side::Before)),
            (1, _, true) => Some(Mishap::Breaks(Side::After)),
            (2, true, true) => Some(Mishap::Answer(409, "Conflict")),
            (3, true, _) => Some(Mishap::Answer(500, "InternalError")),
            (4, true, _) => Some(Mishap::Answer(503, "ServiceUnavailable")),
            (5 | 6, true, true) => Some(Mishap::Late(Duration::from_millis(random.u64(..3000)))),
            _ => None,
        }
    }
}

impl Line {
    /// The line of the daemon of this number in this management cluster.
    pub(super) fn new(record: Record, place: usize, number: usize) -> Self {
        Self(Arc::new(State { record, place, number, ..State::default() }))
    }

    /// The daemon's number.
    pub(super) fn number(&self) -> usize {
        self.0.number
    }

    /// The place of its management cluster.
    pub(super) fn place(&self) -> usize {
        self.0.place
    }

    /// Cuts it at this write, counted from 0.
    pub(super) fn cut_at(&self, write: usize, side: Side) {
        *self.0.cut.lock() = Some((write, side));
    }

    /// From now on one write of ten fails, on either side.
    pub(super) fn make_noisy(&self, seed: u64) {
        let random = fastrand::Rng::with_seed(seed);
        *self.0.noise.lock() = Some(Noise { random, is_full: false });
    }

    /// From now on many requests fail, in each way in which a request can.
    pub(super) fn make_bad(&self, seed: u64) {
        let random = fastrand::Rng::with_seed(seed);
        *self.0.noise.lock() = Some(Noise { random, is_full: true });
    }

    /// All is well again: no request fails, and all watches show what there is.
    pub(super) fn calm(&self) {
        *self.0.noise.lock() = None;
        *self.0.cut.lock() = None;
        self.0.held.send_replace(None);
    }

    /// From now on, watches of this kind are late.
    pub(super) fn hold_watches(&self, plural: Option<&'static str>) {
        self.0.held.send_replace(plural);
    }

    /// No write is sent any more, as after the term of a leader. Reads go on.
    pub(super) fn fence(&self) {
        self.0.is_fenced.send_replace(true);
    }

    pub(super) fn is_cut(&self) -> bool {
        *self.0.is_cut.borrow()
    }

    /// How many writes were sent.
    pub(super) fn writes(&self) -> usize {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// A client of a server at the other end.
    pub(super) fn client(&self, to: &Sandbox) -> Client {
        let State { record, place, number, .. } = &*self.0;
        let server = record.tap(By::Daemon(*number), *place, to);
        Client::new(End { line: self.clone(), server }, "default")
    }
}

/// No Pod may go.
fn refused() -> Response<Boxed> {
    let status = json!({
        "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods"}]},
    });
    let mut answer = Response::new(boxed(Full::from(status.to_string())));
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    answer
}

fn failure(code: u16, reason: &str) -> Response<Boxed> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "a bad day"});
    let mut answer = Response::new(boxed(Full::from(status.to_string())));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

#[derive(Clone)]
struct End {
    line: Line,
    server: Tap,
}

impl End {
    async fn read(mut self, request: Request<Body>) -> Result<Response<Boxed>, tower::BoxError> {
        let mishap = self
            .line
            .0
            .noise
            .lock()
            .as_mut()
            .filter(|noise| noise.is_full)
            .and_then(|noise| noise.next(false));
        if let Some(Mishap::Answer(code, reason)) = mishap {
            return Ok(failure(code, reason));
        }
        let plural = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = self.server.call(request).await?;
        if !is_watch {
            return Ok(answer);
        }
        let held = self.line.0.held.subscribe();
        Ok(answer.map(|body| {
            let frames = BodyStream::new(body).then(move |frame| {
                let (mut held, plural) = (held.clone(), plural.clone());
                async move {
                    drop(held.wait_for(|held| *held != Some(plural.as_str())).await);
                    frame
                }
            });
            boxed(StreamBody::new(frames))
        }))
    }

    async fn write(mut self, request: Request<Body>) -> Result<Response<Boxed>, tower::BoxError> {
        let line = &self.line;
        if *line.0.is_fenced.borrow() {
            return Err("not sent: the term is over".into());
        }
        let mishap = line.0.noise.lock().as_mut().and_then(|noise| noise.next(true));
        match mishap {
            Some(Mishap::Breaks(Side::Before)) => return Err("the connection broke".into()),
            Some(Mishap::Breaks(Side::After)) => {
                drop(self.server.call(request).await);
                return Err("the connection broke".into());
            }
            Some(Mishap::Answer(code, reason)) => return Ok(failure(code, reason)),
            Some(Mishap::Late(time)) => {
                let arrival = tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    self.server.call(request).await
                });
                return arrival.await?;
            }
            None => {}
        }
        let number = line.0.writes.fetch_add(1, Ordering::SeqCst);
        let cut = *line.0.cut.lock();
        match cut {
            Some((write, Side::Before)) if write == number => {
                line.0.is_cut.send_replace(true);
                std::future::pending().await
            }
            Some((write, Side::After)) if write == number => {
                drop(self.server.call(request).await);
                line.0.is_cut.send_replace(true);
                std::future::pending().await
            }
            _ => self.server.call(request).await,
        }
    }
}

impl tower::Service<Request<Body>> for End {
    type Response = Response<Boxed>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let end = self.clone();
        Box::pin(async move {
            if end.line.is_cut() {
                std::future::pending().await
            } else if request.method() == Method::GET {
                end.read(request).await
            } else if request.uri().path().ends_with("/eviction") {
                Ok(refused())
            } else {
                end.write(request).await
            }
        })
    }
}
