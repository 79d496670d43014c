//! A proxy before Harvester's API server, which loses calls, gives other answers or is away, as a test says.

use std::{io, sync::Arc};

use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::private_authority::private_authority;

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It is lost on its way, and has no effect.
    Before,
    /// It has its effect, and the answer is lost.
    After,
    /// Something else answers, with this status and body.
    Answer(u16, String),
}

/// Decides about the call with this number, from 0, and method.
type Rule = Box<dyn FnMut(usize, &Method) -> Option<Fault> + Send>;

/// A running proxy. It ends with this value.
pub(crate) struct Front {
    pub(crate) url: String,
    /// The certificate of its authority, in PEM.
    pub(crate) ca: String,
    state: Arc<Mutex<State>>,
    _stop: DropGuard,
}

#[derive(Default)]
pub(crate) struct State {
    /// The methods of the calls so far.
    pub(crate) calls: Vec<Method>,
    rule: Option<Rule>,
    is_away: bool,
    connections: CancellationToken,
}

impl Front {
    /// A proxy of this server.
    pub(crate) async fn start(server: String) -> Self {
        let (acceptor, ca) = private_authority();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        // The proxy trusts the server: nobody is between the two.
        let builder =
            reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().http1_only();
        let client = builder.build().expect("a client");
        let (state, stop) = (Arc::new(Mutex::new(State::default())), CancellationToken::new());
        let (shared, stopped) = (Arc::clone(&state), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (is_away, connections) = {
                    let state = shared.lock();
                    (state.is_away, state.connections.clone())
                };
                if is_away {
                    continue;
                }
                let served =
                    serve(stream, acceptor.clone(), Arc::clone(&shared), client.clone(), server.clone());
                let stopped = stopped.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = served => {}
                        () = connections.cancelled() => {}
                        () = stopped.cancelled() => {}
                    }
                });
            }
        }));
        Self { url, ca, state, _stop: stop.drop_guard() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Forgets the calls so far, and decides about the next ones.
    pub(crate) fn fault_with(&self, rule: impl FnMut(usize, &Method) -> Option<Fault> + Send + 'static) {
        let mut state = self.state();
        state.calls.clear();
        state.rule = Some(Box::new(rule));
    }

    /// Lets all calls pass.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.calls.clear();
        state.rule = None;
    }

    /// Breaks all connections and refuses new ones.
    pub(crate) fn go_away(&self) {
        let mut state = self.state();
        state.is_away = true;
        std::mem::take(&mut state.connections).cancel();
    }

    /// Accepts connections again.
    pub(crate) fn come_back(&self) {
        self.state().is_away = false;
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    state: Arc<Mutex<State>>,
    client: reqwest::Client,
    server: String,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| answer(request, &state, &client, &server));
    // Broken connections are the point of this proxy.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// An error ends the connection.
async fn answer(
    request: Request<Incoming>,
    state: &Mutex<State>,
    client: &reqwest::Client,
    server: &str,
) -> io::Result<Response<Full<Bytes>>> {
    let lost = || io::Error::from(io::ErrorKind::ConnectionReset);
    let (parts, body) = request.into_parts();
    let fault = {
        let state = &mut *state.lock();
        let number = state.calls.len();
        state.calls.push(parts.method.clone());
        state.rule.as_mut().and_then(|rule| rule(number, &parts.method))
    };
    match fault {
        Some(Fault::Before) => return Err(lost()),
        Some(Fault::Answer(status, body)) => {
            let answer = Response::builder().status(status).body(Full::new(body.into()));
            return answer.map_err(io::Error::other);
        }
        Some(Fault::After) | None => {}
    }
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = HeaderMap::new();
    for name in [http::header::AUTHORIZATION, http::header::CONTENT_TYPE, http::header::ACCEPT] {
        headers.extend(parts.headers.get(&name).map(|value| (name, value.clone())));
    }
    let passed = client.request(parts.method, format!("{server}{path}")).headers(headers).body(body);
    let reply = passed.send().await.map_err(io::Error::other)?;
    let status = reply.status();
    let body = reply.bytes().await.map_err(io::Error::other)?;
    if matches!(fault, Some(Fault::After)) {
        return Err(lost());
    }
    Response::builder().status(status).body(Full::new(body)).map_err(io::Error::other)
}
