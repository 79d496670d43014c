//! `/metrics` and similar endpoints.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use prometheus::{Registry, TEXT_FORMAT};

use super::{
    super::responses::{self, Answer},
    compression::{accepts_gzip, gzip},
};

/// All metrics of a registry, in Prometheus' text format.
pub(super) fn metrics(registry: &Registry, headers: &HeaderMap) -> Answer {
    let text = crate::metrics::encode(&registry.gather());
    if accepts_gzip(headers)
        && let Ok(compressed) = gzip(text.as_bytes())
    {
        let mut answer = responses::body(StatusCode::OK, TEXT_FORMAT, compressed);
        answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return answer;
    }
    responses::body(StatusCode::OK, TEXT_FORMAT, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_only_for_those_who_ask() {
        for (accepted, expected) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(accepted);
            let headers = [(header::ACCEPT_ENCODING, value)].into_iter().collect();
            let answer = metrics(&Registry::new(), &headers);
            assert_eq!(answer.headers().contains_key(header::CONTENT_ENCODING), expected, "{accepted}");
        }
    }
}
