//! Validates names in the configuration.

use cloudprovider::dns;

/// A host name or IP address as in a URL, but without brackets. The error says what would be valid.
pub(super) fn host(text: &str) -> Result<String, &'static str> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    let is_name = |text: &str| {
        !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
            && !text.starts_with(['-', '.'])
    };
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(if text.contains("://") || text.contains('/') {
        "must be a host name or an IP address alone, without https:// and without a path"
    } else if text.split_once(':').is_some_and(|(name, port)| is_name(name) && port.parse::<u16>().is_ok()) {
        "must be a host name or an IP address alone; the port has a key of its own"
    } else {
        "must be a host name or an IP address"
    })
}

/// Why this is not a valid namespace name, which is a DNS label.
pub(super) fn namespace_fault(text: &str) -> Option<&'static str> {
    (!dns::is_label(text)).then_some(
        "must be the name of a namespace: at most 63 lower-case letters, digits and -, neither first nor last a -",
    )
}

/// Why this is not a valid Secret name, which is DNS labels joined by dots.
pub(super) fn secret_fault(text: &str) -> Option<&'static str> {
    (!dns::is_subdomain(text)).then_some(
        "must be the name of a Secret: at most 253 lower-case letters, digits, - and ., with a letter or digit at the \
         beginning and end and on both sides of each .",
    )
}
