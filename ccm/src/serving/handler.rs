//! One request: who asks, whether they may, and the answer.

use std::time::Instant;

use http::{Request, StatusCode};
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
        // Decoded once, here: what is authorized is what is answered.
        let Ok(path) = percent_decode_str(request.uri().path()).decode_utf8() else {
            return responses::text(StatusCode::BAD_REQUEST, "400 Bad Request\n");
        };
        let path = path.into_owned();
        let verb = request.method().as_str().to_ascii_lowercase();
        let start = Instant::now();
        let user = self.authenticator.authenticate(request.headers(), client).await;
        self.metrics.authenticated(user.as_ref().ok().map(|user| user.name.as_str()), start.elapsed());
        let user = match user {
            Ok(user) => user,
            Err(Unanswered::Busy) => return responses::too_many_requests(),
            Err(Unanswered::Failed(why)) => {
                tracing::debug!(verb, path, why, "Unable to authenticate the request");
                return responses::unauthorized();
            }
        };
        let start = Instant::now();
        let decision = self.authorizer.authorize(&user, &verb, &path).await;
        self.metrics.authorized(decision.as_ref().map_or("error", Decision::as_str), start.elapsed());
        match decision {
            Ok(Decision::Allowed) => self.endpoints.answer(&path, request).await,
            Ok(Decision::Denied(reason) | Decision::NoOpinion(reason)) => {
                tracing::debug!(user = user.name, verb, path, reason, "Forbidden");
                responses::forbidden(&user, &verb, &path, &reason)
            }
            Err(Unanswered::Busy) => responses::too_many_requests(),
            Err(Unanswered::Failed(why)) => {
                let why = format!("access review: {why}");
                tracing::warn!(user = user.name, verb, path, why, "request cannot be authorized");
                responses::internal_error(request.uri().path(), &why)
            }
        }
    }
}
