//! Reads the credentials of vCenters from a Secret or a folder of files.
//!
//! Keys are `<server>.username`, `<server>.password`, `<server>.vc-session-manager-url` and
//! `<server>.vc-session-manager-token`. For servers whose address has colons they are `server_<id>`,
//! `username_<id>` and `password_<id>`. One line break at the end of a value is dropped.

use std::{collections::BTreeMap, fmt, net::IpAddr, path::Path};

use cloudprovider::{SecretData, TextOddity};
use secrecy::{ExposeSecret as _, SecretString};

/// The credentials in a Secret, by server.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretContents {
    by_server: BTreeMap<String, Entry>,
    /// Messages about keys without a meaning here, and which keys have one. They contain no values.
    pub(crate) oddities: Vec<String>,
}

/// The credentials for one server.
#[derive(Clone, Default)]
struct Entry {
    user: Option<SecretString>,
    password: Option<SecretString>,
    session_manager_url: Option<SecretString>,
    session_manager_token: Option<SecretString>,
    /// Whether there is a token that cannot be sent.
    has_odd_token: bool,
}

/// How to log in to a vCenter.
#[derive(Clone)]
pub(crate) enum LoginMethod {
    /// A user and a password.
    Password { user: String, password: SecretString },
    /// A certificate and its key in PEM, which vCenter's token service exchanges for a token. Not supported.
    Certificate,
    /// A session that another program shares: its URL gives a ticket to clone it. Without a token, the pod's
    /// own token is sent. The user and the password are for calls that do not accept the cloned session.
    SharedSession { url: SecretString, token: Option<SecretString>, user: Option<(String, SecretString)> },
}

/// Why there are no credentials, worded for an event. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoCredentials {
    #[error("has no credentials for {server:?}; {hint}")]
    NoEntry { server: String, hint: String },
    #[error("has {there} for {server:?} and no {missing}")]
    Incomplete { server: String, there: &'static str, missing: &'static str },
    #[error("has a token of a session manager for {server:?} that is not UTF-8")]
    OddToken { server: String },
}

const DOTTED: [&str; 4] = [".username", ".password", ".vc-session-manager-url", ".vc-session-manager-token"];
const NUMBERED: [&str; 3] = ["server_", "username_", "password_"];

