//! The Kubernetes API of the management cluster, which the Rancher server answers below `/apis`: with the
//! same URL, token and certificates as `/v3`.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, error_chain};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, header};
use kube::{
    client::Body,
    core::{ApiResource, Status},
    runtime::watcher,
};
use reqwest::Url;
use tower::Service;

use crate::norman::{
    client::Client,
    reply::{plain, unavailable},
};

/// Statuses that callers read: the object does not exist, and the watch has to begin anew.
const PASSED: [u16; 2] = [404, 410];

/// The time for an answer, and for a watch after its server-side end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of the Kubernetes API below the URL of a Rancher server. It must be made in a runtime.
pub(super) fn kubernetes(client: &Client, url: &str) -> kube::Client {
    kube::Client::new(Transport { client: client.clone(), url: url.to_owned() }, "default")
}

#[derive(Clone, Debug)]
struct Transport {
    client: Client,
    /// The URL of the server, without a slash at its end.
    url: String,
}

impl Service<Request<Body>> for Transport {
    type Response = Response<reqwest::Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client.clone();
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let url = Url::parse(&format!("{}{path}", self.url));
        let accept = request.headers().get(header::ACCEPT).cloned();
        let timeout = ANSWER_TIMEOUT + watch_timeout(path);
        async move {
            let url = url.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
            client.forward(url, accept, timeout, &PASSED).await.map(Response::from)
        }
        .boxed()
    }
}

/// How long the server keeps a watch open.
fn watch_timeout(path: &str) -> Duration {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let seconds = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds=")?.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// The longest pause that an event of a watch may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10 * 60);

/// The reason that the library makes up for an answer that is no `Status`.
const NO_STATUS: &str = "Failed to parse error data";

/// The error of a call, in the contract's terms. Those of [`Client::forward`] come through as they are.
pub(super) fn error(error: &kube::Error) -> Error {
    match (Error::find(error), error) {
        (Some(found), _) => found.clone(),
        (None, kube::Error::Api(status)) => of_status(status),
        (None, other) => {
            let words = plain(&error_chain(other));
            unavailable(format!("the Kubernetes API of the server: {words}"))
        }
    }
}

/// The error of a watch, in the contract's terms.
pub(super) fn watch_error(error: &watcher::Error) -> Error {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => self::error(cause),
        watcher::Error::WatchError(status) => of_status(status),
        watcher::Error::NoResourceVersion => {
            unavailable("the Kubernetes API of the server: an object has no resourceVersion")
        }
    }
}

/// Whether the server has forgotten from where a watch was to go on, so that a listing is needed.
pub(super) fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            status.code == 410
        }
        _ => false,
    }
}

/// Whether the API server itself says that this object does not exist. A 404 of a proxy, of Rancher or of a
/// server without this kind of object says nothing about it.
pub(super) fn is_absent(error: &kube::Error, resource: &ApiResource, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404
        && status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|details| {
            details.name == name && details.group == resource.group && details.kind == resource.plural
        })
}

fn of_status(status: &Status) -> Error {
    let reason = Some(status.reason.as_str()).filter(|reason| *reason != NO_STATUS).unwrap_or_default();
    let said: Vec<_> =
        [reason, &status.message].into_iter().map(plain).filter(|words| !words.is_empty()).collect();
    let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join(": ")) };
    let after = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|after| *after > 0);
    let (kind, words) = match status.code {
        401 => (ErrorKind::Unauthenticated, "refuses the token (401)".to_owned()),
        403 => (ErrorKind::PermissionDenied, "does not allow this (403)".to_owned()),
        404 => (ErrorKind::Unavailable, "does not have this (404)".to_owned()),
        410 => (ErrorKind::Unavailable, "has forgotten where the watch was (410)".to_owned()),
        429 => (ErrorKind::RateLimited, "has too many requests (429)".to_owned()),
        0 => (ErrorKind::Unavailable, "answers with an error that is no Status".to_owned()),
        code => (ErrorKind::Unavailable, format!("fails ({code})")),
    };
    let hint = if status.code == 404 {
        ": if it should, check that every proxy before the server passes /apis on"
    } else {
        ""
    };
    let error = Error::new(kind, format!("the Kubernetes API of the server {words}{said}{hint}"));
    let after = after.map(|seconds| Duration::from_secs(seconds.into()).min(MAX_RETRY_AFTER));
    after.into_iter().fold(error, Error::with_retry_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_has_its_own_time() {
        for (path, seconds) in [
            ("/apis/x", 0),
            ("/apis/x?watch=true&timeoutSeconds=60&allowWatchBookmarks=true", 60),
            ("/apis/x?timeoutSeconds=soon", 0),
        ] {
            assert_eq!(watch_timeout(path), Duration::from_secs(seconds), "{path}");
        }
    }

    #[test]
    fn errors_of_the_transport_keep_their_kind() {
        let refused =
            Error::new(ErrorKind::RateLimited, "slow down").with_retry_after(Duration::from_secs(7));
        let wrapped = kube::Error::Service(Box::new(refused));
        let found = error(&wrapped);
        assert_eq!(
            (found.kind(), found.retry_after()),
            (ErrorKind::RateLimited, Some(Duration::from_secs(7)))
        );
        assert_eq!(error(&kube::Error::LinesCodecMaxLineLengthExceeded).kind(), ErrorKind::Unavailable);
    }
    /// As the library makes it of a page.
    fn page(code: u16, body: &str) -> Status {
        Status::failure(body, NO_STATUS).with_code(code)
    }

    #[test]
    fn no_page_gets_into_a_message() {
        let page = |code| page(code, &format!("<html><body>{}</body></html>", "secret ".repeat(5000)));
        for found in [
            error(&kube::Error::Api(page(404).boxed())),
            watch_error(&watcher::Error::WatchStartFailed(kube::Error::Api(page(410).boxed()))),
            watch_error(&watcher::Error::WatchError(page(500).boxed())),
        ] {
            let words = found.report();
            assert_eq!(found.kind(), ErrorKind::Unavailable, "{words}");
            assert!(words.contains("an HTML page") && !words.contains("secret"), "{words}");
        }
        let long = Status::failure(&"words ".repeat(5000), "InternalError").with_code(500).boxed();
        assert!(watch_error(&watcher::Error::WatchError(long)).report().len() < 400);
    }

    #[test]
    fn a_status_keeps_its_words_and_its_meaning() {
        for (code, kind) in [
            (401, ErrorKind::Unauthenticated),
            (403, ErrorKind::PermissionDenied),
            (404, ErrorKind::Unavailable),
            (429, ErrorKind::RateLimited),
            (503, ErrorKind::Unavailable),
            (0, ErrorKind::Unavailable),
        ] {
            let status = Status::failure("its words", "ItsReason").with_code(code).boxed();
            let found = watch_error(&watcher::Error::WatchError(status));
            assert_eq!(found.kind(), kind, "{code}");
            assert!(found.report().contains("(ItsReason: its words)"), "{}", found.report());
        }
    }

    #[test]
    fn only_a_watch_expires() {
        let gone = || Status::failure("too old resource version", "Expired").with_code(410).boxed();
        assert!(is_expired(&watcher::Error::WatchError(gone())));
        assert!(is_expired(&watcher::Error::WatchStartFailed(kube::Error::Api(gone()))));
        assert!(!is_expired(&watcher::Error::InitialListFailed(kube::Error::Api(gone()))));
        assert!(!is_expired(&watcher::Error::WatchError(page(500, "").boxed())));
    }
}
