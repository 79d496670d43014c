//! When a request is retried. As in client-go, the API server asks for it with `Retry-After`.

use std::time::Duration;

use basics::backoff::Backoff;
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

/// The value of client-go.
pub(super) const MOST_RETRIES: u32 = 10;

/// Upper limit for the wait that a server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A server that asks for short waits again and again gets longer and longer ones.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), most: Duration::from_secs(30) };

/// Adds up to this share to a wait, so that clients that were refused together do not return together.
const JITTER: f64 = 0.2;

/// How long to wait before the request is sent again. With `None` the caller gets the response. All other
/// retries are left to the caller, which knows what the request was for.
pub(super) fn wait_before_retry(status: StatusCode, headers: &HeaderMap, retries: u32) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    let wait = Duration::from_secs(seconds).min(LONGEST_WAIT);
    let wait = if retries == 0 { wait } else { wait.max(BACKOFF.after(retries)) };
    Some(wait.mul_f64(fastrand::f64().mul_add(JITTER, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_has_to_ask_for_it() {
        let wait = |status: u16, retry_after: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            retry_after.map(|text| headers.insert(RETRY_AFTER, text.parse().expect("a header")));
            wait_before_retry(StatusCode::from_u16(status).expect("a status"), &headers, 0)
        };
        for (status, retry_after, expected) in [
            (429, Some("1"), Some(1)),
            (503, Some("7"), Some(7)),
            (500, Some("0"), Some(0)),
            (429, Some("99999999999"), Some(60)),
            (429, None, None),
            (503, Some("soon"), None),
            (409, Some("1"), None),
            (200, Some("1"), None),
        ] {
            let found = wait(status, retry_after);
            let Some(seconds) = expected else {
                assert_eq!(found, None, "{status} {retry_after:?}");
                continue;
            };
            let (found, least) = (found.expect("a wait"), Duration::from_secs(seconds));
            assert!(found >= least && found <= least.mul_f64(1.0 + JITTER), "{status}: {found:?}");
        }
    }
}
