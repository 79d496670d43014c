//! Self-reviews of a user. The sandbox has one user, who may do everything.

use http::{Method, request::Parts};
use serde_json::{Value, json};

/// The answer to a self-review; `None` for any other request.
pub(crate) fn answer(parts: &Parts, body: &[u8]) -> Option<Value> {
    if parts.method != Method::POST {
        return None;
    }
    let status = match parts.uri.path() {
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => json!({"allowed": true}),
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
            json!({"userInfo": {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}})
        }
        _ => return None,
    };
    let mut review: Value = serde_json::from_slice(body).ok().filter(Value::is_object)?;
    review["status"] = status;
    Some(review)
}
