//! Malicious clients of the secure port. None has credentials.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, split},
    net::{TcpSocket, TcpStream},
    runtime::Builder,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The kinds of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Certificates that can be combined into a hundred thousand chains, as many as fit into a handshake.
    ManyCertificates,
    /// Certificates that all have the same name and are verified, but whose issuer is not trusted.
    EqualCertificates,
    /// Certificates that name the cluster's authority as their issuer, so that they are checked with its key.
    TrustedName,
    /// Handshakes of the largest size that are never completed.
    Handshakes,
    /// HTTP/2 requests with this many fields, each of which takes one byte on the wire.
    Fields(usize),
    /// HTTP/2 requests whose responses are not read.
    Unread,
    /// The same for the metrics, which any client may read here.
    UnreadMetrics,
    /// HTTP/2 requests with tokens that are cancelled at once.
    Resets,
    /// HTTP/2 headers that never end.
    Continuations,
    /// Requests whose bodies arrive byte by byte.
    SlowBodies,
    /// HTTP/2 frames that need an answer but are not requests.
    Pings,
    /// Requests one after another.
    Requests,
    /// Requests with a new token each.
    Tokens,
    /// Connections without data.
    Silence,
    /// Connections that begin a handshake and are closed at once.
    Churn,
}

/// The attackers' addresses, and their target.
#[derive(Clone, Debug)]
pub(super) struct Camp {
    /// The address of the port.
    pub(super) target: SocketAddr,
    /// The attackers' addresses. If empty, the system chooses.
    pub(super) addresses: Vec<IpAddr>,
    /// The common name of the cluster's authority.
    pub(super) authority: String,
}

/// Running attackers, on a thread of their own, until dropped.
pub(super) struct Siege {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Siege {
    /// Keeps this many connections open at the same time. A connection that is closed is replaced.
    pub(super) fn begin(camp: &Camp, attack: Attack, connections: usize) -> anyhow::Result<Self> {
        let client = Arc::new(client(attack, &camp.authority)?);
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stopped, count, camp) = (stop.clone(), answers.clone(), camp.clone());
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                for index in 0..connections {
                    let (client, count) = (client.clone(), count.clone());
                    let (to, from) = (camp.target, camp.addresses.iter().cycle().nth(index).copied());
                    tokio::spawn(async move {
                        for round in 0.. {
                            let token = format!("{index}-{round}");
                            let _ = attack.once((to, from), &client, &token, &count).await;
                            sleep(attack.pause()).await;
                        }
                    });
                }
                while !stopped.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(50)).await;
                }
            });
            runtime.shutdown_background();
        });
        Ok(Self { stop, answers, thread: Some(thread) })
    }

    /// The number of bytes and parts of responses that were received.
    pub(super) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Siege {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Stream = TlsStream<TcpStream>;

impl Attack {
    fn is_http2(self) -> bool {
        matches!(
            self,
            Self::Fields(_)
                | Self::Unread
                | Self::UnreadMetrics
                | Self::Resets
                | Self::Continuations
                | Self::Pings
        )
    }

    /// The pause between two connections.
    fn pause(self) -> Duration {
        Duration::from_millis(match self {
            Self::Silence => 1000,
            Self::Churn => 1,
            _ => 20,
        })
    }

    /// Runs one connection until it ends.
    async fn once(
        self,
        (to, from): (SocketAddr, Option<IpAddr>),
        client: &Arc<ClientConfig>,
        token: &str,
        answers: &AtomicUsize,
    ) -> anyhow::Result<()> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = from {
            socket.bind((from, 0).into())?;
        }
        let mut stream = socket.connect(to).await?;
        match self {
            Self::Silence => return wait_for_the_end(stream).await,
            Self::Churn => {
                stream.write_all(&[22]).await?;
                stream.set_zero_linger()?;
                return Ok(());
            }
            Self::Handshakes => {
                // A message of 64 KiB less one byte, of which only three records are sent.
                let record =
                    |begin: &[u8]| [&[22, 3, 1, 0x34, 0][..], begin, &vec![0; 0x3400 - begin.len()]].concat();
                stream.write_all(&record(&[1, 0, 0xff, 0xfe])).await?;
                stream.write_all(&[record(&[]), record(&[])].concat()).await?;
                return wait_for_the_end(stream).await;
            }
            _ => {}
        }
        let name = ServerName::try_from("localhost")?;
        let connecting = TlsConnector::from(client.clone()).connect(name, stream);
        let mut stream = timeout(Duration::from_secs(30), connecting).await??;
        match self {
            Self::ManyCertificates | Self::EqualCertificates | Self::TrustedName => {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await?;
                let read = stream.read(&mut [0; 1024]).await?;
                answers.fetch_add(read.min(1), Ordering::Relaxed);
                Ok(())
            }
            Self::Requests => one_after_the_other(stream, |_| String::new(), answers).await,
            Self::Tokens => {
                let header = |round| format!("Authorization: Bearer {token}-{round}\r\n");
                one_after_the_other(stream, header, answers).await
            }
            Self::SlowBodies => slow_body(stream, answers).await,
            Self::Silence | Self::Churn | Self::Handshakes => Ok(()),
            _ => self.http2(stream, token, answers).await,
        }
    }

    /// Sends frames as fast as they are accepted.
    async fn http2(self, stream: Stream, token: &str, answers: &AtomicUsize) -> anyhow::Result<()> {
        let (mut from, mut to) = split(stream);
        let read = async {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                answers.fetch_add(count, Ordering::Relaxed);
            }
        };
        let write = async {
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            // No flow-control window for responses, or the largest one.
            let is_unread = matches!(self, Self::Unread | Self::UnreadMetrics);
            let window: u32 = if is_unread { 0 } else { 0x7fff_ffff };
            let mut settings = vec![0, 4];
            settings.extend(window.to_be_bytes());
            frame(&mut bytes, 4, 0, 0, &settings);
            to.write_all(&bytes).await?;
            let path = if self == Self::UnreadMetrics { "/metrics" } else { "/healthz" };
            let mut block = request(path);
            if let Self::Fields(count) = self {
                // A field that enters the table, then many one-byte references to it.
                block.extend([0x40, 1, b'x', 1, b'y']);
                block.extend(std::iter::repeat_n(0x80 | 0x3e, count));
            }
            if self == Self::Continuations {
                let mut bytes = Vec::new();
                // END_STREAM
                frame(&mut bytes, 1, 1, 1, &block);
                to.write_all(&bytes).await?;
            }
            for round in 0.. {
                let mut bytes = Vec::new();
                for index in 0..40 {
                    let stream = 1 + 2 * (40 * round + index);
                    match self {
                        Self::Pings => frame(&mut bytes, 6, 0, 0, &[0; 8]),
                        // A field that does not enter the table.
                        Self::Continuations => frame(&mut bytes, 9, 0, 1, &[0, 1, b'x', 1, b'y']),
                        Self::Resets => {
                            let value = format!("Bearer {token}-{stream}");
                            let mut block = block.clone();
                            block.extend([0, 13]);
                            block.extend(b"authorization");
                            block.push(u8::try_from(value.len())?);
                            block.extend(value.as_bytes());
                            frame(&mut bytes, 1, 5, stream, &block);
                            // CANCEL
                            frame(&mut bytes, 3, 0, stream, &8_u32.to_be_bytes());
                        }
                        // END_STREAM and END_HEADERS
                        _ => frame(&mut bytes, 1, 5, stream, &block),
                    }
                }
                to.write_all(&bytes).await?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            () = read => Ok(()),
            ended = write => ended,
        }
    }
}

