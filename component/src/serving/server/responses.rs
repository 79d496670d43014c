//! Responses, in upstream's words.

use std::{
    any::Any,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use serde_json::{Value, json};

use super::user::User;

pub(super) type Answer = Response<AnswerBody>;

/// Bytes that are passed to a connection at a time. Any more would not be counted as its memory.
pub(super) const PIECE: usize = 8 << 10;

/// The body of a response, in pieces, at the pace at which the client reads them.
pub(super) struct AnswerBody {
    rest: Bytes,
    /// Dropped with the body. The connection drops the body after the last piece was passed on, or if the
    /// client is gone.
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerBody").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

impl AnswerBody {
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Keeps `what` until the client has read the body.
    #[must_use]
    pub(super) fn keeping(mut self, what: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(what));
        self
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = if self.rest.len() <= PIECE {
            std::mem::take(&mut self.rest)
        } else {
            // A copy: a slice would keep the whole body alive.
            Bytes::copy_from_slice(&self.rest.split_to(PIECE))
        };
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len().try_into().unwrap_or(u64::MAX))
    }
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";

/// A response with a body.
pub(super) fn body(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(AnswerBody { rest: body.into(), kept: Vec::new() });
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

/// A response with this text as its body.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    body(status, TEXT, text)
}

/// A JSON document.
pub(super) fn json(status: StatusCode, json: &Value) -> Answer {
    let mut text = serde_json::to_vec_pretty(json).unwrap_or_default();
    text.push(b'\n');
    body(status, JSON, text)
}

pub(super) fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(super) fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n");
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The client accepts no available format. `offered`: the available media types.
pub(super) fn not_acceptable(offered: &str) -> Answer {
    let message = format!("only the following media types are accepted: {offered}");
    status(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, None)
}

/// The credentials are invalid.
pub(super) fn unauthorized() -> Answer {
    status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned(), None)
}

/// Too many requests or reviews are in progress.
pub(super) fn too_many_requests() -> Answer {
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// The user is not authorized. `reason` is the reviewer's, if there is one.
pub(super) fn forbidden(user: &User, verb: &str, path: &str, reason: &str) -> Answer {
    // `{:?}` quotes as Go's `%q` does for all characters that a path can contain.
    let message = format!("User {:?} cannot {verb} path {path:?}", user.name);
    let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    status(
        StatusCode::FORBIDDEN,
        "Forbidden",
        format!("forbidden: {message}{reason}"),
        Some(("details", json!({}))),
    )
}

/// The authorization failed.
pub(super) fn internal_error(uri: &str, error: &str) -> Answer {
    let message = format!("Internal Server Error: {uri:?}: {error}");
    let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text(StatusCode::INTERNAL_SERVER_ERROR, message + "\n")
}

fn status(code: StatusCode, reason: &str, message: String, extra: Option<(&str, Value)>) -> Answer {
    let mut document = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    if let Some((key, value)) = extra {
        document[key] = value;
    }
    json(code, &document)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn read(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.expect("no error").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn upstreams_words() {
        let document: Value =
            serde_json::from_str(&read(forbidden(&User::anonymous(), "get", "/metrics", "")).await)
                .expect("JSON");
        assert_eq!(
            document,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "details": {},
                "message": "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
                "reason": "Forbidden", "code": 403,
            })
        );
        let answer = read(forbidden(&User::anonymous(), "get", "/<b>", "no such rule")).await;
        assert!(answer.contains("path \\\"/&lt;b&gt;\\\": no such rule"), "{answer}");
        assert_eq!(
            read(internal_error("/metrics", "away")).await,
            "Internal Server Error: \"/metrics\": away\n"
        );
        assert!(read(unauthorized()).await.contains("\"message\": \"Unauthorized\""));
    }

    #[tokio::test]
    async fn a_body_comes_in_pieces_and_keeps_until_it_is_dropped() {
        let kept = std::sync::Arc::new(());
        let text: Vec<u8> = (0..40_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        let mut answer = body(StatusCode::OK, TEXT, text.clone()).into_body().keeping(kept.clone());
        let mut read = Vec::new();
        while let Some(frame) = answer.frame().await {
            read.extend_from_slice(&frame.expect("no error").into_data().expect("data"));
        }
        assert_eq!(read, text);
        assert_eq!(std::sync::Arc::strong_count(&kept), 2, "the last piece may still wait");
        drop(answer);
        let unread = body(StatusCode::OK, TEXT, text).into_body().keeping(kept.clone());
        drop(unread);
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    }
}
