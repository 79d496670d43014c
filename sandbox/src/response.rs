//! Responses.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use serde_json::Value;

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, std::io::Error>;

pub(crate) fn full(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response =
        Response::new(Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response with a JSON document.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    full(status, value.to_string().into())
}

/// A response in plain text.
pub(crate) fn text(text: &'static str) -> Response<ResponseBody> {
    let mut response = full(StatusCode::OK, Bytes::from_static(text.as_bytes()));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
