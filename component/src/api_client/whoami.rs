//! Who we are to the API server.

use http::Request;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;

/// The user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// What the API server thinks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Somebody; or it is too old to be asked.
    Known,
    /// Nobody.
    Anonymous,
}

/// Asks, which changes nothing there.
///
/// # Errors
/// No answer, or one that does not say it: 401 above all.
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
        // Everybody else may ask; whoever took that right away did so from somebody.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(if status.message.contains(ANONYMOUS) { Identity::Anonymous } else { Identity::Known })
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Identity::Known),
        Err(error) => Err(error),
    }
}
