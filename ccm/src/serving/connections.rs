//! Connections: accepted, encrypted, bounded, and finished when the server stops.

mod idle;
mod slots;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustls::pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    certificates::Certificates,
    handler::Handler,
    tls::{H2, TlsSettings},
    trust::Trust,
};
use idle::Idle;
use slots::{Slots, Source};

/// How long a client may take until it is encrypted.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the head of a request may take, and how long the next one on an open connection; upstream's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// A connection on which nothing moves for so long ends; upstream's. Longer than the longest profile.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Bytes of the head of a request.
const HEADER_SIZE: usize = 64 * 1024;

/// How long requests under way may take when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause after a connection that could not be accepted: most often there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections from other machines at the same time.
const CONNECTIONS: usize = 512;

/// Of those, from one address; and as many more from this machine.
const FROM_ONE_ADDRESS: usize = 128;

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Streams of one HTTP/2 connection.
    pub http2_streams: u32,
    /// How long a client may take until it is encrypted.
    pub handshake: Duration,
    /// Connections from other machines at the same time.
    pub connections: usize,
    /// Of those, from one address; and as many more from this machine.
    pub from_one_address: usize,
}

impl Limits {
    /// With so many streams of one HTTP/2 connection, and the rest as it always is.
    pub(super) fn new(http2_streams: u32) -> Self {
        Self {
            http2_streams,
            handshake: HANDSHAKE_TIMEOUT,
            connections: CONNECTIONS,
            from_one_address: FROM_ONE_ADDRESS,
        }
    }
}

/// What connections are encrypted with.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub settings: TlsSettings,
    pub certificates: Certificates,
    pub trust: Trust,
}

/// Serves until `stop` is cancelled, and lets requests under way end.
pub(super) async fn serve(
    listener: TcpListener,
    limits: Limits,
    tls: Tls,
    handler: Arc<Handler>,
    stop: CancellationToken,
) {
    let builder = Arc::new(http_builder(limits));
    let graceful = GracefulShutdown::new();
    let slots = Slots::new(limits.connections, limits.from_one_address);
    let mut connections = JoinSet::new();
    let mut failing = false;
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        // Those that ended are forgotten.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "connections cannot be accepted, trying again");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        failing = false;
        let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
        let slot = Arc::new(slots.take(Source::of(peer.ip().to_canonical(), local)));
        let (tls, handler, builder) = (tls.clone(), handler.clone(), builder.clone());
        let watcher = graceful.watcher();
        let own_slot = slot.clone();
        let served = async move {
            if let Some((stream, client, is_http2)) = encrypt(stream, peer, &tls, limits.handshake).await {
                slot.used();
                let service = service_fn(move |request: Request<Incoming>| {
                    let (handler, client, slot) = (handler.clone(), client.clone(), slot.clone());
                    async move {
                        slot.used();
                        let answer = handler.handle(request, &client).await;
                        slot.used();
                        Ok::<_, Infallible>(answer)
                    }
                });
                let builder = (*builder).clone();
                let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
                let io = TokioIo::new(Idle::new(stream, IDLE_TIMEOUT));
                let connection = builder.serve_connection(io, service).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(%peer, error, "connection ended");
                }
            }
        };
        connections.spawn(async move {
            tokio::select! {
                () = served => {}
                () = own_slot.evicted() => {
                    tracing::debug!(%peer, "connection ended: others want to connect");
                }
            }
        });
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::debug!("requests under way did not end within {DRAIN_TIMEOUT:?}");
    }
    connections.shutdown().await;
}

fn http_builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEADER_SIZE);
    // No pings of ours: their answers would keep a silent connection from being idle.
    builder
        .http2()
        .max_concurrent_streams(limits.http2_streams)
        .max_header_list_size(u32::try_from(HEADER_SIZE).unwrap_or(u32::MAX));
    builder
}

/// Who is at the other end: its certificate and what signed that.
pub(super) type ClientCertificates = Arc<Vec<CertificateDer<'static>>>;

type Encrypted = tokio_rustls::server::TlsStream<TcpStream>;

async fn encrypt(
    stream: TcpStream,
    peer: SocketAddr,
    tls: &Tls,
    limit: Duration,
) -> Option<(Encrypted, ClientCertificates, bool)> {
    let local: IpAddr = stream.local_addr().ok()?.ip().to_canonical();
    // An answer is one write; without this it would wait for the client's acknowledgement of the head.
    let _ = stream.set_nodelay(true);
    let config = match tls.settings.config(Arc::new(tls.certificates.for_address(local)), tls.trust.hints()) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "no connection can be encrypted");
            return None;
        }
    };
    let stream = match timeout(limit, TlsAcceptor::from(Arc::new(config)).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "TLS handshake failed");
            return None;
        }
        Err(_) => {
            tracing::debug!(%peer, "TLS handshake not done within {limit:?}");
            return None;
        }
    };
    let (_, connection) = stream.get_ref();
    let is_http2 = connection.alpn_protocol() == Some(H2);
    let certificates = connection.peer_certificates().map(<[_]>::to_vec).unwrap_or_default();
    let certificates = certificates.into_iter().map(CertificateDer::into_owned).collect();
    Some((stream, Arc::new(certificates), is_http2))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{ErrorKind, Read as _},
        net::Ipv4Addr,
        path::{Path, PathBuf},
    };

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };
    use rustls::{
        ClientConfig, RootCertStore,
        pki_types::{PrivateKeyDer, ServerName, pem::PemObject as _},
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
        serving::{AuthenticationOptions, CertificateOptions, Serving, ServingOptions, Shown},
    };

    /// Longer than any of this takes.
    const LIMIT: Duration = Duration::from_secs(60);

    /// A server on a port of loopback, with a certificate in this folder.
    async fn start(folder: &Path, limits: Limits) -> Serving {
        start_with(folder, limits, None).await
    }

    /// The same with an authority of clients.
    async fn start_with(folder: &Path, limits: Limits, client_ca_file: Option<PathBuf>) -> Serving {
        let options = ServingOptions {
            bind_address: Ipv4Addr::LOCALHOST.into(),
            authentication: AuthenticationOptions { client_ca_file, ..AuthenticationOptions::default() },
            certificates: CertificateOptions {
                cert_dir: Some(folder.to_owned()),
                ..CertificateOptions::default()
            },
            ..ServingOptions::default()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let metrics = Metrics::new().expect("metrics");
        let shown = Shown {
            metrics: metrics.clone(),
            health: HealthChecks::new(),
            debug_state: DebugState::new(),
            set_verbosity: None,
        };
        let reporter = ReloadReporter::new(metrics, None);
        Serving::on(listener, limits, &options, shown, &reporter).await.expect("it serves")
    }

    /// What a whole request is answered.
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
        let config = match client {
            Some(key) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key))),
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Waits for the other side to end a connection on which nothing was said.
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
}
