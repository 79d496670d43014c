//! Nodes in the API server's binary format, which costs the API server and this process a fraction of what JSON does:
//! a Node is 10 to 20 kB, nearly all of it images and managed fields, which are skipped here without a look.
//!
//! [`client`] stands between kube's client and the one that sends. It asks for protobuf, and passes on the few fields that are
//! read as JSON. So lists and watches work as with any other client. API servers may also answer in JSON, which is
//! understood as well.

mod given;
mod messages;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _, future::ready};
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio_util::{
    codec::{Decoder, FramedRead, LengthDelimitedCodec},
    io::StreamReader,
};
use tower::BoxError;

use given::GivenNodes;

/// The content type of protobuf, as in `--kube-api-content-type`.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The body of a response.
type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// The `Accept` header that client-go sends.
const ACCEPTED: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf,application/json");

/// The `Accept` header that kube sends for lists and watches.
const JSON: &str = "application/json";

/// The longest event of a watch in bytes: client-go's limit. etcd keeps no object beyond 1.5 MB.
const LONGEST_EVENT: usize = 16 << 20;

/// Wraps the client with [`client`] if `--kube-api-content-type` asks for protobuf, and returns it unchanged
/// otherwise.
pub fn client_for(content_type: &str, client: Client) -> Client {
    if content_type == PROTOBUF { self::client(client) } else { client }
}

/// A client that requests lists and watches of Nodes as protobuf, unless the request asks for something other
/// than JSON. All other requests go through `client` unchanged. Of a Node it returns only the fields that
/// [`Node`](super::Node) keeps. If only the version of a Node has changed, it returns only the version, which
/// [`watch_nodes`](super::watch_nodes) understands. So each watch needs a client of its own, which makes no
/// other list or watch.
pub fn client(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let given = Arc::new(Mutex::new(GivenNodes::default()));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (client, given) = (client.clone(), given.clone());
        async move {
            let is_for_us = request.method() == Method::GET
                && request.uri().path() == "/api/v1/nodes"
                && request.headers().get(header::ACCEPT).is_none_or(|accepted| accepted == JSON);
            if is_for_us {
                request.headers_mut().insert(header::ACCEPT, ACCEPTED);
                begin(&mut given.lock(), request.uri().query().unwrap_or_default());
            }
            let answer = client.send(request).await.map_err(BoxError::from)?;
            if is_for_us { in_json(answer, given).await } else { Ok(answer.map(as_it_is)) }
        }
    });
    Client::new(service, namespace)
}

/// Drops from `given` what does not count for this request any more.
fn begin(given: &mut GivenNodes, query: &str) {
    let parameter = |name: &str| {
        form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value)
    };
    if parameter("watch").is_some() {
        given.keep_until(parameter("resourceVersion").and_then(|version| version.parse().ok()));
    } else if parameter("continue").is_none() {
        given.clear();
    }
}

/// The response with its body in JSON.
async fn in_json(
    answer: Response<Body>,
    given: Arc<Mutex<GivenNodes>>,
) -> Result<Response<AnswerBody>, BoxError> {
    let content_type = answer.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with(PROTOBUF) {
        // An answer in another form is passed on as it is. What it says is not known here.
        given.lock().clear();
        return Ok(answer.map(as_it_is));
    }
    let is_stream = content_type.contains("stream=watch");
    let (mut head, body) = answer.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    let body = if is_stream {
        events_in_json(body, given)
    } else {
        let bytes = body.collect().await?.to_bytes();
        let json = match messages::object_in_json(bytes.clone(), &mut given.lock()) {
            Ok(json) => Bytes::from(json),
            // Only the status of a refusal matters.
            Err(_) if !head.status.is_success() => bytes,
            Err(error) => return Err(error.into()),
        };
        Full::new(json).map_err(BoxError::from).boxed_unsync()
    };
    Ok(Response::from_parts(head, body))
}

fn as_it_is(body: Body) -> AnswerBody {
    body.map_err(BoxError::from).boxed_unsync()
}

/// The events of a watch as lines of JSON. An event that cannot be read becomes a line that cannot be read, and ends the
/// watch: later events would move the watch past the lost one.
fn events_in_json(body: Body, given: Arc<Mutex<GivenNodes>>) -> AnswerBody {
    // kube tells by the error's source and text what broke a watch off, so the error is kept as it is.
    let bytes = body.into_data_stream().map_err(std::io::Error::other);
    let events = FramedRead::new(StreamReader::new(bytes), Events::new());
    let lines = events.scan(false, move |has_ended, event| {
        let line = match event {
            _ if *has_ended => return ready(None),
            Ok(event) => {
                messages::event_in_json(event.freeze(), &mut given.lock()).map_err(|e| e.to_string())
            }
            // Too long for one event. Where the next one begins is not known then.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(error.to_string()),
            Err(error) => return ready(Some(Err(BoxError::from(error)))),
        };
        let line = line.unwrap_or_else(|error| {
            *has_ended = true;
            // What kube makes of the line does not say it: a value that does not fit is never told.
            tracing::warn!(error, "an event about a Node cannot be read");
            b"null\n".to_vec()
        });
        ready(Some(Ok(Frame::data(Bytes::from(line)))))
    });
    StreamBody::new(lines).boxed_unsync()
}

/// Each event has its length before it, in four bytes, the highest first. If the stream ends in the middle of an event, that
/// event is dropped, as kube does with half a line of JSON.
struct Events(LengthDelimitedCodec);

impl Events {
    fn new() -> Self {
        Self(LengthDelimitedCodec::builder().max_frame_length(LONGEST_EVENT).new_codec())
    }
}

impl Decoder for Events {
    type Item = BytesMut;
    type Error = std::io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> std::io::Result<Option<BytesMut>> {
        self.0.decode(bytes)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> std::io::Result<Option<BytesMut>> {
        self.0.decode(bytes)
    }
}

#[cfg(test)]
mod tests;
