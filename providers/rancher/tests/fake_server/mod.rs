//! What the fakes of both servers share: connections, with and without TLS, and wrong answers.

use std::{
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Method, Request, Response, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// An answer.
pub(crate) type Answer = Response<reqwest::Body>;

/// A server in the process. It ends when it is dropped.
pub(crate) trait Server: Send + Sync + Sized + 'static {
    /// Its connections.
    fn connections(&self) -> &Connections;

    /// Answers a request.
    fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Connection,
    ) -> impl Future<Output = Answer> + Send;
}

/// The connection of a request.
#[derive(Clone)]
pub(crate) struct Connection {
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Cancelled when it is broken.
    pub(crate) broken: CancellationToken,
}

/// The connections of a server.
#[derive(Default)]
pub(crate) struct Connections {
    /// Cancelled to break all connections; then replaced.
    open: Mutex<CancellationToken>,
    /// New connections are closed at once.
    is_away: AtomicBool,
    stop: CancellationToken,
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.stop.cancel();
        self.broken().cancel();
    }
}

impl Connections {
    /// Breaks all connections and refuses new ones.
    pub(crate) fn go_away(&self) {
        self.is_away.store(true, SeqCst);
        self.break_all();
    }

    /// Accepts connections again.
    pub(crate) fn come_back(&self) {
        self.is_away.store(false, SeqCst);
    }

    /// Breaks all connections.
    pub(crate) fn break_all(&self) {
        let mut open = self.open.lock();
        open.cancel();
        *open = CancellationToken::new();
    }

    fn broken(&self) -> CancellationToken {
        self.open.lock().clone()
    }

    fn is_away(&self) -> bool {
        self.is_away.load(SeqCst)
    }
}

/// A running server. It ends when the last clone is dropped.
pub(crate) struct Fake<S> {
    server: Arc<S>,
    address: SocketAddr,
    scheme: &'static str,
}

impl<S> Clone for Fake<S> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server), ..*self }
    }
}

impl<S> Deref for Fake<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.server
    }
}

impl<S: Server> Fake<S> {
    /// Starts a server on a free port of loopback, with certificates or without.
    pub(crate) async fn serve(server: S, acceptor: Option<TlsAcceptor>) -> Self {
        let server = Arc::new(server);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let stop = server.connections().stop.clone();
        tokio::spawn(serve(listener, (scheme, acceptor), Arc::downgrade(&server), stop));
        Self { server, address, scheme }
    }

    /// The URL of the server, without a path.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Breaks all connections and refuses new ones.
    pub(crate) fn go_away(&self) {
        self.connections().go_away();
    }

    /// Accepts connections again.
    pub(crate) fn come_back(&self) {
        self.connections().come_back();
    }

    /// Breaks all connections.
    pub(crate) fn break_connections(&self) {
        self.connections().break_all();
    }
}

/// A request, as far as both servers read it.
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// Scheme and authority, for complete URLs.
    pub(crate) origin: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) authorization: Option<String>,
}

impl Asked {
    /// What this request says.
    pub(crate) fn of<B>(request: &Request<B>, connection: &Connection) -> Self {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        Self {
            method: request.method().clone(),
            origin: format!("{}://{}", connection.scheme, text(header::HOST).unwrap_or_default()),
            path: request.uri().path().to_owned(),
            query: parameters(request.uri().query().unwrap_or_default()),
            authorization: text(header::AUTHORIZATION).map(str::to_owned),
        }
    }

    /// The parts of the path.
    pub(crate) fn parts(&self) -> Vec<&str> {
        self.path.split('/').filter(|part| !part.is_empty()).collect()
    }

    /// The value of a parameter of the query.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The complete URL of the page of this listing that begins at a marker.
    pub(crate) fn page_url(&self, marker: &str) -> String {
        let others = self.query.iter().filter(|(name, _)| name != "marker");
        let query: Vec<_> = others.map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}{}?{}&marker={marker}", self.origin, self.path, query.join("&"))
    }
}

async fn serve<S: Server>(
    listener: TcpListener,
    (scheme, acceptor): (&'static str, Option<TlsAcceptor>),
    server: Weak<S>,
    stop: CancellationToken,
) {
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        let Some(strong) = server.upgrade() else { return };
        if strong.connections().is_away() {
            continue;
        }
        let connection = Connection { scheme, broken: strong.connections().broken() };
        let (server, acceptor) = (server.clone(), acceptor.clone());
        tokio::spawn(connection.broken.clone().run_until_cancelled_owned(async move {
            match acceptor {
                None => serve_one(stream, connection, server).await,
                Some(acceptor) => {
                    // Fails if the client does not trust the certificate.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve_one(stream, connection, server).await;
                    }
                }
            }
        }));
    }
}

async fn serve_one<S: Server>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    connection: Connection,
    server: Weak<S>,
) {
    let service = service_fn(move |request| {
        let (server, connection) = (server.upgrade(), connection.clone());
        async move {
            let Some(server) = server else { return Ok(Fault::error(503, "ServerError").answer()) };
            if server.connections().is_away() {
                // The connection was being served when it was broken, and ends as soon as this waits.
                pending::<()>().await;
            }
            Ok::<_, Infallible>(server.respond(request, connection).await)
        }
    });
    // A connection that breaks is the client's matter.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

/// A wrong answer.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The status.
    pub(crate) status: u16,
    /// All headers.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body.
    pub(crate) body: String,
}

impl Fault {
    /// An error in the form of the API.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        let body = json!({"baseType": "error", "code": code, "message": "scripted", "status": status, "type": "error"});
        Self {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// What a server answers without a valid key or token: the status is a text, and there is no code.
    pub(crate) fn unauthorized() -> Self {
        let body = r#"{"type":"error","status":"401","message":"Unauthorized 401: must authenticate"}"#;
        Self { body: body.to_owned(), ..Self::error(401, "") }
    }

    /// A login page, with status 200.
    pub(crate) fn login_page() -> Self {
        let headers = vec![("content-type", "text/html; charset=utf-8".to_owned())];
        Self { status: 200, headers, body: "<!doctype html><title>Rancher</title>".to_owned() }
    }

    /// A redirect to a login page.
    pub(crate) fn redirect() -> Self {
        let headers = vec![("location", "https://login.example.org/".to_owned())];
        Self { status: 302, headers, body: String::new() }
    }

    /// It as an answer.
    pub(crate) fn answer(&self) -> Answer {
        response(self.status, &self.headers, self.body.clone())
    }
}

/// An answer with these headers.
pub(crate) fn response(status: u16, headers: &[(&'static str, String)], body: String) -> Answer {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(body.into()).expect("a response")
}

/// An answer in JSON.
pub(crate) fn json_response(status: u16, body: &Value) -> Answer {
    response(status, &[("content-type", "application/json".to_owned())], body.to_string())
}

/// The user and the password of HTTP Basic, with a colon between them.
pub(crate) fn basic(value: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(value.strip_prefix("Basic ")?).ok()?).ok()
}

/// The parameters of a query.
fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.replace("%3A", ":"))).collect()
}
