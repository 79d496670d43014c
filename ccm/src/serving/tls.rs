//! Which TLS is spoken: versions, algorithms, and that clients may show a certificate.

use std::{collections::HashSet, sync::Arc};

use anyhow::anyhow;
use rustls::{
    DigitallySignedStruct, DistinguishedName, NamedGroup, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::{TLS12, TLS13},
};

use super::TlsOptions;

/// The names that Go knows, with those of rustls where it has the suite.
const CIPHER_SUITES: [(&str, Option<rustls::CipherSuite>); 30] = {
    use rustls::CipherSuite as Suite;
    [
        ("TLS_AES_128_GCM_SHA256", Some(Suite::TLS13_AES_128_GCM_SHA256)),
        ("TLS_AES_256_GCM_SHA384", Some(Suite::TLS13_AES_256_GCM_SHA384)),
        ("TLS_CHACHA20_POLY1305_SHA256", Some(Suite::TLS13_CHACHA20_POLY1305_SHA256)),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
        ),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some(Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Some(Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", Some(Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            Some(Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
        ),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", None),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", None),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", None),
        ("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", None),
        ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", None),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", None),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", None),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", None),
        ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", None),
        ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", None),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", None),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", None),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", None),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", None),
        ("TLS_RSA_WITH_RC4_128_SHA", None),
        // Not Go's, but the names under which IANA and rustls know the three of TLS 1.3.
        ("TLS13_AES_128_GCM_SHA256", Some(Suite::TLS13_AES_128_GCM_SHA256)),
        ("TLS13_AES_256_GCM_SHA384", Some(Suite::TLS13_AES_256_GCM_SHA384)),
        ("TLS13_CHACHA20_POLY1305_SHA256", Some(Suite::TLS13_CHACHA20_POLY1305_SHA256)),
    ]
};

/// Go's numbers of key exchanges, with those of rustls where it has it.
const CURVES: [(i32, Option<NamedGroup>); 7] = [
    (23, Some(NamedGroup::secp256r1)),
    (24, Some(NamedGroup::secp384r1)),
    (25, None),
    (29, Some(NamedGroup::X25519)),
    // The three hybrids with ML-KEM.
    (4587, None),
    (4588, None),
    (4589, None),
];

/// What is wrong with the options, in upstream's words.
pub(super) fn faults(options: &TlsOptions) -> Vec<String> {
    let mut faults = Vec::new();
    if versions(&options.tls_min_version).is_none() {
        faults.push(format!(
            "unknown tls version \"{}\": --tls-min-version must be VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13",
            options.tls_min_version
        ));
    }
    for name in &options.tls_cipher_suites {
        if !CIPHER_SUITES.iter().any(|(known, _)| known == name) {
            faults.push(format!("Cipher suite {name} not supported or doesn't exist (--tls-cipher-suites)"));
        }
    }
    let mut seen = HashSet::new();
    for id in &options.tls_curve_preferences {
        if !(1..=65535).contains(id) {
            faults.push(format!(
                "curve preference {id} is out of range (must be 1-65535) (--tls-curve-preferences)"
            ));
        } else if !seen.insert(id) {
            faults.push(format!("duplicate curve preference {id} (--tls-curve-preferences)"));
        } else if !CURVES.iter().any(|(known, _)| known == id) {
            faults.push(format!("curve preference {id} is not supported (--tls-curve-preferences)"));
        }
    }
    faults
}

/// All that are served, and the newest alone.
static ALL_VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static NEWEST_VERSION: [&SupportedProtocolVersion; 1] = [&TLS13];

fn versions(least: &str) -> Option<&'static [&'static SupportedProtocolVersion]> {
    match least {
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Some(&ALL_VERSIONS),
        "VersionTLS13" => Some(&NEWEST_VERSION),
        _ => None,
    }
}

/// What is the same for all connections.
#[derive(Clone, Debug)]
pub(super) struct TlsSettings {
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
    http2: bool,
}

