//! The TLS handshake of a connection.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{limits::TLS_BUFFER, paced::Paced};
use crate::serving::server::{
    certificates::Certificates,
    peer::Peer,
    source::Source,
    tls::{H2, TlsSettings},
    trust::Trust,
};

/// The TLS settings of connections.
#[derive(Clone, Debug)]
pub(in super::super) struct Tls {
    pub settings: TlsSettings,
    pub certificates: Certificates,
    pub trust: Trust,
}

/// An encrypted connection, ready for requests.
pub(super) struct Encrypted<S> {
    pub stream: TlsStream<Paced<S>>,
    pub client: Peer,
    pub is_http2: bool,
}

/// Encrypts a connection. `None`: the client does not speak TLS, or not as required.
///
/// `local`: the address of this machine that the client connected to.
pub(super) async fn encrypt<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: SocketAddr,
    local: IpAddr,
    source: Source,
    tls: &Tls,
) -> Option<Encrypted<S>> {
    let config = match tls.settings.config(Arc::new(tls.certificates.for_address(local)), tls.trust.hints()) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "no connection can be encrypted");
            return None;
        }
    };
    let mut stream = match TlsAcceptor::from(Arc::new(config)).accept(Paced::new(stream)).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%peer, %error, "TLS handshake failed");
            return None;
        }
    };
    let (paced, connection) = stream.get_mut();
    paced.encrypted();
    connection.set_buffer_limit(Some(TLS_BUFFER));
    let is_http2 = connection.alpn_protocol() == Some(H2);
    let certificates = connection.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().cloned().map(CertificateDer::into_owned).collect();
    Some(Encrypted { stream, client: Peer::new(source, certificates), is_http2 })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustls::{
        ClientConfig, ConnectionTrafficSecrets, ContentType, ProtocolVersion, RootCertStore,
        crypto::cipher::{OutboundChunks, OutboundPlainMessage},
        pki_types::ServerName,
    };
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::{Duration, Instant},
    };
    use tokio_rustls::{TlsConnector, client};

    use super::super::idle::Idle;
    use super::*;
    use crate::serving::{AuthenticationOptions, CertificateOptions, TlsOptions};

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn a_message_of_a_handshake_that_does_not_end_ends_the_connection() {
        const LARGEST: usize = 16 << 10;
        let (client, server) = pair().await;
        let mut server = Idle::new(server.stream, Duration::from_secs(90));
        let (mut stream, connection) = client.into_inner();
        let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.tls13()).expect("TLS 1.3");
        let (first, secrets) = connection.dangerous_extract_secrets().expect("secrets").tx;
        let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
        else {
            panic!("another suite")
        };
        let mut encrypter = suite.aead_alg.encrypter(key, iv);
        let mut sequence = first..;
        let mut record = |typ: ContentType, payload: &[u8]| {
            let payload = OutboundChunks::Single(payload);
            let message = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_3, payload };
            encrypter.encrypt(message, sequence.next().expect("a number")).expect("encrypted").encode()
        };
        let mut bytes = Vec::new();
        // Records of the largest size are accepted, and so are many of them.
        for _ in 0..4 {
            bytes.extend(record(ContentType::ApplicationData, &[7; LARGEST]));
        }
        // A key update with the largest length that its header can state.
        bytes.extend(record(ContentType::Handshake, &[24, 0, 0xff, 0xfe]));
        for _ in 0..60 {
            bytes.extend(record(ContentType::Handshake, &[0; 1000]));
        }
        tokio::spawn(async move {
            let _ = stream.write_all(&bytes).await;
            // The connection stays open, as if more data followed.
            std::future::pending::<()>().await;
        });
        server.read_exact(&mut vec![0; 4 * LARGEST]).await.expect("what was sent");
        let error = server.read_u8().await.expect_err("it does not end");
        assert!(error.to_string().contains("does not end"), "{error}");
    }

    /// Both ends of a connection. The client's end is first.
    async fn pair() -> (client::TlsStream<DuplexStream>, Encrypted<DuplexStream>) {
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            CertificateOptions { cert_dir: Some(folder.path().to_owned()), ..CertificateOptions::default() };
        let certificates = Certificates::load(&options, LOCAL).expect("a certificate");
        let pem = std::fs::read(folder.path().join("server.crt")).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            rustls::pki_types::pem::PemObject::pem_slice_iter(&pem)
                .flatten()
                .collect::<Vec<CertificateDer<'_>>>(),
        );
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.enable_secret_extraction = true;
        let tls = Tls {
            settings: TlsSettings::new(&TlsOptions::default(), false).expect("settings"),
            certificates,
            trust: Trust::load(&AuthenticationOptions::default(), false).expect("nothing to read"),
        };
        let (theirs, ours) = duplex(64 << 10);
        let name = ServerName::try_from("localhost").expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, theirs);
        let encrypting = encrypt(ours, SocketAddr::from((LOCAL, 1)), LOCAL, Source::Here, &tls);
        let (theirs, ours) = tokio::join!(connecting, encrypting);
        (theirs.expect("a handshake"), ours.expect("a handshake"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_over_a_connection_is_paced() {
        /// At the bounded rate, this takes some seconds.
        const SIZE: usize = 80 << 10;
        let (mut client, server) = pair().await;
        let mut server = Idle::new(server.stream, Duration::from_secs(90));
        tokio::spawn(async move {
            let _ = client.write_all(&vec![0; 4 * SIZE]).await;
            std::future::pending::<()>().await;
        });
        let (mut buffer, start) = (vec![0; SIZE], Instant::now());
        server.read_exact(&mut buffer).await.expect("what was sent");
        assert!(start.elapsed() > Duration::from_secs(3), "{:?}", start.elapsed());
        server.stream.get_mut().0.known();
        let start = Instant::now();
        server.read_exact(&mut buffer).await.expect("what was sent");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}
