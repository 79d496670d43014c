//! Serves a webhook of the API server, which shows no credentials.
//!
//! So whoever reaches the port may ask, and learns nothing but what was sent. Everything is bounded: connections,
//! handshakes, heads, bodies, answers, requests at work, and the share of each client in them. Connections and their memory
//! are shared among clients as those of the secure port are ([`Slots`]). The server has its own threads, so that clients
//! cannot delay the rest of the daemon.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::anyhow;
use arc_swap::ArcSwapOption;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    certificates::Certificates,
    connections::{
        ALL_CONNECTIONS, HANDSHAKE_MEMORY, OTHER_FILES, OfConnection, Requests, SEND_BUFFER, Slot, Slots,
        TLS_BUFFER, Unsent, head_size, within_open_files,
    },
    listener::{self, Listen},
    responses::{self, Answer},
    seldom::Seldom,
    source::Source,
    threads::Threads,
    tls::TlsSettings,
    turns::Turns,
};
use crate::{reload::ReloadReporter, serving::WebhookOptions};

/// Whose files are reported: the secure port has files of the same name.
const OWNER: &str = "webhook";

/// The prefix of the flags.
const FLAGS: &str = "webhook-";

/// Connections from other machines at the same time, and those from one of them. This machine may have as many as one of
/// them in addition. An API server speaks HTTP/1.1 to webhooks, so each request under way takes a connection; at its defaults
/// it works at 400 reads and 200 writes at once.
const CONNECTIONS: usize = 768;
const CONNECTIONS_OF_ONE: usize = 600;

/// Requests beside the first one on each connection, and those of one client.
const REQUESTS: usize = 192;
const REQUESTS_OF_ONE: usize = 128;

/// Bytes of all connections with their bodies and answers, beside what is at work.
const MEMORY: u64 = 192 << 20;

/// Open files of other parts, the secure port included.
const OTHERS: usize = OTHER_FILES + ALL_CONNECTIONS;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// For the head of a request, and for the next request on an open connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// A connection is closed after this time, when its requests are answered. Clients open another one.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// How long requests under way may take when a connection is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The whole answer. The API server waits 30 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of a body, in bytes. The API server accepts objects of up to 3 MiB.
const MAX_BODY: usize = 4 << 20;

/// Requests that are answered at the same time, and those of one client. Each may take much memory for a moment.
const AT_WORK: usize = 2;
const AT_WORK_OF_ONE: usize = 1;

/// How long a client may take to read an answer.
const TAKING_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of one connection. The API server opens another one where it needs more streams.
const HEADER_SIZE: u32 = 16 << 10;
const STREAMS: u32 = 8;
const WINDOW: u32 = 64 << 10;

/// Pause between two log lines with the same message.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Pause after a failed accept. In most cases no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers the requests.
pub trait Webhook: Send + Sync + 'static {
    /// The answer to a POST with this body, as JSON. It may take its time.
    ///
    /// # Errors
    /// Why the body cannot be answered, for people.
    fn answer(&self, body: &[u8]) -> Result<Vec<u8>, String>;
}

/// A certificate that is made while the server runs. Until then no connection is encrypted. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MadeCertificate(Arc<ArcSwapOption<CertifiedKey>>);

impl MadeCertificate {
    /// Serves this one from now on.
    pub fn set(&self, certificate: Arc<CertifiedKey>) {
        self.0.store(Some(certificate));
    }
}

impl ResolvesServerCert for MadeCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// A running server. It stops when dropped.
#[derive(Debug)]
pub struct WebhookServer {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _ends_with_us: DropGuard,
    /// The last field, so that it is dropped after the tasks that run on these threads.
    threads: Option<Threads>,
}

