//! One request: who asks, whether they may, and the answer.

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

/// Answers that are made at the same time, of those that can be large.
const LARGE_AT_ONCE: usize = 2;

/// Of those, for one source.
const LARGE_OF_ONE_SOURCE: usize = 1;

/// How long a request for a large answer may wait until it is made.
const LARGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request's `Accept` that are read; browsers send some 100.
const ACCEPT_SIZE: usize = 1024;

/// Between two lines in the log that say the same.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Answers requests.
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

/// A request without what does not count: its head can be large, and it may wait.
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

    /// Keeps of a request what counts, in memory of its own: a part of what came over the connection would hold the rest.
    pub(super) fn take(&self, request: Request<Incoming>, client: &Peer) -> Asked {
        let (parts, body) = request.into_parts();
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        // It was one before.
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

    /// Never fails: what goes wrong is the answer.
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

    /// The path that is asked for by somebody who may, or what they are told instead.
    async fn admit(
        &self,
        request: &Request<Incoming>,
        credentials: Credentials,
        client: &Peer,
    ) -> Result<String, Answer> {
        // Decoded once, here: what is authorized is what is answered.
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

    /// What somebody may see.
    async fn answer(&self, path: String, request: Request<Incoming>, source: Source) -> Answer {
        if !Endpoints::is_large(&path) {
            return self.endpoints.answer(&path, request).await;
        }
        let answering = async {
            let turn = self.large.take(source).await?;
            let endpoints = self.endpoints.clone();
            // It has its turn until it is made, also where the client is gone by then.
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

/// As much of a refused request's body is read, so long, as anybody needs who has not seen the answer yet: the stream of
/// a body that nobody reads is reset, and the client may take that for the answer.
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
    // What has not come by then is not waited for.
    let _ = tokio::time::timeout(DRAINED_FOR, reading).await;
}
