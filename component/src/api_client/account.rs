//! `--use-service-account-credentials`: a controller acts as its own service account, by upstream's rules.

use std::time::Duration;

use basics::error_chain;
use http::HeaderValue;
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

/// The namespace of upstream's service accounts.
const NAMESPACE: &str = "kube-system";

/// Requested lifetime of a token. The API server may grant less.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A token that seems to live shorter than this indicates a wrong clock, so this lifetime is assumed.
const LEAST_LIFETIME: Duration = Duration::from_secs(600);

/// A token is replaced when this share of its lifetime is left.
const LEEWAY: f64 = 0.2;

/// Maximum number of tries to get a token. The pause after the first try doubles with each further one.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Pauses after all tries failed: while the present token is still valid, and while there is none.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The user name of the account.
pub(super) fn user_name(name: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{name}")
}

/// A service account, created if it is missing, and its token.
pub(super) struct Account {
    name: &'static str,
    api: Api<ServiceAccount>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// Why there is no token, and until when no further try is made. Many requests may wait for one token.
    failed: Option<(Instant, String)>,
}

struct Token {
    header: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

impl Account {
    /// `client` must be allowed to read and create service accounts and to request their tokens.
    pub(super) fn new(name: &'static str, client: Client) -> Self {
        Self { name, api: Api::namespaced(client, NAMESPACE), state: Mutex::default() }
    }

    /// The `Authorization` header. Callers wait while another caller fetches the token.
    ///
    /// # Errors
    /// No token after all tries.
    pub(super) async fn header(&self) -> Result<HeaderValue, kube::Error> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if let Some(token) = state.token.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.header.clone());
        }
        if let Some((_, why)) = state.failed.as_ref().filter(|(until, _)| now < *until) {
            return Err(kube::Error::Service(why.clone().into()));
        }
        state.failed = None;
        match self.fetch().await {
            Ok(fresh) => {
                let header = fresh.header.clone();
                state.token = Some(fresh);
                Ok(header)
            }
            Err(error) => match state.token.as_mut().filter(|token| now < token.ends_at) {
                Some(token) => {
                    token.renew_at = Instant::now() + RENEWAL_PAUSE;
                    Ok(token.header.clone())
                }
                None => {
                    let why = format!(
                        "no token for the service account {NAMESPACE}/{}: {}",
                        self.name,
                        error_chain(&error)
                    );
                    state.failed = Some((Instant::now() + FAILURE_PAUSE, why.clone()));
                    Err(kube::Error::Service(why.into()))
                }
            },
        }
    }

    /// Drops a token that the API server refused, unless a newer one was fetched in the meantime.
    pub(super) async fn refused(&self, header: &HeaderValue) {
        let mut state = self.state.lock().await;
        if state.token.as_ref().is_some_and(|token| token.header == header) {
            state.token = None;
        }
    }

    async fn fetch(&self) -> Result<Token, kube::Error> {
        let mut pause = FIRST_PAUSE;
        let mut tries_left = TRIES;
        loop {
            let outcome = tokio::time::timeout(TIMEOUT, self.request()).await.unwrap_or_else(|_| {
                Err(kube::Error::Service(format!("no answer within {TIMEOUT:?}").into()))
            });
            tries_left -= 1;
            match outcome {
                Err(error) if tries_left > 0 => {
                    tracing::debug!(service_account = self.name, %error, "no token, trying again");
                    sleep(pause).await;
                    pause *= 2;
                }
                outcome => {
                    return outcome.inspect_err(|error| {
                        tracing::error!(
                            service_account = format!("{NAMESPACE}/{}", self.name),
                            error = %error_chain(error),
                            "no token for the service account (--use-service-account-credentials)"
                        );
                    });
                }
            }
        }
    }

    async fn request(&self) -> Result<Token, kube::Error> {
        self.ensure().await?;
        let seconds = i64::try_from(LIFETIME.as_secs()).unwrap_or(i64::MAX);
        let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
        let wanted = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let sent = Instant::now();
        let answer: TokenRequest =
            self.api.create_subresource("token", self.name, &PostParams::default(), &wanted).await?;
        let fault = |text: &'static str| kube::Error::Service(text.into());
        let status = answer.status.unwrap_or_default();
        let (Some(token), Some(end)) = (status.token, status.expiration_timestamp) else {
            return Err(fault("the API server gave no token"));
        };
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| fault("the API server gave a token that no header can hold"))?;
        header.set_sensitive(true);
        let lifetime = Duration::try_from(end.0.duration_since(Timestamp::now()))
            .unwrap_or_default()
            .max(LEAST_LIFETIME);
        Ok(Token { header, renew_at: sent + lifetime.mul_f64(1.0 - LEEWAY), ends_at: sent + lifetime })
    }

    async fn ensure(&self) -> Result<(), kube::Error> {
        if self.api.get_metadata_opt(self.name).await?.is_some() {
            return Ok(());
        }
        let metadata = ObjectMeta {
            name: Some(self.name.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match self.api.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            outcome => outcome.map(|_| {
                tracing::info!(service_account = format!("{NAMESPACE}/{}", self.name), "created");
            }),
        }
    }
}
