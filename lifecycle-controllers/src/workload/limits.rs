//! Limits around the client of one API server that is not trusted, and the fence of the term in front of its writes.

mod json;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use kube::{Client, client::Body};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep, timeout},
};
use tower::{BoxError, Service};

use crate::gate::PartFence;

use super::pace::{LEAST, Pace};
use json::JsonCount;

/// Requests at once, watches apart.
const REQUESTS: usize = 8;
/// Watches at once: that of Nodes, and one that is beginning while the old one ends.
const WATCHES: usize = 2;
/// How long the head of an answer may take, and a request may wait for its turn.
const HEAD: Duration = Duration::from_secs(10);
/// How long a whole answer may take.
const WHOLE: Duration = Duration::from_secs(60);
/// The largest answer, in bytes: a page of 100 Nodes has some 2 MB.
const LARGEST: usize = 16 * 1024 * 1024;
/// The largest event of a watch, in bytes. No object of etcd has more than 1.5 MiB.
const LARGEST_EVENT: usize = 2 * 1024 * 1024;
/// The most values of JSON in an answer: a page of 100 Nodes has some 100,000, most of them in `managedFields`. One takes up to
/// 200 bytes once it is read.
const MOST_VALUES: usize = 400_000;
/// The most values in an event of a watch. Objects of Kubernetes' own kinds have a few thousand.
const MOST_VALUES_OF_EVENT: usize = 100_000;
/// The most items in the list of an answer. One takes some 1,000 bytes once it is read. A `limit` of the request is a wish: API servers
/// that are not Kubernetes' own answer with the whole list.
const MOST_ITEMS: usize = 10_000;
/// How long a watch may be silent. The API server sends a bookmark about once a minute.
const SILENCE: Duration = Duration::from_secs(90);

/// The client of one API server, within its limits.
#[derive(Clone)]
pub(super) struct Limited {
    client: Client,
    fence: PartFence,
    pace: Arc<Pace>,
    requests: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    probes: Arc<Semaphore>,
}

/// The path of probes, which have a slot of their own: slow answers to others must not make a cluster look away.
pub(super) const PROBE_PATH: &str = "/readyz";

impl Limited {
    /// A client within limits of its own, but for `pace`. Its writes end with the term of `fence`.
    pub(super) fn client(client: Client, fence: PartFence, pace: Arc<Pace>) -> Client {
        let namespace = client.default_namespace().to_owned();
        let limited = Self {
            client,
            fence,
            pace,
            requests: Arc::new(Semaphore::new(REQUESTS)),
            watches: Arc::new(Semaphore::new(WATCHES)),
            probes: Arc::new(Semaphore::new(1)),
        };
        Client::new(limited, namespace)
    }

    async fn send(self, request: Request<Body>) -> Result<Response<LimitedBody>, BoxError> {
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
        let slots = match request.uri().path() {
            PROBE_PATH => &self.probes,
            _ if is_watch => &self.watches,
            _ => &self.requests,
        };
        let began = Instant::now();
        let answer = timeout(HEAD, async {
            let slot = slots.clone().acquire_owned().await?;
            Ok::<_, BoxError>((slot, self.client.send(request).await?))
        });
        let (slot, answer) = answer.await.map_err(|_| format!("no answer within {HEAD:?}"))??;
        // An answer without a body has cost time too.
        let wait = self.pace.take(LEAST).map(|wait| Box::pin(sleep(wait)));
        let limit = if is_watch { Limit::Watch { event: 0 } } else { Limit::Answer { bytes: 0 } };
        let until = if is_watch { Instant::now() + SILENCE } else { began + WHOLE };
        Ok(answer.map(|body| LimitedBody {
            body,
            limit,
            json: JsonCount::default(),
            until: Box::pin(tokio::time::sleep_until(until)),
            wait,
            pace: self.pace,
            _slot: slot,
        }))
    }
}

