//! A server with a certificate of a private authority.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    rancher::FakeRancher,
    support::{node, start},
};

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

/// While an authority is changed, the file holds both. The daemon makes another provider when the file changes.
#[tokio::test]
async fn a_private_authority_and_its_successor_are_trusted() {
    let (old, old_authority) = private_authority();
    let (new, new_authority) = private_authority();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    let more = format!("caFile: {}\n", file.display());
    for (acceptor, trusted, expected) in [
        (old.clone(), old_authority.clone(), "present"),
        (old, format!("{old_authority}{new_authority}"), "present"),
        (new.clone(), format!("{old_authority}{new_authority}"), "present"),
        (new, old_authority, "unknown unavailable"),
    ] {
        let rancher = FakeRancher::start_with(Some(acceptor), None).await;
        rancher.add_cluster("c-abcde", "imported", "fleet-default");
        rancher.add_node("c-abcde", "node-1");
        std::fs::write(&file, trusted).expect("written");
        let running = start(&rancher.config("c-abcde", &more)).await;
        let answer = running.until(&node("node-1"), expected).await;
        assert!(expected == "present" || answer.to_lowercase().contains("certificate"), "{answer}");
    }
}
