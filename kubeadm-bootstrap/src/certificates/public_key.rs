//! The part of a certificate that says whose it is: its public key, as it is encoded there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SEQUENCE: u8 = 0x30;
/// The tag of the version, which certificates of version 1 do not have.
const VERSION: u8 = 0xa0;

/// The certificates of a PEM text, decoded. Other blocks, and text outside of blocks, are left out. `None`: a block has no end, or
/// is not base64.
pub(super) fn pem_certificates(pem: &str) -> Option<Vec<Vec<u8>>> {
    let mut certificates = Vec::new();
    let mut lines = pem.lines().map(str::trim_end);
    while lines.by_ref().any(|line| line == "-----BEGIN CERTIFICATE-----") {
        let mut packed = String::new();
        loop {
            match lines.next()? {
                "-----END CERTIFICATE-----" => break,
                line => packed.extend(line.split_ascii_whitespace()),
            }
        }
        certificates.push(STANDARD.decode(packed).ok()?);
    }
    Some(certificates)
}

/// The encoded `SubjectPublicKeyInfo` of a certificate in DER. `None`: it is not a certificate.
pub(super) fn subject_public_key_info(certificate: &[u8]) -> Option<&[u8]> {
    let (whole, rest) = element(certificate)?;
    if !rest.is_empty() {
        return None;
    }
    let (signed, _) = element(content(whole, SEQUENCE)?)?;
    let mut fields = content(signed, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        (_, fields) = element(fields)?;
    }
    // serial number, algorithm of the signature, issuer, validity, subject
    for _ in 0..5 {
        (_, fields) = element(fields)?;
    }
    let (key, _) = element(fields)?;
    content(key, SEQUENCE).map(|_| key)
}

/// The first element with its tag and length, and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = header_length(der)?;
    let length = match *der.get(1)? {
        short if short < 0x80 => usize::from(short),
        _ => der.get(2..header)?.iter().fold(0_usize, |length, byte| (length << 8) | usize::from(*byte)),
    };
    der.split_at_checked(header.checked_add(length)?)
}

/// How many bytes tag and length have. A length of more than four bytes is longer than any certificate.
fn header_length(der: &[u8]) -> Option<usize> {
    match *der.get(1)? {
        short if short < 0x80 => Some(2),
        long @ 0x81..=0x84 => Some(2 + usize::from(long & 0x7f)),
        _ => None,
    }
}

/// What is inside of an element that has this tag.
fn content(element: &[u8], tag: u8) -> Option<&[u8]> {
    let inside = element.get(header_length(element)?..)?;
    (element.first() == Some(&tag)).then_some(inside)
}
