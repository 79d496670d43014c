use std::{
    io::{ErrorKind, Read as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    debug_state::DebugState,
    health::HealthChecks,
    metrics::Metrics,
    reload::ReloadReporter,
    serving::{
        AuthenticationOptions, AuthorizationOptions, CertificateOptions, Serving, ServingOptions, Shown,
        server::tls::H2,
    },
};

/// Longer than any test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts a server on a loopback port with a certificate in this folder.
async fn start(folder: &Path, limits: Limits) -> Serving {
    start_with(folder, limits, None).await
}

/// The same with a CA for client certificates.
async fn start_with(folder: &Path, limits: Limits, client_ca_file: Option<PathBuf>) -> Serving {
    let authentication = AuthenticationOptions { client_ca_file, ..AuthenticationOptions::default() };
    start_as(folder, limits, ServingOptions { authentication, ..ServingOptions::new("server", 0) }).await
}

/// The same with these options.
async fn start_as(folder: &Path, limits: Limits, options: ServingOptions) -> Serving {
    let options = ServingOptions {
        bind_address: Ipv4Addr::LOCALHOST.into(),
        certificates: CertificateOptions {
            cert_dir: Some(folder.to_owned()),
            ..CertificateOptions::default()
        },
        ..options
    };
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.set_nonblocking(true).expect("a port");
    let metrics = Metrics::new("test").expect("metrics");
    let shown = Shown {
        metrics: metrics.clone(),
        health: HealthChecks::new(),
        debug_state: DebugState::new(),
        set_verbosity: None,
    };
    let reporter = ReloadReporter::new(metrics.get().expect("metrics"), None);
    Serving::on(listener, limits, &options, shown, &reporter).await.expect("it serves")
}

/// The response to a complete request.
async fn livez(folder: &Path, address: SocketAddr) -> std::io::Result<String> {
    livez_as(folder, address, rustls::ALL_VERSIONS, None).await
}

/// The same with a client certificate.
async fn livez_as(
    folder: &Path,
    address: SocketAddr,
    versions: &[&'static rustls::SupportedProtocolVersion],
    client: Option<CertifiedKey>,
) -> std::io::Result<String> {
    let config = client_config(folder, versions, client)?;
    let mut stream = encrypted(address, config).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A client configuration that trusts the certificates in this folder.
fn client_config(
    folder: &Path,
    versions: &[&'static rustls::SupportedProtocolVersion],
    client: Option<CertifiedKey>,
) -> std::io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crt") {
            let pem = std::fs::read(path)?;
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    Ok(match client {
        Some(key) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
        None => config.with_no_client_auth(),
    })
}

async fn encrypted(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Waits until the other side closes a connection on which nothing was sent.
async fn is_ended(connection: &mut TcpStream) {
    match timeout(LIMIT, connection.read(&mut [0; 64])).await.expect("it is ended") {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn who_does_not_encrypt_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { handshake: Duration::from_millis(100), ..Limits::new(100) };
    let server = start(folder.path(), limits).await;
    let mut silent = TcpStream::connect(server.address()).await.expect("accepted");
    is_ended(&mut silent).await;
    let mut begun = TcpStream::connect(server.address()).await.expect("accepted");
    begun.write_all(&[22, 3, 1]).await.expect("the first bytes of a handshake");
    is_ended(&mut begun).await;
}

#[tokio::test]
async fn who_says_nothing_makes_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { handshake: 10 * LIMIT, from_one_address: 2, ..Limits::new(100) };
    let server = start(folder.path(), limits).await;
    let connect = || TcpStream::connect(server.address());
    let (mut one, other) = (connect().await.expect("one"), connect().await.expect("another"));
    let answer = timeout(LIMIT, livez(folder.path(), server.address())).await;
    let answer = answer.expect("an answer").expect("it is served");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    is_ended(&mut one).await;
    let mut other = other.into_std().expect("a socket");
    let error = other.read(&mut [0]).expect_err("nothing to read");
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
}

#[tokio::test]
async fn a_client_must_have_the_key_of_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = parameters.self_signed(&authority).expect("an authority").pem();
    let issuer = Issuer::new(parameters, authority);
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, pem).expect("written");
    let server = start_with(folder.path(), Limits::new(100), Some(ca)).await;
    let sign = |key: &KeyPair| {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "jane");
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.signed_by(key, &issuer).expect("signed").der().clone()
    };
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
    for kind in kinds {
        let [own, other] = [0; 2].map(|_| KeyPair::generate_for(kind).expect("a key"));
        for (certificate, is_good) in [(sign(&own), true), (sign(&other), false)] {
            for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
                let key = PrivateKeyDer::try_from(own.serialize_der()).expect("a key");
                let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
                let client = CertifiedKey::new(vec![certificate.clone()], key);
                let answer = livez_as(folder.path(), server.address(), &[version], Some(client)).await;
                match answer {
                    Ok(answer) => assert!(is_good && answer.starts_with("HTTP/1.1 200"), "{answer}"),
                    Err(error) => assert!(!is_good, "{error}"),
                }
            }
        }
    }
}

/// A chain of this many certificates from an unknown authority.
fn chain_of(count: usize) -> CertifiedKey {
    let key = KeyPair::generate().expect("a key");
    let certificate = |index: usize| {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, index.to_string());
        parameters.self_signed(&key).expect("signed").der().clone()
    };
    let chain = (0..count).map(certificate).collect();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key).expect("a key"))
}

