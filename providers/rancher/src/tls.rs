//! TLS settings: which certificates are trusted.

use std::sync::Arc;

use cloudprovider::tls::BoundedVerifier;
use rustls::{
    ClientConfig, RootCertStore,
    client::WebPkiServerVerifier,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The certificates in a PEM text.
///
/// # Errors
/// What is wrong with the text, as the end of a sentence.
pub(crate) fn certificates(pem: &[u8]) -> Result<RootCertStore, &'static str> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "is not in PEM format")?;
        roots.add(certificate).map_err(|_| "has a certificate that cannot be read")?;
    }
    if roots.is_empty() { Err("holds no certificate in PEM format") } else { Ok(roots) }
}

/// Settings that trust these certificate authorities, or the system's if there are none.
///
/// # Errors
/// Why there can be no settings.
pub(crate) fn client_config(roots: Option<RootCertStore>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = roots.unwrap_or_else(|| {
        let mut roots = RootCertStore::empty();
        // rustls cannot parse all certificates of every system; the others are enough
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if roots.is_empty() {
        // Each handshake fails. A server without TLS needs no authority.
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = BoundedVerifier::new(verifier.map_err(|error| error.to_string())?);
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Makes sure that the process has a crypto provider, for clients that are not built from
/// [`client_config`]. The daemon has set one already.
pub(crate) fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails only if somebody else has set one in the meantime.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_told() {
        assert_eq!(certificates(b"").expect_err("none"), "holds no certificate in PEM format");
        let broken = b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        certificates(broken).expect_err("broken");
        let key = rcgen::generate_simple_self_signed(vec!["rancher.example.org".to_owned()])
            .expect("a certificate");
        assert_eq!(certificates(key.cert.pem().as_bytes()).expect("one").len(), 1);
    }

    #[test]
    fn without_an_authority_there_are_settings_that_trust_nobody() {
        client_config(Some(RootCertStore::empty())).expect("a server without TLS needs no authority");
    }
}
