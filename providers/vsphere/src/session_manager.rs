//! Session managers: programs that hold a vCenter session and give tickets with which other programs clone
//! it.
//!
//! A request for a ticket is authenticated by a token. A ticket opens one session. That session is
//! independent: it does not end with the one that it was cloned from.

use std::{fmt, path::PathBuf, time::Duration};

use http::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Url, redirect::Policy};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use crate::{
    http::{HttpError, read},
    tls,
    vim::CallError,
};

/// Where Kubernetes puts the token of the pod's service account.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The deadline for getting a ticket.
const DEADLINE: Duration = Duration::from_secs(10);

/// A response larger than this is refused. A ticket has some tens of bytes.
const LARGEST_ANSWER: usize = 64 << 10;

/// The most redirects that are followed, as in Go.
const MAX_REDIRECTS: usize = 10;

/// The URL of a session manager, and the token for it.
#[derive(Clone)]
pub(crate) struct SessionManager {
    url: SecretString,
    token: Option<SecretString>,
    token_file: PathBuf,
    ca_files: Vec<PathBuf>,
}

impl SessionManager {
    /// The session manager at this URL, which may contain secrets. Without a token, that of the pod's service
    /// account is sent. The server's certificate may be signed by an authority in `ca_files` or in the
    /// system.
    pub(crate) fn new(url: SecretString, token: Option<SecretString>, ca_files: Vec<PathBuf>) -> Self {
        Self { url, token, token_file: SERVICE_ACCOUNT_TOKEN.into(), ca_files }
    }

    /// Gets a ticket.
    ///
    /// # Errors
    /// [`CallError::NotShared`], or [`CallError::Misconfigured`] if the request must not be sent. The error
    /// contains no ticket and no token, and of the URL only the host.
    pub(crate) async fn ticket(&self) -> Result<SecretString, CallError> {
        let url = self.url()?;
        let is_encrypted = url.scheme() == "https";
        if !is_encrypted && self.token.is_none() {
            let words = "its URL is http, and the token of the pod's service account, which the Kubernetes API takes from \
                         everybody who reads it, is sent over https alone: use https, or put a token that is for the \
                         session manager alone into the Secret (<server>.vc-session-manager-token)";
            return Err(self.misconfigured(words));
        }
        let authorization = self.authorization()?;
        let tls = tls::client_config_of_others(&self.ca_files).map_err(|reason| self.error(reason, false))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            // As in Go, redirects are followed, without the token if they lead to another host. Unlike in Go,
            // a redirect from https to http is refused.
            .redirect(Policy::custom(move |attempt| {
                match may_follow(is_encrypted, attempt.url(), attempt.previous().len()) {
                    Ok(()) => attempt.follow(),
                    Err(why) => attempt.error(why),
                }
            }))
            // the URL may hold secrets
            .referer(false)
            // the session manager is nearby, and the token must not go through a proxy
            .no_proxy()
            .user_agent(concat!("cloud-controller-manager/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| self.error(error.without_url().to_string(), false))?;
        let request = client.get(url).header(AUTHORIZATION, authorization);
        let answer = tokio::time::timeout(DEADLINE, read(request, LARGEST_ANSWER)).await;
        let answer = answer.unwrap_or(Err(HttpError::Timeout)).map_err(|error| match error {
            HttpError::Timeout => self.error(format!("no answer within {} s", DEADLINE.as_secs()), false),
            HttpError::Unreachable(reason) => self.error(reason.into(), false),
            HttpError::TooLarge => self.error("the answer is too large".to_owned(), false),
        })?;
        match answer.status {
            200 => {}
            status @ (401 | 403) => {
                let from = if self.token.is_some() { "the Secret" } else { "the pod's service account" };
                let words = format!("HTTP status {status}: it does not take the token of {from}");
                return Err(self.error(words, true));
            }
            status => return Err(self.error(format!("HTTP status {status}"), false)),
        }
        let ticket = read_ticket(&answer.body);
        // do not quote the answer: it may contain a ticket
        ticket.filter(|ticket| !ticket.trim().is_empty()).map(SecretString::from).ok_or_else(|| {
            self.error(r#"the answer is not of the form {"token":"<ticket>"}"#.to_owned(), false)
        })
    }

    /// The error if vCenter does not accept the ticket.
    pub(crate) fn refused_ticket(&self) -> CallError {
        self.error("vCenter refused its ticket".to_owned(), true)
    }

    /// The error if vCenter does not accept the cloned session for REST.
    pub(crate) fn refused_for_rest(&self) -> CallError {
        let words = "vCenter does not take the cloned session for REST, which it does from 8.0 U3 on; zones and regions from \
                     tags need a user name and a password in the Secret beside the session manager";
        self.error(words.to_owned(), true)
    }

    fn url(&self) -> Result<Url, CallError> {
        let mut url = self
            .parsed()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| self.error("its URL must be one of https, or of http".to_owned(), false))?;
        // with a user in the URL, the client would send that instead of the token
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(url)
    }

    fn parsed(&self) -> Option<Url> {
        Url::parse(self.url.expose_secret().trim()).ok()
    }

    fn authorization(&self) -> Result<HeaderValue, CallError> {
        let mut value = match &self.token {
            Some(token) => HeaderValue::from_str(&format!("Bearer {}", token.expose_secret().trim())),
            None => {
                let token = std::fs::read_to_string(&self.token_file).map_err(|error| {
                    let file = self.token_file.display();
                    let words = format!(
                        "the Secret has no token for it, and {file} none of the pod's service account: {error}"
                    );
                    self.error(words, false)
                })?;
                HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            }
        }
        .map_err(|_| self.error("its token has characters that no HTTP header can have".to_owned(), false))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// An error that only another configuration resolves.
    fn misconfigured(&self, reason: &str) -> CallError {
        match self.error(reason.to_owned(), false) {
            CallError::NotShared { manager, reason, .. } => {
                CallError::Misconfigured(format!("{manager}: {reason}").into())
            }
            other => other,
        }
    }

    fn error(&self, reason: String, is_denied: bool) -> CallError {
        let url = self.parsed();
        let port = url.as_ref().and_then(Url::port).map(|port| format!(":{port}")).unwrap_or_default();
        let manager = match url.as_ref().and_then(Url::host_str) {
            Some(host) => format!("session manager {host}{port}"),
            None => "session manager".to_owned(),
        };
        CallError::NotShared { manager: manager.into(), reason: reason.into(), is_denied }
    }
}

/// Whether a redirect to `url` may be followed. `encrypted`: whether the first request used https.
fn may_follow(encrypted: bool, url: &Url, redirects: usize) -> Result<(), &'static str> {
    if encrypted && url.scheme() != "https" {
        return Err("it redirects from https to http");
    }
    if redirects > MAX_REDIRECTS { Err("too many redirects") } else { Ok(()) }
}

/// The field `token` of a JSON object, in any letter case, as Go reads it.
fn read_ticket(body: &[u8]) -> Option<String> {
    let members: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let ticket = members.into_iter().find(|(key, _)| key.eq_ignore_ascii_case("token"))?.1;
    ticket.as_str().map(str::to_owned)
}

impl fmt::Debug for SessionManager {
    /// Shows no field: they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
pub(crate) mod tests;
