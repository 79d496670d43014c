//! Which user the daemon is to the API server.

use http::Request;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;

/// The user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// Who the API server takes the daemon for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// A known user, or the API server is too old to say.
    Known,
    /// The anonymous user.
    Anonymous,
}

/// Asks the API server who the user is. Changes nothing there.
///
/// # Errors
/// No response, or one that does not say who the user is, such as 401.
pub(super) async fn identity(client: &Client) -> kube::Result<Identity> {
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(br#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#.to_vec())
        .map_err(kube::Error::HttpError)?;
    match client.request::<SelfSubjectReview>(request).await {
        Ok(review) => {
            let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
            Ok(if user.username.as_deref() == Some(ANONYMOUS) {
                Identity::Anonymous
            } else {
                Identity::Known
            })
        }
        // Every authenticated user may ask by default. If this was forbidden, the message names the user.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(if status.message.contains(ANONYMOUS) { Identity::Anonymous } else { Identity::Known })
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Identity::Known),
        Err(error) => Err(error),
    }
}
