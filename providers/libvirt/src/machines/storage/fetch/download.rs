//! Downloads.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cloudprovider::{Error, ErrorKind, Result, async_trait, error_chain, tls};
use reqwest::{Client, Proxy, Response, StatusCode, Url, header::LOCATION, redirect::Policy};

use super::{
    super::limits::Source,
    reach::{Fixed, Network, Way},
};
use crate::allow::ImageHosts;

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;

pub(super) struct Download {
    response: Response,
    /// The length of the whole image: the response tells what is left of it.
    length: Option<u64>,
    /// For messages.
    origin: String,
}

/// Begins a download. `origin` is for messages.
pub(super) async fn open(network: &Network, url: &Url, hosts: &ImageHosts, origin: &str) -> Result<Download> {
    let mut at = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let late = |_| {
            Error::new(ErrorKind::Timeout, format!("{origin}: no answer within {} s", IDLE_TIMEOUT.as_secs()))
        };
        let response = tokio::time::timeout(IDLE_TIMEOUT, ask(network, &at, hosts, origin)).await;
        let response = response.map_err(late)??;
        match redirect(url, &at, &response) {
            None => return begin(response, origin),
            Some(Ok(to)) => at = to,
            Some(Err(why)) => return Err(Error::new(ErrorKind::Unavailable, format!("{origin}: {why}"))),
        }
    }
    Err(Error::new(ErrorKind::Unavailable, format!("{origin}: too many redirects")))
}

/// One request. The client follows no redirect: the host of each is checked first.
async fn ask(network: &Network, url: &Url, hosts: &ImageHosts, origin: &str) -> Result<Response> {
    let way = network.way_to(url, hosts).await.map_err(|_| {
        let words = format!(
            "{origin}: may not be reached from here: a host has to exist and have public addresses only, or be in \
             the configuration of the provider, machines.allow, under imageHosts"
        );
        Error::new(ErrorKind::PermissionDenied, words)
    })?;
    client(way)?.get(url.clone()).send().await.map_err(|error| unreachable(origin, error))
}

/// A client for one request: images are fetched rarely, and the certificates to trust may have changed.
fn client(way: Way) -> Result<Client> {
    let cannot = |why: String| Error::new(ErrorKind::Internal, format!("cannot make an http client: {why}"));
    let builder = Client::builder()
        .tls_backend_preconfigured(tls::client_config(tls::system_roots()).map_err(cannot)?)
        .http1_only()
        .redirect(Policy::none())
        .no_proxy()
        // the URL may hold secrets
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(IDLE_TIMEOUT)
        .user_agent(concat!("cloud-controller-manager/", env!("CARGO_PKG_VERSION")));
    let builder = match way {
        Way::Addresses(addresses) => builder.dns_resolver(Arc::new(Fixed(addresses))),
        Way::Proxy { uri, authorization } => {
            let proxy = Proxy::all(uri).map_err(|error| cannot(error_chain(&error.without_url())))?;
            builder.proxy(match authorization {
                Some(authorization) => proxy.custom_http_auth(authorization),
                None => proxy,
            })
        }
    };
    builder.build().map_err(|error| cannot(error_chain(&error)))
}

/// Where a response leads to, or why that is not followed. `first` is the URL that the user wrote.
fn redirect(first: &Url, at: &Url, response: &Response) -> Option<std::result::Result<Url, &'static str>> {
    let status = response.status();
    let is_redirect = matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    let to = location.to_str().ok().and_then(|location| at.join(location).ok());
    Some(to.ok_or("a redirect to something that is no URL").and_then(|to| {
        may_follow(first.scheme() == "https", &to)?;
        Ok(to)
    }))
}

/// Whether a redirect is followed: to http and https, and not from https to http.
pub(super) fn may_follow(is_encrypted: bool, to: &Url) -> std::result::Result<(), &'static str> {
    match to.scheme() {
        "https" => Ok(()),
        "http" if !is_encrypted => Ok(()),
        "http" => Err("a redirect from https to http"),
        _ => Err("a redirect to something else than http and https"),
    }
}

fn begin(response: Response, origin: &str) -> Result<Download> {
    let status = response.status();
    let kind = match status {
        StatusCode::OK => {
            let length = response.content_length();
            return Ok(Download { response, length, origin: origin.to_owned() });
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    Err(Error::new(kind, format!("{origin}: the server answers {status}")))
}

fn unreachable(origin: &str, error: reqwest::Error) -> Error {
    let kind = if error.is_timeout() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
    Error::new(kind, format!("{origin}: {}", error_chain(&error.without_url())))
}

#[async_trait]
impl Source for Download {
    fn length(&self) -> Option<u64> {
        self.length
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.response.chunk().await.map_err(|error| unreachable(&self.origin, error))
    }
}
