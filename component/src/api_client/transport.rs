//! Connections to the API server: directly or through a proxy, with or without TLS.
//!
//! The protocol is HTTP/1.1. A request that is dropped closes its connection, and the next request uses
//! another one. With HTTP/2 all requests, renewals of the lease included, would hang on one half-open
//! connection until that is detected. A dead connection is detected by TCP if nothing is acknowledged, and
//! otherwise by the silence of a watch.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, header::AUTHORIZATION};
use hyper::rt::{Read, Write};
use hyper_util::{
    client::legacy::{
        Builder, Client as HyperClient,
        connect::{
            Connection, HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
    },
    rt::TokioExecutor,
};
use kube::{
    Client,
    client::{Body, ClientBuilder, ConfigExt as _},
    config::Config,
};
use secrecy::ExposeSecret as _;
use tower::{BoxError, Layer as _, Service};

use super::{credentials, fault::fault, proxy::Proxy, tls, url::UserInfo};

/// Time limit for opening a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Idle time after which TCP probes the peer, and the pause between two probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How many probes may stay unanswered.
const KEEPALIVE_TRIES: u32 = 3;

/// How long sent data may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// An idle connection is closed after this time. It is shorter than the longest silence of a watch, so that a
/// client that has just detected a dead connection does not get another dead one.
const IDLE: Duration = Duration::from_secs(30);

/// What a connection to an API server of a user may buffer at most, headers included, in bytes.
const FOREIGN_BUFFER: usize = 64 * 1024;

/// A client of an API server that adds nothing but the credentials to a request.
///
/// # Errors
/// Certificates, keys or headers that cannot be used.
pub(super) fn client(config: &Config, proxy: Option<&Proxy>) -> anyhow::Result<Client> {
    let config = &with_credentials(config)?;
    let tcp = tcp(HttpConnector::new());
    let Some(Proxy { url, user }) = proxy else { return over(tcp, config) };
    match (url.scheme_str(), user) {
        (Some("socks5"), None) => over(SocksV5::new(url.clone(), tcp), config),
        (Some("socks5"), Some(UserInfo { user, password })) => {
            let password = password.expose_secret().to_owned();
            over(SocksV5::new(url.clone(), tcp).with_auth(user.clone(), password), config)
        }
        (Some("https"), _) => {
            // As in Go, the proxy's certificate is verified like the API server's, but for the proxy's own
            // name.
            let mut config_of_proxy = config.clone();
            config_of_proxy.tls_server_name = None;
            config_of_proxy.cluster_url = url.clone();
            over(tunnel(url, user.as_ref(), tls::connector(tcp, &config_of_proxy)?), config)
        }
        _ => over(tunnel(url, user.as_ref(), tcp), config),
    }
}

/// A client like [`client`], whose connections `connector` opens. Each connection buffers little.
///
/// # Errors
/// Those of [`client`].
pub(super) fn foreign<C>(connector: C, config: &Config) -> anyhow::Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    over_with(
        HyperClient::builder(TokioExecutor::new()).http1_max_buf_size(FOREIGN_BUFFER),
        connector,
        &with_credentials(config)?,
    )
}

/// The configuration with its credentials as a header, where they are one.
fn with_credentials(config: &Config) -> anyhow::Result<Config> {
    let mut config = config.clone();
    if let Some(header) = credentials::header(&config.auth_info)? {
        config.headers.push((AUTHORIZATION, header));
    }
    Ok(config)
}

/// The connector with the limits of connections to an API server.
pub(super) fn tcp<R>(mut tcp: HttpConnector<R>) -> HttpConnector<R> {
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

fn tunnel<C>(url: &Uri, user: Option<&UserInfo>, connector: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(url.clone(), connector);
    match user.and_then(|UserInfo { user, password }| credentials::basic(user, password).ok()) {
        Some(header) => tunnel.with_auth(header),
        None => tunnel,
    }
}

/// Like [`client`], over this way of connecting to the API server.
fn over<C>(connector: C, config: &Config) -> anyhow::Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    over_with(&mut HyperClient::builder(TokioExecutor::new()), connector, config)
}

fn over_with<C>(builder: &mut Builder, connector: C, config: &Config) -> anyhow::Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let connector = Timely(tls::connector(connector, config)?);
    let http: HyperClient<_, Body> = builder.pool_idle_timeout(IDLE).build(connector);
    let service = config.base_uri_layer().layer(config.extra_headers_layer().map_err(fault)?.layer(http));
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// A connector with a time limit.
#[derive(Clone)]
struct Timely<C>(C);

impl<C> Service<Uri> for Timely<C>
where
    C: Service<Uri>,
    C::Response: Send + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connecting = self.0.call(url);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(format!("no connection within {CONNECT_TIMEOUT:?}").into()),
            }
        })
    }
}
