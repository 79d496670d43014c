//! Connection URIs of libvirt: checked before connecting, and redacted for messages.

use std::{fmt::Write as _, net::IpAddr};

/// Drivers of libvirt.
const DRIVERS: [&str; 17] = [
    "bhyve",
    "ch",
    "esx",
    "gsx",
    "hyperv",
    "lxc",
    "openvz",
    "parallels",
    "qemu",
    "test",
    "vbox",
    "vmwarefusion",
    "vmwareplayer",
    "vmwarews",
    "vpx",
    "vz",
    "xen",
];

/// Transports of libvirt.
const TRANSPORTS: [&str; 7] = ["ext", "libssh", "libssh2", "ssh", "tcp", "tls", "unix"];

/// Transports to another machine, which need a host name.
const REMOTE_TRANSPORTS: [&str; 5] = ["libssh", "libssh2", "ssh", "tcp", "tls"];

/// Parameters of libvirt. Others are refused: an unknown parameter may hold a password.
const PARAMETERS: [&str; 17] = [
    "authfile",
    "command",
    "keyfile",
    "known_hosts",
    "known_hosts_verify",
    "mode",
    "name",
    "netcat",
    "no_sanity",
    "no_tty",
    "no_verify",
    "pkipath",
    "proxy",
    "socket",
    "sshauth",
    "tls_priority",
    "transport",
];

/// Why `uri` cannot be used. The messages never quote the URI.
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
    } else if !DRIVERS.contains(&driver) {
        faults.push(format!("has an unknown driver before \"://\" or \"+\"; known: {}", DRIVERS.join(", ")));
    }
    if let Some(transport) = transport
        && !TRANSPORTS.contains(&transport)
    {
        faults.push(format!("has an unknown transport after \"+\"; known: {}", TRANSPORTS.join(", ")));
    }
    // An unescaped slash or question mark may be part of a password, so everything up to the last @ is
    // checked.
    if rest.rsplit_once('@').is_some_and(|(user, _)| decoded(user).contains(':')) {
        faults.push("must not hold a password before \"@\"; use auth.passwordFile".to_owned());
        return faults;
    }
    if uri.contains('#') {
        faults.push("must not hold \"#\"; libvirt knows no fragments".to_owned());
    }
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    if parameters(query).any(|(key, _)| !PARAMETERS.contains(&key.as_str())) {
        faults.push(format!(
            "has a parameter that libvirt does not know; known: {}. Passwords belong into auth.passwordFile",
            PARAMETERS.join(", ")
        ));
    }
    let (authority, path) = location.split_once('/').unwrap_or((location, ""));
    let (host, port) = host_and_port(authority);
    if host.is_empty() && transport.is_some_and(|transport| REMOTE_TRANSPORTS.contains(&transport)) {
        faults.push("has no host; write it as qemu+tls://host/system".to_owned());
    } else if path.is_empty() && authority.is_empty() {
        faults.push("has neither host nor path; write it as qemu:///system".to_owned());
    }
    if port.is_some_and(|port| !port.parse().is_ok_and(|port: u16| port > 0)) {
        faults.push("has a port that is not a number from 1 to 65535".to_owned());
    }
    faults
}

/// The host of a URI, where it is written as an IP address.
pub(crate) fn address(uri: &str) -> Option<IpAddr> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    host_and_port(authority).0.trim_matches(['[', ']']).parse().ok()
}

/// The host of `user@host:port` or `user@[v6]:port`, and the port where there is one.
fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name_ends = host.rfind(']').map_or(0, |end| end + 1);
    match host[name_ends..].find(':') {
        Some(colon) => (&host[..name_ends + colon], Some(&host[name_ends + colon + 1..])),
        None => (host, None),
    }
}

/// Whether the URI leads to another machine by TLS.
pub(crate) fn is_tls(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once("://") else { return false };
    match scheme.split_once('+') {
        Some((_, transport)) => transport == "tls",
        // without a transport, a host means TLS
        None => !rest.starts_with(['/', '?']) && !rest.is_empty(),
    }
}

/// Whether the URI leads to a libvirtd on this host, or to libvirt's test driver in this process.
pub(crate) fn is_local(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once("://") else { return false };
    let is_unix = scheme.split_once('+').is_none_or(|(_, transport)| transport == "unix");
    is_unix && rest.starts_with(['/', '?'])
}

