//! Connections: accepts, encrypts and limits them, and finishes their requests when the server stops.

mod handshake;
mod idle;
mod limits;
mod paced;
mod requests;
mod slots;
mod unsent;

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

pub(super) use handshake::Tls;
pub(super) use limits::{
    ALL_CONNECTIONS, HANDSHAKE_MEMORY, Limits, OTHER_FILES, SEND_BUFFER, TLS_BUFFER, within_open_files,
};
pub(super) use requests::{OfConnection, Requests};
pub(super) use slots::{Slot, Slots};
pub(super) use unsent::Unsent;

use limits::{BODY_WINDOW, HEADER_SIZE};

/// Timeout for the head of a request, and for the next request on an open connection; upstream's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// A connection without traffic for this long is closed; upstream's. It is longer than the longest profile.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Flow-control window of an HTTP/2 connection: the least that HTTP/2 allows.
const CONNECTION_WINDOW: u32 = 64 << 10;

/// Maximum number of streams that a client's errors may break before its connection is closed.
const BROKEN_STREAMS: usize = 256;

/// How long requests in progress may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a failed accept. In most cases no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
struct Server {
    limits: Limits,
    tls: Tls,
    handler: Arc<Handler>,
}

/// Serves until `stop` is cancelled, then finishes requests in progress.
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
        // Forget finished connections.
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
                // Eviction first, so that an evicted connection costs nothing more.
                biased;
                () = slot.evicted() => "others want to connect",
                () = requests.is_stuck(server.limits.taking) => "an answer is not taken",
                () = server.connection(stream, peer, &slot, &requests, watcher) => return,
            };
            tracing::debug!(%peer, "connection ended: {why}");
        });
        // Accepted connections run before more are accepted.
        tokio::task::yield_now().await;
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::debug!("requests under way did not end within {DRAIN_TIMEOUT:?}");
    }
    connections.shutdown().await;
}

impl Server {
    /// Serves one connection until it is closed.
    async fn connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: &Arc<Slot>,
        requests: &Arc<OfConnection>,
        watcher: Watcher,
    ) {
        let encrypting = async {
            // Peek, since the socket may be reported as readable without data.
            stream.peek(&mut [0]).await.ok()?;
            slot.heard();
            let handshake = slot.hold(HANDSHAKE_MEMORY);
            let local = stream.local_addr().ok()?.ip().to_canonical();
            // A response is one write. Without this option it would wait until the client has acknowledged
            // the head.
            let _ = stream.set_nodelay(true);
            let mut encrypted = encrypt(stream, peer, local, slot.source, &self.tls).await?;
            drop(handshake);
            // rustls holds a copy too.
            let certificates = slot.hold(2 * u64::try_from(encrypted.client.size()).unwrap_or(u64::MAX / 2));
            // Before any request needs the result.
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
            // Now, not when the request gets its turn: the head of a request is many times larger than the
            // part that is kept.
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
        let io = TokioIo::new(Unsent::new(Idle::new(stream, IDLE_TIMEOUT), slot.clone()));
        let connection = builder.serve_connection(io, service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%peer, error, "connection ended");
        }
    }
}

/// Size of a request's head, in bytes.
pub(super) fn head_size<B>(request: &Request<B>) -> usize {
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
    // No pings by the server: the replies would keep a silent connection from being idle.
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
