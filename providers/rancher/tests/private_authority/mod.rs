//! A certificate authority that no machine trusts.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

/// The TLS settings of a server on 127.0.0.1, and the certificate of the new authority behind them, as PEM.
pub(crate) fn private_authority() -> (TlsAcceptor, String) {
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
