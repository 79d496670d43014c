//! Requests by HTTP, and WebSockets for events.

use std::{sync::Arc, time::Duration};

use futures::{SinkExt as _, StreamExt as _};
use http::header;
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::sleep;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};
use tokio_util::sync::CancellationToken;

use super::{
    Cattle, Fault,
    requests::{Request, admit, answer, parts},
};
use crate::fake_server::{Answer, Asked, Connection, Connections, Server, basic, json_response, response};

/// How often a subscriber gets a ping.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// How often a request that is held looks whether it may go on.
const HOLD_INTERVAL: Duration = Duration::from_millis(5);

impl Server for Cattle {
    fn connections(&self) -> &Connections {
        &self.connections
    }

    async fn respond(
        self: Arc<Self>,
        mut request: http::Request<Incoming>,
        connection: Connection,
    ) -> Answer {
        let body =
            request.body_mut().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let asked = Asked::of(&request, &connection);
        let key = asked.authorization.as_deref().and_then(basic);
        let key = key.and_then(|key| {
            key.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
        });
        let known = Request { asked, key, body: serde_json::from_slice(&body).unwrap_or(Value::Null) };
        let all = format!("{:?} {}", request.uri(), known.body);
        while self.cloud().held.as_ref().is_some_and(|held| all.contains(held)) {
            sleep(HOLD_INTERVAL).await;
        }
        if let Err(fault) = admit(&mut self.cloud(), &known) {
            return fault.answer();
        }
        if parts(&known.asked).is_some_and(|parts| parts == ["subscribe"]) {
            return subscribe(request, &self, connection.broken);
        }
        let outcome = answer(&mut self.cloud(), &known);
        match outcome {
            Ok((status, body)) => json_response(status, &body),
            Err(fault) => fault.answer(),
        }
    }
}

fn subscribe(request: http::Request<Incoming>, cattle: &Cattle, broken: CancellationToken) -> Answer {
    let asks_for_changes =
        request.uri().query().is_some_and(|query| query.contains("eventNames=resource.change"));
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).cloned();
    let (Some(key), true, false) = (key, asks_for_changes, cattle.cloud().no_events) else {
        return Fault::error(405, "MethodNotAllow").answer();
    };
    let mut events = cattle.events.subscribe();
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
    tokio::spawn(broken.run_until_cancelled_owned(work));
    let headers = [
        ("connection", "Upgrade".to_owned()),
        ("upgrade", "websocket".to_owned()),
        ("sec-websocket-accept", derive_accept_key(key.as_bytes())),
    ];
    response(101, &headers, String::new())
}
