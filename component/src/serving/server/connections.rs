//! Connections: accepts, encrypts and limits them, and finishes their requests when the server stops.
//!
//! Every client that reaches the port can use it, so everything that clients use has a bound:
//!
//! | A client must not | Held by |
//! |---|---|
//! | delay the election or a controller | threads of the port's own ([`Threads`](super::threads::Threads)), and few connections to the API server |
//! | take all connections, with slow or idle ones | [`Admission`]: a share for this node, another one for all others, and a new connection always gets a place |
//! | take all memory | [`Admission`]: one bound on the bytes of connections, certificates, requests and responses together |
//! | take all time of the port's thread | [`Guarded`](stream::Guarded): small portions, one connection after the other; hyper's limits of heads, fields, streams and resets |
//! | take all reviews, or all large responses | [`FairPermits`](super::permits::FairPermits): few at a time, clients in rotation |
//! | keep what it got for ever | time limits of the handshake, a head, a response, silence, and the connection itself |

mod admission;
mod limits;
mod stream;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::{pki_types::CertificateDer, server::ResolvesServerCert};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{
    authentication::{Peer, Trust},
    responses::Answer,
    source::Source,
    tls::{H2, TlsSettings},
};
use admission::Admission;
use limits::{HANDSHAKE_MEMORY, HEADER_SIZE, MAX_ANSWER, REQUEST_MEMORY, SEND_BUFFER, TLS_BUFFER};
use stream::Guarded;

pub(super) use admission::Connection;
pub(super) use limits::{CONNECTION_WINDOW, Limits, OTHER_FILES, STREAMS_OF_STRANGERS};

/// Timeout for the head of a request, and for the next request on an open connection; upstream's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// A connection accepts no more requests after this time. Clients open another one.
const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// How long requests in progress may take then: longer than the longest profile.
const LAST_REQUESTS: Duration = Duration::from_secs(90);

/// Maximum number of streams that a client's errors may break before its connection is closed.
const BROKEN_STREAMS: usize = 256;

/// How long requests in progress may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a failed accept. In most cases no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Responds to the requests of a port.
pub(super) trait Service: Send + Sync + 'static {
    /// The response to a request. What is not needed of its head is dropped before this returns, since the request may wait.
    fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Arc<Peer>,
        connection: Arc<Connection>,
    ) -> impl Future<Output = Answer> + Send + 'static;

    /// Whether the client is known by its certificate.
    fn knows(&self, client: &Peer) -> impl Future<Output = bool> + Send;

    /// Records that a connection of this client was closed to make room for others.
    fn replaced(&self, source: Source);
}

/// How connections are encrypted.
pub(super) struct Tls {
    pub settings: TlsSettings,
    /// The certificates for a client that connected to this address.
    pub certificates: Box<dyn Fn(IpAddr) -> Arc<dyn ResolvesServerCert> + Send + Sync>,
    /// The authorities of clients. `None`: no client is asked for a certificate.
    pub trust: Option<Trust>,
}

/// What all connections share.
struct Server<S> {
    limits: Limits,
    tls: Tls,
    service: Arc<S>,
}

/// An encrypted connection, ready for requests.
struct Encrypted {
    stream: TlsStream<Guarded<TcpStream>>,
    client: Arc<Peer>,
    is_http2: bool,
}

/// Serves until `stop` is cancelled, then finishes requests in progress.
pub(super) async fn serve<S: Service>(
    listener: TcpListener,
    limits: Limits,
    tls: Tls,
    service: Arc<S>,
    stop: CancellationToken,
) {
    let server = Arc::new(Server { limits, tls, service });
    let admission = Admission::new(limits.here, limits.elsewhere, limits.memory);
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
        let Ok(local) = stream.local_addr().map(|local| local.ip().to_canonical()) else { continue };
        let connection = admission.admit(Source::of(peer.ip().to_canonical(), local));
        let (server, stop) = (server.clone(), stop.clone());
        connections.spawn(async move {
            tokio::select! {
                // First, so that a replaced connection costs nothing more.
                biased;
                () = connection.replaced() => {
                    tracing::debug!(%peer, "connection ended: others want to connect");
                    server.service.replaced(connection.source);
                }
                () = server.connection(stream, peer, local, &connection, &stop) => {}
            }
        });
        // Accepted connections run before more are accepted.
        tokio::task::yield_now().await;
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, ended).await.is_err() {
        tracing::debug!("requests under way did not end within {DRAIN_TIMEOUT:?}");
    }
    connections.shutdown().await;
}