/// Whether the URI leads to libvirt's test driver in this process, where a second connection may lead
/// elsewhere.
pub(crate) fn is_in_process(uri: &str) -> bool {
    uri.starts_with("test:")
}

/// The parameters after the `?`, decoded.
fn parameters(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split(['&', ';']).filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(key), decoded(value))
    })
}

/// `text` with its `%xx` resolved.
fn decoded(text: &str) -> String {
    let hex = |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(byte) = bytes.get(i) {
        match (byte, hex(bytes.get(i + 1)), hex(bytes.get(i + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(high << 4 | low);
                i += 3;
            }
            _ => {
                decoded.push(*byte);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
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
                // writing to a String cannot fail
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    format!("{uri}{separator}{key}={encoded}")
}

/// The URI for messages. If it may contain a secret, only its scheme is shown.
pub(crate) fn redacted(uri: &str) -> String {
    if faults(uri).is_empty() {
        return uri.to_owned();
    }
    match uri.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') => {
            format!("{scheme}://***")
        }
        _ => "***".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_hypervisor() {
        for (uri, expected) in [
            ("qemu+tls://192.0.2.1/system", Some("192.0.2.1")),
            ("qemu+ssh://root@192.0.2.1:22/system?keyfile=/a", Some("192.0.2.1")),
            ("qemu+tcp://[2001:db8::1]:16509/system", Some("2001:db8::1")),
            ("qemu+tls://host.example/system", None),
            ("qemu:///system", None),
            ("test:///default", None),
        ] {
            assert_eq!(address(uri), expected.and_then(|text| text.parse().ok()), "{uri}");
        }
    }

    #[test]
    fn good_uris() {
        for uri in [
            "qemu:///system",
            "qemu+tls://kvm1.example.org/system",
            "qemu+ssh://root@[2001:db8::1]:2222/system?keyfile=/k&no_verify=1",
            "qemu+unix:///system?socket=/run/x",
            "test:///default",
            "xen://host",
            "qemu+tls://kvm1:16514/system?pkipath=/p",
            "qemu+ssh://ccm%40example.org@kvm1/system",
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
            "qenu:///system",
            "qemu2+ssh://h/system",
            "QEMU:///system",
            "http://h/system",
            "qemu:// h/system",
            "qemu+tls://root:hunter2@h/system",
            "qemu+tls://h/system?password=hunter2",
            "qemu+tls://h/system?pwd=hunter2",
            "qemu+tls://h/system?p%61ssword=hunter2",
            "qemu+tls://h/system?no_verify=1&hunter2",
            "qemu+tls://h/system#password=hunter2",
            "qemu+tls://root:hun/hunter2@h/system",
            "qemu+tls://root:hun?hunter2@h/system",
            "qemu+tls://root:hun#hunter2@h/system",
            "qemu+tls://root%3Ahunter2@h/system",
            "qemu+tls://root%3ahunter2@h/system",
            "qemu+tls://root:hunter2@x@h/system",
            "qemu+tls:///system",
            "qemu+ssh://root@/system",
            "qemu+tls://:16514/system",
            "qemu+tls://h:0/system",
            "qemu+tls://h:99999/system",
            "qemu+tls://[fd00::1]:x/system",
        ] {
            let faults = faults(uri);
            assert!(!faults.is_empty(), "{uri}");
            assert!(!faults.concat().contains("hunter2"));
            assert!(!redacted(uri).contains("hunter2"));
        }
    }

    #[test]
    fn where_tls_is_spoken() {
        for uri in ["qemu+tls://h/system", "qemu://h/system"] {
            assert!(is_tls(uri), "{uri}");
        }
        for uri in ["qemu:///system", "qemu+ssh://h/system", "qemu+unix:///system", "qemu", "qemu://"] {
            assert!(!is_tls(uri), "{uri}");
        }
    }

    #[test]
    fn which_uris_stay_on_this_host() {
        for uri in ["qemu:///system", "qemu+unix:///system?socket=/run/x", "test:///default", "xen:///"] {
            assert!(is_local(uri), "{uri}");
        }
        for uri in
            ["qemu://h/system", "qemu+ssh://h/system", "qemu+tls://h/system", "qemu+unix://h/system", "qemu"]
        {
            assert!(!is_local(uri), "{uri}");
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
