//! A client of an API server whose address and credentials a user of the cluster wrote.
//!
//! Such an address may lead into the daemon's own network. So each address is checked when a connection is opened,
//! and not when the configuration is read: a name server can change its answer in between.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use kube::{Client, config::Config};
use tokio::{net::TcpStream, sync::Semaphore};
use tower::{BoxError, Service};

use super::transport;

/// Which addresses may be connected to, and how many names may be looked up at once.
#[derive(Clone)]
pub struct Reach {
    /// Whether a connection may go to this address.
    pub may_reach: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// A look-up holds a permit until the system has answered, even if the request was given up. A name server that does
    /// not answer holds a thread that long.
    pub lookups: Arc<Semaphore>,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").finish_non_exhaustive()
    }
}

/// A client that connects to permitted addresses alone. It follows no redirect and uses no proxy. `config` names no file:
/// the caller has checked that.
///
/// # Errors
/// Certificates, keys or headers that cannot be used.
pub fn foreign_client(config: &Config, reach: Reach) -> anyhow::Result<Client> {
    let tcp = transport::tcp(HttpConnector::new_with_resolver(Checked(reach.clone())));
    transport::foreign(Guarded { tcp, reach }, config)
}

/// Refuses addresses that stand in the URL.
#[derive(Clone)]
struct Guarded {
    tcp: HttpConnector<Checked>,
    reach: Reach,
}

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

impl Service<Uri> for Guarded {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Connecting {
        let host = url.host().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if literal.is_ok_and(|address| !(self.reach.may_reach)(address)) {
            return Box::pin(std::future::ready(Err(not_permitted().into())));
        }
        let connecting = self.tcp.call(url);
        Box::pin(async move { Ok(connecting.await?) })
    }
}

/// Looks names up, and refuses a name if any of its addresses is not permitted: the next look-up may give that one first.
#[derive(Clone)]
struct Checked(Reach);

impl Service<Name> for Checked {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Reach { may_reach, lookups } = self.0.clone();
        Box::pin(async move {
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let look_up = move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(permit);
                found
            };
            let found: Vec<SocketAddr> = tokio::task::spawn_blocking(look_up).await??.collect();
            if found.iter().all(|address| may_reach(address.ip())) {
                Ok(found.into_iter())
            } else {
                Err(not_permitted())
            }
        })
    }
}

fn not_permitted() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the server's address is not permitted")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Request;
    use kube::client::Body;
    use tokio::net::TcpListener;

    use super::*;

    fn reach(may_reach: fn(IpAddr) -> bool) -> Reach {
        Reach { may_reach: Arc::new(may_reach), lookups: Arc::new(Semaphore::new(1)) }
    }

    /// The error of a request to a server on loopback, which closes each connection at once, and whether one was opened.
    async fn error_of(host: &str, may_reach: fn(IpAddr) -> bool) -> (String, bool) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let config = Config::new(format!("https://{host}:{port}").parse().expect("a URL"));
        let client = foreign_client(&config, reach(may_reach)).expect("a client");
        let request = Request::get("/readyz").body(Body::empty()).expect("a request");
        let opened = Arc::new(AtomicBool::new(false));
        let seen = opened.clone();
        let server = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                seen.store(true, Ordering::SeqCst);
            }
        });
        let error = client.send(request).await.expect_err("no server of TLS");
        server.abort();
        (basics::error_chain(&error), opened.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn addresses_are_checked_in_the_url_and_behind_a_name() {
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
            let (error, opened) = error_of(host, |_| false).await;
            assert!(error.contains("not permitted") && !opened, "{host}: {error}");
        }
        for host in ["127.0.0.1", "localhost"] {
            let (error, opened) = error_of(host, |address| address == IpAddr::from([127, 0, 0, 1])).await;
            // A name may have an address of IPv6 too, which is not permitted here.
            assert!(opened || host == "localhost" && error.contains("not permitted"), "{host}: {error}");
        }
    }
}
