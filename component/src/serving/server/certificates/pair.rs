//! A certificate with its key.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow};
use basics::dns;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The two files of a pair, and the flags that name them.
#[derive(Clone, Debug)]
pub(super) struct PairFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub flags: String,
}

/// A certificate with its chain and its key.
pub(super) type Certificate = Arc<CertifiedKey>;

/// A certificate that is ready to serve.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub certificate: Certificate,
    /// The names in the certificate, in lower case: DNS names, and the common name if it is a DNS name.
    pub names: Vec<String>,
}

impl PairFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// Which file is faulty, and how. The error never contains the file's content.
    pub(super) fn load(&self) -> anyhow::Result<Pair> {
        let read = |path: &PathBuf| {
            fs::read(path).with_context(|| format!("{}: {} cannot be read", self.flags, path.display()))
        };
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        Pair::parse(&certificate, &key).with_context(|| {
            format!(
                "{}: {} and {} cannot be used",
                self.flags,
                self.certificate.display(),
                self.key.display()
            )
        })
    }
}

impl Pair {
    /// Parses PEM: the certificate with its chain, and its key.
    ///
    /// # Errors
    /// What is wrong with the certificate or the key.
    pub(super) fn parse(certificate: &[u8], key: &[u8]) -> anyhow::Result<Self> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| anyhow!("the certificate is not PEM"))?;
        let first = chain.first().context("the certificate file holds no certificate in PEM")?;
        let names = names_of(first)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            if is_encrypted(key) {
                anyhow!("the private key is encrypted, and nobody is asked for its passphrase; remove that")
            } else {
                anyhow!("the key file holds no private key in PEM")
            }
        })?;
        let certificate =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    anyhow!("the private key does not belong to the certificate")
                }
                rustls::Error::InvalidCertificate(error) => {
                    anyhow!("the certificate is of no kind that can be used, such as X.509 before version 3: {error:?}")
                }
                error => anyhow!(
                    "the private key is of no kind that can be used (RSA from 2048 bits on, P-256, P-384 or Ed25519): {error}"
                ),
            })?;
        Ok(Self { certificate: Arc::new(certificate), names })
    }

    pub(super) fn same_as(&self, other: &Self) -> bool {
        self.certificate.cert == other.certificate.cert
    }
}

/// Whether it is a key in PEM that only a passphrase opens.
fn is_encrypted(key: &[u8]) -> bool {
    let text = String::from_utf8_lossy(key);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn names_of(certificate: &CertificateDer<'_>) -> anyhow::Result<Vec<String>> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|_| anyhow!("the certificate is not an X.509 certificate"))?;
    let mut names = Vec::new();
    // As in upstream: the common name counts if it can be a DNS name.
    let common_names = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    if let Some(name) = common_names.last().filter(|name| is_dns_pattern(name)) {
        names.push(name.to_ascii_lowercase());
    }
    if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push(name.to_ascii_lowercase());
            }
        }
    }
    Ok(names)
}

/// Whether `name` is `*` or a DNS name, possibly with a wildcard in front, and not an IP address.
fn is_dns_pattern(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if name == "*" {
        return true;
    }
    let rest = name.strip_prefix("*.").unwrap_or(&name);
    rest.len() <= 253 && rest.parse::<std::net::IpAddr>().is_err() && rest.split('.').all(dns::is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_without_the_content() {
        let local = "127.0.0.1".parse().expect("an address");
        let (certificate, key) = super::super::self_signed::generate(local).expect("made");
        let (_, other_key) = super::super::self_signed::generate(local).expect("made");
        let pair = Pair::parse(certificate.as_bytes(), key.as_bytes()).expect("a pair");
        assert!(pair.names.contains(&"localhost".to_owned()), "{:?}", pair.names);
        for (certificate, key, words) in [
            ("", key.as_str(), "holds no certificate"),
            (key.as_str(), key.as_str(), "holds no certificate"),
            (&certificate, "", "holds no private key"),
            (&certificate, &certificate, "holds no private key"),
            (&certificate, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", "is encrypted"),
            (&certificate, &other_key, "does not belong to the certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "not an X.509"),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", &key, "is not PEM"),
        ] {
            let error = Pair::parse(certificate.as_bytes(), key.as_bytes()).expect_err(words);
            assert!(format!("{error:#}").contains(words), "{words} in {error:#}");
        }
    }

    #[test]
    fn common_names_that_can_be_asked_for() {
        for (name, is_one) in [
            ("*", true),
            ("*.example.com", true),
            ("Example.com", true),
            ("localhost@1700000000", false),
            ("10.0.0.1", false),
            ("::1", false),
            ("a..b", false),
            ("-a", false),
            ("", false),
        ] {
            assert_eq!(is_dns_pattern(name), is_one, "{name}");
        }
    }
}
