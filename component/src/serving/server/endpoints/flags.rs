//! `/debug/flags`: the verbosity of the log, changed while the daemon runs.

use basics::go::parse_uint31;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};

use super::super::responses::{self, Answer};
use crate::serving::SetVerbosity;

/// Maximum size of the body, in bytes. It should be a number.
const BODY_SIZE: usize = 1024;

/// Timeout for reading the body.
const BODY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The flags that can be changed, in upstream's format.
pub(super) fn index() -> Answer {
    responses::body(
        StatusCode::OK,
        "text/html; charset=utf-8",
        "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n<table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n",
    )
}

/// `PUT /debug/flags/v`
pub(super) async fn verbosity<B>(set: Option<&SetVerbosity>, method: &Method, body: B) -> Answer
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some(set) = set else { return responses::not_found() };
    if method != Method::PUT {
        // Upstream's response.
        return responses::text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
    }
    let bad = |why: &str| responses::text(StatusCode::BAD_REQUEST, format!("{why}\n"));
    let read = Limited::new(body, BODY_SIZE).collect();
    let Ok(Ok(body)) = tokio::time::timeout(BODY_TIMEOUT, read).await else {
        return bad("error reading request body");
    };
    let body = body.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let level = match parse_uint31(&text) {
        Ok(level) => level,
        Err(error) => return bad(&error.to_string()),
    };
    match set(level) {
        Ok(()) => {
            tracing::info!(level, "verbosity of the log changed");
            let text = format!("successfully set klog.logging.verbosity to {text}\n");
            responses::text(StatusCode::OK, text)
        }
        Err(why) => bad(&format!("failed set klog.logging.verbosity {text}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn only_a_number_is_set() {
        let level = Arc::new(AtomicU32::new(0));
        let set: SetVerbosity = Arc::new({
            let level = level.clone();
            move |new| {
                level.store(new, Ordering::Relaxed);
                Ok(())
            }
        });
        let put = async |body: &'static str| {
            let answer = verbosity(Some(&set), &Method::PUT, Full::new(Bytes::from(body))).await;
            let status = answer.status().as_u16();
            let bytes = answer.into_body().collect().await.expect("no error").to_bytes();
            (status, String::from_utf8(bytes.to_vec()).expect("text"))
        };
        assert_eq!(put("4").await, (200, "successfully set klog.logging.verbosity to 4\n".to_owned()));
        assert_eq!(level.load(Ordering::Relaxed), 4);
        for (body, words) in [
            ("", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("+1", "invalid syntax"),
            ("4\n", "invalid syntax"),
            ("99999999999", "value out of range"),
        ] {
            let (status, text) = put(body).await;
            assert!(status == 400 && text.contains(words), "{body:?}: {status} {text}");
        }
        let long: &'static str = "1".repeat(BODY_SIZE + 1).leak();
        assert_eq!(put(long).await.0, 400);
        assert_eq!(level.load(Ordering::Relaxed), 4);
        let get = verbosity(Some(&set), &Method::GET, Full::new(Bytes::new())).await;
        assert_eq!(get.status(), StatusCode::NOT_ACCEPTABLE);
    }
}
