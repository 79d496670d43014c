//! TLS settings: which certificates are trusted.

use std::sync::Arc;

use cloudprovider::tls::BoundedVerifier;
use rustls::{ClientConfig, RootCertStore, client::WebPkiServerVerifier};

/// Settings that trust the certificate authorities of the system.
///
/// # Errors
/// Why there can be no settings.
pub(super) fn client_config() -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    // rustls cannot parse all certificates of every system; the others are enough
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
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
