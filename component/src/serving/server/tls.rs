//! TLS settings: versions, algorithms, and optional client certificates.

use std::sync::Arc;

use anyhow::bail;
use basics::tls::check_chain;
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, NamedGroup, PeerMisbehaved,
    ServerConfig, SignatureScheme, SupportedProtocolVersion,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::{TLS12, TLS13},
};

use x509_parser::{
    asn1_rs::{FromDer as _, Sequence},
    nom::Parser as _,
    prelude::X509CertificateParser,
};

use crate::serving::TlsOptions;

/// Go's numbers of the supported key exchanges.
const CURVES: [(i32, NamedGroup); 3] =
    [(23, NamedGroup::secp256r1), (24, NamedGroup::secp384r1), (29, NamedGroup::X25519)];

/// All supported versions, and the newest one alone.
static ALL_VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static NEWEST_VERSION: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Settings that all connections share.
#[derive(Clone, Debug)]
pub(super) struct TlsSettings {
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
    http2: bool,
}

impl TlsSettings {
    /// Restricts the supported algorithms to those in the options. Unsupported ones are ignored here, and
    /// reported where the flags are parsed.
    ///
    /// # Errors
    /// An unknown version.
    pub(super) fn new(options: &TlsOptions, disable_http2: bool) -> anyhow::Result<Self> {
        let mut provider = ring::default_provider();
        if !options.tls_cipher_suites.is_empty() {
            // As in Go, where the suites of TLS 1.3 are not configurable.
            provider.cipher_suites.retain(|suite| {
                suite.tls13().is_some() || is_wanted(suite.suite(), &options.tls_cipher_suites)
            });
        }
        if !options.tls_curve_preferences.is_empty() {
            let is_wanted = |group: NamedGroup| {
                CURVES.iter().any(|(id, known)| *known == group && options.tls_curve_preferences.contains(id))
            };
            // If none of the configured key exchanges is supported, all stay enabled, since the port would be
            // unusable otherwise.
            if provider.kx_groups.iter().any(|group| is_wanted(group.name())) {
                provider.kx_groups.retain(|group| is_wanted(group.name()));
            }
        }
        // A version cannot be offered without a cipher suite.
        let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
        let versions: &[_] = match options.tls_min_version.as_str() {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" if has_tls12 => &ALL_VERSIONS,
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13" => &NEWEST_VERSION,
            other => bail!("unknown tls version {other:?} (--tls-min-version)"),
        };
        Ok(Self { provider: Arc::new(provider), versions, http2: !disable_http2 })
    }

    /// The settings of one connection. Sessions are not resumed: each connection authenticates anew.
    ///
    /// # Errors
    /// Never, since the settings were checked before.
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

/// Whether Go's names include this suite. Two suites have a short name too.
fn is_wanted(suite: CipherSuite, names: &[String]) -> bool {
    suite.as_str().is_some_and(|known| {
        names.iter().any(|name| name == known || known.strip_suffix("_SHA256") == Some(name))
    })
}

/// The names of the protocols in TLS.
pub(super) const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// Requests a client certificate and accepts any for which the client has the key. The signature of its
/// authority is verified when a request is authenticated, and an invalid certificate is refused there. Only
/// too many or too large certificates are refused at once, so that they are neither verified nor stored.
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
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        check_chain(own, others)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_with_key(message, &PublicKey::of(certificate)?, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let key = PublicKey::of(certificate)?.info.into();
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Maximum size of a client's public key, in bytes. RSA with 4096 bits takes 526. With larger keys a
/// handshake takes milliseconds.
const MAX_KEY_SIZE: usize = 600;

/// The public key of a certificate. rustls extracts keys only from certificates that it would accept, and
/// aborts the connection for others, such as X.509 version 1.
struct PublicKey {
    /// All of `subjectPublicKeyInfo`, in DER.
    info: Vec<u8>,
    /// The content of its `algorithm`.
    algorithm: Vec<u8>,
    key: Vec<u8>,
}

impl PublicKey {
    fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let unreadable = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
        let (_, parsed) = parser.parse(certificate).map_err(|_| unreadable())?;
        let info = parsed.public_key();
        let (_, fields) = Sequence::from_der(info.raw).map_err(|_| unreadable())?;
        let (_, algorithm) = Sequence::from_der(&fields.content).map_err(|_| unreadable())?;
        let key = info.subject_public_key.data.to_vec();
        if key.len() > MAX_KEY_SIZE {
            let words = format!("a public key of {} bytes: an RSA key may have 4096 bits", key.len());
            return Err(rustls::Error::General(words));
        }
        Ok(Self { info: info.raw.to_vec(), algorithm: algorithm.content.to_vec(), key })
    }
}

/// For TLS 1.2, whose signatures name no curve: the algorithm is that of the key.
fn verify_with_key(
    message: &[u8],
    key: &PublicKey,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let of_scheme = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
    let (_, possible) = of_scheme.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let bad = rustls::Error::InvalidCertificate(CertificateError::BadSignature);
    let algorithm = possible.iter().find(|one| *one.public_key_alg_id() == *key.algorithm);
    let verified = algorithm.ok_or(bad.clone())?.verify_signature(&key.key, message, signature.signature());
    verified.map(|()| HandshakeSignatureValid::assertion()).map_err(|_| bad)
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
        let short = settings(TlsOptions {
            tls_cipher_suites: vec!["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305".into()],
            ..TlsOptions::default()
        })
        .expect("a short form");
        assert_eq!(short.provider.cipher_suites.len(), 4);
        let none_of_1_2 = settings(TlsOptions {
            tls_cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".into()],
            ..TlsOptions::default()
        })
        .expect("TLS 1.3 is left");
        assert_eq!(none_of_1_2.versions.len(), 1);
        let none = settings(TlsOptions { tls_curve_preferences: vec![25, 4588], ..TlsOptions::default() });
        assert_eq!(none.expect("as without the flag").provider.kx_groups.len(), 3);
    }

    #[test]
    fn versions_by_upstreams_names() {
        for (name, count) in [("", 2), ("VersionTLS10", 2), ("VersionTLS12", 2), ("VersionTLS13", 1)] {
            let options = TlsOptions { tls_min_version: name.into(), ..TlsOptions::default() };
            assert_eq!(settings(options).expect(name).versions.len(), count);
        }
        let options = TlsOptions { tls_min_version: "TLS1.3".into(), ..TlsOptions::default() };
        settings(options).expect_err("nobody knows it");
    }

    #[test]
    fn the_key_of_a_client_has_a_bound() {
        struct Key(Vec<u8>);
        impl rcgen::PublicKeyData for Key {
            fn der_bytes(&self) -> &[u8] {
                &self.0
            }

            fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
                &rcgen::PKCS_RSA_SHA256
            }
        }
        let key = rcgen::KeyPair::generate().expect("a key");
        let issuer = rcgen::Issuer::new(rcgen::CertificateParams::default(), key);
        let of = |size| {
            let certificate = rcgen::CertificateParams::default().signed_by(&Key(vec![1; size]), &issuer);
            PublicKey::of(certificate.expect("a certificate").der()).map(|key| key.key.len())
        };
        assert_eq!(of(526), Ok(526), "RSA with 4096 bits");
        let refused = of(1038).expect_err("RSA with 8192 bits");
        assert!(refused.to_string().contains("4096 bits"), "{refused}");
    }
}