impl Service<Request<Body>> for Limited {
    type Response = Response<LimitedBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limited = self.clone();
        let writes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        Box::pin(async move {
            if !writes {
                return limited.send(request).await;
            }
            let fence = limited.fence.clone();
            let sent = fence.pass(limited.send(request)).await;
            sent.unwrap_or_else(|_| Err("not sent: this process does not lead any more".into()))
        })
    }
}

enum Limit {
    /// Bytes so far.
    Answer { bytes: usize },
    /// Bytes of the event so far.
    Watch { event: usize },
}

/// The body of an answer, which ends with an error at its limit.
pub(super) struct LimitedBody {
    body: Body,
    limit: Limit,
    /// What the answer, or the event of a watch, has so far.
    json: JsonCount,
    /// The end of the whole answer, or of the silence of a watch.
    until: Pin<Box<Sleep>>,
    /// Nothing is read before.
    wait: Option<Pin<Box<Sleep>>>,
    pace: Arc<Pace>,
    _slot: OwnedSemaphorePermit,
}

impl LimitedBody {
    /// What is read of the next piece: a watch has each event in a line of its own. The client knows events by their lines, and API servers
    /// that are not Kubernetes' own may write one over many lines, and the next one behind it.
    fn take(&mut self, data: Bytes) -> Result<Bytes, BoxError> {
        match &mut self.limit {
            Limit::Answer { bytes } => {
                *bytes += data.len();
                self.json.add(&data);
                at_most("the answer", *bytes, LARGEST, "bytes")?;
                at_most("the answer", self.json.items, MOST_ITEMS, "items")?;
                at_most("the answer", self.json.values, MOST_VALUES, "values of JSON")?;
                Ok(data)
            }
            Limit::Watch { event } => {
                let mut lines = Vec::with_capacity(data.len() + 1);
                for piece in data.split_inclusive(|byte| matches!(byte, b'\n' | b'}')) {
                    let (text, ends_line) = match piece {
                        [text @ .., b'\n'] => (text, true),
                        text => (text, false),
                    };
                    self.json.add(text);
                    *event += text.len();
                    at_most("an event of the watch", *event, LARGEST_EVENT, "bytes")?;
                    let values = self.json.values;
                    at_most("an event of the watch", values, MOST_VALUES_OF_EVENT, "values of JSON")?;
                    lines.extend_from_slice(text);
                    let is_whole = text.ends_with(b"}") && self.json.is_closed();
                    if is_whole || (ends_line && *event > 0 && !self.json.is_open()) {
                        lines.push(b'\n');
                        (*event, self.json) = (0, JsonCount::default());
                    }
                }
                Ok(lines.into())
            }
        }
    }
}

fn at_most(what: &str, size: usize, most: usize, unit: &str) -> Result<(), BoxError> {
    if size > most { Err(format!("{what} has more than {most} {unit}").into()) } else { Ok(()) }
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let is_watch = matches!(self.limit, Limit::Watch { .. });
        if let Some(wait) = &mut self.wait {
            if wait.as_mut().poll(cx).is_pending() {
                // A whole answer has its end in spite of the pace; the silence of a watch is not its own while it waits.
                if !is_watch && self.until.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Some(Err(format!("the answer took longer than {WHOLE:?}").into())));
                }
                return Poll::Pending;
            }
            self.wait = None;
            if is_watch {
                self.until.as_mut().reset(Instant::now() + SILENCE);
            }
        }
        if self.until.as_mut().poll(cx).is_ready() {
            let why = if is_watch {
                // As if the API server had ended the watch, which is resumed.
                return Poll::Ready(None);
            } else {
                format!("the answer took longer than {WHOLE:?}")
            };
            return Poll::Ready(Some(Err(why.into())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Poll::Ready(Some(Ok(other))),
        };
        self.wait = self.pace.take(data.len()).map(|wait| Box::pin(sleep(wait)));
        if is_watch {
            self.until.as_mut().reset(Instant::now() + SILENCE);
        }
        Poll::Ready(Some(self.take(data).map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.limit {
            Limit::Answer { .. } => self.body.size_hint(),
            Limit::Watch { .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
