//! The HTTP client of one Rancher server: one API key or token, one deadline for each call, limited sizes, no
//! redirects.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use cloudprovider::{
    ConfigProblem, Error, ErrorKind, Result, error_chain,
    tls::{client_config, system_roots},
};
use http::{HeaderValue, Method, header};
use parking_lot::Mutex;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::reply::{Reply, unavailable};
use crate::{
    config::{Credentials, ServerConfig},
    tls,
};

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A silent connection is probed after this time.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The type of the answers that are asked for.
pub(crate) const JSON: &str = "application/json";

/// A page of 10,000 hosts is smaller.
const MAX_BODY: usize = 128 << 20;

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    credentials: Credentials,
    timeout: Duration,
    pub(crate) page_size: u32,
    /// The time until which the server refuses requests (429).
    paused: Arc<Mutex<Option<Instant>>>,
}

impl Client {
    /// A client of the API below `base`, with the settings of a server. Opens no connection.
    ///
    /// # Errors
    /// Why there can be no client. A fault that belongs to no key has an empty one.
    pub(crate) fn new(config: &ServerConfig, base: &str) -> Result<Self, ConfigProblem> {
        let base = Url::parse(base).map_err(|error| ConfigProblem::new("url", error.to_string()))?;
        let builder = reqwest::Client::builder();
        let mut builder = if config.insecure {
            tls::install_crypto_provider();
            // A client that accepts any certificate does not check its name either.
            builder.tls_danger_accept_invalid_certs(true)
        } else {
            let key = if config.authorities.is_some() { "caFile, caCert" } else { "" };
            let roots = config.authorities.clone().unwrap_or_else(system_roots);
            let settings = client_config(roots).map_err(|why| ConfigProblem::new(key, why))?;
            builder.tls_backend_preconfigured(settings)
        };
        let host = base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
            builder = builder.no_proxy();
        }
        let http = builder
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(config.timeout))
            .tcp_keepalive(KEEPALIVE)
            .user_agent(concat!("cloud-controller-manager/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ConfigProblem::new("", error_chain(&error)))?;
        Ok(Self {
            http,
            base,
            credentials: config.credentials.clone(),
            timeout: config.timeout,
            page_size: config.page_size,
            paused: Arc::default(),
        })
    }

    /// The URL of a collection such as `hosts`, or of an object in one.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        url
    }

    /// The URL that the server gave for something, such as the next page. The API key is sent only to the
    /// server of the configuration.
    ///
    /// # Errors
    /// If it is another server's URL. A server behind a proxy that ends TLS may say `http` of itself: then
    /// its URL is used with the scheme of the configuration.
    pub(crate) fn same_server(&self, text: &str) -> Result<Url> {
        let foreign = || unavailable("the server names a URL of another server; check its setting api.host");
        let mut url = self.base.join(text).map_err(|_| foreign())?;
        if url.host() == self.base.host() && url.scheme() == "http" && self.base.scheme() == "https" {
            let port = self.base.port();
            url.set_scheme("https")
                .and_then(|()| url.set_port(port).map_err(drop))
                .map_err(|()| foreign())?;
        }
        if url.origin() == self.base.origin() { Ok(url) } else { Err(foreign()) }
    }

    /// Reads an object.
    pub(crate) async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T> {
        self.send(Method::GET, url, None::<&()>).await?.decode()
    }

    /// Reads from an API of the same server. The caller decodes successful answers as they arrive. `timeout`
    /// is the time for the whole answer. Answers with one of the statuses `passed` are successful too.
    ///
    /// # Errors
    /// Those of every other answer, and of one that is no JSON.
    pub(crate) async fn forward(
        &self,
        url: Url,
        accept: Option<HeaderValue>,
        timeout: Duration,
        passed: &[u16],
    ) -> Result<reqwest::Response> {
        let accept = accept.unwrap_or(HeaderValue::from_static(JSON));
        let request = self.request(Method::GET, url).timeout(timeout).header(header::ACCEPT, accept);
        self.check_pause()?;
        let response = self.in_time(async { request.send().await.map_err(unreachable) }).await?;
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.contains("json"));
        if passed.contains(&response.status().as_u16()) || response.status().is_success() && is_json {
            return Ok(response);
        }
        let reply = self.in_time(read(response)).await?;
        self.note_pause(&reply);
        // An answer without a fault is JSON all the same, though its header does not say so.
        reply.decode::<serde_json::Value>()?;
        Err(unavailable("the answer does not say that it is JSON"))
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<Reply> {
        let mut request = self.request(method, url).header(header::ACCEPT, JSON);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.check_pause()?;
        let reply = self.in_time(async { read(request.send().await.map_err(unreachable)?).await }).await?;
        self.note_pause(&reply);
        Ok(reply)
    }

    /// Remembers how long the server wants to be left alone, if it says so.
    fn note_pause(&self, reply: &Reply) {
        if let Some(pause) = reply.pause() {
            *self.paused.lock() = Some(Instant::now() + pause);
        }
    }

    /// Fails while the server wants to be left alone. So one refusal is enough for all callers.
    pub(crate) fn check_pause(&self) -> Result<()> {
        let until = *self.paused.lock();
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(left) if !left.is_zero() => {
                let words = "the server has had too many requests (429), and is left alone for a while";
                Err(Error::new(ErrorKind::RateLimited, words).with_retry_after(left))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> reqwest::RequestBuilder {
        let request = self.http.request(method, url);
        match &self.credentials {
            Credentials::Key { access, secret } => {
                request.basic_auth(access.expose_secret(), Some(secret.expose_secret()))
            }
            Credentials::Token(token) => request.bearer_auth(token.expose_secret()),
        }
    }

    pub(crate) async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || {
            let message = format!("no answer within {:?}", self.timeout);
            Error::new(ErrorKind::Timeout, message)
        };
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| Err(late()))
    }
}

