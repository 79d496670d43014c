//! The beginning of a connection, until it is encrypted.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{super::peer::Peer, Tls, paced::Paced};
use crate::serving::{source::Source, tls::H2};

/// Bytes that are encrypted and not taken yet.
const TLS_BUFFER: usize = 16 << 10;

/// A connection over which requests can come.
pub(super) struct Encrypted {
    pub stream: TlsStream<Paced<TcpStream>>,
    pub client: Peer,
    pub is_http2: bool,
}

/// `None`: the client does not, or not in the way that is asked for.
pub(super) async fn encrypt(
    stream: TcpStream,
    peer: SocketAddr,
    source: Source,
    tls: &Tls,
) -> Option<Encrypted> {
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