/// `GET https://a` and a path of 8 bytes, encoded in HPACK.
fn request(path: &str) -> Vec<u8> {
    [b"\x82\x87\x04\x08", path.as_bytes(), b"\x01\x01a"].concat()
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    bytes.extend(&length[1..]);
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}

async fn one_after_the_other(
    mut stream: Stream,
    header: impl Fn(usize) -> String,
    answers: &AtomicUsize,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; 4096];
    for round in 0.. {
        let request = format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{}\r\n", header(round));
        stream.write_all(request.as_bytes()).await?;
        if stream.read(&mut buffer).await? == 0 {
            break;
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn slow_body(stream: Stream, answers: &AtomicUsize) -> anyhow::Result<()> {
    let (mut from, mut to) = split(stream);
    let read = async {
        let mut buffer = [0; 4096];
        while let Ok(1..) = from.read(&mut buffer).await {
            answers.fetch_add(1, Ordering::Relaxed);
        }
    };
    let write = async {
        to.write_all(b"PUT /debug/flags/v HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await?;
        loop {
            to.write_all(b"1").await?;
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = read => Ok(()),
        ended = write => ended,
    }
}

async fn wait_for_the_end(mut stream: TcpStream) -> anyhow::Result<()> {
    while stream.read(&mut [0; 16]).await? > 0 {}
    Ok(())
}

fn client(attack: Attack, trusted: &str) -> anyhow::Result<ClientConfig> {
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
    let mut config = match attack {
        Attack::ManyCertificates => {
            let (mut chain, key) = levels(&["a", "b", "c", "d", "e", "f", "g"], 7)?;
            let padding = chain[1].clone();
            while chain.iter().map(|one| one.len()).sum::<usize>() < HANDSHAKE_SIZE {
                chain.push(padding.clone());
            }
            builder.with_client_auth_cert(chain, key)?
        }
        Attack::EqualCertificates => {
            let (chain, key) = levels(&["a", "a"], 2)?;
            builder.with_client_auth_cert(chain, key)?
        }
        Attack::TrustedName => {
            let (chain, key) = levels(&["a", trusted], 1)?;
            builder.with_client_auth_cert(chain, key)?
        }
        _ => builder.with_no_client_auth(),
    };
    if attack.is_http2() {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(config)
}

/// The size of the certificates in one handshake.
const HANDSHAKE_SIZE: usize = 60_000;

/// A certificate, and this many authorities of each name but the last. Any authority with the next name may
/// have issued one of them.
fn levels(
    names: &[&str],
    each: usize,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let authority = |name: &str| {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
    };
    let key = KeyPair::generate()?;
    let first = Issuer::new(authority(names[0]), KeyPair::generate()?);
    let mut chain = vec![CertificateParams::default().signed_by(&key, &first)?.der().clone()];
    for pair in names.windows(2) {
        let above = Issuer::new(authority(pair[1]), KeyPair::generate()?);
        for _ in 0..each {
            chain.push(authority(pair[0]).signed_by(&KeyPair::generate()?, &above)?.der().clone());
        }
    }
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg).context("a key")?;
    Ok((chain, key))
}

/// Accepts any server certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