impl SecretContents {
    /// Reads the keys of a Secret.
    pub(crate) fn read(data: &SecretData) -> Self {
        let mut contents = Self::default();
        let text = |key: &str| {
            let bytes = data.get(key)?.expose_secret();
            let text = std::str::from_utf8(bytes).ok()?;
            Some(text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text)))
        };
        for (key, _) in data.iter() {
            if let Some(suffix) = DOTTED.iter().find(|suffix| key.ends_with(*suffix)) {
                let server = &key[..key.len() - suffix.len()];
                contents.note_text(key, text(key));
                let value = text(key).map(SecretString::from);
                let entry = contents.by_server.entry(server.to_owned()).or_default();
                match *suffix {
                    ".username" => entry.user = value,
                    ".password" => entry.password = value,
                    ".vc-session-manager-url" => entry.session_manager_url = value,
                    _ => {
                        entry.has_odd_token = value.is_none();
                        entry.session_manager_token = value;
                    }
                }
            } else if let Some(id) = key.strip_prefix("server_") {
                match text(key) {
                    Some(server) if !server.trim().is_empty() => {
                        let entry = contents.by_server.entry(server.trim().to_owned()).or_default();
                        entry.user =
                            text(&format!("username_{id}")).map(SecretString::from).or(entry.user.take());
                        entry.password =
                            text(&format!("password_{id}")).map(SecretString::from).or(entry.password.take());
                    }
                    _ => contents.oddities.push(format!("key {key:?} holds no server")),
                }
            } else if let Some(prefix) = NUMBERED.iter().find(|prefix| key.starts_with(*prefix)) {
                let id = &key[prefix.len()..];
                if data.get(&format!("server_{id}")).is_none() {
                    contents.oddities.push(format!("key {key:?} has no server_{id} beside it"));
                }
            } else {
                contents.oddities.push(format!(
                    "key {key:?} means nothing; credentials are under <server>.username and <server>.password, or \
                     server_<id>, username_<id> and password_<id>"
                ));
            }
        }
        contents
    }

    fn note_text(&mut self, key: &str, value: Option<&str>) {
        match value.map(TextOddity::in_secret) {
            None => self.oddities.push(format!("the value of {key:?} is not UTF-8")),
            // a certificate has line breaks, which would be an oddity in a password
            Some(Some(oddity)) if value.is_some_and(|value| !value.contains("-----BEGIN ")) => {
                self.oddities.push(format!("the value of {key:?} {}", oddity.of_secret()));
            }
            Some(_) => {}
        }
    }

    /// The credentials for a server as the configuration names it. An entry with the same spelling is
    /// preferred to one with the same address or name in another spelling.
    pub(crate) fn find(&self, server: &str) -> Result<LoginMethod, NoCredentials> {
        let entry = self.by_server.get(server).or_else(|| {
            self.by_server.iter().find(|(known, _)| is_same_server(known, server)).map(|(_, entry)| entry)
        });
        let Some(entry) = entry else {
            let known: Vec<_> = self.by_server.keys().map(|known| format!("{known:?}")).collect();
            let hint = if known.is_empty() {
                format!("it needs the keys \"{server}.username\" and \"{server}.password\"")
            } else {
                format!("it has some for {}", known.join(", "))
            };
            return Err(NoCredentials::NoEntry { server: server.to_owned(), hint });
        };
        let is_given = |value: &&SecretString| !value.expose_secret().is_empty();
        let (user, password) =
            (entry.user.as_ref().filter(is_given), entry.password.as_ref().filter(is_given));
        if let Some(url) = entry.session_manager_url.as_ref().filter(is_given) {
            if entry.has_odd_token {
                // Sending the pod's own token instead would disclose it to a server that it was not meant
                // for.
                return Err(NoCredentials::OddToken { server: server.to_owned() });
            }
            let user = match user.zip(password).map(|(user, password)| LoginMethod::of(user, password)) {
                Some(LoginMethod::Password { user, password }) => Some((user, password)),
                _ => None,
            };
            let token = entry.session_manager_token.as_ref().filter(is_given).cloned();
            return Ok(LoginMethod::SharedSession { url: url.clone(), token, user });
        }
        if entry.session_manager_token.as_ref().is_some_and(|token| is_given(&token))
            && user.is_none()
            && password.is_none()
        {
            let server = server.to_owned();
            let (there, missing) = ("the token of a session manager", "vc-session-manager-url");
            return Err(NoCredentials::Incomplete { server, there, missing });
        }
        let incomplete =
            |there, missing| NoCredentials::Incomplete { server: server.to_owned(), there, missing };
        match (user, password) {
            (Some(user), Some(password)) => Ok(LoginMethod::of(user, password)),
            (Some(_), None) => Err(incomplete("a user name", "password")),
            (None, Some(_)) => Err(incomplete("a password", "user name")),
            (None, None) => Err(incomplete("keys", "user name and password")),
        }
    }
}

impl LoginMethod {
    /// Whether the values look like placeholders that were never filled in.
    pub(crate) fn is_placeholder(&self) -> bool {
        let Self::Password { user, password } = self else { return false };
        let is = |oddity| oddity == Some(TextOddity::Placeholder);
        is(TextOddity::of(user)) || is(TextOddity::in_secret(password.expose_secret()))
    }

    /// Chooses by the user's value: a PEM certificate is a [`Certificate`](Self::Certificate).
    pub(crate) fn of(user: &SecretString, password: &SecretString) -> Self {
        if user.expose_secret().contains("-----BEGIN ") {
            Self::Certificate
        } else {
            Self::Password { user: user.expose_secret().to_owned(), password: password.clone() }
        }
    }
}

fn is_same_server(one: &str, other: &str) -> bool {
    let ip = |text: &str| {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        bare.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
    };
    one.eq_ignore_ascii_case(other) || ip(one).is_some_and(|one| ip(other) == Some(one))
}

/// Reads a folder with one file for each key, such as a mounted Secret. Skips subfolders and the files that
/// Kubernetes uses for its bookkeeping (`..data`). Blocks.
///
/// # Errors
/// The reason, if the folder or one of its files cannot be read.
pub(crate) fn read_directory(folder: &Path) -> Result<SecretData, String> {
    let reason = |path: &Path, error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let entries = std::fs::read_dir(folder).map_err(|error| reason(folder, error))?;
    let mut values = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| reason(folder, error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with("..") || path.is_dir() {
            continue;
        }
        let value = std::fs::read(&path).map_err(|error| reason(&path, error))?;
        values.push((name.to_owned(), value));
    }
    Ok(values.into_iter().collect())
}

impl fmt::Debug for Entry {
    /// Shows no field: all of them may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for LoginMethod {
    /// Shows the user only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Certificate => f.write_str("Certificate"),
            Self::SharedSession { .. } => f.write_str("SharedSession"),
        }
    }
}

#[cfg(test)]
mod tests;
