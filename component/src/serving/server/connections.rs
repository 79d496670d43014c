//! Connections: accepted, encrypted, bounded, and finished when the server stops.

mod handshake;
mod idle;
mod limits;
mod paced;
mod requests;
mod slots;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{handler::Handler, refusals::Full, source::Source};
use handshake::{Encrypted, encrypt};
use idle::Idle;
use requests::{OfConnection, Requests};
use slots::{Slot, Slots};

pub(super) use handshake::Tls;
pub(super) use limits::Limits;
use limits::{BODY_WINDOW, HANDSHAKE_MEMORY, HEADER_SIZE, SEND_BUFFER};

/// How long the head of a request may take, and how long the next one on an open connection; upstream's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// A connection on which nothing moves for so long ends; upstream's. Longer than the longest profile.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The least that HTTP/2 allows for all bodies of a connection.
const CONNECTION_WINDOW: u32 = 64 << 10;

/// Streams that a client may break off by its own fault before the connection ends.
const BROKEN_STREAMS: usize = 256;

/// How long requests under way may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a connection that could not be accepted: most often there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
struct Server {
    limits: Limits,
    tls: Tls,
    handler: Arc<Handler>,
}

/// Serves until `stop` is cancelled, and lets requests under way end.
pub(super) async fn serve(
    listener: TcpListener,
    limits: Limits,
    tls: Tls,
    handler: Arc<Handler>,
    stop: CancellationToken,
) {
    let server = Arc::new(Server { limits, tls, handler });
    let graceful = GracefulShutdown::new();
    let slots = Slots::new(limits.connections, limits.from_one_address, limits.memory);
    let requests = Requests::new(limits.requests, limits.requests_from_one_address);
    let mut connections = JoinSet::new();
    let mut failing = false;
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        // Those that ended are forgotten.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "connections cannot be accepted, trying again");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        failing = false;
        let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
        let address = peer.ip().to_canonical();
        let source = Source::of(address, local);
        let slot = Arc::new(slots.take(source, address));
        let requests = requests.of_connection(source);
        let watcher = graceful.watcher();
        let server = server.clone();
        connections.spawn(async move {
            let why = tokio::select! {
                // First: who has no place any more costs nothing.
                biased;
                () = slot.evicted() => "others want to connect",
                () = requests.is_stuck(server.limits.taking) => "an answer is not taken",
                () = server.connection(stream, peer, &slot, &requests, watcher) => return,
            };
            tracing::debug!(%peer, "connection ended: {why}");
        });
        // Those who came have their turn before more come.
        tokio::task::yield_now().await;
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::debug!("requests under way did not end within {DRAIN_TIMEOUT:?}");
    }
    connections.shutdown().await;
}

impl Server {
    /// One connection from its first byte to its last.
    async fn connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: &Arc<Slot>,
        requests: &Arc<OfConnection>,
        watcher: Watcher,
    ) {
        let encrypting = async {
            // Looked at: it may be told of as readable with nothing to read.
            stream.peek(&mut [0]).await.ok()?;
            slot.heard();
            let handshake = slot.hold(HANDSHAKE_MEMORY);
            let local = stream.local_addr().ok()?.ip().to_canonical();
            // An answer is one write; without this it would wait for the client's acknowledgement of the head.
            let _ = stream.set_nodelay(true);
            let mut encrypted = encrypt(stream, peer, local, slot.source, &self.tls).await?;
            drop(handshake);
            // rustls has them too.
            let certificates = slot.hold(2 * u64::try_from(encrypted.client.size()).unwrap_or(u64::MAX / 2));
            // Before there are requests that wait for it.
            let is_known = self.handler.authenticator.knows(&encrypted.client).await;
            if is_known {
                encrypted.stream.get_mut().0.known();
            }
            Some((encrypted, certificates, is_known))
        };
        let limit = self.limits.handshake;
        let (encrypted, _certificates, is_known) = match timeout(limit, encrypting).await {
            Ok(Some(encrypted)) => encrypted,
            Ok(None) => return,
            Err(_) => {
                tracing::debug!(%peer, "TLS handshake not done within {limit:?}");
                return;
            }
        };
        let Encrypted { stream, client, is_http2 } = encrypted;
        let client = Arc::new(client);
        let service = service_fn(|request: Request<Incoming>| {
            let (handler, client) = (self.handler.clone(), client.clone());
            let under_way = slot.request(head_size(&request));
            // Here, not when somebody has the time for it: the head of a request is many times larger than what counts
            // of it.
            let asked = match requests.begin() {
                Some(place) => Ok((place, handler.take(request, &client))),
                None => Err(handler.refusals.answer(Full::Requests, slot.source)),
            };
            async move {
                let (place, asked) = match asked {
                    Ok(asked) => asked,
                    Err(refusal) => return Ok::<_, Infallible>(refusal),
                };
                let answer = handler.handle(asked, &client).await;
                place.answered();
                let under_way = under_way.answered(answer.body().len());
                Ok(answer.map(|body| body.keeping((place, under_way))))
            }
        });
        let builder = http_builder(self.limits.http2_streams(is_known));
        let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        let io = TokioIo::new(Idle::new(stream, IDLE_TIMEOUT));
        let connection = builder.serve_connection(io, service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%peer, error, "connection ended");
        }
    }
}

/// Bytes of the head of a request.
fn head_size<B>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    request.headers().iter().fold(path, |size, (name, value)| size + name.as_str().len() + value.len())
}

fn http_builder(http2_streams: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(usize::try_from(HEADER_SIZE).unwrap_or(usize::MAX));
    // No pings of ours: their answers would keep a silent connection from being idle.
    builder
        .http2()
        .max_concurrent_streams(http2_streams)
        .max_header_list_size(HEADER_SIZE)
        .initial_stream_window_size(BODY_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_local_error_reset_streams(BROKEN_STREAMS);
    builder
}

#[cfg(test)]
mod tests;