#[tokio::test]
async fn few_certificates_of_a_client_are_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    let key = KeyPair::generate().expect("a key");
    std::fs::write(&ca, CertificateParams::default().self_signed(&key).expect("signed").pem())
        .expect("written");
    let server = start_with(folder.path(), Limits::new(100), Some(ca)).await;
    let ask = |count| livez_as(folder.path(), server.address(), rustls::ALL_VERSIONS, Some(chain_of(count)));
    let refused = ask(10).await.expect("an answer");
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    ask(11).await.expect_err("no connection");
}

#[tokio::test]
async fn a_head_has_16_kib() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), Limits::new(100)).await;
    for (size, expected) in [(15 << 10, "HTTP/1.1 200"), (17 << 10, "HTTP/1.1 431")] {
        let config = client_config(folder.path(), rustls::ALL_VERSIONS, None).expect("a client");
        let mut stream = encrypted(server.address(), config).await.expect("a connection");
        let field = "x".repeat(size);
        let request = format!("GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: {field}\r\n\r\n");
        // The server may refuse the request before all of it is sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// An HTTP/2 client that reads no responses after its first requests.
async fn http2(folder: &Path, server: &Serving, path: &str) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut config = client_config(folder, rustls::ALL_VERSIONS, None).expect("a client");
    config.alpn_protocols = vec![H2.to_vec()];
    let mut stream = encrypted(server.address(), config).await.expect("a connection");
    let no_window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let length = [u8::try_from(path.len()).expect("short")];
    let head = [b"\x82\x87\x04", &length[..], path.as_bytes(), b"\x01\x01a"].concat();
    let requests = (0..4).map(|index| frame(1, 5, 1 + 2 * index, &head));
    let requests = requests.collect::<Vec<_>>().concat();
    let bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &no_window, &requests].concat();
    stream.write_all(&bytes).await.expect("sent");
    stream
}

#[tokio::test]
async fn who_is_not_known_has_few_streams() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), Limits::new(100)).await;
    let mut stream = http2(folder.path(), &server, "/livez").await;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.expect("a frame");
    assert_eq!(head[3], 4, "settings");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.expect("settings");
    let setting = |id: u8| {
        let mut all = settings.chunks(6).filter(|setting| setting[..2] == [0, id]);
        all.next().map(|setting| u32::from_be_bytes(setting[2..].try_into().expect("four bytes")))
    };
    assert_eq!(setting(3), Some(8), "streams");
    assert_eq!(setting(6), Some(HEADER_SIZE), "size of a header list");
    assert_eq!(setting(4), Some(BODY_WINDOW), "bytes of a body");
}

#[tokio::test]
async fn who_takes_no_answer_is_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { taking: Duration::from_millis(200), ..Limits::new(100) };
    let server = start(folder.path(), limits).await;
    let mut stream = http2(folder.path(), &server, "/livez").await;
    let mut all = Vec::new();
    let ended = timeout(LIMIT, stream.read_to_end(&mut all)).await.expect("it is ended");
    drop(ended);
    assert!(!all.is_empty());
}

#[tokio::test]
async fn further_requests_of_one_connection_are_few() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { requests_from_one_address: 2, ..Limits::new(100) };
    let server = start(folder.path(), limits).await;
    let mut stream = http2(folder.path(), &server, "/livez").await;
    // No response is read, so the first three requests keep their places, and the fourth is refused. The
    // status of each is in its HEADERS frame: 0x88 is 200, and a status that is not in the table is spelt
    // out.
    let (mut good, mut refused) = (0, 0);
    while good + refused < 4 {
        let mut head = [0; 9];
        timeout(LIMIT, stream.read_exact(&mut head)).await.expect("in time").expect("a frame");
        let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        stream.read_exact(&mut payload).await.expect("a frame");
        if head[3] == 1 {
            if payload[0] == 0x88 { good += 1 } else { refused += 1 }
        }
    }
    assert_eq!((good, refused), (3, 1));
    let answer = timeout(LIMIT, livez(folder.path(), server.address())).await.expect("in time");
    assert!(answer.expect("an answer").starts_with("HTTP/1.1 200"), "another connection has its own place");
}

#[tokio::test]
async fn who_takes_memory_makes_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let one_request = limits::CONNECTION_MEMORY + limits::HANDSHAKE_MEMORY + limits::REQUEST_MEMORY;
    let memory = one_request + (64 << 10);
    let limits = Limits { memory, handshake: 10 * LIMIT, ..Limits::new(100) };
    let server = start(folder.path(), limits).await;
    let mut silent = TcpStream::connect(server.address()).await.expect("accepted");
    let answer = timeout(LIMIT, livez(folder.path(), server.address())).await;
    let answer = answer.expect("an answer").expect("it is served");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    is_ended(&mut silent).await;
}

#[tokio::test]
async fn who_takes_no_large_answers_makes_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let authorization = AuthorizationOptions {
        always_allow_paths: vec!["/metrics".to_owned()],
        ..AuthorizationOptions::default()
    };
    // Memory for four requests on one connection, but not for their responses of some KiB each.
    let memory = limits::CONNECTION_MEMORY + 4 * limits::REQUEST_MEMORY + (4 << 10);
    let limits = Limits { memory, taking: 10 * LIMIT, ..Limits::new(100) };
    let options = ServingOptions { authorization, ..ServingOptions::new("server", 0) };
    let server = start_as(folder.path(), limits, options).await;
    let mut stream = http2(folder.path(), &server, "/metrics").await;
    let ended = timeout(LIMIT, stream.read_to_end(&mut Vec::new())).await;
    drop(ended.expect("it is ended"));
}
