//! Whether this host has endpoints of a Service with `externalTrafficPolicy: Local`.

use std::{fmt, net::Ipv4Addr, time::Duration};

use bytes::Bytes;
use cloudprovider::async_trait;
use http::{Request, StatusCode, header::HOST};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

/// How long kube-proxy may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Tells whether this host has endpoints of a Service.
#[async_trait]
pub trait LocalEndpoints: fmt::Debug + Send + Sync {
    /// Whether there are any, by the `healthCheckNodePort` of the Service. `None` if nobody can tell.
    async fn are_there(&self, health_check_node_port: u16) -> Option<bool>;
}

/// Asks the kube-proxy of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct KubeProxy;

#[async_trait]
impl LocalEndpoints for KubeProxy {
    async fn are_there(&self, port: u16) -> Option<bool> {
        match timeout(TIMEOUT, ask(port)).await {
            Ok(Ok(StatusCode::OK)) => Some(true),
            Ok(Ok(StatusCode::SERVICE_UNAVAILABLE)) => Some(false),
            other => {
                tracing::debug!(port, answer = ?other, "kube-proxy does not say whether there are local endpoints");
                None
            }
        }
    }
}

async fn ask(port: u16) -> Result<StatusCode, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
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
}
