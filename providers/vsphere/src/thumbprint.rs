//! Thumbprints: certificates that are trusted by their hash.

use std::{fmt, str::FromStr};

use cloudprovider::is_invisible;
use rustls::pki_types::CertificateDer;

/// The hash of a certificate: SHA-1 or SHA-256 of its DER form.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Thumbprint(pub(crate) Box<[u8]>);

/// Why a text is no thumbprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the SHA-1 or SHA-256 of the certificate: 20 or 32 bytes in hexadecimal, colons or blanks between them or none"
)]
pub(crate) struct ThumbprintError;

impl FromStr for Thumbprint {
    type Err = ThumbprintError;

    /// Also accepts the output of openssl (`sha1 Fingerprint=AA:BB`), govc (`host AA:BB`) and Windows (`aa
    /// bb` after an invisible mark).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text: String = text.chars().filter(|c| !is_invisible(*c)).collect();
        let is_hash = |word: &str| word.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'-'));
        let is_separator = |c: char| c.is_whitespace() || c == '=';
        let words: Vec<&str> =
            text.split(is_separator).filter(|word| !word.is_empty()).map(unlabelled).collect();
        let begin = words.iter().rposition(|word| !is_hash(word)).map_or(0, |label| label + 1);
        let is_long_enough = |digits: &Vec<u8>| matches!(digits.len(), 40 | 64);
        let last = words.len().saturating_sub(1).max(begin);
        // the last word alone, since the words before it may be a host name of hexadecimal letters
        [begin, last]
            .into_iter()
            .map(|begin| digits(&words[begin..]))
            .find(is_long_enough)
            .map(|digits| Self(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
            .ok_or(ThumbprintError)
    }
}

/// Removes the name of the algorithm before a hash: `SHA256:AA:BB`.
fn unlabelled(word: &str) -> &str {
    match word.split_once(':') {
        Some((label, rest)) if label.to_ascii_lowercase().starts_with("sha") => rest,
        _ => word,
    }
}

fn digits(words: &[&str]) -> Vec<u8> {
    let digits = words.iter().flat_map(|word| word.chars()).filter_map(|c| c.to_digit(16));
    digits.filter_map(|digit| u8::try_from(digit).ok()).collect()
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl Thumbprint {
    /// Stands for a malformed thumbprint of the configuration. It matches no certificate, and is reported
    /// where a thumbprint is needed.
    pub(crate) fn malformed() -> Self {
        Self(Box::default())
    }

    pub(crate) fn is_malformed(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_of(&self, certificate: &CertificateDer<'_>) -> bool {
        use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
        let algorithm = if self.0.len() == 20 { &SHA1_FOR_LEGACY_USE_ONLY } else { &SHA256 };
        digest(algorithm, certificate).as_ref() == &*self.0
    }
}
