use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use rustls::{ServerConfig, crypto::ring};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// A server of TLS on loopback that gives one answer. The port, its certificate, and the request that it will have got.
async fn server(answer: &'static str) -> (u16, String, JoinHandle<String>) {
    let _ = ring::default_provider().install_default();
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters =
        rcgen::CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().expect("a key"))
        .expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("TLS");
        let mut request = vec![0; 4096];
        let size = stream.read(&mut request).await.expect("a request");
        stream.write_all(answer.as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
        String::from_utf8_lossy(&request[..size]).into_owned()
    });
    (port, certificate.pem(), served)
}

fn access(server: &str, certificate: &str) -> Access {
    let kubeconfig = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(certificate)}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
    });
    Access::parse(kubeconfig.to_string().as_bytes()).expect("a kubeconfig")
}

fn loopback() -> Dial {
    Dial::new(AllowedAddresses::only(["127.0.0.0/8".parse().expect("a network")]))
}

async fn readyz(dial: &Dial, access: &Access) -> Result<String, String> {
    let client = dial.connect(&ClusterKey::new("ns", "c"), access)?;
    let request = Request::get("/readyz").body(Vec::new()).expect("a request");
    client.request_text(request).await.map_err(|error| cloudprovider::error_chain(&error))
}

#[tokio::test]
async fn a_permitted_server_gets_the_credentials() {
    let (port, certificate, served) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let answer = readyz(&loopback(), &access(&format!("https://127.0.0.1:{port}"), &certificate)).await;
    assert_eq!(answer.as_deref(), Ok("ok"));
    let request = served.await.expect("served").to_ascii_lowercase();
    assert!(
        request.starts_with("get /readyz http/1.1") && request.contains("authorization: bearer t0ken"),
        "{request}"
    );
}

#[tokio::test]
async fn a_server_that_redirects_is_not_followed() {
    let (other, _, _) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://127.0.0.1:{other}/\r\ncontent-length: 4\r\n\r\nmove"
    );
    let (port, certificate, _served) = server(redirect.leak()).await;
    let answer = readyz(&loopback(), &access(&format!("https://127.0.0.1:{port}"), &certificate)).await;
    // A status that is no error is not looked at further.
    assert_eq!(answer.as_deref(), Ok("move"));
}

#[tokio::test]
async fn a_server_with_another_certificate_or_address_gets_nothing() {
    let (port, _, served) = server("").await;
    let (_, other, _) = server("").await;
    let answer = readyz(&loopback(), &access(&format!("https://127.0.0.1:{port}"), &other)).await;
    assert!(answer.as_ref().is_err_and(|why| why.contains("certificate")), "{answer:?}");
    assert!(served.await.is_err(), "TLS fails");
    let (port, certificate, served) = server("").await;
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
        let access = access(&format!("https://{host}:{port}"), &certificate);
        let answer = readyz(&Dial::new(AllowedAddresses::default()), &access).await;
        assert!(answer.as_ref().is_err_and(|why| why.contains("not permitted")), "{host}: {answer:?}");
    }
    assert!(!served.is_finished(), "no connection came");
    served.abort();
}

#[test]
fn what_cannot_be_used_is_not_quoted() {
    let _ = ring::default_provider().install_default();
    let kubeconfig = json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1"}}],
        "users": [{"name": "u", "user": {"client-certificate-data": BASE64_STANDARD.encode("hunter2"),
            "client-key-data": BASE64_STANDARD.encode("hunter2")}}],
    });
    let access = Access::parse(kubeconfig.to_string().as_bytes()).expect("a kubeconfig");
    let error = loopback().connect(&ClusterKey::new("ns", "c"), &access).err().expect("no certificate");
    assert!(error.contains("client-certificate-data") && !error.contains("hunter2"), "{error}");
}
