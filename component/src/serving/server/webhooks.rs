//! Serves a webhook of the API server, which shows no credentials.
//!
//! So whoever reaches the port may ask, and learns nothing but what was sent. The port has threads of its own, and its
//! [connections](super::connections) are bounded as those of the secure port are. Requests at work are few, and clients take turns.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::anyhow;
use arc_swap::ArcSwapOption;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    authentication::Peer,
    certificates::Certificates,
    connections::{
        self, CONNECTION_WINDOW, Connection, Limits, OTHER_FILES, STREAMS_OF_STRANGERS, Service, Tls,
    },
    listener::{self, Listen},
    permits::FairPermits,
    responses::{self, Answer},
    seldom::Seldom,
    source::Source,
    threads::Threads,
    tls::TlsSettings,
};
use crate::{reload::ReloadReporter, serving::WebhookOptions};

/// Whose files are reported: the secure port has files of the same name.
const OWNER: &str = "webhook";

/// The prefix of the flags.
const FLAGS: &str = "webhook-";

/// An API server speaks HTTP/1.1 to webhooks, so each request under way takes a connection; at its defaults it works at 400 reads and
/// 200 writes at once. It opens another HTTP/2 connection where it needs more streams.
const LIMITS: Limits = Limits {
    here: 600,
    elsewhere: 768,
    memory: 192 << 20,
    http2_streams: STREAMS_OF_STRANGERS,
    body_window: CONNECTION_WINDOW,
    portion: 2 << 10,
    handshake: Duration::from_secs(10),
    reading: Duration::from_secs(30),
};

/// Open files of other parts, the secure port included.
const OTHERS: usize = {
    let port = Limits::secure_port(0);
    OTHER_FILES + port.here + port.elsewhere
};

/// The whole answer. The API server waits 30 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Size of a body, in bytes. The API server accepts objects of up to 3 MiB.
const MAX_BODY: usize = 4 << 20;

/// Requests that are answered at the same time, and those of one client. Each may take much memory for a moment.
const AT_WORK: usize = 2;
const AT_WORK_OF_ONE: usize = 1;

/// Pause between two log lines with the same message.
const LOG_PAUSE: Duration = Duration::from_secs(60);

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
        let limits = LIMITS.within_open_files("the webhook", OTHERS);
        let threads = Threads::start("webhook", AT_WORK)?;
        let settings = TlsSettings::new(&options.tls, options.disable_http2_serving)?;
        let certificates = match &options.certificates {
            Some(files) => Some(Certificates::load(files, options.bind_address)?),
            None => None,
        };
        let at_work = FairPermits::new(AT_WORK, AT_WORK_OF_ONE);
        let conversion = Arc::new(Endpoint { path, webhook, at_work, full: Seldom::new(LOG_PAUSE) });
        let of_address = certificates.clone();
        let tls = Tls {
            settings,
            certificates: Box::new(move |local: IpAddr| match &of_address {
                Some(files) => Arc::new(files.for_address(local)),
                None => Arc::new(made.clone()),
            }),
            trust: None,
        };
        let (reporter, stop) = (reporter.clone().of(OWNER), CancellationToken::new());
        let ends_with_us = stop.clone().drop_guard();
        let stopped = stop.clone();
        let starting = async move {
            let listener = TcpListener::from_std(listener)?;
            let address = listener.local_addr()?;
            let mut tasks = JoinSet::new();
            if let Some(certificates) = certificates {
                tasks.spawn(certificates.follow(reporter, stopped.clone()));
            }
            tasks.spawn(connections::serve(listener, limits, tls, conversion, stopped));
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

/// The webhook behind its limits.
struct Endpoint {
    path: &'static str,
    webhook: Arc<dyn Webhook>,
    at_work: FairPermits,
    full: Seldom,
}

impl Service for Endpoint {
    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Arc<Peer>,
        connection: Arc<Connection>,
    ) -> Answer {
        self.answer(request, client.source, &connection).await
    }

    async fn knows(&self, _: &Peer) -> bool {
        false
    }

    fn replaced(&self, source: Source) {
        self.is_full(source, "it ends connections of the client with most");
    }
}

impl Endpoint {
    async fn answer(
        &self,
        request: Request<Incoming>,
        source: Source,
        connection: &Arc<Connection>,
    ) -> Answer {
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
            let held = connection.hold(2 * length);
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
            // Only now: a slow client delays no other.
            let Some(permit) = self.at_work.acquire(source).await else { return self.busy(source) };
            let webhook = self.webhook.clone();
            // It keeps its permit until the answer is ready, even if the client is gone by then.
            let answer = tokio::task::spawn_blocking(move || {
                let answer = webhook.answer(&body);
                drop((body, held, permit));
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
            Err(_) => self.busy(source),
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

#[cfg(test)]
mod tests;
