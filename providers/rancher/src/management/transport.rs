//! The Kubernetes API of the management cluster, which the Rancher server answers below `/apis`: with the same URL, token and
//! certificates as `/v3`.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind};
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, StatusCode, header};
use kube::client::Body;
use reqwest::Url;
use tower::Service;

use crate::norman::client::Client;

/// Statuses that have a meaning for whoever asks: there is no such kind or object, and a watch that has to begin anew.
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

/// The error of a call, in the contract's terms. Those of [`Client::forward`] come through as they are.
pub(super) fn error(error: &(dyn std::error::Error + 'static)) -> Error {
    Error::find(error).cloned().unwrap_or_else(|| {
        let words = format!("the Kubernetes API of the server: {}", cloudprovider::error_chain(error));
        Error::new(ErrorKind::Unavailable, words)
    })
}

/// Whether the server says that there is no such kind, or no such object.
pub(super) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == StatusCode::NOT_FOUND.as_u16())
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
}
