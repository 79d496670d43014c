//! The `tower` service behind the client and the server: turns one HTTP request into one response.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;

use crate::{
    Inner, crd, definition, discovery, faults,
    list::list,
    patch::Patch,
    render::{Renderer, frame},
    request::Target,
    response::{ResponseBody, full, json, text},
    reviews,
    status::{ApiError, ApiResult},
    verbs::{Verb, Written},
    watch::watch,
};

/// The API as a `tower` service; see [`Sandbox::service`](crate::Sandbox::service).
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            inner.handle(&parts, &body).await
        }
        .boxed()
    }
}

fn failure(error: &ApiError) -> Response<ResponseBody> {
    let mut response = json(error.code, &error.to_value());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The error of a broken connection.
fn reset() -> tower::BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by an injected fault").into()
}

impl Inner {
    async fn handle(&self, parts: &Parts, body: &[u8]) -> Result<Response<ResponseBody>, tower::BoxError> {
        if let Some(review) = reviews::answer(parts, body) {
            return Ok(json(StatusCode::CREATED, &review));
        }
        let target = match Target::parse(&self.registry, &parts.method, &parts.uri, &parts.headers) {
            Ok(Some(target)) => target,
            Ok(None) => {
                return Ok(self.other(parts));
            }
            Err(e) => return Ok(failure(&e)),
        };
        let request = faults::Request::from(&target);
        let verdict = self.faults.judge(&target, &request);
        tracing::trace!(?request, "request");
        self.requests.record(request);
        if !verdict.delay.is_zero() {
            tokio::time::sleep(verdict.delay).await;
        }
        if verdict.reset {
            return Err(reset());
        }
        if let Some(error) = &verdict.error {
            return Ok(match target.verb {
                "watch" if verdict.in_stream => full(StatusCode::OK, frame("ERROR", &error.to_value())),
                _ => failure(error),
            });
        }
        let answer = self.serve(&target, parts, body).unwrap_or_else(|e| failure(&e));
        if verdict.lose_response {
            return Err(reset());
        }
        Ok(answer)
    }

    /// Paths outside the resources: discovery, version, health.
    fn other(&self, parts: &Parts) -> Response<ResponseBody> {
        let answer = match parts.method {
            Method::GET => discovery::answer(&self.registry, parts.uri.path()),
            _ => None,
        };
        answer.unwrap_or_else(|| {
            let mut page = text("404 page not found\n");
            *page.status_mut() = StatusCode::NOT_FOUND;
            page
        })
    }

    fn serve(&self, target: &Target, parts: &Parts, body: &[u8]) -> ApiResult<Response<ResponseBody>> {
        let storage = target.kind.storage();
        let stored = self.registry.storage_kind(&storage).unwrap_or_else(|| target.kind.clone());
        let render = Renderer::new(target, &stored);
        let verb = Verb { store: &self.store, target, stored: stored.clone() };
        let written = match target.verb {
            "get" => return Ok(full(StatusCode::OK, render.object(&*verb.get()?))),
            "list" => return Ok(full(StatusCode::OK, render.list(&list(&self.store, target, &stored)?))),
            "watch" => {
                let (drops, spoils) = (self.faults.subscribe_drops(), self.faults.spoils());
                let events = watch(&self.store, target, &storage, render, drops, spoils)?;
                let frames = events.map(|event| event.map(http_body::Frame::data));
                let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                return Ok(response);
            }
            "create" => verb.create(object(parts, body)?)?,
            "update" => verb.update(object(parts, body)?)?,
            "patch" => verb.patch(&Patch::read(&target.kind, &parts.headers, body)?)?,
            "delete" => verb.delete(&delete_options(parts, body)?)?,
            "deletecollection" => {
                let (revision, versions) = verb.delete_collection(&delete_options(parts, body)?)?;
                let page =
                    crate::list::Page { revision, versions, continue_token: String::new(), remaining: None };
                return Ok(full(StatusCode::OK, render.list(&page)));
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        if definition::defines(&stored) && !target.query.dry_run {
            match &written {
                Written::Object(_, entry) => crd::serve(&self.registry, &stored, &entry.value),
                Written::Deleted(_) => crd::end(&self.registry, &self.store, &target.name),
            }
        }
        Ok(match written {
            Written::Object(code, entry) => full(code, render.object(&entry.version)),
            Written::Deleted(details) => json(
                StatusCode::OK,
                &serde_json::json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                }),
            ),
        })
    }
}

/// The object in a body: JSON, or YAML if the content type says so.
fn object(parts: &Parts, body: &[u8]) -> ApiResult<Value> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if content_type.starts_with("application/yaml") {
        let text = String::from_utf8_lossy(body);
        return serde_saphyr::from_str(&text)
            .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")));
    }
    if content_type.contains("protobuf") {
        return Err(ApiError::unsupported_media_type(content_type));
    }
    serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}")))
}

/// `DeleteOptions` from the body; an absent body is an empty one.
fn delete_options(parts: &Parts, body: &[u8]) -> ApiResult<Value> {
    if body.iter().all(u8::is_ascii_whitespace) { Ok(Value::Null) } else { object(parts, body) }
}
