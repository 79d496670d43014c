//! Connections: accepted, encrypted, bounded, and finished when the server stops.

mod idle;
mod slots;

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
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustls::pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    certificates::Certificates,
    handler::Handler,
    tls::{H2, TlsSettings},
    trust::Trust,
};
use idle::Idle;
use slots::Slots;

/// How long a client may take until it is encrypted.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the head of a request may take, and how long the next one on an open connection; upstream's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// A connection on which nothing moves for so long ends; upstream's. Longer than the longest profile.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Bytes of the head of a request.
const HEADER_SIZE: usize = 64 * 1024;

/// How long requests under way may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a connection that could not be accepted: most often there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What one client may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Streams of one HTTP/2 connection.
    pub http2_streams: u32,
}

/// What connections are encrypted with.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub settings: TlsSettings,
    pub certificates: Certificates,
    pub trust: Trust,
}

/// Serves until `stop` is cancelled, and lets requests under way end.
pub(super) async fn serve(
    listener: TcpListener,
    limits: Limits,
    tls: Tls,
    handler: Arc<Handler>,
    stop: CancellationToken,
) {
    let builder = Arc::new(http_builder(limits));
    let graceful = GracefulShutdown::new();
    let slots = Slots::new();
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
        let Some(slot) = slots.take(peer.ip().to_canonical()) else {
            tracing::debug!(%peer, "connection refused: too many are open");
            continue;
        };
        let (tls, handler, builder) = (tls.clone(), handler.clone(), builder.clone());
        let watcher = graceful.watcher();
        connections.spawn(async move {
            let _slot = slot;
            if let Some((stream, client, is_http2)) = encrypt(stream, peer, &tls).await {
                let service = service_fn(move |request: Request<Incoming>| {
                    let (handler, client) = (handler.clone(), client.clone());
                    async move { Ok::<_, Infallible>(handler.handle(request, &client).await) }
                });
                let builder = (*builder).clone();
                let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
                let io = TokioIo::new(Idle::new(stream, IDLE_TIMEOUT));
                let connection = builder.serve_connection(io, service).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(%peer, error, "connection ended");
                }
            }
        });
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::debug!("requests under way did not end within {DRAIN_TIMEOUT:?}");
    }
    connections.shutdown().await;
}

fn http_builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEADER_SIZE);
    // No pings of ours: their answers would keep a silent connection from being idle.
    builder
        .http2()
        .max_concurrent_streams(limits.http2_streams)
        .max_header_list_size(u32::try_from(HEADER_SIZE).unwrap_or(u32::MAX));
    builder
}

/// Who is at the other end: its certificate and what signed that.
pub(super) type ClientCertificates = Arc<Vec<CertificateDer<'static>>>;

type Encrypted = tokio_rustls::server::TlsStream<TcpStream>;

async fn encrypt(
    stream: TcpStream,
    peer: SocketAddr,
    tls: &Tls,
) -> Option<(Encrypted, ClientCertificates, bool)> {
    let local: IpAddr = stream.local_addr().ok()?.ip().to_canonical();
    // An answer is one write; without this it would wait for the client's acknowledgement of the head.
    let _ = stream.set_nodelay(true);
    let config = match tls.settings.config(Arc::new(tls.certificates.for_address(local)), tls.trust.hints()) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "no connection can be encrypted");
            return None;
        }
    };
    let stream = match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(Arc::new(config)).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "TLS handshake failed");
            return None;
        }
        Err(_) => {
            tracing::debug!(%peer, "TLS handshake not done within {HANDSHAKE_TIMEOUT:?}");
            return None;
        }
    };
    let (_, connection) = stream.get_ref();
    let is_http2 = connection.alpn_protocol() == Some(H2);
    let certificates = connection.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
    let certificates = certificates.into_iter().map(CertificateDer::into_owned).collect();
    Some((stream, Arc::new(certificates), is_http2))
}
