//! A server with a certificate of a private authority.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

use crate::{support::start, testing::FakeCattle};

/// A server's TLS settings, and the authority's certificate.
fn private_authority() -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .expect("a certificate");
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}

#[tokio::test]
async fn a_private_authority_is_trusted_if_the_configuration_says_so() {
    let (acceptor, authority) = private_authority();
    let server = FakeCattle::start_with_tls(acceptor).await;
    server.add_host("node-1", "10.0.0.1");
    let running = start(&server, "").await;
    let told = running.until("node-1", "unknown unavailable").await;
    assert!(told.to_lowercase().contains("certificate"), "{told}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &authority).expect("written");
    for trusting in [
        format!("caFile: {}\n", file.display()),
        format!("caCert: |\n  {}\n", authority.trim().replace('\n', "\n  ")),
        "insecureSkipVerify: true\n".to_owned(),
    ] {
        let running = start(&server, &trusting).await;
        running.until("node-1", "present").await;
        // Events take the same way.
        let id = server.add_host("node-2", "10.0.0.2");
        running.until("node-2", "present").await;
        server.remove_host(&id);
    }
}
