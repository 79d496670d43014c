//! Connections, and what is passed on to the API server.

use std::{convert::Infallible, future::pending, sync::Weak};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    AUTHENTICATED, Fault, Shared, Upstream,
    answers::{Request, Rights, admit, answer},
};

type Body = UnsyncBoxBody<Bytes, reqwest::Error>;

/// Serves connections until `stop` is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Weak<Shared>,
    stop: CancellationToken,
) {
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        let Some(strong) = shared.upgrade() else { return };
        if strong.server().is_away {
            continue;
        }
        let (token, shared, acceptor) = (strong.connection_token(), shared.clone(), acceptor.clone());
        tokio::spawn(token.run_until_cancelled_owned(async move {
            match acceptor {
                None => connection(stream, "http", shared).await,
                Some(acceptor) => {
                    // Fails if the client does not trust the certificate.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, "https", shared).await;
                    }
                }
            }
        }));
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    scheme: &'static str,
    shared: Weak<Shared>,
) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(respond(request, scheme, shared).await) }
    });
    // A connection that breaks is the client's matter.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(request: http::Request<Incoming>, scheme: &str, shared: Weak<Shared>) -> Response<Body> {
    let Some(shared) = shared.upgrade() else { return of_fault(&Fault::error(503, "ServerError")) };
    if shared.server().is_away {
        // The connection was being served when it was broken, and ends as soon as this waits.
        pending::<()>().await;
    }
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let query = request.uri().query().unwrap_or_default();
    let known = Request {
        origin: format!("{scheme}://{}", text(header::HOST).unwrap_or_default()),
        path: request.uri().path().to_owned(),
        query: query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(a, b)| (a.to_owned(), b.replace("%3A", ":")))
            .collect(),
        token: text(header::AUTHORIZATION).and_then(token),
    };
    let admitted = admit(&mut shared.server(), &known);
    match admitted {
        Ok(rights) => {
            let mut answer = respond_to(&shared, &request, &known, rights).await;
            answer.headers_mut().insert(AUTHENTICATED, HeaderValue::from_static("true"));
            answer
        }
        Err(fault) => of_fault(&fault),
    }
}

/// The answer to a user whom the server knows.
async fn respond_to(
    shared: &Shared,
    request: &http::Request<Incoming>,
    known: &Request,
    rights: Rights,
) -> Response<Body> {
    if known.path.starts_with("/apis/management.cattle.io") && rights != Rights::All {
        return of_fault(&Fault::for_administrators());
    }
    let first = known.path.split('/').nth(1).unwrap_or_default();
    if matches!(first, "api" | "apis") && request.method() == http::Method::GET {
        return match &shared.upstream {
            Some(upstream) => pass_on(upstream, request, rights).await,
            None => of_fault(&Fault::no_such_object(&known.path)),
        };
    }
    if first != "v3" {
        // The pages for browsers answer everything else.
        return of_fault(&Fault::login_page());
    }
    if request.method() != http::Method::GET {
        return of_fault(&Fault::error(405, "MethodNotAllow"));
    }
    let answered = answer(&shared.server(), known, rights);
    match answered {
        Ok(body) => response(200, &[("content-type", "application/json".to_owned())], body.to_string()),
        Err(fault) => of_fault(&fault),
    }
}

/// The token of `Bearer <token>`, or of HTTP Basic with the token's name and secret.
fn token(value: &str) -> Option<String> {
    if let Some(token) = value.strip_prefix("Bearer ") {
        return Some(token.to_owned());
    }
    String::from_utf8(BASE64_STANDARD.decode(value.strip_prefix("Basic ")?).ok()?).ok()
}

/// The API server's answer, as it arrives. Its RBAC decides for the user.
async fn pass_on(upstream: &Upstream, request: &http::Request<Incoming>, rights: Rights) -> Response<Body> {
    let [all, others] = &upstream.tokens;
    let token = if rights == Rights::All { all } else { others };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut passed = upstream.client.get(format!("{}{path}", upstream.url)).bearer_auth(token);
    if let Some(accept) = request.headers().get(header::ACCEPT) {
        passed = passed.header(header::ACCEPT, accept);
    }
    match passed.send().await {
        Ok(answer) => {
            let (parts, body) = Response::<reqwest::Body>::from(answer).into_parts();
            let mut answer = Response::new(body.boxed_unsync());
            *answer.status_mut() = parts.status;
            for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
                if let Some(value) = parts.headers.get(&name) {
                    answer.headers_mut().insert(name, value.clone());
                }
            }
            answer
        }
        Err(_) => of_fault(&Fault::error(503, "ClusterUnavailable")),
    }
}

fn of_fault(fault: &Fault) -> Response<Body> {
    response(fault.status, &fault.headers, fault.body.clone())
}

fn response(status: u16, headers: &[(&'static str, String)], body: String) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    response.body(body).expect("a response")
}
