//! One request: who asks, whether they may, and the answer.

use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::{
    authentication::Authenticator,
    authorization::{Authorizer, Decision},
    connections::ClientCertificates,
    delegation::Unanswered,
    endpoints::Endpoints,
    responses::{self, Answer},
};
use crate::metrics::AccessMetrics;

/// Answers requests.
#[derive(Debug)]
pub(super) struct Handler {
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    pub endpoints: Endpoints,
    pub metrics: AccessMetrics,
}

impl Handler {
    /// Never fails: what goes wrong is the answer.
    pub(super) async fn handle(&self, request: Request<Incoming>, client: &ClientCertificates) -> Answer {
        match self.admit(&request, client).await {
            Ok(path) => self.endpoints.answer(&path, request).await,
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
        client: &ClientCertificates,
    ) -> Result<String, Answer> {
        // Decoded once, here: what is authorized is what is answered.
        let Ok(path) = percent_decode_str(request.uri().path()).decode_utf8() else {
            return Err(responses::text(StatusCode::BAD_REQUEST, "400 Bad Request\n"));
        };
        let path = path.into_owned();
        let verb = request.method().as_str().to_ascii_lowercase();
        let start = Instant::now();
        let user = self.authenticator.authenticate(request.headers(), client).await;
        self.metrics.authenticated(user.as_ref().ok().map(|user| user.name.as_str()), start.elapsed());
        let user = match user {
            Ok(user) => user,
            Err(Unanswered::Busy) => return Err(responses::too_many_requests()),
            Err(Unanswered::Failed(why)) => {
                tracing::debug!(verb, path, why, "Unable to authenticate the request");
                return Err(responses::unauthorized());
            }
        };
        let start = Instant::now();
        let decision = self.authorizer.authorize(&user, &verb, &path).await;
        self.metrics.authorized(decision.as_ref().map_or("error", Decision::as_str), start.elapsed());
        match decision {
            Ok(Decision::Allowed) => Ok(path),
            Ok(Decision::Denied(reason) | Decision::NoOpinion(reason)) => {
                tracing::debug!(user = user.name, verb, path, reason, "Forbidden");
                Err(responses::forbidden(&user, &verb, &path, &reason))
            }
            Err(Unanswered::Busy) => Err(responses::too_many_requests()),
            Err(Unanswered::Failed(why)) => {
                let why = format!("access review: {why}");
                tracing::warn!(user = user.name, verb, path, why, "request cannot be authorized");
                Err(responses::internal_error(request.uri().path(), &why))
            }
        }
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
