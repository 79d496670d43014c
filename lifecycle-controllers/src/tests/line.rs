//! The connection of the controllers to the API servers, which counts their writes, and which can be cut: they then are as dead as a
//! daemon that was killed.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use sandbox::Sandbox;
use serde_json::json;
use tokio::sync::watch;

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
    writes: AtomicUsize,
    cut: Mutex<Option<(usize, Side)>>,
    is_cut: watch::Sender<bool>,
    noise: Mutex<Option<fastrand::Rng>>,
}

impl Line {
    /// Cuts it at this write, counted from 0.
    pub(super) fn cut_at(&self, write: usize, side: Side) {
        *self.0.cut.lock() = Some((write, side));
    }

    /// From now on one write of ten fails, on either side.
    pub(super) fn make_noisy(&self, seed: u64) {
        *self.0.noise.lock() = Some(fastrand::Rng::with_seed(seed));
    }

    fn noise(&self) -> Option<Side> {
        match self.0.noise.lock().as_mut()?.u8(..20) {
            0 => Some(Side::Before),
            1 => Some(Side::After),
            _ => None,
        }
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
        Client::new(End { line: self.clone(), server: to.service() }, "default")
    }
}

type Boxed = UnsyncBoxBody<Bytes, tower::BoxError>;

fn boxed<B>(body: B) -> Boxed
where
    B: http_body::Body<Data = Bytes, Error: Into<tower::BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
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

#[derive(Clone)]
struct End {
    line: Line,
    server: sandbox::Service,
}

impl tower::Service<Request<Body>> for End {
    type Response = Response<Boxed>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (line, mut server) = (self.line.clone(), self.server.clone());
        Box::pin(async move {
            if line.is_cut() {
                return std::future::pending().await;
            }
            if request.method() == Method::GET {
                return server.call(request).await.map(|answer| answer.map(boxed));
            }
            if request.uri().path().ends_with("/eviction") {
                return Ok(refused());
            }
            match line.noise() {
                Some(Side::Before) => return Err("the connection broke".into()),
                Some(Side::After) => {
                    drop(server.call(request).await);
                    return Err("the connection broke".into());
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
                    drop(server.call(request).await);
                    line.0.is_cut.send_replace(true);
                    std::future::pending().await
                }
                _ => server.call(request).await.map(|answer| answer.map(boxed)),
            }
        })
    }
}