pub(crate) async fn read(mut response: reqwest::Response) -> Result<Reply> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(unavailable("the answer is too large"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply { status: response.status().as_u16(), headers: std::mem::take(response.headers_mut()), body })
}

pub(crate) fn unreachable(error: reqwest::Error) -> Error {
    unavailable(format!("the server cannot be reached: {}", error_chain(&error.without_url())))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.base.as_str()).finish()
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::FactoryInput;

    use super::*;
    use crate::config::{Config, Environment};

    fn client(url: &str) -> Client {
        let input = FactoryInput::new(format!("url: {url}\naccessKey: ABC\nsecretKey: correct-horse\n"));
        let config = Config::read(&input, &Environment::default()).expect("a configuration");
        Client::new(&config.server, &config.cattle_url()).expect("a client")
    }

    #[test]
    fn collections_are_below_the_base() {
        let client = client("https://h/rancher/v1/projects/1a5");
        assert_eq!(client.url("hosts").as_str(), "https://h/rancher/v2-beta/projects/1a5/hosts");
        assert_eq!(format!("{client:?}"), "Client(\"https://h/rancher/v2-beta/projects/1a5\")");
    }

    #[test]
    fn the_key_goes_to_this_server_only() {
        let client = client("https://h:8443");
        for (next, expected) in [
            ("https://h:8443/v2-beta/hosts?marker=m1", Some("https://h:8443/v2-beta/hosts?marker=m1")),
            ("/v2-beta/hosts?marker=m1", Some("https://h:8443/v2-beta/hosts?marker=m1")),
            // Behind a proxy that ends TLS.
            ("http://h:8080/v2-beta/hosts?marker=m1", Some("https://h:8443/v2-beta/hosts?marker=m1")),
            ("https://other:8443/v2-beta/hosts", None),
            ("https://h/v2-beta/hosts", None),
            ("ftp://h:8443/v2-beta/hosts", None),
        ] {
            let url = client.same_server(next).ok();
            assert_eq!(url.as_ref().map(Url::as_str), expected, "{next}");
        }
    }
}
