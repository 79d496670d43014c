//! Whether this host has endpoints of a Service with `externalTrafficPolicy: Local`.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use bytes::Bytes;
use cloudprovider::{ServiceAccess, ServiceRef, async_trait};
use http::{Request, StatusCode, header::HOST};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

/// How often it is asked whether this host has endpoints.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// How long kube-proxy may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Tells whether this host has endpoints of a Service.
#[async_trait]
pub trait LocalEndpoints: fmt::Debug + Send + Sync {
    /// Whether there are any, by the `healthCheckNodePort` of the Service. `None` if nobody can tell.
    async fn are_there(&self, health_check_node_port: u16) -> Option<bool>;
}

/// Asks the kube-proxy of this host. In its mode nftables it listens on the Node's own addresses only, in others on
/// all.
#[derive(Clone, Copy, Debug, Default)]
pub struct KubeProxy;

#[async_trait]
impl LocalEndpoints for KubeProxy {
    async fn are_there(&self, port: u16) -> Option<bool> {
        ask_at(&own_addresses(), port).await
    }
}

/// The loopback addresses and the addresses by which this host reaches others.
fn own_addresses() -> Vec<IpAddr> {
    // Addresses of documentation, which are behind the default route. Nothing is sent there.
    let far: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let source = |(any, far): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    loopback.into_iter().chain(far.into_iter().filter_map(source)).collect()
}

/// The first answer that says something.
async fn ask_at(addresses: &[IpAddr], port: u16) -> Option<bool> {
    for address in addresses {
        match timeout(TIMEOUT, ask((*address, port).into())).await {
            Ok(Ok(StatusCode::OK)) => return Some(true),
            Ok(Ok(StatusCode::SERVICE_UNAVAILABLE)) => return Some(false),
            other => tracing::trace!(%address, port, answer = ?other, "kube-proxy does not answer here"),
        }
    }
    None
}

async fn ask(address: SocketAddr) -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/healthz").header(HOST, "localhost").body(Empty::<Bytes>::new())?;
    let answer = async {
        let status = sender.send_request(request).await.map(|answer| answer.status());
        // Ends the connection, which waits for further requests.
        drop(sender);
        status
    };
    let (status, _) = futures::join!(answer, connection);
    Ok(status?)
}

/// The announced Services with `externalTrafficPolicy: Local`. It says so when this host has no endpoints of one.
#[derive(Debug)]
pub(crate) struct LocalServices {
    endpoints: Box<dyn LocalEndpoints>,
    /// By UID.
    services: Mutex<HashMap<String, LocalService>>,
}

#[derive(Clone, Debug)]
struct LocalService {
    service: ServiceRef,
    health_check_node_port: u16,
    /// The last answer.
    has_endpoints: Option<bool>,
    /// Whether it was told that nobody answers.
    is_silence_told: bool,
}

impl LocalServices {
    pub(crate) fn new(endpoints: Box<dyn LocalEndpoints>) -> Self {
        Self { endpoints, services: Mutex::default() }
    }

    fn services(&self) -> MutexGuard<'_, HashMap<String, LocalService>> {
        self.services.lock()
    }

    /// Asks at once and regularly for a Service with this `healthCheckNodePort`; without one no longer.
    pub(crate) async fn watch(&self, access: &dyn ServiceAccess, service: &ServiceRef, port: Option<u16>) {
        let Some(health_check_node_port) = port else { return self.forget(&service.uid) };
        let local = {
            let mut services = self.services();
            let known = services.get(&service.uid);
            let local = LocalService {
                service: service.clone(),
                health_check_node_port,
                has_endpoints: known.and_then(|known| known.has_endpoints),
                is_silence_told: known.is_some_and(|known| known.is_silence_told),
            };
            services.insert(service.uid.clone(), local.clone());
            local
        };
        self.check(access, local).await;
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.services().remove(uid);
    }

    pub(crate) fn clear(&self) {
        self.services().clear();
    }

    pub(crate) async fn check_regularly(&self, access: &dyn ServiceAccess) {
        loop {
            sleep(CHECK_INTERVAL).await;
            let all: Vec<_> = self.services().values().cloned().collect();
            for local in all {
                self.check(access, local).await;
            }
        }
    }

    /// Asks, and warns when there are no endpoints any more.
    async fn check(&self, access: &dyn ServiceAccess, local: LocalService) {
        let port = local.health_check_node_port;
        let Some(has) = self.endpoints.are_there(port).await else {
            if let Some(known) = self.services().get_mut(&local.service.uid)
                && !std::mem::replace(&mut known.is_silence_told, true)
            {
                tracing::debug!(service = %local.service, port, "kube-proxy does not say whether there are local endpoints");
            }
            return;
        };
        let had = match self.services().get_mut(&local.service.uid) {
            Some(known) => known.has_endpoints.replace(has),
            None => return,
        };
        if !has && had != Some(false) {
            let words = "the Node that announces the address has no endpoints of this Service, and externalTrafficPolicy \
                         is Local: its traffic is dropped; use externalTrafficPolicy Cluster, or run a pod on each Node \
                         that can lead";
            access.warn(&local.service, "NoLocalEndpoints", words.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn the_answer_of_kube_proxy_decides() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let serving = tokio::spawn(async move {
            for status in ["200 OK", "503 Service Unavailable", "404 Not Found"] {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut request = [0; 512];
                let length = stream.read(&mut request).await.expect("a request");
                assert!(request[..length].starts_with(b"GET /healthz HTTP/1.1\r\n"));
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
        });
        for expected in [Some(true), Some(false), None] {
            assert_eq!(KubeProxy.are_there(port).await, expected);
        }
        serving.await.expect("three requests");
        assert_eq!(KubeProxy.are_there(port).await, None);
    }

    #[tokio::test]
    async fn kube_proxy_may_listen_on_one_address_only() {
        let own = Ipv4Addr::new(127, 0, 0, 2);
        let listener = TcpListener::bind((own, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let _ = stream.read(&mut [0; 512]).await.expect("a request");
            let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("written");
        });
        assert_eq!(ask_at(&[Ipv4Addr::LOCALHOST.into(), own.into()], port).await, Some(false));
        serving.await.expect("one request");
        let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        assert!(own_addresses().starts_with(&loopback));
    }
}
