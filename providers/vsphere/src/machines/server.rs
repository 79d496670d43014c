//! What a `server` and a `thumbprint` of a spec say about a vCenter. Pure.

use cloudprovider::Result;

use super::spec::invalid;
use crate::{endpoint::Endpoint, thumbprint::Thumbprint};

/// The port of a vCenter.
const PORT: u16 = 443;

/// The vCenter that a spec names. It is trusted as the one of the configuration with the same address, and else as the system
/// says; and by the thumbprint, if there is one.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) with the name of the field.
pub(crate) fn endpoint<'a>(
    field: &str,
    server: &str,
    thumbprint: Option<&str>,
    configured: impl IntoIterator<Item = &'a Endpoint>,
) -> Result<Endpoint> {
    let (host, port) = host_and_port(server).ok_or_else(|| {
        invalid(format!("{field}: {server:?} is no host name or IP address, with a port or without"))
    })?;
    let named = Endpoint { host, port, ca_files: Vec::new(), thumbprint: None, insecure: false };
    let authority = named.authority();
    let mut known = configured.into_iter();
    let known = known.find(|one| one.authority().eq_ignore_ascii_case(&authority));
    let mut endpoint = known.cloned().unwrap_or(named);
    if let Some(text) = thumbprint.map(str::trim).filter(|text| !text.is_empty()) {
        let parsed = text.parse::<Thumbprint>();
        endpoint.thumbprint = Some(parsed.map_err(|error| invalid(format!("spec.thumbprint: {error}")))?);
    }
    Ok(endpoint)
}

/// The host, in lower case and without brackets, and the port.
fn host_and_port(server: &str) -> Option<(String, u16)> {
    let text = server.trim().trim_start_matches("https://").trim_end_matches('/');
    let text = text.trim_end_matches("/sdk").to_lowercase();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
    if bare.parse::<std::net::IpAddr>().is_ok() {
        return Some((bare.to_owned(), PORT));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (&*text, PORT),
    };
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<std::net::Ipv6Addr>().ok().map(|_| (address.to_owned(), port));
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
    let is_name = !host.is_empty() && host.len() <= 253 && !host.starts_with(['-', '.']);
    (is_name && host.chars().all(is_letter)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_with_a_port_or_without() {
        for (server, expected) in [
            ("vc.example.org", Some("vc.example.org:443")),
            ("VC.example.org:8443", Some("vc.example.org:8443")),
            ("https://vc.example.org/sdk", Some("vc.example.org:443")),
            ("192.0.2.1:8989", Some("192.0.2.1:8989")),
            ("fd00::1", Some("[fd00::1]:443")),
            ("[fd00::1]:8443", Some("[fd00::1]:8443")),
            ("", None),
            ("vc.example.org:0", None),
            ("vc.example.org/other", None),
            ("user@vc.example.org", None),
            ("vc.example.org:https", None),
        ] {
            let found = endpoint("spec.server", server, None, []);
            assert_eq!(found.ok().map(|found| found.authority()).as_deref(), expected, "{server}");
        }
        let error = endpoint("spec.server", "a b", None, []).expect_err("no host");
        assert!(error.to_string().starts_with("spec.server: \"a b\" is no host name"), "{error}");
    }

    #[test]
    fn a_vcenter_of_the_configuration_is_trusted_as_it_says() {
        let known = Endpoint {
            host: "vc.example.org".to_owned(),
            port: 443,
            ca_files: vec!["/ca.pem".into()],
            thumbprint: None,
            insecure: false,
        };
        let of =
            |server: &str, thumbprint: Option<&str>| endpoint("spec.server", server, thumbprint, [&known]);
        assert_eq!(of("VC.example.org", Some("")).ok().as_ref(), Some(&known));
        assert!(of("vc2.example.org", None).is_ok_and(|other| other.ca_files.is_empty()));
        let sha1 = vec!["AB"; 20].join(":");
        let pinned = of("vc.example.org", Some(&sha1)).expect("an endpoint");
        assert!(pinned.thumbprint.is_some() && pinned.ca_files == known.ca_files && pinned != known);
        let error = of("vc.example.org", Some("AB:CD")).expect_err("no thumbprint");
        assert!(error.to_string().starts_with("spec.thumbprint: must be the SHA-1 or SHA-256"), "{error}");
    }
}