impl<S: Service> Server<S> {
    /// Serves one connection until it is closed.
    async fn connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        local: IpAddr,
        connection: &Arc<Connection>,
        stop: &CancellationToken,
    ) {
        let limit = self.limits.handshake;
        let encrypting = async {
            let _handshake = connection.hold(HANDSHAKE_MEMORY);
            let encrypted = self.encrypt(stream, peer, local, connection.source).await?;
            // Before any request needs the result.
            let is_known = self.service.knows(&encrypted.client).await;
            Some((encrypted, is_known))
        };
        let (encrypted, is_known) = match stop.run_until_cancelled(timeout(limit, encrypting)).await {
            Some(Ok(Some(encrypted))) => encrypted,
            Some(Ok(None)) | None => return,
            Some(Err(_)) => {
                tracing::debug!(%peer, "TLS handshake not done within {limit:?}");
                return;
            }
        };
        let Encrypted { stream, client, is_http2 } = encrypted;
        // TLS holds a copy too.
        let _certificates = connection.hold(2 * client.size());
        let (reading, unread) = (self.limits.reading, CancellationToken::new());
        let respond = service_fn(|request: Request<Incoming>| {
            let under_way = connection.request(REQUEST_MEMORY + 2 * head_size(&request));
            let responding = self.service.clone().respond(request, client.clone(), connection.clone());
            let (connection, unread) = (connection.clone(), unread.clone());
            async move {
                let answer = responding.await;
                let answer_memory = connection.hold(answer.body().len().min(MAX_ANSWER));
                let is_read = must_be_read_within(reading, unread);
                Ok::<_, Infallible>(answer.map(|body| body.keeping((under_way, answer_memory, is_read))))
            }
        });
        let builder = self.http(is_known);
        let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
        let stream = Guarded::decrypted(stream, self.limits.portion, connection.clone());
        let http = builder.serve_connection(TokioIo::new(stream), respond);
        tokio::pin!(http);
        let ended = tokio::select! {
            ended = http.as_mut() => ended,
            () = unread.cancelled() => {
                tracing::debug!(%peer, "connection ended: an answer is not taken");
                return;
            }
            () = end_of_requests(stop) => {
                http.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = http => ended,
                    () = sleep(LAST_REQUESTS) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, error, "connection ended");
        }
    }

    /// Encrypts a connection. `None`: the client does not speak TLS, or not as required.
    async fn encrypt(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        local: IpAddr,
        source: Source,
    ) -> Option<Encrypted> {
        // A response is one write. Without this option it would wait until the client has acknowledged
        // the head.
        let _ = stream.set_nodelay(true);
        let client_cas = self.tls.trust.as_ref().and_then(Trust::hints);
        let config = match self.tls.settings.config((self.tls.certificates)(local), client_cas) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "no connection can be encrypted");
                return None;
            }
        };
        let stream = Guarded::encrypted(stream);
        let mut stream = match TlsAcceptor::from(Arc::new(config)).accept(stream).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%peer, %error, "TLS handshake failed");
                return None;
            }
        };
        let (guarded, session) = stream.get_mut();
        guarded.handshake_completed();
        session.set_buffer_limit(Some(TLS_BUFFER));
        let is_http2 = session.alpn_protocol() == Some(H2);
        let certificates = session.peer_certificates().unwrap_or_default();
        let certificates = certificates.iter().cloned().map(CertificateDer::into_owned).collect();
        Some(Encrypted { stream, client: Arc::new(Peer::new(source, certificates)), is_http2 })
    }

    fn http(&self, is_known: bool) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(usize::try_from(HEADER_SIZE).unwrap_or(usize::MAX));
        // No pings by the server: the replies would keep a silent connection from being idle.
        builder
            .http2()
            .max_concurrent_streams(self.limits.streams(is_known))
            .max_header_list_size(HEADER_SIZE)
            .initial_stream_window_size(self.limits.body_window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_local_error_reset_streams(BROKEN_STREAMS);
        builder
    }
}

/// Waits until a connection has to finish its last requests.
async fn end_of_requests(stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = sleep(LIFETIME) => {}
    }
}

/// Cancels `unread` unless the returned value is dropped within this time.
fn must_be_read_within(limit: Duration, unread: CancellationToken) -> impl Send + Sync + 'static {
    let is_read = CancellationToken::new();
    let guard = is_read.clone().drop_guard();
    tokio::spawn(async move {
        if timeout(limit, is_read.cancelled()).await.is_err() {
            unread.cancel();
        }
    });
    guard
}

/// Size of a request's head, in bytes.
fn head_size<B>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    request.headers().iter().fold(path, |size, (name, value)| size + name.as_str().len() + value.len())
}

#[cfg(test)]
mod tests;
