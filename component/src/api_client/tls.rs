//! TLS to the API server and to a proxy.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use basics::tls::BoundedVerifier;
use http::uri::Scheme;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use kube::{client::ConfigExt as _, config::Config};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};

use super::fault::fault;

/// Adds TLS to the connections of `inner` if the URL in `config` asks for it, as kube does. In addition,
/// server certificates are refused if verifying them would take too long.
///
/// # Errors
/// Certificates, keys or names that cannot be used.
pub(super) fn connector<C>(inner: C, config: &Config) -> anyhow::Result<HttpsConnector<C>> {
    // kube's own verifier gets no authorities and so trusts no server. It is replaced below if certificates
    // are verified at all.
    let mut trusting_nobody = config.clone();
    trusting_nobody.root_cert = Some(Vec::new());
    let mut tls = trusting_nobody.rustls_client_config().map_err(fault)?;
    if !config.accept_invalid_certs && config.cluster_url.scheme() == Some(&Scheme::HTTPS) {
        let verifier = BoundedVerifier::new(verifier(config).context("no client for the API server")?);
        tls.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|_| anyhow!("no client for the API server: {name:?} is no server name"))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(inner))
}

/// A verifier with the authorities of the configuration, or those of the system.
fn verifier(config: &Config) -> anyhow::Result<Arc<dyn ServerCertVerifier>> {
    let provider = Arc::new(ring::default_provider());
    let Some(certificates) = &config.root_cert else {
        return Ok(Arc::new(rustls_platform_verifier::Verifier::new(provider)?));
    };
    if certificates.is_empty() {
        return Err(anyhow!("the certificate authority of the API server holds no certificate"));
    }
    let mut roots = RootCertStore::empty();
    for der in certificates {
        roots.add(CertificateDer::from(der.clone())).context("failed to add a root certificate")?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(verifier.context("the certificate authorities cannot be used")?)
}

#[cfg(test)]
mod tests {
    use hyper_util::client::legacy::connect::HttpConnector;
    use rustls::ServerConfig;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tower::ServiceExt as _;

    use super::*;

    /// The result of a connection to a server that sends its certificate `count` times.
    async fn connect(count: usize) -> Result<(), String> {
        let _ = ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("a certificate").der().clone();
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.clone(); count],
                key.serialize_der().try_into().expect("a key"),
            )
            .expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://localhost:{}", listener.local_addr().expect("an address").port());
        let url: http::Uri = url.parse().expect("a URL");
        let mut config = Config::new(url.clone());
        config.root_cert = Some(vec![certificate.to_vec()]);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let connector = connector(tcp, &config).expect("a connector");
        let serve = async {
            let (stream, _) = listener.accept().await.expect("a client");
            let _ = TlsAcceptor::from(Arc::new(server)).accept(stream).await;
        };
        let (connected, ()) = tokio::join!(connector.oneshot(url), serve);
        connected.map(drop).map_err(|error| basics::error_chain(&*error))
    }

    #[tokio::test]
    async fn a_server_with_too_many_certificates_is_not_verified() {
        connect(2).await.expect("verified");
        let error = connect(11).await.expect_err("too many");
        assert!(error.contains("the other side sent 11 certificates"), "{error}");
    }

    #[test]
    fn authorities_are_looked_at_for_https_alone() {
        let _ = ring::default_provider().install_default();
        let error_of = |url: &str, authorities: Vec<Vec<u8>>| {
            let mut config = Config::new(url.parse().expect("a URL"));
            config.root_cert = Some(authorities);
            connector(HttpConnector::new(), &config).err().map(|error| format!("{error:#}"))
        };
        assert_eq!(error_of("http://localhost:1", Vec::new()), None);
        assert_eq!(error_of("http://localhost:1", vec![b"none".to_vec()]), None);
        let error = error_of("https://localhost:1", Vec::new()).expect("nobody is trusted");
        assert!(error.contains("holds no certificate"), "{error}");
        assert!(error_of("https://localhost:1", vec![b"none".to_vec()]).is_some());
    }
}
