//! Handles one request: authentication, authorization and response.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::{
    authentication::{Authenticator, Credentials},
    authorization::{Authorizer, Decision},
    delegation::Unanswered,
    endpoints::{self, Endpoints},
    peer::Peer,
    refusals::{Full, Refusals},
    responses::{self, Answer},
    seldom::Seldom,
    source::Source,
    turns::Turns,
};
use crate::serving::AccessMetrics;

/// Maximum number of large responses that are prepared at the same time.
const LARGE_AT_ONCE: usize = 2;

/// Maximum number of those for one source.
const LARGE_OF_ONE_SOURCE: usize = 1;

/// How long a request for a large response may wait for its turn.
const LARGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an `Accept` header that is read, in bytes. Browsers send about 100.
const ACCEPT_SIZE: usize = 1024;

/// Pause between two log lines with the same message.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Handles requests.
#[derive(Debug)]
pub(super) struct Handler {
    pub authenticator: Authenticator,
    pub refusals: Refusals,
    authorizer: Authorizer,
    endpoints: Arc<Endpoints>,
    metrics: AccessMetrics,
    large: Turns,
    unauthorized: Seldom,
}

/// A request reduced to the parts that are used: its head can be large, and the request may wait.
#[derive(Debug)]
pub(super) struct Asked {
    request: Request<Incoming>,
    credentials: Credentials,
}

impl Handler {
    pub(super) fn new(
        authenticator: Authenticator,
        authorizer: Authorizer,
        endpoints: Endpoints,
        metrics: AccessMetrics,
    ) -> Self {
        Self {
            authenticator,
            refusals: Refusals::new(),
            authorizer,
            endpoints: Arc::new(endpoints),
            metrics,
            large: Turns::new(LARGE_AT_ONCE, LARGE_OF_ONE_SOURCE),
            unauthorized: Seldom::new(LOG_PAUSE),
        }
    }

    /// Copies the used parts of a request into separate memory. A slice of the received data would keep all
    /// of the data alive.
    pub(super) fn take(&self, request: Request<Incoming>, client: &Peer) -> Asked {
        let (parts, body) = request.into_parts();
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        // It was parsed as a URI before, so this cannot fail.
        *request.uri_mut() = Uri::try_from(path).unwrap_or_default();
        if endpoints::accepts_gzip(&parts.headers) {
            request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let mut size = 0;
        for accepted in parts.headers.get_all(header::ACCEPT) {
            size += accepted.len();
            if size > ACCEPT_SIZE {
                break;
            }
            if let Ok(accepted) = HeaderValue::from_bytes(accepted.as_bytes()) {
                request.headers_mut().append(header::ACCEPT, accepted);
            }
        }
        Asked { request, credentials: self.authenticator.credentials(&parts.headers, client) }
    }

    /// Never fails: errors become responses.
    pub(super) async fn handle(&self, asked: Asked, client: &Peer) -> Answer {
        let Asked { request, credentials } = asked;
        match self.admit(&request, credentials, client).await {
            Ok(path) => self.answer(path, request, client.source).await,
            Err(refusal) => {
                drain(request.into_body()).await;
                refusal
            }
        }
    }

    /// The path, if the client may use it; otherwise the response that refuses the request.
    async fn admit(
        &self,
        request: &Request<Incoming>,
        credentials: Credentials,
        client: &Peer,
    ) -> Result<String, Answer> {
        // Decoded once, here, so that the authorized path is also the served path.
        let Ok(path) = percent_decode_str(request.uri().path()).decode_utf8() else {
            return Err(responses::text(StatusCode::BAD_REQUEST, "400 Bad Request\n"));
        };
        let path = path.into_owned();
        let verb = request.method().as_str().to_ascii_lowercase();
        let start = Instant::now();
        let user = self.authenticator.authenticate(credentials, client).await;
        self.metrics.authenticated(user.as_ref().ok().map(|user| user.name.as_str()), start.elapsed());
        let user = match user {
            Ok(user) => user,
            Err(Unanswered::Busy) => return Err(self.refusals.answer(Full::TokenReviews, client.source)),
            Err(Unanswered::Failed(why)) => {
                tracing::debug!(verb, path, why, "Unable to authenticate the request");
                return Err(responses::unauthorized());
            }
        };
        let start = Instant::now();
        let decision = self.authorizer.authorize(client.source, &user, &verb, &path).await;
        self.metrics.authorized(decision.as_ref().map_or("error", Decision::as_str), start.elapsed());
        match decision {
            Ok(Decision::Allowed) => Ok(path),
            Ok(Decision::Denied(reason) | Decision::NoOpinion(reason)) => {
                tracing::debug!(user = user.name, verb, path, reason, "Forbidden");
                Err(responses::forbidden(&user, &verb, &path, &reason))
            }
            Err(Unanswered::Busy) => Err(self.refusals.answer(Full::AccessReviews, client.source)),
            Err(Unanswered::Failed(why)) => {
                let why = format!("access review: {why}");
                if self.unauthorized.may() {
                    tracing::warn!(user = user.name, verb, path, why, "request cannot be authorized");
                }
                Err(responses::internal_error(request.uri().path(), &why))
            }
        }
    }

    /// The response to an authorized request.
    async fn answer(&self, path: String, request: Request<Incoming>, source: Source) -> Answer {
        if !Endpoints::is_large(&path) {
            return self.endpoints.answer(&path, request).await;
        }
        let answering = async {
            let turn = self.large.take(source).await?;
            let endpoints = self.endpoints.clone();
            // It keeps its turn until the response is ready, even if the client is gone by then.
            let making = tokio::spawn(async move {
                let _turn = turn;
                endpoints.answer(&path, request).await
            });
            making.await.ok()
        };
        let answer = tokio::time::timeout(LARGE_TIMEOUT, answering).await;
        answer.ok().flatten().unwrap_or_else(|| self.refusals.answer(Full::LargeAnswers, source))
    }
}

/// How much of a refused request's body is read, and for how long. If the body is not read, its stream is
/// reset, and a client that has not seen the response yet may take the reset for the response.
const DRAINED: usize = 64 << 10;
const DRAINED_FOR: Duration = Duration::from_secs(1);

async fn drain(mut body: Incoming) {
    let reading = async {
        let mut left = DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, bytes::Bytes::len);
            match left.checked_sub(length) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    // The rest of the body is not awaited.
    let _ = tokio::time::timeout(DRAINED_FOR, reading).await;
}