impl TlsSettings {
    /// Reads the options; what has no effect here is said in a warning.
    ///
    /// # Errors
    /// As [`faults`]; or a choice that leaves nothing.
    pub(super) fn new(options: &TlsOptions, disable_http2: bool) -> anyhow::Result<Self> {
        if let Some(fault) = faults(options).into_iter().next() {
            return Err(anyhow!(fault));
        }
        let versions = versions(&options.tls_min_version).unwrap_or_default();
        if ["VersionTLS10", "VersionTLS11"].contains(&options.tls_min_version.as_str()) {
            tracing::warn!(
                "--tls-min-version={}: versions before 1.2 are not served",
                options.tls_min_version
            );
        }
        let mut provider = ring::default_provider();
        if !options.tls_cipher_suites.is_empty() {
            let mut wanted = Vec::new();
            for name in &options.tls_cipher_suites {
                match CIPHER_SUITES.iter().find(|(known, _)| known == name).and_then(|(_, suite)| *suite) {
                    Some(suite) => wanted.push(suite),
                    None => tracing::warn!(
                        "--tls-cipher-suites: {name} has no effect, it is not served for lack of security"
                    ),
                }
            }
            // As with Go, whose TLS 1.3 takes no choice.
            provider.cipher_suites.retain(|suite| suite.tls13().is_some() || wanted.contains(&suite.suite()));
        }
        if !options.tls_curve_preferences.is_empty() {
            let mut wanted = Vec::new();
            for id in &options.tls_curve_preferences {
                match CURVES.iter().find(|(known, _)| known == id).and_then(|(_, group)| *group) {
                    Some(group) => wanted.push(group),
                    None => tracing::warn!("--tls-curve-preferences: {id} has no effect, it is not there"),
                }
            }
            provider.kx_groups.retain(|group| wanted.contains(&group.name()));
            if provider.kx_groups.is_empty() {
                return Err(anyhow!(
                    "--tls-curve-preferences leaves no key exchange: of X25519 (29), P-256 (23) and P-384 (24) at least one must be given"
                ));
            }
        }
        // Without a suite of its own a version cannot be offered.
        let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
        let versions = if has_tls12 { versions } else { &NEWEST_VERSION };
        Ok(Self { provider: Arc::new(provider), versions, http2: !disable_http2 })
    }

    /// The settings of one connection. Nothing is resumed: each connection proves anew who it is.
    ///
    /// # Errors
    /// Never, for settings that could be made.
    pub(super) fn config(
        &self,
        certificates: Arc<dyn ResolvesServerCert>,
        client_cas: Option<Vec<DistinguishedName>>,
    ) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(self.versions)?;
        let builder = match client_cas {
            Some(hints) => builder.with_client_cert_verifier(Arc::new(AnyCertificate {
                hints,
                provider: self.provider.clone(),
            })),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(certificates);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols =
            if self.http2 { vec![H2.to_vec(), HTTP_1_1.to_vec()] } else { vec![HTTP_1_1.to_vec()] };
        Ok(config)
    }
}

/// The protocols as TLS names them.
pub(super) const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Asks for a client certificate and takes any whose key the client has: who signed it matters when a request is
/// authenticated, and a bad one is answered there.
#[derive(Debug)]
struct AnyCertificate {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(options: TlsOptions) -> anyhow::Result<TlsSettings> {
        TlsSettings::new(&options, false)
    }

    #[test]
    fn choices_narrow_what_is_there() {
        let all = settings(TlsOptions::default()).expect("defaults");
        assert_eq!((all.versions.len(), all.provider.kx_groups.len()), (2, 3));
        let some = settings(TlsOptions {
            tls_cipher_suites: ["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
                .map(str::to_owned)
                .into(),
            tls_curve_preferences: vec![4588, 23],
            ..TlsOptions::default()
        })
        .expect("a choice");
        assert_eq!((some.provider.cipher_suites.len(), some.provider.kx_groups.len()), (4, 1));
        let none_of_1_2 = settings(TlsOptions {
            tls_cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".into()],
            ..TlsOptions::default()
        })
        .expect("TLS 1.3 is left");
        assert_eq!(none_of_1_2.versions.len(), 1);
        let error = settings(TlsOptions { tls_curve_preferences: vec![25], ..TlsOptions::default() });
        assert!(error.expect_err("nothing").to_string().contains("leaves no key exchange"));
    }

    #[test]
    fn versions_by_upstreams_names() {
        for (name, count) in [("", 2), ("VersionTLS10", 2), ("VersionTLS12", 2), ("VersionTLS13", 1)] {
            let options = TlsOptions { tls_min_version: name.into(), ..TlsOptions::default() };
            assert_eq!(settings(options).expect(name).versions.len(), count);
        }
        assert!(versions("TLS1.3").is_none());
    }
}
