//! Checksums of images.

use std::fmt::{self, Write as _};

use cloudprovider::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256, Sha512};

/// The checksum that an image must have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Checksum {
    /// SHA-256.
    Sha256([u8; 32]),
    /// SHA-512.
    Sha512([u8; 64]),
}

impl Checksum {
    /// Reads `sha256:` or `sha512:` and the hexadecimal digits. `field` names the field in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`], which says what would be right.
    pub(crate) fn parse(field: &str, text: &str) -> Result<Self> {
        let read = match text.split_once(':') {
            Some(("sha256", digits)) => bytes(digits).map(Self::Sha256),
            Some(("sha512", digits)) => bytes(digits).map(Self::Sha512),
            _ => None,
        };
        read.ok_or_else(|| {
            let words = format!(
                "{field}: is no checksum; write sha256: and 64 hexadecimal digits, or sha512: and 128 of them"
            );
            Error::new(ErrorKind::InvalidInput, words)
        })
    }

    /// Begins to calculate a checksum of the same kind.
    pub(super) fn hasher(&self) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Sha512(_) => Hasher::Sha512(Sha512::new()),
        }
    }

    /// The kind and the digits, with this between them.
    pub(super) fn joined(&self, between: char) -> String {
        match self {
            Self::Sha256(sum) => format!("sha256{between}{}", digits(sum)),
            Self::Sha512(sum) => format!("sha512{between}{}", digits(sum)),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined(':'))
    }
}

/// A checksum that is being calculated.
#[derive(Clone, Debug)]
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// Adds bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The checksum of all bytes.
    pub(super) fn finish(self) -> Checksum {
        match self {
            Self::Sha256(hasher) => Checksum::Sha256(hasher.finalize().into()),
            Self::Sha512(hasher) => Checksum::Sha512(hasher.finalize().into()),
        }
    }
}

fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    if digits.len() != 2 * N || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // a String takes everything
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read_and_calculated() {
        // FIPS 180-2, "abc"
        let sha256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sha512 = "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                      2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        for text in [sha256, sha512] {
            let wanted = Checksum::parse("spec.image.checksum", text).expect("valid");
            let mut hasher = wanted.hasher();
            hasher.update(b"a");
            hasher.update(b"bc");
            assert_eq!(hasher.finish(), wanted);
            assert_eq!(wanted.to_string(), text);
            let upper = text.replacen(":dd", ":DD", 1).replacen(":ba", ":BA", 1);
            assert_eq!(Checksum::parse("x", &upper).expect("valid"), wanted);
        }
    }

    #[test]
    fn what_is_no_checksum_is_named_with_its_field() {
        let long = "a".repeat(65);
        for text in [
            "",
            "sha256",
            "md5:00",
            "sha256:00",
            &format!("sha256:{}", "g".repeat(64)),
            &format!("sha256:{long}"),
            &format!("sha256:+{}", "a".repeat(63)),
        ] {
            let error = Checksum::parse("spec.image.checksum", text).expect_err("none");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.report().starts_with("spec.image.checksum: is no checksum"), "{}", error.report());
        }
    }
}
