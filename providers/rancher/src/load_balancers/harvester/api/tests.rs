use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;

/// A server that gives every call this answer.
fn answering(status: u16, body: impl Into<String>) -> HarvesterApi {
    let body = body.into();
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::builder().status(status).body(Body::from(body.clone().into_bytes()));
        async { answer }
    });
    HarvesterApi::new(kube::Client::new(service, "vms"), "vms", Duration::from_secs(1))
}

fn status(code: u16, reason: &str, details: Value) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("the words of {reason}"), "details": details,
    })
    .to_string()
}

async fn refusal(code: u16, body: impl Into<String>) -> Error {
    answering(code, body).get("web").await.expect_err("refused")
}

#[tokio::test]
async fn only_the_api_server_itself_says_that_an_object_does_not_exist() {
    let of = |name: &str, group: &str| json!({"name": name, "group": group, "kind": PLURAL});
    let absent = status(404, "NotFound", of("web", GROUP));
    assert!(answering(404, absent.clone()).get("web").await.expect("an answer").is_none());
    answering(404, absent).delete("web", "uid").await.expect("it is gone");
    for body in [
        // A server without the kind, Rancher's proxy, and a proxy of somebody.
        "404 page not found\n".to_owned(),
        json!({"type": "error", "status": 404, "code": "NotFound", "message": "no cluster"}).to_string(),
        "<html>not here</html>".to_owned(),
        // Another object.
        status(404, "NotFound", of("vms", "")),
        status(404, "NotFound", Value::Null),
    ] {
        let error = refusal(404, body.clone()).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{body}");
        assert!(!error.to_string().contains("<html>"), "{error}");
        let error = answering(404, body).delete("web", "uid").await.expect_err("nothing is known");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let unauthorized = r#"{"type":"error","status":"401","message":"Unauthorized 401: must authenticate"}"#;
    for (code, body, expected) in [
        (401, unauthorized.to_owned(), ErrorKind::Unauthenticated),
        (401, status(401, "Unauthorized", Value::Null), ErrorKind::Unauthenticated),
        (403, status(403, "Forbidden", Value::Null), ErrorKind::PermissionDenied),
        (409, status(409, "Conflict", Value::Null), ErrorKind::Conflict),
        (400, status(400, "BadRequest", Value::Null), ErrorKind::InvalidInput),
        (422, status(422, "Invalid", Value::Null), ErrorKind::InvalidInput),
        (500, status(500, "InternalError", Value::Null), ErrorKind::Unavailable),
        (500, status(500, "ServerTimeout", Value::Null), ErrorKind::Timeout),
        (504, status(504, "Timeout", Value::Null), ErrorKind::Timeout),
        (502, "<html>bad gateway</html>".to_owned(), ErrorKind::Unavailable),
        (
            503,
            r#"{"type":"error","status":503,"code":"ClusterUnavailable"}"#.to_owned(),
            ErrorKind::Unavailable,
        ),
        (200, "<html>Log in</html>".to_owned(), ErrorKind::Unavailable),
        (200, "{}".to_owned(), ErrorKind::Unavailable),
        (302, String::new(), ErrorKind::Unavailable),
    ] {
        let error = refusal(code, body).await;
        assert_eq!(error.kind(), expected, "{code}: {error}");
        assert_eq!(error.operation(), Some("read LoadBalancer vms/web in Harvester"));
        assert!(!error.report().contains("<html>"), "{}", error.report());
    }
    let denied = refusal(400, status(400, "", Value::Null)).await;
    assert!(denied.to_string().contains("the words of"), "a webhook's words are shown: {denied}");
}

#[tokio::test]
async fn the_servers_time_is_obeyed_within_reason() {
    let after = |seconds: u64| json!({"retryAfterSeconds": seconds});
    let wait =
        async |code, reason: &str, details| refusal(code, status(code, reason, details)).await.retry_after();
    assert_eq!(wait(429, "TooManyRequests", after(7)).await, Some(Duration::from_secs(7)));
    assert_eq!(wait(429, "TooManyRequests", Value::Null).await, Some(RETRY_AFTER));
    assert_eq!(wait(500, "ServerTimeout", after(2)).await, Some(Duration::from_secs(2)));
    assert_eq!(wait(503, "ServiceUnavailable", after(99_999)).await, Some(MAX_RETRY_AFTER));
    assert_eq!(wait(503, "ServiceUnavailable", after(0)).await, None);
    assert_eq!(wait(403, "Forbidden", after(7)).await, None);
}

#[tokio::test]
async fn a_create_that_lost_is_no_fault() {
    let exists = status(409, "AlreadyExists", Value::Null);
    let object = json!({"metadata": {"name": "web"}, "spec": {}});
    assert!(matches!(answering(409, exists).create("web", &object).await, Ok(Created::Exists)));
    let other = status(409, "Conflict", Value::Null);
    answering(409, other.clone()).create("web", &object).await.expect_err("a conflict");
    answering(409, other).delete("web", "uid").await.expect("another object has the name");
}

#[tokio::test(start_paused = true)]
async fn no_call_waits_for_ever() {
    let service =
        tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, http::Error>>());
    let api = HarvesterApi::new(kube::Client::new(service, "vms"), "vms", Duration::from_secs(5));
    let error = api.get("web").await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().ends_with("Harvester does not answer within 5s"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable() {
    let service = tower::service_fn(|_: Request<Body>| async {
        Err::<Response<Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    });
    let api = HarvesterApi::new(kube::Client::new(service, "vms"), "vms", Duration::from_secs(1));
    let error = api.get("web").await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}
