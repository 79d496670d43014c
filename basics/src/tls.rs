//! TLS for clients of any server (feature `tls`): which certificates are trusted, and how many are looked at.

mod chain;

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, client::WebPkiServerVerifier};

pub use chain::{
    BoundedVerifier, ChainError, MAX_CERTIFICATES, MAX_SEARCHES, MAX_SIZE, MAX_STEPS, check_chain,
};

/// The certificate authorities of the system, or those in the file that the environment variable `SSL_CERT_FILE`
/// names.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // rustls cannot parse all certificates of every system; the others are enough
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Settings of a client that trusts these authorities, within the limits of [`check_chain`]. If there are none, each
/// handshake fails: a server without TLS needs no authority.
///
/// # Errors
/// Why there can be no settings.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if roots.is_empty() {
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = BoundedVerifier::new(verifier.map_err(|error| error.to_string())?);
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_authority_there_are_settings_that_trust_nobody() {
        client_config(RootCertStore::empty()).expect("a server without TLS needs no authority");
    }
}
