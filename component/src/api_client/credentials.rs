//! Tokens, which are checked before they are used.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderValue;
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};

/// Reads the token file and checks the token. Afterwards `auth` names no file: kube would read the file again
/// by itself and use an unchecked token.
///
/// As in client-go, the file takes precedence over a token in the kubeconfig, and that token is used if the
/// file cannot be read.
///
/// # Errors
/// There is a token that cannot be used. The error does not contain the token.
pub(super) fn settle(auth: &mut AuthInfo) -> anyhow::Result<()> {
    if let Some(provider) = auth.auth_provider.take() {
        bail!(
            "the user's auth-provider {:?} is not supported, as in Kubernetes since 1.26; use a credential plugin (exec)",
            provider.name
        );
    }
    let inline = auth.token.take().filter(|token| !token.expose_secret().is_empty());
    let file = auth.token_file.take().filter(|path| !path.is_empty());
    auth.token = match (file.map(|path| read(Path::new(&path))), inline) {
        (Some(Ok(token)), _) => Some(token),
        (None | Some(Err(_)), Some(token)) => {
            Some(checked_token(token.expose_secret()).context("the user's token in the kubeconfig")?)
        }
        (Some(Err(error)), None) => return Err(error),
        (None, None) => None,
    };
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<SecretString> {
    let place = || format!("the token file {}", path.display());
    let text = std::fs::read_to_string(path).context("it cannot be read").with_context(place)?;
    checked_token(&text).with_context(place)
}

/// The `Authorization` header, for credentials that are sent in a header.
///
/// # Errors
/// The token contains characters that a header cannot hold.
pub(super) fn header(auth: &AuthInfo) -> anyhow::Result<Option<HeaderValue>> {
    if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
        return basic(user, password).map(Some);
    }
    let Some(token) = &auth.token else { return Ok(None) };
    let token = checked_token(token.expose_secret()).context("the token")?;
    Ok(Some(sensitive(format!("Bearer {}", token.expose_secret()))?))
}

/// The header value for basic authentication.
pub(super) fn basic(user: &str, password: &SecretString) -> anyhow::Result<HeaderValue> {
    sensitive(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{}", password.expose_secret()))))
}

fn sensitive(text: String) -> anyhow::Result<HeaderValue> {
    let mut header = HeaderValue::try_from(text)?;
    header.set_sensitive(true);
    Ok(header)
}

/// The token without surrounding white space.
///
/// # Errors
/// The token is empty, or contains characters that a header cannot hold.
pub(super) fn checked_token(text: &str) -> anyhow::Result<SecretString> {
    let token = text.trim();
    ensure!(!token.is_empty(), "it is empty");
    ensure!(
        !token.contains(char::is_whitespace) && HeaderValue::try_from(token).is_ok(),
        "it holds more than a token: white space, or characters that no HTTP header can hold"
    );
    Ok(token.to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(inline: Option<&str>, file: Option<&str>) -> anyhow::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("token");
        if let Some(content) = file.filter(|content| *content != "missing") {
            std::fs::write(&path, content)?;
        }
        let mut auth = AuthInfo {
            token: inline.map(Into::into),
            token_file: file.map(|_| path.to_string_lossy().into_owned()),
            ..AuthInfo::default()
        };
        settle(&mut auth)?;
        assert!(auth.token_file.is_none());
        Ok(auth.token.map(|token| token.expose_secret().to_owned()))
    }

    #[test]
    fn a_token_is_one_line() {
        for (inline, file, expected) in [
            (None, None, None),
            (Some("a"), None, Some("a")),
            (Some("a\n"), None, Some("a")),
            (Some(""), None, None),
            (None, Some(" b \n"), Some("b")),
            (Some("a"), Some("b"), Some("b")),
            (Some("a"), Some("missing"), Some("a")),
            (Some("a"), Some(""), Some("a")),
        ] {
            let found = settled(inline, file).expect("good");
            assert_eq!(found.as_deref(), expected, "{inline:?} {file:?}");
        }
        for (inline, file, expected) in [
            (None, Some(""), "empty"),
            (None, Some("\n"), "empty"),
            (None, Some("missing"), "cannot be read"),
            (None, Some("hunter2\nabc"), "more than a token"),
            (None, Some("hunter2\u{1}"), "more than a token"),
            (Some("hunter2\nabc"), None, "more than a token"),
            (Some("hunter2 abc"), None, "more than a token"),
        ] {
            let error = format!("{:#}", settled(inline, file).expect_err("bad"));
            assert!(
                error.contains(expected) && error.contains("token") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
