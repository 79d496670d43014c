//! The user that a client certificate names.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::{
    der_parser::oid,
    prelude::{FromDer as _, X509Certificate},
};

use super::user::{Opinion, User};

/// The key of the extra field that identifies the credential, for audit logs.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The common name of a certificate, empty if it has none. If it has several, the last one, as in Go.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let parsed = parse(certificate)?;
    let names = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    Ok(names.last().unwrap_or_default().to_owned())
}

/// Upstream's rule: the common name is the user, and the organizations are the groups. A certificate without
/// a common name identifies no user.
pub(super) fn user(certificate: &CertificateDer<'_>) -> Opinion {
    let name = common_name(certificate)?;
    if name.is_empty() {
        return Ok(None);
    }
    let parsed = parse(certificate)?;
    let subject = parsed.subject();
    let groups =
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect();
    let uids: Vec<&str> = subject
        .iter_by_oid(&oid!(1.3.6.1.4.1.57683.2))
        .map(|uid| uid.as_str().map_err(|_| "unable to parse UID into a string".to_owned()))
        .collect::<Result<_, _>>()?;
    let uid = match uids[..] {
        [] => String::new(),
        [""] => return Err("UID cannot be an empty string".to_owned()),
        [uid] => uid.to_owned(),
        _ => return Err("expected 1 UID, but found multiple".to_owned()),
    };
    let mut id = "X509SHA256=".to_owned();
    for byte in Sha256::digest(certificate) {
        // Writing to a String cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    Ok(Some(User { name, uid, groups, extra: [(CREDENTIAL_ID.to_owned(), vec![id])].into() }))
}

/// The earliest expiry after `now` among these certificates. Certificates that had expired by `now` proved
/// nothing. `None`: all have expired.
pub(super) fn end(certificates: &[CertificateDer<'_>], now: SystemTime) -> Option<SystemTime> {
    let end = |certificate| {
        let end = u64::try_from(parse(certificate).ok()?.validity().not_after.timestamp()).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end))
    };
    certificates.iter().filter_map(end).filter(|end| *end > now).min()
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(_) => Err("the client certificate cannot be read".to_owned()),
    }
}
