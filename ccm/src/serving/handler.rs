//! One request: who asks, whether they may, and the answer.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::{
    authentication::Authenticator,
    authorization::{Authorizer, Decision},
    connections::ClientCertificates,
    endpoints::Endpoints,
    responses::{self, Answer},
};

/// Answers requests.
#[derive(Debug)]
pub(super) struct Handler {
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    pub endpoints: Endpoints,
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
        let user = match self.authenticator.authenticate(request.headers(), client).await {
            Ok(user) => user,
            Err(why) => {
                tracing::debug!(verb, path, why, "Unable to authenticate the request");
                return responses::unauthorized();
            }
        };
        match self.authorizer.authorize(&user, &verb, &path).await {
            Ok(Decision::Allowed) => self.endpoints.answer(&path, request).await,
            Ok(Decision::Denied(reason)) => {
                tracing::debug!(user = user.name, verb, path, reason, "Forbidden");
                responses::forbidden(&user, &verb, &path, &reason)
            }
            Err(why) => {
                tracing::warn!(user = user.name, verb, path, why, "request cannot be authorized");
                responses::internal_error(request.uri().path(), &why)
            }
        }
    }
}
