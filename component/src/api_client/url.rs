//! The URLs of API servers and proxies: which ones are valid, and what may be shown of them.

use anyhow::{Context as _, bail, ensure};
use http::{Uri, uri::Authority};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;

/// The user and password from a URL.
#[derive(Clone, Debug)]
pub(super) struct UserInfo {
    pub user: String,
    pub password: SecretString,
}

/// Parses the URL of an API server. Also returns the user in it. As in client-go, a URL without a scheme is
/// `https` if `is_tls` says that certificates are configured, else `http`.
///
/// # Errors
/// The text is not such a URL. The error does not contain the text, since that may contain a password.
pub(super) fn server(text: &str, is_tls: bool) -> anyhow::Result<(Uri, Option<UserInfo>)> {
    let default = if is_tls { "https" } else { "http" };
    let (url, user) =
        parse(text, default).context("not the URL of an API server; expected https://host:port")?;
    match url.scheme_str() {
        Some("https" | "http") => Ok((url, user)),
        _ => bail!("not the URL of an API server: its scheme is neither https nor http"),
    }
}

/// Parses a URL. Returns it without the user, and the user.
pub(super) fn parse(text: &str, default_scheme: &str) -> anyhow::Result<(Uri, Option<UserInfo>)> {
    let text = text.trim();
    let with_scheme =
        if text.contains("://") { text.to_owned() } else { format!("{default_scheme}://{text}") };
    let url: Uri = with_scheme.parse().context("not a URL")?;
    ensure!(url.host().is_some_and(|host| !host.is_empty()), "not a URL: there is no host in it");
    split(url)
}

fn split(url: Uri) -> anyhow::Result<(Uri, Option<UserInfo>)> {
    let mut parts = url.into_parts();
    let authority = parts.authority.take().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user_info(user)?), host),
        None => (None, authority.as_str()),
    };
    let host = host.parse::<Authority>().context("not a URL")?;
    // Else `http` says that there is no port. None after the colon is the default, as in Go.
    let has_port = host.as_str().len() > host.host().len() + 1;
    ensure!(
        !has_port || host.port_u16().is_some_and(|port| port > 0),
        "not a URL: its port is not a number from 1 to 65535"
    );
    parts.authority = Some(host);
    Ok((Uri::from_parts(parts)?, user))
}

fn user_info(text: &str) -> anyhow::Result<UserInfo> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |text| percent_decode_str(text).decode_utf8().context("not a URL: the user is no text");
    Ok(UserInfo { user: decoded(user)?.into_owned(), password: decoded(password)?.into_owned().into() })
}

/// A URL for logs and messages, without user, path and query.
pub(super) fn shown(url: &Uri) -> String {
    format!("{}://{}", url.scheme_str().unwrap_or("https"), host(url))
}

/// `HOST:PORT`, as in metrics.
pub(super) fn host(url: &Uri) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn as_client_go_reads_them() {
        for (text, is_tls, expected) in [
            ("https://a:6443", false, "https://a:6443/"),
            ("a:6443", true, "https://a:6443/"),
            ("a:8080", false, "http://a:8080/"),
            ("localhost", false, "http://localhost/"),
            ("127.0.0.1:6443/k8s/clusters/c-1", true, "https://127.0.0.1:6443/k8s/clusters/c-1"),
            ("[::1]:6443", true, "https://[::1]:6443/"),
            ("https://[fd00::1]", true, "https://[fd00::1]/"),
        ] {
            let (url, user) = server(text, is_tls).expect(text);
            assert_eq!(url.to_string(), expected, "{text}");
            assert!(user.is_none());
        }
    }

    #[test]
    fn a_password_goes_no_further() {
        for (text, password) in [
            ("https://u:hunter2@api:6443/path", "hunter2"),
            ("u:hunter%402@api:6443/path", "hunter@2"),
            ("https://u@api:6443/path", ""),
        ] {
            let (url, user) = server(text, true).expect(text);
            let user = user.expect("a user");
            assert_eq!((user.user.as_str(), user.password.expose_secret()), ("u", password));
            assert_eq!(url.to_string(), "https://api:6443/path");
            assert_eq!(shown(&url), "https://api:6443");
            assert!(!format!("{user:?}").contains("hunter"));
        }
        for text in [
            "https://u:hunter2@not a url",
            "ftp://u:hunter2@a",
            "http://a:bad",
            "https://u:hunter2@a:99999",
            "a:0",
            "https://u:hunter2@",
            "",
            "://",
            "hunter2://",
        ] {
            let error = format!("{:#}", server(text, true).expect_err(text));
            assert!(
                error.starts_with("not the URL of an API server") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_url_is_shown_without_what_is_not_its_host() {
        for (url, expected) in [
            ("https://u:hunter2@api:6443/path", "https://api:6443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://api", "https://api"),
        ] {
            assert_eq!(shown(&url.parse().expect("a URL")), expected);
        }
    }
}
