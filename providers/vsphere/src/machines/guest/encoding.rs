//! How texts are put into the extra configuration.

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};

/// The encoding of a text, and the text in it: compressed where that is shorter. Nothing is guessed about what the
/// text is.
pub(super) fn encode(text: &[u8]) -> (&'static str, String) {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = gzip.write_all(text).and_then(|()| gzip.finish());
    match compressed {
        Ok(compressed) if compressed.len() < text.len() => ("gzip+base64", STANDARD.encode(compressed)),
        // writing to memory does not fail
        _ => ("base64", STANDARD.encode(text)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_text_is_compressed_where_that_is_shorter() {
        assert_eq!(encode(b"#!"), ("base64", "IyE=".to_owned()));
        let long = "a: b\n".repeat(1000);
        let (encoding, text) = encode(long.as_bytes());
        assert_eq!(encoding, "gzip+base64");
        let mut read = String::new();
        let bytes = STANDARD.decode(text).expect("base64");
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut read).expect("gzip");
        assert_eq!(read, long);
    }

    #[test]
    fn a_text_that_is_base64_already_is_encoded_like_any_other() {
        assert_eq!(encode(b"IyE=").1, STANDARD.encode("IyE="));
    }
}
