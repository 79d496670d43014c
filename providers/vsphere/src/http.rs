//! The HTTP client of one vCenter: deadlines, limited response sizes, no redirects, proxies from the
//! environment.

use std::{fmt, time::Duration};

use bytes::BytesMut;
use cloudprovider::error_chain;
use http::{HeaderMap, Method};

pub(crate) use crate::endpoint::Endpoint;

use crate::tls;

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A silent connection is probed after this time, so that a dead peer is noticed during a long poll.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A client of one vCenter. Clones share its connections.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: reqwest::Client,
    base: String,
}

/// A request body.
#[derive(Debug)]
pub(crate) struct Body {
    /// Its media type.
    pub(crate) content_type: &'static str,
    /// The text.
    pub(crate) text: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The whole body.
    pub(crate) body: BytesMut,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpError {
    /// No response in time.
    Timeout,
    /// No connection, or it broke. Holds the causes.
    Unreachable(Box<str>),
    /// The response is larger than allowed.
    TooLarge,
}

impl HttpClient {
    /// A client of this vCenter. Reads the CA files, and opens no connection.
    ///
    /// # Errors
    /// The reason, if the certificates to trust cannot be read.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, String> {
        let tls = tls::client_config(endpoint)?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .user_agent(concat!("cloud-controller-manager/", env!("CARGO_PKG_VERSION")));
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| error_chain(&error))?;
        Ok(Self { client, base: format!("https://{}", endpoint.authority()) })
    }

    /// A client of a test's server, which speaks plain HTTP.
    #[cfg(test)]
    pub(crate) fn plain(address: std::net::SocketAddr) -> Self {
        let endpoint = Endpoint {
            host: address.ip().to_string(),
            port: address.port(),
            ca_files: Vec::new(),
            thumbprint: None,
            insecure: true,
        };
        let client = Self::new(&endpoint).expect("a client");
        Self { base: format!("http://{address}"), ..client }
    }

    /// Sends a request and reads the whole response, both within `deadline`.
    ///
    /// # Errors
    /// [`HttpError`]. A response with an error status is not an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path_and_query: &str,
        headers: &[(&'static str, String)],
        body: Option<Body>,
        deadline: Duration,
        largest: usize,
    ) -> Result<Answer, HttpError> {
        let mut request = self.client.request(method, format!("{}{path_and_query}", self.base));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, body.content_type).body(body.text);
        }
        tokio::time::timeout(deadline, read(request, largest)).await.unwrap_or(Err(HttpError::Timeout))
    }
}

/// Sends a request and reads the response, up to this size.
///
/// # Errors
/// As [`HttpClient::send`].
pub(crate) async fn read(request: reqwest::RequestBuilder, largest: usize) -> Result<Answer, HttpError> {
    let mut response = request.send().await.map_err(unreachable)?;
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > largest {
            return Err(HttpError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status: response.status().as_u16(), headers: std::mem::take(response.headers_mut()), body })
}

fn unreachable(error: reqwest::Error) -> HttpError {
    if error.is_timeout() {
        return HttpError::Timeout;
    }
    // Without them the message would not say which server refuses.
    let server = error.url().filter(|_| error.is_connect()).and_then(|url| {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        Some(format!("{host}:{port}: "))
    });
    let words = readable(error_chain(&error.without_url()));
    HttpError::Unreachable(format!("{}{words}", server.unwrap_or_default()).into())
}

/// Some of rustls' words, in those of people who configure a vCenter.
fn readable(words: String) -> String {
    // About bytes that are no TLS, such as those of a port for plain HTTP.
    if words.contains("InvalidContentType") {
        return "the port does not speak TLS".to_owned();
    }
    if words.contains("UnknownIssuer") {
        return format!(
            "its certificate is not trusted: give its thumbprint, or in caFile the file of its authority ({words})"
        );
    }
    // One that its owner has signed and that may sign others, as openssl makes them unless told otherwise.
    if words.contains("CaUsedAsEndEntity") {
        return format!(
            "its certificate is one of an authority and none of a server: give its thumbprint ({words})"
        );
    }
    words
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpClient").field(&self.base).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), port: 443, ca_files: Vec::new(), thumbprint: None, insecure: false }
    }

    #[tokio::test]
    async fn a_port_for_plain_http_is_named_as_that() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let server = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("written");
            stream.shutdown().await.expect("ended");
        });
        let client =
            HttpClient::new(&Endpoint { port, insecure: true, ..endpoint("127.0.0.1") }).expect("a client");
        let answer = client.send(Method::GET, "/", &[], None, Duration::from_secs(30), 1000).await;
        let Err(HttpError::Unreachable(words)) = answer else { panic!("it answered") };
        assert_eq!(*words, format!("127.0.0.1:{port}: the port does not speak TLS"));
        server.await.expect("ended");
        let answer = client.send(Method::GET, "/", &[], None, Duration::from_secs(30), 1000).await;
        let Err(HttpError::Unreachable(words)) = answer else { panic!("nobody listens any more") };
        assert!(words.starts_with(&format!("127.0.0.1:{port}: ")), "{words}");
    }

    #[test]
    fn who_is_not_trusted_is_told_what_helps() {
        let words = readable("invalid peer certificate: UnknownIssuer".to_owned());
        assert!(words.contains("give its thumbprint") && words.contains("UnknownIssuer"), "{words}");
        let words = readable("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))".to_owned());
        assert!(words.contains("give its thumbprint"), "{words}");
        assert_eq!(readable("connection refused".to_owned()), "connection refused");
    }

    #[test]
    fn addresses_of_the_sixth_version_have_brackets() {
        assert_eq!(endpoint("fd00::1").authority(), "[fd00::1]:443");
        assert_eq!(endpoint("vc.example").authority(), "vc.example:443");
        assert!(endpoint("::1").is_loopback() && endpoint("127.0.0.1").is_loopback());
        assert!(!endpoint("vc.example").is_loopback());
    }
}
