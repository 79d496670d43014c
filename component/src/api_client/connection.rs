//! The pool of connections, which can be replaced while in use.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use arc_swap::ArcSwap;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use kube::{Client, client::Body, config::AuthInfo};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    answer::AnswerBody,
    fault::describe,
    location::Ready,
    plugin::Validity,
    transport, url,
    whoami::{Identity, identity},
};

/// How long a response may be silent before its connection counts as dead. The API server sends a bookmark on
/// each watch about once a minute.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);

/// How long the API server may take to send the head of a response. Its own deadline is 60 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a new configuration may take to prove that it works.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// One version of the configuration.
pub(super) struct Endpoint {
    /// Sends with the daemon's own credentials.
    own: Client,
    /// Sends without credentials, for callers that add their own. `None` if the connection was made over
    /// another client.
    anonymous: Option<Client>,
    /// The address, without parts that may be secret.
    pub url: String,
    /// `HOST:PORT`, as in metrics.
    pub host: String,
    /// The validity of the credentials, if a plugin printed them.
    pub validity: Option<Validity>,
    /// How long a response may be silent.
    longest_silence: Option<Duration>,
    /// Cancelled when another address replaces this one.
    retired: CancellationToken,
    /// Notified when the API server refuses the daemon's credentials.
    refused: Notify,
    pub made: Instant,
}

/// Sends requests with the current configuration. Clones share it.
#[derive(Clone)]
pub(super) struct Connection(Arc<ArcSwap<Endpoint>>);

impl Connection {
    /// # Errors
    /// Certificates or keys that cannot be used.
    pub(super) async fn new(ready: Ready) -> anyhow::Result<Self> {
        Ok(Self::to(Endpoint::new(ready).await?))
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

    /// Replaces the configuration. Requests in flight are not affected. If the address changed, watches end,
    /// as they do from time to time anyway, and are resumed at the new address.
    pub(super) fn replace(&self, endpoint: Arc<Endpoint>) {
        let before = self.0.swap(endpoint.clone());
        if before.url != endpoint.url {
            before.retired.cancel();
        }
    }

    /// Sends a request. With `bring_credentials`, its headers already contain credentials.
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
            .map_err(|_| kube::Error::Service(format!("no answer within {ANSWER_TIMEOUT:?}").into()))??;
        if response.status() == StatusCode::UNAUTHORIZED && !bring_credentials {
            endpoint.refused.notify_one();
        }
        let body = |body| {
            let body = if is_watch {
                AnswerBody::until(body, endpoint.retired.clone())
            } else {
                AnswerBody::new(body)
            };
            body.at_most_silent(endpoint.longest_silence)
        };
        Ok(response.map(body))
    }
}

/// Whether a request is a watch. The response to a watch has no natural end.
pub(super) fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

impl Endpoint {
    /// # Errors
    /// Certificates or keys that cannot be used.
    pub(super) async fn new(ready: Ready) -> anyhow::Result<Self> {
        let Ready { config, proxy, validity } = ready;
        let (url, host) = (url::shown(&config.cluster_url), url::host(&config.cluster_url));
        // Reads the files of certificates and keys.
        let build = move || {
            let own = transport::client(&config, proxy.as_ref())?;
            let mut anonymous = config;
            anonymous.auth_info = AuthInfo::default();
            anyhow::Ok((own, transport::client(&anonymous, proxy.as_ref())?))
        };
        let (own, anonymous) = tokio::task::spawn_blocking(build).await.context("no client")??;
        let longest_silence = Some(LONGEST_SILENCE);
        Ok(Self { validity, longest_silence, ..Self::assemble(own, Some(anonymous), url, host) })
    }

    fn assemble(own: Client, anonymous: Option<Client>, url: String, host: String) -> Self {
        Self {
            own,
            anonymous,
            url,
            host,
            validity: None,
            longest_silence: None,
            retired: CancellationToken::new(),
            refused: Notify::new(),
            made: Instant::now(),
        }
    }

    /// When the certificate that a plugin printed expires.
    pub(super) fn certificate_end(&self) -> Option<Timestamp> {
        self.validity.filter(|validity| validity.is_certificate)?.end
    }

    /// Waits until the API server refuses the daemon's credentials.
    pub(super) async fn refused(&self) {
        self.refused.notified().await;
    }

    /// Checks that the API server can be reached and knows the daemon's user. `before` is the current
    /// configuration. Anonymous credentials are accepted only if the current ones are anonymous too.
    ///
    /// # Errors
    /// The API server cannot be reached, is not the one that the CA signed, refuses the credentials, or does
    /// not say who the user is.
    pub(super) async fn probe(&self, before: &Self) -> anyhow::Result<()> {
        match self.identity().await? {
            Identity::Anonymous if !matches!(before.identity().await, Ok(Identity::Anonymous)) => {
                bail!("to the API server at {} the credentials are nobody's (system:anonymous)", self.url)
            }
            _ => Ok(()),
        }
    }

    async fn identity(&self) -> anyhow::Result<Identity> {
        match tokio::time::timeout(PROBE_TIMEOUT, identity(&self.own)).await {
            Ok(Ok(identity)) => Ok(identity),
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => {
                Err(anyhow!("the API server at {} refuses the credentials (401 Unauthorized)", self.url))
            }
            Ok(Err(kube::Error::Api(status))) => Err(anyhow!(
                "the API server at {} does not say who we are: {} ({})",
                self.url,
                status.message,
                status.code
            )),
            Ok(Err(error)) => {
                Err(anyhow!("cannot reach the API server at {}: {}", self.url, describe(&error)))
            }
            Err(_) => Err(anyhow!("no answer from the API server at {} within {PROBE_TIMEOUT:?}", self.url)),
        }
    }
}
