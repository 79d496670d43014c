//! TLS settings: which certificates are trusted.

use std::{fs, path::PathBuf, sync::Arc};

use cloudprovider::tls::{BoundedVerifier, system_roots};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use crate::{endpoint::Endpoint, thumbprint::Thumbprint};

/// The TLS settings for a vCenter.
///
/// # Errors
/// The reason, if a CA file cannot be read or has no certificate.
pub(crate) fn client_config(endpoint: &Endpoint) -> Result<ClientConfig, String> {
    trusting(roots(endpoint)?, endpoint.thumbprint.clone(), endpoint.insecure)
}

/// Settings with these roots. If there are none and nothing else is trusted, each handshake fails; a client
/// that does not use TLS needs no roots.
fn trusting(
    roots: RootCertStore,
    thumbprint: Option<Thumbprint>,
    insecure: bool,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let normal = if roots.is_empty() {
        None
    } else {
        let roots = Arc::new(roots);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        Some(BoundedVerifier::new(verifier.map_err(|error| error.to_string())?))
    };
    let verifier = Verifier { normal, thumbprint, insecure, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// The TLS settings for a server that is not a vCenter. The system's authorities and those in these files are
/// trusted.
///
/// # Errors
/// As [`client_config`].
pub(crate) fn client_config_of_others(ca_files: &[PathBuf]) -> Result<ClientConfig, String> {
    let mut roots = system_roots();
    add_files(&mut roots, ca_files)?;
    cloudprovider::tls::client_config(roots)
}

fn roots(endpoint: &Endpoint) -> Result<RootCertStore, String> {
    let mut roots = if endpoint.ca_files.is_empty() { system_roots() } else { RootCertStore::empty() };
    add_files(&mut roots, &endpoint.ca_files)?;
    Ok(roots)
}

fn add_files(roots: &mut RootCertStore, files: &[PathBuf]) -> Result<(), String> {
    for path in files {
        let before = roots.len();
        let text =
            fs::read(path).map_err(|error| format!("cannot read the CA file {}: {error}", path.display()))?;
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate =
                certificate.map_err(|error| format!("the CA file {} is not PEM: {error}", path.display()))?;
            roots
                .add(certificate)
                .map_err(|error| format!("the CA file {} has a bad certificate: {error}", path.display()))?;
        }
        if roots.len() == before {
            return Err(format!("the CA file {} holds no certificate in PEM form", path.display()));
        }
    }
    Ok(())
}

/// Verifies as usual, and compares the thumbprint only if that fails, as govmomi does.
#[derive(Debug)]
struct Verifier {
    normal: Option<BoundedVerifier>,
    thumbprint: Option<Thumbprint>,
    insecure: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.insecure {
            return Ok(ServerCertVerified::assertion());
        }
        let outcome = match &self.normal {
            Some(normal) => {
                normal.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        match &self.thumbprint {
            Some(thumbprint) if outcome.is_err() && thumbprint.is_of(end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            Some(thumbprint) if thumbprint.is_malformed() => outcome.map_err(|error| {
                rustls::Error::General(format!("{error}; the thumbprint in the configuration is none"))
            }),
            Some(_) => outcome.map_err(|error| {
                let words = "the thumbprint in the configuration is that of another certificate";
                rustls::Error::General(format!("{error}; {words}"))
            }),
            None => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_authority_there_are_settings_that_trust_nobody() {
        trusting(RootCertStore::empty(), None, false).expect("a server without TLS needs no authority");
    }

    #[test]
    fn thumbprints_in_every_spelling() {
        let bytes = |n: usize| (0..n).map(|i| format!("{i:02X}")).collect::<Vec<_>>();
        for text in [bytes(20).join(":"), bytes(20).concat(), bytes(32).join(":").to_lowercase()] {
            let thumbprint: Thumbprint = text.parse().expect(&text);
            assert_eq!(format!("{thumbprint:?}").replace(':', ""), text.to_uppercase().replace(':', ""));
        }
        let (sha1, sha256) = (bytes(20).join(":"), bytes(32).join(":"));
        for (text, expected) in [
            (format!("SHA1 Fingerprint={sha1}"), &sha1),
            (sha1.replace(':', "\u{ad}:"), &sha1),
            (format!("sha1 Fingerprint={sha1}\n"), &sha1),
            (format!("SHA256 Fingerprint={sha256}"), &sha256),
            (format!("sha256 Fingerprint={sha256}"), &sha256),
            (format!("SHA-256 Thumbprint:  {sha256}"), &sha256),
            (format!("Cert Hash(sha1): {}", bytes(20).concat().to_lowercase()), &sha1),
            (format!("vc1.example.org {sha1}"), &sha1),
            (format!("vc1.example.org:443 {sha1}"), &sha1),
            (format!("cafe {sha1}"), &sha1),
            (format!("sha256:{}", bytes(32).concat()), &sha256),
            (format!("SHA1:{sha1}"), &sha1),
            (format!("\u{200e}{}", bytes(20).join(" ").to_lowercase()), &sha1),
            (format!("{}\u{200e}", bytes(20).concat()), &sha1),
            (bytes(20).join("\u{a0}"), &sha1),
            (bytes(32).join("-"), &sha256),
        ] {
            let thumbprint: Thumbprint = text.parse().unwrap_or_else(|_| panic!("{text:?}"));
            assert_eq!(format!("{thumbprint:?}"), *expected, "{text:?}");
        }
        let long = bytes(33).join(" ");
        for text in [
            "",
            "zz",
            "AA:BB",
            &bytes(21).join(":"),
            "grün",
            &long,
            &format!("{sha1}:ZZ"),
            &format!("{sha1} x"),
        ] {
            assert!(text.parse::<Thumbprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_thumbprint_is_told_where_one_is_looked_for() {
        let verifier = |insecure, thumbprint| Verifier {
            normal: None,
            thumbprint: Some(thumbprint),
            insecure,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        };
        let verify = |insecure, thumbprint: Thumbprint| {
            let name = ServerName::try_from("vc").expect("a name");
            verifier(insecure, thumbprint).verify_server_cert(
                &CertificateDer::from(vec![1]),
                &[],
                &name,
                &[],
                UnixTime::now(),
            )
        };
        assert!(verify(true, Thumbprint::malformed()).is_ok(), "nobody looks");
        let other = vec!["AB"; 20].join(":").parse::<Thumbprint>().expect("a thumbprint");
        for (thumbprint, words) in
            [(Thumbprint::malformed(), "is none"), (other, "is that of another certificate")]
        {
            let error = verify(false, thumbprint).expect_err("trusted by nobody").to_string();
            let words = format!("the thumbprint in the configuration {words}");
            assert!(error.contains("UnknownIssuer") && error.contains(&words), "{error}");
        }
    }

    #[test]
    fn a_ca_file_without_certificates_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut endpoint = Endpoint {
            host: "vc".to_owned(),
            port: 443,
            ca_files: vec![file.path().to_owned()],
            thumbprint: None,
            insecure: false,
        };
        assert!(client_config(&endpoint).expect_err("empty").contains("holds no certificate"));
        endpoint.ca_files = vec!["/does/not/exist".into()];
        assert!(client_config(&endpoint).expect_err("missing").contains("/does/not/exist"));
    }

    /// The result of a handshake of this client with a server that shows this certificate chain.
    fn shown(config: ClientConfig, key: &rcgen::KeyPair, chain: Vec<CertificateDer<'static>>) -> String {
        use rustls::{ClientConnection, ServerConfig, ServerConnection};
        let server = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key.serialize_der().try_into().expect("a key"))
            .expect("a certificate");
        let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("hello");
        server.read_tls(&mut bytes.as_slice()).expect("hello");
        server.process_new_packets().expect("a hello");
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("certificates");
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).expect("certificates");
            if let Err(error) = client.process_new_packets() {
                return error.to_string();
            }
        }
        "welcome".to_owned()
    }

    #[test]
    fn a_server_with_too_many_certificates_is_not_verified() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), certificate.pem()).expect("written");
        let ca_files = vec![file.path().to_owned()];
        let endpoint = Endpoint {
            host: "vc".to_owned(),
            port: 443,
            ca_files: ca_files.clone(),
            thumbprint: None,
            insecure: false,
        };
        let others = client_config_of_others(&ca_files).expect("good");
        for config in [client_config(&endpoint).expect("good"), others] {
            let shown = |count| shown(config.clone(), &key, vec![certificate.der().clone(); count]);
            assert_eq!(shown(1), "welcome");
            let error = shown(11);
            assert!(error.contains("the other side sent 11 certificates"), "{error}");
        }
        // A server with the key of the expected certificate is the right one, whatever other certificates it
        // shows.
        let thumbprint = ring::digest::digest(&ring::digest::SHA256, certificate.der());
        let endpoint = Endpoint { thumbprint: Some(Thumbprint(thumbprint.as_ref().into())), ..endpoint };
        let config = client_config(&endpoint).expect("good");
        assert_eq!(shown(config, &key, vec![certificate.der().clone(); 11]), "welcome");
    }
}
