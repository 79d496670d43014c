//! Connections: HTTP, and WebSockets for events.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Weak},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::{SinkExt as _, StreamExt as _};
use http::{Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};
use tokio_util::sync::CancellationToken;

use super::{
    Fault, Shared,
    requests::{Request, admit, answer, parts},
};

/// How often a subscriber gets a ping.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// How often a request that is held looks whether it may go on.
const HOLD_INTERVAL: Duration = Duration::from_millis(5);

/// Serves connections until `stop` is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Weak<Shared>,
    stop: CancellationToken,
) {
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        let Some(strong) = shared.upgrade() else { return };
        if strong.cloud().is_away {
            continue;
        }
        let (token, shared, acceptor) = (strong.connection_token(), shared.clone(), acceptor.clone());
        tokio::spawn(async move {
            let work = async {
                match acceptor {
                    None => connection(stream, "http", shared, token.clone()).await,
                    Some(acceptor) => {
                        // Fails if the client does not trust the certificate.
                        if let Ok(stream) = acceptor.accept(stream).await {
                            connection(stream, "https", shared, token.clone()).await;
                        }
                    }
                }
            };
            token.run_until_cancelled(work).await;
        });
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    scheme: &'static str,
    shared: Weak<Shared>,
    token: CancellationToken,
) {
    let service = service_fn(move |request| {
        let (shared, token) = (shared.clone(), token.clone());
        async move { Ok::<_, Infallible>(respond(request, scheme, shared, token).await) }
    });
    // A connection that breaks is the client's matter.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn respond(
    mut request: http::Request<Incoming>,
    scheme: &str,
    shared: Weak<Shared>,
    token: CancellationToken,
) -> Response<Full<Bytes>> {
    let Some(shared) = shared.upgrade() else { return of_fault(&Fault::error(503, "ServerError")) };
    if shared.cloud().is_away {
        // The connection was being served when it was broken, and ends as soon as this waits.
        pending::<()>().await;
    }
    let body =
        request.body_mut().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let query = request.uri().query().unwrap_or_default();
    let known = Request {
        method: request.method().clone(),
        origin: format!("{scheme}://{}", text(header::HOST).unwrap_or_default()),
        path: request.uri().path().to_owned(),
        query: query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect(),
        key: text(header::AUTHORIZATION).and_then(basic),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let all = format!("{:?} {}", request.uri(), known.body);
    while shared.cloud().held.as_ref().is_some_and(|held| all.contains(held)) {
        sleep(HOLD_INTERVAL).await;
    }
    if let Err(fault) = admit(&mut shared.cloud(), &known) {
        return of_fault(&fault);
    }
    if parts(&known.path).is_some_and(|parts| parts == ["subscribe"]) {
        return subscribe(request, &shared, token);
    }
    let outcome = answer(&mut shared.cloud(), &known);
    match outcome {
        Ok((status, body)) => {
            response(status, &[("content-type", "application/json".to_owned())], body.to_string())
        }
        Err(fault) => of_fault(&fault),
    }
}

/// The user and the password of HTTP Basic.
fn basic(value: &str) -> Option<(String, String)> {
    let decoded = BASE64_STANDARD.decode(value.strip_prefix("Basic ")?).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    text.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

fn subscribe(
    request: http::Request<Incoming>,
    shared: &Arc<Shared>,
    token: CancellationToken,
) -> Response<Full<Bytes>> {
    let asks_for_changes =
        request.uri().query().is_some_and(|query| query.contains("eventNames=resource.change"));
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).cloned();
    let (Some(key), true, false) = (key, asks_for_changes, shared.cloud().no_events) else {
        return of_fault(&Fault::error(405, "MethodNotAllow"));
    };
    let mut events = shared.events.subscribe();
    let work = async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let socket: WebSocketStream<TokioIo<Upgraded>> =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        let (mut sink, mut stream) = socket.split();
        let mut ping = tokio::time::interval(PING_INTERVAL);
        loop {
            let message = tokio::select! {
                _ = ping.tick() => r#"{"name":"ping"}"#.to_owned(),
                event = events.recv() => match event {
                    Ok(event) => event,
                    Err(_) => return,
                },
                message = stream.next() => match message {
                    Some(Ok(_)) => continue,
                    _ => return,
                },
            };
            if sink.send(Message::text(message)).await.is_err() {
                return;
            }
        }
    };
    tokio::spawn(async move { token.run_until_cancelled(work).await });
    let headers = [
        ("connection", "Upgrade".to_owned()),
        ("upgrade", "websocket".to_owned()),
        ("sec-websocket-accept", derive_accept_key(key.as_bytes())),
    ];
    response(101, &headers, String::new())
}

fn of_fault(fault: &Fault) -> Response<Full<Bytes>> {
    response(fault.status, &fault.headers, fault.body.clone())
}

fn response(status: u16, headers: &[(&'static str, String)], body: String) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(Full::new(Bytes::from(body))).expect("a response")
}
