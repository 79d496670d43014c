//! Chooses the proxy for the API server, by the rules of Go's `net/http` and of client-go.
//!
//! A `proxy-url` in the kubeconfig is used as it is. Otherwise the environment decides: `HTTPS_PROXY` for an
//! `https` URL and `HTTP_PROXY` for an `http` URL, unless `NO_PROXY` names the API server. The names of these
//! variables may also be in lower case. This machine itself is never reached through a proxy.

use std::net::IpAddr;

use anyhow::{Context as _, anyhow, bail};
use http::Uri;
use ipnet::IpNet;

use super::url::{UserInfo, parse};

/// A proxy. Its URL has a port and one of the schemes `http`, `https` and `socks5`.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub url: Uri,
    pub user: Option<UserInfo>,
}

/// The proxy for an API server. `configured` is the kubeconfig's `proxy-url`; `environment` reads a variable.
///
/// # Errors
/// The value is not the URL of a proxy. The error names the key or the variable.
pub(super) fn choose(
    server: &Uri,
    configured: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Proxy>> {
    if let Some(text) = configured.filter(|text| !text.is_empty()) {
        // client-go accepts no URL without a scheme here.
        let proxy = if text.contains("://") { read(text) } else { Err(anyhow!("{EXPECTED}")) };
        return proxy.map(Some).context("the cluster's proxy-url");
    }
    let variable = |name: &'static str, small: &'static str| {
        [name, small]
            .into_iter()
            .find_map(|name| Some((name, environment(name).filter(|text| !text.is_empty())?)))
    };
    let proxy = match server.scheme_str() {
        Some("https") => variable("HTTPS_PROXY", "https_proxy"),
        _ => variable("HTTP_PROXY", "http_proxy"),
    };
    let Some((name, text)) = proxy else { return Ok(None) };
    let exceptions = variable("NO_PROXY", "no_proxy").map(|(_, text)| text).unwrap_or_default();
    if is_direct(server, &exceptions) {
        return Ok(None);
    }
    read(text.trim()).map(Some).with_context(|| format!("the environment variable {name}"))
}

/// The message for a value that is not the URL of a proxy.
const EXPECTED: &str = "not the URL of a proxy; expected http://, https:// or socks5://, host and port";

fn read(text: &str) -> anyhow::Result<Proxy> {
    let (url, user) = parse(text, "http").context(EXPECTED)?;
    let (scheme, port) = match url.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        // The proxy resolves names with both schemes, as in Go.
        Some("socks5" | "socks5h") => ("socks5", 1080),
        _ => bail!("{EXPECTED}"),
    };
    let host = url.host().unwrap_or_default();
    let authority = format!("{host}:{}", url.port_u16().unwrap_or(port));
    let url = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build()?;
    Ok(Proxy { url, user })
}

/// Whether the API server is reached without a proxy.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default().to_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback()) {
        return true;
    }
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    exceptions.split(',').map(|exception| exception.trim().to_lowercase()).any(|exception| {
        exception == "*" || (!exception.is_empty() && covers(&exception, host, address, port))
    })
}

/// Whether one part of `NO_PROXY` matches a host.
fn covers(exception: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if let Ok(net) = exception.parse::<IpNet>() {
        return address.is_some_and(|address| net.contains(&address));
    }
    let (name, wanted_port) = match exception.rsplit_once(':') {
        // An IPv6 address contains colons itself.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.parse().ok()),
        _ => (exception, None),
    };
    if wanted_port.is_some_and(|wanted: u16| wanted != port) {
        return false;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(name) = name.parse::<IpAddr>() {
        return address == Some(name);
    }
    // `*.a` and `.a` match names below `a`. `a` matches itself too.
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        Some(parent) => !parent.is_empty() && host.ends_with(name),
        None => !name.is_empty() && (host == name || host.ends_with(&format!(".{name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(server: &str, configured: Option<&str>, environment: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().expect("a URL");
        let read =
            |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, text)| (*text).to_owned());
        choose(&server, configured, read).expect("a proxy or none").map(|proxy| proxy.url.to_string())
    }

    #[test]
    fn the_kubeconfig_and_then_the_environment_say_it() {
        let environment = [("HTTPS_PROXY", "p:3128"), ("HTTP_PROXY", "http://plain"), ("NO_PROXY", "b")];
        for (server, configured, expected) in [
            ("https://a", None, Some("http://p:3128/")),
            ("http://a", None, Some("http://plain:80/")),
            ("https://b:6443", None, None),
            ("https://b", Some("socks5://u:pw@s"), Some("socks5://s:1080/")),
            ("https://127.0.0.1:6443", None, None),
            ("https://[::1]:6443", None, None),
            ("https://localhost", None, None),
            ("https://localhost", Some("https://[fd00::1]:8443"), Some("https://[fd00::1]:8443/")),
        ] {
            assert_eq!(chosen(server, configured, &environment).as_deref(), expected, "{server}");
        }
        assert_eq!(chosen("https://a", None, &[]), None);
        let small = [("https_proxy", "https://p"), ("HTTPS_PROXY", "")];
        assert_eq!(chosen("https://a", None, &small).as_deref(), Some("https://p:443/"));
        let small = [("https_proxy", "https://p"), ("no_proxy", "a")];
        assert_eq!(chosen("https://a", None, &small), None);
    }

    #[test]
    fn no_proxy_names_hosts_domains_addresses_and_networks() {
        for (exceptions, server, expected) in [
            ("*", "https://a", true),
            ("x, *", "https://a", true),
            ("example.org", "https://example.org:6443", true),
            ("example.org", "https://api.example.org", true),
            ("example.org", "https://badexample.org", false),
            (".example.org", "https://api.example.org", true),
            (".example.org", "https://example.org", false),
            ("*.example.org", "https://api.example.org", true),
            ("EXAMPLE.org", "https://Example.ORG", true),
            ("example.org:6443", "https://example.org:6443", true),
            ("example.org:6443", "https://example.org", false),
            ("example.org:443", "https://example.org", true),
            ("10.0.0.0/8", "https://10.1.2.3:6443", true),
            ("10.0.0.0/8", "https://11.1.2.3", false),
            ("10.1.2.3", "https://10.1.2.3:6443", true),
            ("10.1.2.3:443", "https://10.1.2.3:6443", false),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("fd00::1", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("[fd00::1]:443", "https://[fd00::1]:6443", false),
            (",, ,:,.,*.", "https://a", false),
        ] {
            let environment = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", exceptions)];
            assert_eq!(chosen(server, None, &environment).is_none(), expected, "{exceptions} {server}");
        }
    }

    #[test]
    fn a_fault_names_its_place_and_no_password() {
        let server = "https://a".parse().expect("a URL");
        for url in ["ftp://u:hunter2@p", "http://u:hunter2@", "http://u:hunter2@a b"] {
            let error = choose(&server, Some(url), |_| None).expect_err(url);
            let error = format!("{error:#}");
            assert!(error.starts_with("the cluster's proxy-url: not the URL of a proxy"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            let error =
                choose(&server, None, |name| (name == "https_proxy").then(|| url.to_owned())).expect_err(url);
            let error = format!("{error:#}");
            assert!(error.starts_with("the environment variable https_proxy: not the URL"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let proxy = choose(&server, Some("http://u:hunter2@p"), |_| None).expect("a proxy");
        assert!(!format!("{proxy:?}").contains("hunter2"));
    }
}
