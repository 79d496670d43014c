//! The certificates of a control plane, and the hash by which others know its CA.

mod public_key;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use sha2::{Digest, Sha256};

use crate::error::Error;
use public_key::{pem_certificates, subject_public_key_info};

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The CA of the cluster.
    ClusterCa,
    /// The CA of etcd.
    EtcdCa,
    /// The CA of the front proxy, by which the API server calls extension API servers.
    FrontProxyCa,
    /// The key pair that signs tokens of service accounts. It is no certificate: the first part is the public key.
    ServiceAccount,
    /// The API server's client certificate for an external etcd.
    ApiServerEtcdClient,
}

impl Purpose {
    /// The last part of the name of the Secret: `CLUSTER-ca` and so on.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::ClusterCa => "ca",
            Self::EtcdCa => "etcd",
            Self::FrontProxyCa => "proxy",
            Self::ServiceAccount => "sa",
            Self::ApiServerEtcdClient => "apiserver-etcd-client",
        }
    }

    /// The name of the Secret with the certificate, in the namespace of the Cluster.
    pub fn secret_name(self, cluster: &str) -> String {
        format!("{cluster}-{}", self.suffix())
    }
}

/// A certificate and its private key, both PEM. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyPair {
    /// The key `tls.crt` of the Secret.
    pub certificate: Vec<u8>,
    /// The key `tls.key` of the Secret. Empty: there is none.
    pub key: Vec<u8>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyPair(hidden)")
    }
}

/// The certificates of one cluster, by purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates(BTreeMap<Purpose, KeyPair>);

impl Certificates {
    /// Adds a certificate.
    pub fn insert(&mut self, purpose: Purpose, pair: KeyPair) {
        self.0.insert(purpose, pair);
    }

    pub(crate) fn get(&self, purpose: Purpose) -> Option<&KeyPair> {
        self.0.get(&purpose)
    }
}

impl FromIterator<(Purpose, KeyPair)> for Certificates {
    fn from_iter<I: IntoIterator<Item = (Purpose, KeyPair)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// The hashes of the certificates in a PEM text, as `caCertHashes` of kubeadm has them: `sha256:` and the hash of the public
/// key's part of the certificate.
///
/// # Errors
/// The text has no certificate, or one that cannot be read.
pub fn ca_cert_hashes(pem: &[u8]) -> Result<Vec<String>, Error> {
    let unreadable = || Error::not_ready("the certificate of the cluster's CA cannot be read");
    let certificates = str::from_utf8(pem).ok().and_then(pem_certificates).unwrap_or_default();
    let hash = |certificate: &Vec<u8>| {
        let hash = Sha256::digest(subject_public_key_info(certificate)?);
        Some(hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
            // writing into a text cannot fail
            let _ = write!(text, "{byte:02x}");
            text
        }))
    };
    let hashes: Option<Vec<String>> = certificates.iter().map(hash).collect();
    hashes.filter(|hashes| !hashes.is_empty()).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_of_each_certificate() {
        // `openssl x509 -noout -pubkey | openssl pkey -pubin -outform DER | sha256sum`
        let hash = "sha256:2537b48fdd725b6b44994fe95838adc19cf2d4dea827e05b7f8c006af0528a10";
        let certificate = "-----BEGIN CERTIFICATE-----\n\
             MIIBeDCCAR+gAwIBAgIUceNWnc+uGVZ8luT6q2/5Y380I9kwCgYIKoZIzj0EAwIw\n\
             ETEPMA0GA1UEAwwGc2Vjb25kMCAXDTI2MTEzMDAzNTcwNFoYDzIxMjYxMTA2MDM1\n\
             NzA0WjARMQ8wDQYDVQQDDAZzZWNvbmQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
             AATQ9mVSvuDmMnfNrnYtp4rw5BbPHKwOpG37yAtdEDKosdyeiUw/rhuaK+Lz6fHl\n\
             OMFjzP2K++tug5tC46/il/U3o1MwUTAdBgNVHQ4EFgQU/7bhsyRd1kKBti3WDiAg\n\
             kSe8iS4wHwYDVR0jBBgwFoAU/7bhsyRd1kKBti3WDiAgkSe8iS4wDwYDVR0TAQH/\n\
             BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiAtxAdIN7u20t/TFvqdzhmttcGGdM9p\n\
             kVEvxJkECQu3cAIgO1Qc+UkUBuia0O32Wm03D/J0PblTaYrGRg0qpmFg2uo=\n\
             -----END CERTIFICATE-----\n";
        let bundle =
            format!("a note\r\n{certificate}-----BEGIN X-----\nAA==\n-----END X-----\n{certificate}");
        assert_eq!(ca_cert_hashes(certificate.as_bytes()), Ok(vec![hash.to_owned()]));
        assert_eq!(ca_cert_hashes(bundle.as_bytes()), Ok(vec![hash.to_owned(); 2]));
        for end in 0..certificate.len() - 2 {
            assert!(ca_cert_hashes(&certificate.as_bytes()[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn no_hash_of_what_is_no_certificate() {
        for pem in ["", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(ca_cert_hashes(pem.as_bytes()).is_err(), "{pem}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let pair = KeyPair { certificate: b"cert".to_vec(), key: b"s3cret".to_vec() };
        let certificates: Certificates = [(Purpose::ClusterCa, pair)].into_iter().collect();
        assert_eq!(format!("{certificates:?}"), "Certificates({ClusterCa: KeyPair(hidden)})");
    }
}
