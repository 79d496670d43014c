//! The pool of connections, which can be replaced while it is in use.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use arc_swap::ArcSwap;
use http::{Request, Response};
use kube::{
    Client,
    client::{Body, ClientBuilder},
    config::{AuthInfo, Config},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    answer::AnswerBody,
    fault::{describe, without_secrets},
    location::Loaded,
};

/// A connection that says nothing for longer than any watch may be silent is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(310);

/// How long the API server may take for the head of an answer; its own deadline is 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a new configuration may take to prove that it works.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// One version of the configuration in use.
pub(super) struct Endpoint {
    /// Sends as ourselves.
    own: Client,
    /// Sends without credentials; whoever uses it brings some. Not with a client over something else.
    anonymous: Option<Client>,
    /// The address, without what may be secret in it.
    pub url: String,
    /// `HOST:PORT` as in metrics.
    pub host: String,
    /// Cancelled when another address takes the place of this one.
    retired: CancellationToken,
    pub made: Instant,
}

/// Sends requests over the configuration that is in force. Cloning shares it.
#[derive(Clone)]
pub(super) struct Connection(Arc<ArcSwap<Endpoint>>);

impl Connection {
    /// # Errors
    /// Certificates, keys or a token that cannot be used.
    pub(super) async fn new(loaded: Loaded) -> anyhow::Result<Self> {
        Ok(Self::to(Endpoint::new(loaded.config).await?))
    }

    pub(super) fn over(client: Client) -> Self {
        Self::to(Endpoint::assemble(client, None, "in-process".to_owned(), "none".to_owned()))
    }

    fn to(endpoint: Endpoint) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(endpoint)))
    }

    pub(super) fn current(&self) -> Arc<Endpoint> {
        self.0.load_full()
    }

    /// Puts another configuration in force. Requests under way are not touched. Where the address is another one,
    /// watches end as they do now and then anyway, and are taken up at the new address where they were.
    pub(super) fn replace(&self, endpoint: Arc<Endpoint>) {
        let before = self.0.swap(endpoint.clone());
        if before.url != endpoint.url {
            before.retired.cancel();
        }
    }

    /// Sends a request; with `bring_credentials` it has them in its headers already.
    pub(super) async fn send(
        &self,
        request: Request<Body>,
        bring_credentials: bool,
    ) -> kube::Result<Response<AnswerBody>> {
        let endpoint = self.current();
        let client = if bring_credentials { endpoint.anonymous.as_ref() } else { None };
        let client = client.unwrap_or(&endpoint.own);
        let is_watch = is_watch(&request);
        let response = tokio::time::timeout(ANSWER_TIMEOUT, client.send(request))
            .await
            .map_err(|_| kube::Error::Service(format!("no answer within {ANSWER_TIMEOUT:?}").into()))?
            .map_err(without_secrets)?;
        let body = |body| {
            if is_watch { AnswerBody::until(body, endpoint.retired.clone()) } else { AnswerBody::new(body) }
        };
        Ok(response.map(body))
    }
}

/// Whether a request is a watch: its answer comes for as long as it is wanted.
pub(super) fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

impl Endpoint {
    /// # Errors
    /// Certificates, keys or a token that cannot be used.
    pub(super) async fn new(mut config: Config) -> anyhow::Result<Self> {
        config.default_retry = false;
        config.read_timeout = Some(READ_TIMEOUT);
        config.reset_reader_on_write = true;
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        let (url, host) = (without_credentials(&config.cluster_url), host(&config.cluster_url));
        // A plugin of the kubeconfig may have to run for the credentials.
        let build = move || anyhow::Ok((client_for(config)?, client_for(anonymous)?));
        let (own, anonymous) = tokio::task::spawn_blocking(build).await.context("no client")??;
        Ok(Self::assemble(own, Some(anonymous), url, host))
    }

    fn assemble(own: Client, anonymous: Option<Client>, url: String, host: String) -> Self {
        Self { own, anonymous, url, host, retired: CancellationToken::new(), made: Instant::now() }
    }

    /// When a plugin's certificate has to be asked for again.
    pub(super) fn valid_until(&self) -> Option<jiff::Timestamp> {
        *self.own.valid_until()
    }

    /// Whether the API server can be reached and takes our credentials.
    ///
    /// # Errors
    /// It is not there, is not the one that the CA vouches for, or refuses us.
    pub(super) async fn probe(&self) -> anyhow::Result<()> {
        let request = Request::get("/version").body(Body::empty())?;
        match tokio::time::timeout(PROBE_TIMEOUT, self.own.send(request)).await {
            Ok(Ok(response)) if response.status() == http::StatusCode::UNAUTHORIZED => {
                Err(anyhow!("the API server at {} refuses the credentials (401 Unauthorized)", self.url))
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                Err(anyhow!("cannot reach the API server at {}: {}", self.url, describe(&error)))
            }
            Err(_) => Err(anyhow!("no answer from the API server at {} within {PROBE_TIMEOUT:?}", self.url)),
        }
    }
}

/// A client without anything around it.
///
/// # Errors
/// Certificates or keys that cannot be used.
pub fn client(config: Config) -> anyhow::Result<Client> {
    client_for(config)
}

fn client_for(config: Config) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config)
        .map_err(|error| anyhow!("no client for the API server: {}", describe(&error)))?;
    Ok(builder.build())
}

/// A URL for logs and messages: a password may stand before the host.
fn without_credentials(url: &http::Uri) -> String {
    format!("{}://{}", url.scheme_str().unwrap_or("https"), host(url))
}

fn host(url: &http::Uri) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("https://u:hunter2@api:6443/path", "https://api:6443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://api", "https://api"),
        ] {
            assert_eq!(without_credentials(&url.parse().expect("a URL")), shown);
        }
    }

    #[tokio::test]
    async fn what_a_plugin_printed_is_not_told() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for script in ["echo hunter2; exit 1", "echo 'hunter2: ['"] {
            let mut config = Config::new("https://127.0.0.1:1".parse().expect("a URL"));
            config.auth_info.exec = serde_json::from_value(serde_json::json!({
                "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            }))
            .expect("a plugin");
            let error = Endpoint::new(config).await.err().expect("a fault").to_string();
            assert!(error.contains("plugin") && !error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn nor_what_it_printed_when_it_ran_again() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let ran = folder.path().join("ran");
        // Credentials that have ended: the first request wants others.
        let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
            "status":{"token":"t","expirationTimestamp":"2020-01-01T00:00:00Z"}}"#;
        let script = format!(
            "if [ -e {0} ]; then echo hunter2; exit 7; fi; touch {0}; echo '{credential}'",
            ran.display()
        );
        let mut config = Config::new("https://127.0.0.1:1".parse().expect("a URL"));
        config.auth_info.exec = serde_json::from_value(serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        }))
        .expect("a plugin");
        let connection = Connection::to(Endpoint::new(config).await.expect("credentials"));
        let request = Request::get("/version").body(Body::empty()).expect("a request");
        let error = connection.send(request, false).await.err().expect("no credentials");
        let told = format!("{error} {error:?} {}", describe(&error));
        assert!(told.contains("plugin failed with exit status: 7") && !told.contains("hunter2"), "{told}");
    }
}