impl WebhookServer {
    /// Serves `webhook` at `path`. Without files in the options, the certificate is `made`.
    ///
    /// # Errors
    /// A faulty option or file, with its flag, or a port that is in use.
    pub async fn start(
        options: &WebhookOptions,
        path: &'static str,
        webhook: Arc<dyn Webhook>,
        made: MadeCertificate,
        reporter: &ReloadReporter,
    ) -> anyhow::Result<Self> {
        let listener = listener::bind(&Listen {
            address: options.bind_address,
            port: options.secure_port,
            shares_port: false,
            flags: FLAGS,
        })?;
        let threads = Threads::start("webhook", AT_WORK)?;
        let tls = TlsSettings::new(&options.tls, options.disable_http2_serving)?;
        let certificates = match &options.certificates {
            Some(files) => Some(Certificates::load(files, options.bind_address)?),
            None => None,
        };
        let turns = Turns::new(AT_WORK, AT_WORK_OF_ONE);
        let server =
            Arc::new(Server { path, webhook, tls, certificates, made, turns, full: Seldom::new(LOG_PAUSE) });
        let (reporter, stop) = (reporter.clone().of(OWNER), CancellationToken::new());
        let ends_with_us = stop.clone().drop_guard();
        let stopped = stop.clone();
        let starting = async move {
            let listener = TcpListener::from_std(listener)?;
            let address = listener.local_addr()?;
            let mut tasks = JoinSet::new();
            if let Some(certificates) = server.certificates.clone() {
                tasks.spawn(certificates.follow(reporter, stopped.clone()));
            }
            tasks.spawn(serve(listener, server, stopped));
            anyhow::Ok((address, tasks))
        };
        let starting = threads.run(starting).ok_or_else(|| anyhow!("no threads for the webhook"))?;
        let (address, tasks) = starting.await.map_err(|_| anyhow!("a part of the server panicked"))??;
        tracing::info!("Serving the webhook on {address}");
        Ok(Self { address, stop, tasks, _ends_with_us: ends_with_us, threads: Some(threads) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until a part of the server ends by itself, as after a panic.
    pub async fn failed(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if ended.is_err() {
                return;
            }
        }
    }

    /// Closes the port and finishes the requests under way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        drop(self.threads.take());
    }
}

/// What all connections share.
struct Server {
    path: &'static str,
    webhook: Arc<dyn Webhook>,
    tls: TlsSettings,
    certificates: Option<Certificates>,
    made: MadeCertificate,
    turns: Turns,
    full: Seldom,
}

async fn serve(listener: TcpListener, server: Arc<Server>, stop: CancellationToken) {
    let wanted = (CONNECTIONS, CONNECTIONS_OF_ONE);
    let (connections, from_one_address) = within_open_files("the webhook", OTHERS, wanted);
    let slots = Slots::new(connections, from_one_address, MEMORY);
    let requests = Requests::new(REQUESTS, REQUESTS_OF_ONE);
    let mut connections = JoinSet::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        // Forget finished connections.
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
        let address = peer.ip().to_canonical();
        let slot = Arc::new(slots.take(Source::of(address, local), address));
        let requests = requests.of_connection(slot.source);
        let (server, stop) = (server.clone(), stop.clone());
        connections.spawn(async move {
            tokio::select! {
                // Eviction first, so that an evicted connection costs nothing more.
                biased;
                () = slot.evicted() => server.is_full(slot.source, "it ends connections of the client with most"),
                () = requests.is_stuck(TAKING_TIMEOUT) => tracing::debug!(%peer, "an answer is not taken"),
                () = server.clone().connection(stream, local, slot.clone(), requests.clone(), &stop) => {}
            }
        });
        // Accepted connections run before more are accepted.
        tokio::task::yield_now().await;
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

impl Server {
    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        local: Option<IpAddr>,
        slot: Arc<Slot>,
        requests: Arc<OfConnection>,
        stop: &CancellationToken,
    ) {
        let _ = stream.set_nodelay(true);
        let certificates: Arc<dyn ResolvesServerCert> = match (&self.certificates, local) {
            (Some(files), Some(local)) => Arc::new(files.for_address(local)),
            (Some(_), None) => return,
            (None, _) => Arc::new(self.made.clone()),
        };
        let Ok(config) = self.tls.config(certificates, None) else { return };
        let encrypting = async {
            stream.peek(&mut [0]).await.ok()?;
            slot.heard();
            let _handshake = slot.hold(HANDSHAKE_MEMORY);
            TlsAcceptor::from(Arc::new(config)).accept(stream).await.ok()
        };
        let encrypting = timeout(HANDSHAKE_TIMEOUT, encrypting);
        let Some(Ok(Some(mut stream))) = stop.run_until_cancelled(encrypting).await else { return };
        stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
        let stream = Unsent::new(stream, slot.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (server, slot) = (self.clone(), slot.clone());
            let under_way = slot.request(head_size(&request));
            let place = requests.begin();
            async move {
                let Some(place) = place else { return Ok::<_, Infallible>(server.busy(slot.source)) };
                let answer = server.answer(request, &slot).await;
                place.answered();
                let under_way = under_way.answered(answer.body().len());
                Ok(answer.map(|body| body.keeping((place, under_way))))
            }
        });
        let builder = http_builder();
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stop.cancelled() => {}
            () = sleep(CONNECTION_LIFETIME) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(DRAIN_TIMEOUT, connection).await;
    }

