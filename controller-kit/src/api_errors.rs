//! Errors of the API server as a provider sees them.

use std::time::Duration;

use cloudprovider::{Error, ErrorKind};
use component::api_client::describe;

use crate::writes::is_of_another;

/// The error of a request. `what` says what failed, and `needed` what the service account needs for it.
pub fn api_error(what: &str, needed: &str, error: &kube::Error) -> Error {
    let status = match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    };
    let (kind, hint) = match status.map(|status| status.code) {
        Some(401) => (ErrorKind::Unauthenticated, String::new()),
        Some(403) => (ErrorKind::PermissionDenied, format!("; {needed}")),
        Some(404) => (ErrorKind::NotFound, String::new()),
        Some(409) => (ErrorKind::Conflict, String::new()),
        Some(422) if status.is_some_and(|status| is_of_another(status)) => {
            (ErrorKind::NotFound, String::new())
        }
        Some(422) => (ErrorKind::InvalidInput, String::new()),
        Some(429) => (ErrorKind::RateLimited, String::new()),
        _ => (ErrorKind::Unavailable, String::new()),
    };
    let words = Error::new(kind, format!("{what}: {}{hint}", describe(error)));
    let after =
        status.and_then(|status| status.details.as_ref()).map_or(0, |details| details.retry_after_seconds);
    if after > 0 { words.with_retry_after(Duration::from_secs(after.into())) } else { words }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_refusal_has_its_kind() {
        for (code, kind) in [
            (401, ErrorKind::Unauthenticated),
            (403, ErrorKind::PermissionDenied),
            (404, ErrorKind::NotFound),
            (409, ErrorKind::Conflict),
            (422, ErrorKind::InvalidInput),
            (429, ErrorKind::RateLimited),
            (500, ErrorKind::Unavailable),
        ] {
            let status = json!({
                "status": "Failure", "code": code, "message": "no", "reason": "x", "details": {"retryAfterSeconds": 7},
            });
            let status: Status = serde_json::from_value(status).expect("a status");
            let error =
                api_error("x cannot be read", "the account needs get", &kube::Error::Api(status.boxed()));
            assert_eq!((error.kind(), error.retry_after()), (kind, Some(Duration::from_secs(7))));
            let hint = if code == 403 { "; the account needs get" } else { "" };
            assert_eq!(error.to_string(), format!("x cannot be read: no ({code}){hint}"));
        }
    }
}
