//! Connection URIs of libvirt: what is wrong with one before anybody is called, and how it is shown.

use std::fmt::Write as _;

/// Transports that libvirt knows.
const TRANSPORTS: [&str; 7] = ["ext", "libssh", "libssh2", "ssh", "tcp", "tls", "unix"];

/// Why `uri` cannot be used; the words never repeat the URI.
pub(crate) fn faults(uri: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if uri.chars().any(|c| c.is_whitespace() || c.is_control()) {
        faults.push("holds white space".to_owned());
    }
    let Some((scheme, rest)) = uri.split_once("://") else {
        faults.push("is not a libvirt URI; write it as qemu+tls://host/system or qemu:///system".to_owned());
        return faults;
    };
    let (driver, transport) = match scheme.split_once('+') {
        Some((driver, transport)) => (driver, Some(transport)),
        None => (scheme, None),
    };
    if driver.is_empty() || !driver.chars().all(|c| c.is_ascii_alphanumeric()) {
        faults.push("has no driver before \"://\"; write it as qemu+tls://host/system".to_owned());
    }
    if let Some(transport) = transport
        && !TRANSPORTS.contains(&transport)
    {
        faults.push(format!("has an unknown transport after \"+\"; known: {}", TRANSPORTS.join(", ")));
    }
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = location.split_once('/').unwrap_or((location, ""));
    if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        faults.push("must not hold a password; use auth.passwordFile".to_owned());
    }
    if parameters(query).any(|(key, _)| is_secret(key)) {
        faults.push("must not hold a password parameter; use auth.passwordFile".to_owned());
    }
    if path.is_empty() && authority.is_empty() {
        faults.push("has neither host nor path; write it as qemu:///system".to_owned());
    }
    faults
}

/// The parameters after the `?`.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split(['&', ';'])
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Whether the URI has the parameter `key`.
pub(crate) fn has_parameter(uri: &str, key: &str) -> bool {
    uri.split_once('?').is_some_and(|(_, query)| parameters(query).any(|(name, _)| name == key))
}

/// The URI with one more parameter.
pub(crate) fn with_parameter(uri: &str, key: &str, value: &str) -> String {
    let separator = if uri.contains('?') { '&' } else { '?' };
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                // writing to a String does not fail
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    format!("{uri}{separator}{key}={encoded}")
}

/// The URI as it may be shown: without whatever looks like a secret.
pub(crate) fn redacted(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return "***".to_owned() };
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match location.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (location, String::new()),
    };
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user.to_owned(), |(user, _)| format!("{user}:***"));
            format!("{user}@{host}")
        }
        None => authority.to_owned(),
    };
    let query: Vec<_> = parameters(query)
        .map(|(key, value)| if is_secret(key) { format!("{key}=***") } else { format!("{key}={value}") })
        .collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{scheme}://{authority}{path}{query}")
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "secret", "token"].iter().any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_uris() {
        for uri in [
            "qemu:///system",
            "qemu+tls://kvm1.example.org/system",
            "qemu+ssh://root@[2001:db8::1]:2222/system?keyfile=/k&no_verify=1",
            "qemu+unix:///system?socket=/run/x",
            "test:///default",
            "xen://host",
        ] {
            assert_eq!(faults(uri), Vec::<String>::new(), "{uri}");
            assert_eq!(redacted(uri), uri);
        }
    }

    #[test]
    fn bad_uris() {
        for uri in [
            "",
            "kvm1",
            "://x",
            "qemu://",
            "qemu:///",
            "qemu+carrier://h/system",
            "qemu:// h/system",
            "qemu+tls://root:hunter2@h/system",
            "qemu+tls://h/system?password=hunter2",
        ] {
            let faults = faults(uri);
            assert!(!faults.is_empty(), "{uri}");
            assert!(!faults.concat().contains("hunter2"));
            assert!(!redacted(uri).contains("hunter2"));
        }
    }

    #[test]
    fn parameters_are_added_and_escaped() {
        assert_eq!(
            with_parameter("qemu+tls://h/system", "pkipath", "/a b"),
            "qemu+tls://h/system?pkipath=/a%20b"
        );
        assert!(has_parameter("qemu+tls://h/system?x=1&pkipath=/p", "pkipath"));
        assert!(!has_parameter("qemu+tls://h/pkipath=1", "pkipath"));
    }
}