    async fn answer(&self, request: Request<Incoming>, slot: &Arc<Slot>) -> Answer {
        if request.uri().path() != self.path {
            let words = format!("nothing is here; the webhook is at {}\n", self.path);
            return responses::text(StatusCode::NOT_FOUND, words);
        }
        if request.method() != Method::POST {
            return responses::text(StatusCode::METHOD_NOT_ALLOWED, "the webhook is asked by POST\n");
        }
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(MAX_BODY);
        if length > MAX_BODY {
            return too_large();
        }
        let answering = async {
            // Its parts, and all of it in one piece.
            let held = slot.hold(2 * u64::try_from(length).unwrap_or(u64::MAX / 4));
            let body = Limited::new(request.into_body(), MAX_BODY).collect();
            let body = match timeout(BODY_TIMEOUT, body).await {
                Ok(Ok(body)) => body.to_bytes(),
                Ok(Err(error)) if error.is::<LengthLimitError>() => return too_large(),
                Ok(Err(_)) => return responses::text(StatusCode::BAD_REQUEST, "the body ended early\n"),
                Err(_) => {
                    let words = "the body did not come in time\n";
                    return responses::text(StatusCode::REQUEST_TIMEOUT, words);
                }
            };
            // Only now: a slow client keeps no other from its turn.
            let Some(turn) = self.turns.take(slot.source).await else { return self.busy(slot.source) };
            let webhook = self.webhook.clone();
            // It keeps its turn until the answer is ready, even if the client is gone by then.
            let answer = tokio::task::spawn_blocking(move || {
                let answer = webhook.answer(&body);
                drop((body, held, turn));
                answer
            });
            match answer.await {
                Ok(Ok(answer)) => responses::body(StatusCode::OK, responses::JSON, answer),
                Ok(Err(why)) => responses::text(StatusCode::BAD_REQUEST, format!("{why}\n")),
                Err(_) => {
                    let words = "the webhook failed at this request\n";
                    responses::text(StatusCode::INTERNAL_SERVER_ERROR, words)
                }
            }
        };
        match timeout(REQUEST_TIMEOUT, answering).await {
            Ok(answer) => answer,
            Err(_) => self.busy(slot.source),
        }
    }

    fn busy(&self, source: Source) -> Answer {
        self.is_full(source, "it answers 503");
        responses::text(StatusCode::SERVICE_UNAVAILABLE, "the webhook has too much to do; try again\n")
    }

    /// Tells it once in a while.
    fn is_full(&self, source: Source, what: &'static str) {
        if self.full.may() {
            tracing::warn!(?source, "the webhook's clients want more than they may have: {what}");
        }
    }
}

fn too_large() -> Answer {
    let words = format!("the body is larger than {} MiB\n", MAX_BODY >> 20);
    responses::text(StatusCode::PAYLOAD_TOO_LARGE, words)
}

fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(usize::try_from(HEADER_SIZE).unwrap_or(usize::MAX));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_SIZE)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

#[cfg(test)]
mod tests;
