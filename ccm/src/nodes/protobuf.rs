//! Nodes in the API server's binary format, which costs the API server and this process a fraction of what JSON does:
//! a Node is 10 to 20 kB, nearly all of it images and managed fields, which are skipped here without a look.
//!
//! [`client`] stands between kube's client and the one that sends. It asks for protobuf and gives on the few fields that
//! are read as JSON, so that whoever lists and watches need not know. API servers that answer in JSON, as they may, are
//! understood as well.

mod messages;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use tokio_util::{
    codec::{Decoder, FramedRead, LengthDelimitedCodec},
    io::StreamReader,
};
use tower::BoxError;

/// The content type, as `--kube-api-content-type` says it.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The body of an answer.
type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// As client-go asks.
const ACCEPTED: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf,application/json");

/// As kube asks for lists and watches.
const JSON: &str = "application/json";

/// The longest event of a watch in bytes: client-go's limit. etcd keeps no object beyond 1.5 MB.
const LONGEST_EVENT: usize = 16 << 20;

/// [`client`] where `--kube-api-content-type` asks for protobuf, or else the client as it is.
pub fn client_for(content_type: &str, client: Client) -> Client {
    if content_type == PROTOBUF { self::client(client) } else { client }
}

/// A client whose lists and watches of Nodes travel as protobuf, unless the request asks for something else than JSON;
/// everything else goes through `client` as it is. Of a Node it gives only the fields that [`Node`](super::Node) keeps.
pub fn client(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        async move {
            let is_for_us = request.method() == Method::GET
                && request.uri().path() == "/api/v1/nodes"
                && request.headers().get(header::ACCEPT).is_none_or(|accepted| accepted == JSON);
            if is_for_us {
                request.headers_mut().insert(header::ACCEPT, ACCEPTED);
            }
            let answer = client.send(request).await.map_err(BoxError::from)?;
            if is_for_us { in_json(answer).await } else { Ok(answer.map(as_it_is)) }
        }
    });
    Client::new(service, namespace)
}

/// The answer with its body in JSON.
async fn in_json(answer: Response<Body>) -> Result<Response<AnswerBody>, BoxError> {
    let content_type = answer.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with(PROTOBUF) {
        return Ok(answer.map(as_it_is));
    }
    let is_stream = content_type.contains("stream=watch");
    let (mut head, body) = answer.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    let body = if is_stream {
        events_in_json(body)
    } else {
        let bytes = body.collect().await?.to_bytes();
        let json = match messages::object_in_json(bytes.clone()) {
            Ok(json) => Bytes::from(json),
            // What matters of a refusal is its status.
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

/// The events of a watch as lines of JSON. One that cannot be read is a line that cannot be read either, which costs no
/// more than that event.
fn events_in_json(body: Body) -> AnswerBody {
    // kube finds out what broke off a watch by the error's source and text, so the error is kept.
    let bytes = body.into_data_stream().map_err(std::io::Error::other);
    let lines = FramedRead::new(StreamReader::new(bytes), Events::new()).map(|event| {
        let line = messages::event_in_json(event?.freeze()).unwrap_or_else(|error| {
            let text = serde_json::Value::from(error.to_string());
            format!("{text}\n").into_bytes()
        });
        Ok::<_, BoxError>(Frame::data(Bytes::from(line)))
    });
    StreamBody::new(lines).boxed_unsync()
}

/// Events follow each other with their length before each, in four bytes, the highest first. What comes of one when the
/// stream ends in the middle of it is dropped, as kube does with half a line of JSON.
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
