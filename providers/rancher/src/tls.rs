//! TLS settings: which certificates are trusted.

use rustls::{
    RootCertStore,
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

/// Makes sure that the process has a crypto provider, for clients that are not built from
/// [`cloudprovider::tls::client_config`]. The daemon has set one already.
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
}
