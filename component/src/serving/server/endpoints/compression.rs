//! Compressed responses for clients that accept them.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, header};

/// Whether the client accepts a compressed response.
pub(in super::super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| {
            let (coding, weight) = part.split_once(';').unwrap_or((part, ""));
            let is_refused = weight.split_once('=').is_some_and(|(_, q)| q.trim().parse() == Ok(0.0_f32));
            ["gzip", "*"].contains(&coding.trim()) && !is_refused
        })
}

/// Compresses quickly rather than well.
pub(super) fn gzip(content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content)?;
    encoder.finish()
}
