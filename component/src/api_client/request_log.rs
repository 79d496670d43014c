//! `-v=6`: one log line for each request, in the words of client-go.

use http::{Request, Response, Uri};
use kube::client::Body;
use tokio::time::Instant;

use super::{answer::AnswerBody, fault::describe};

/// The query parameters that are shown. The continue token of a page is long, and other parameters may be
/// secret.
const SHOWN: [&str; 8] = [
    "watch",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];

/// A request in flight.
pub(super) struct RequestLog {
    verb: String,
    path: String,
    start: Instant,
}

impl RequestLog {
    /// `None` if the log does not show requests.
    pub(super) fn of(request: &Request<Body>) -> Option<Self> {
        tracing::enabled!(tracing::Level::TRACE).then(|| Self {
            verb: request.method().to_string(),
            path: shown(request.uri()),
            start: Instant::now(),
        })
    }

    /// Logs that the head of the response has arrived, or that the request failed.
    pub(super) fn answered(&self, outcome: &kube::Result<Response<AnswerBody>>) {
        let (verb, path) = (self.verb.as_str(), self.path.as_str());
        let milliseconds = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        match outcome {
            Ok(response) => {
                let status = response.status();
                tracing::trace!(verb, path, %status, milliseconds, "Response");
            }
            Err(error) => tracing::trace!(verb, path, error = describe(error), milliseconds, "Response"),
        }
    }
}

/// Path and query, without the host and any user before it.
fn shown(uri: &Uri) -> String {
    let is_shown = |pair: &&str| SHOWN.contains(&pair.split_once('=').map_or(*pair, |(key, _)| key));
    let query: Vec<&str> = uri.query().unwrap_or_default().split('&').filter(is_shown).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}{mark}{}", uri.path(), query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_without_what_may_be_secret() {
        for (uri, expected) in [
            ("https://u:hunter2@api:6443/api/v1/nodes", "/api/v1/nodes"),
            (
                "/api/v1/nodes?&watch=true&resourceVersion=7&token=hunter2",
                "/api/v1/nodes?watch=true&resourceVersion=7",
            ),
            (
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn&continue=x",
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn",
            ),
            ("/api/v1/nodes?access_token=hunter2", "/api/v1/nodes"),
        ] {
            assert_eq!(shown(&uri.parse().expect("a URI")), expected);
        }
    }
}
