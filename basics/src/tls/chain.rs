//! Limits on the certificates that the peer of a TLS connection sends.
//!
//! A peer may send any certificates. The verifier tries every path from the peer's own certificate to a
//! trusted authority. A few dozen certificates that can issue each other take minutes to verify, and by then
//! neither side of the connection has proven anything. So the certificates are checked first, by names alone:
//! how many there are, how large they are, and how many steps a search through them can take. Certificates
//! within these limits are verified in about a millisecond (five, if the key of an authority is P-384).

use std::{fmt, sync::Arc};

use rustls::{
    DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Maximum number of certificates from a peer, its own included. Authorities in use have up to four levels.
pub const MAX_CERTIFICATES: usize = 10;

/// Maximum size of all certificates together, in bytes.
pub const MAX_SIZE: usize = 32 << 10;

/// Maximum number of steps from a certificate to a possible issuer, over all paths. A chain takes one step
/// for each certificate above its first. Certificates that more than one authority signed take some more.
pub const MAX_STEPS: usize = 16;

/// Maximum number of searches for an issuer of the same name, over all paths. Each search may cost the check
/// of a signature, which takes a millisecond with large keys. Two self-signed authorities of the same name
/// take five searches.
pub const MAX_SEARCHES: usize = 5;

/// Maximum number of certificates that rustls tries between the peer's own one and a trusted authority.
const MAX_DEPTH: usize = 6;

/// Why the certificates of a peer are refused without being verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// More than [`MAX_CERTIFICATES`]: the number of certificates.
    #[error("the other side sent {0} certificates, of which at most {MAX_CERTIFICATES} are looked at")]
    TooMany(usize),
    /// More than [`MAX_SIZE`]: the size of the certificates in bytes.
    #[error("the other side sent certificates of {0} bytes, of which at most {MAX_SIZE} are looked at")]
    TooLarge(usize),
    /// More certificates have the same name than in any useful chain.
    #[error(
        "the other side sent certificates that fit together in too many ways; it should send its own and those above \
         it, each once"
    )]
    TooManyWays,
}

impl From<ChainError> for rustls::Error {
    fn from(error: ChainError) -> Self {
        // Of the variants of `rustls::Error`, this one prints the message of the error.
        Self::Other(OtherError(Arc::new(error)))
    }
}

/// Checks that the certificates of a peer, `own` and all `others`, can be verified in little time. Does not
/// verify them.
///
/// # Errors
/// Which limit is exceeded.
pub fn check_chain(own: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), ChainError> {
    let count = 1 + others.len();
    if count > MAX_CERTIFICATES {
        return Err(ChainError::TooMany(count));
    }
    let size = own.len() + others.iter().map(|other| other.len()).sum::<usize>();
    if size > MAX_SIZE {
        return Err(ChainError::TooLarge(size));
    }
    let Some(own) = Names::of(own) else { return Ok(()) };
    // A certificate that cannot be parsed cannot have issued another one.
    let others: Vec<Names<'_>> = others.iter().filter_map(|other| Names::of(other)).collect();
    let used = vec![false; others.len()];
    let mut search = Search { others: &others, used, steps: 0, sought: Vec::new() };
    search.from(own.issuer, 0)
}

/// A search along all paths that a verification may take.
struct Search<'a> {
    others: &'a [Names<'a>],
    /// Which of `others` are on the current path.
    used: Vec<bool>,
    steps: usize,
    /// The issuer's name of each search so far.
    sought: Vec<&'a [u8]>,
}

impl<'a> Search<'a> {
    fn from(&mut self, issuer: &'a [u8], depth: usize) -> Result<(), ChainError> {
        self.sought.push(issuer);
        if self.sought.iter().filter(|sought| **sought == issuer).count() > MAX_SEARCHES {
            return Err(ChainError::TooManyWays);
        }
        if depth == MAX_DEPTH {
            return Ok(());
        }
        for (index, other) in self.others.iter().enumerate() {
            if self.used[index] || other.subject != issuer {
                continue;
            }
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(ChainError::TooManyWays);
            }
            self.used[index] = true;
            self.from(other.issuer, depth + 1)?;
            self.used[index] = false;
        }
        Ok(())
    }
}

/// The names of a certificate's issuer and of its subject, in DER.
struct Names<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
}

impl<'a> Names<'a> {
    /// Parses no more than these names. A certificate that fails here fails in every verifier.
    fn of(certificate: &'a [u8]) -> Option<Self> {
        /// DER tags.
        const SEQUENCE: u8 = 0x30;
        const VERSION: u8 = 0xa0;
        let (_, certificate, _) = element(certificate)?;
        let (_, mut fields, _) = element(certificate)?;
        let (tag, _, rest) = element(fields)?;
        if tag == VERSION {
            fields = rest;
        }
        let (_serial_number, fields) = after(fields)?;
        let (_algorithm, fields) = after(fields)?;
        let (tag, issuer, fields) = element(fields)?;
        let (_validity, fields) = after(fields)?;
        let (other_tag, subject, _) = element(fields)?;
        (tag == SEQUENCE && other_tag == SEQUENCE).then_some(Self { issuer, subject })
    }
}

/// The first element of `der`: its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match usize::from(first) {
        length @ 0..=0x7f => (length, rest),
        // The number of length bytes. A certificate needs no more than four.
        many @ 0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(many - 0x80)?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn after(der: &[u8]) -> Option<(&[u8], &[u8])> {
    element(der).map(|(_, content, rest)| (content, rest))
}

/// Refuses server certificates that [`check_chain`] refuses, and leaves all others to another verifier.
pub struct BoundedVerifier(Arc<dyn ServerCertVerifier>);

impl BoundedVerifier {
    /// Checks the limits, then asks `verifier`.
    pub fn new(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self(verifier)
    }
}

impl fmt::Debug for BoundedVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoundedVerifier").field(&self.0).finish()
    }
}

impl ServerCertVerifier for BoundedVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        check_chain(own, others)?;
        self.0.verify_server_cert(own, others, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.0.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.0.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::{RootCertStore, client::WebPkiServerVerifier};

    use super::*;

    /// An authority.
    struct Authority {
        certificate: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    fn parameters(name: &str) -> CertificateParams {
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
    }

    fn key() -> KeyPair {
        KeyPair::generate().expect("a key")
    }

    /// A self-signed authority.
    fn root(name: &str) -> Authority {
        let (parameters, key) = (parameters(name), key());
        let certificate = parameters.self_signed(&key).expect("signed").der().clone();
        Authority { certificate, issuer: Issuer::new(parameters, key) }
    }

    impl Authority {
        fn sub(&self, name: &str) -> Self {
            let (parameters, key) = (parameters(name), key());
            let certificate = parameters.signed_by(&key, &self.issuer).expect("signed").der().clone();
            Self { certificate, issuer: Issuer::new(parameters, key) }
        }

        fn server(&self) -> CertificateDer<'static> {
            let parameters = CertificateParams::new(["localhost".to_owned()]).expect("a name");
            parameters.signed_by(&key(), &self.issuer).expect("signed").der().clone()
        }
    }

    /// Levels of certificates. Each certificate may be issued by any one of the next level. The last level is
    /// not issued by a trusted authority.
    fn lattice(levels: usize, each: usize) -> (CertificateDer<'static>, Vec<CertificateDer<'static>>) {
        let mut others = Vec::new();
        for level in 0..levels {
            let above = root(&format!("level {}", level + 1));
            others.extend((0..each).map(|_| above.sub(&format!("level {level}")).certificate));
        }
        (root("level 0").server(), others)
    }

    fn verifier(root: &Authority) -> BoundedVerifier {
        let mut roots = RootCertStore::empty();
        roots.add(root.certificate.clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        BoundedVerifier::new(verifier.expect("a verifier"))
    }

    fn verify(
        verifier: &BoundedVerifier,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<(), rustls::Error> {
        let name = ServerName::try_from("localhost").expect("a name");
        verifier.verify_server_cert(own, others, &name, &[], UnixTime::now()).map(drop)
    }

    #[test]
    fn chains_as_they_are_in_use_are_verified() {
        // The longest chain that rustls verifies, with its root and in any order.
        let root = root("root");
        let mut last = root.sub("1");
        let mut others = vec![root.certificate.clone(), last.certificate.clone()];
        for level in 2..=6 {
            last = last.sub(&level.to_string());
            others.push(last.certificate.clone());
        }
        let own = last.server();
        let verifier = verifier(&root);
        verify(&verifier, &own, &others).expect("in the wrong order");
        others.reverse();
        verify(&verifier, &own, &others).expect("in order");
        others.push(own.clone());
        others.push(others[0].clone());
        assert_eq!(1 + others.len(), MAX_CERTIFICATES);
        verify(&verifier, &own, &others).expect("some of them twice");
        others.remove(0);
        others.remove(others.len() - 1);
        let missing = verify(&verifier, &own, &others).expect_err("the last issuer");
        assert!(!missing.to_string().contains("the other side"), "{missing}");
    }

    #[test]
    fn an_authority_that_two_others_signed() {
        let (old, new) = (root("old"), root("new"));
        let (parameters, key) = (parameters("issuing"), key());
        let by = |root: &Authority| parameters.signed_by(&key, &root.issuer).expect("signed").der().clone();
        let both = [by(&old), by(&new), old.certificate.clone()];
        let issuing = Authority { certificate: both[0].clone(), issuer: Issuer::new(parameters, key) };
        let own = issuing.server();
        verify(&verifier(&new), &own, &both).expect("by the new one");
        verify(&verifier(&old), &own, &both).expect("by the old one");
    }

    #[test]
    fn what_takes_long_is_not_verified() {
        let verifier = verifier(&root("level 6"));
        let refused = |own: &CertificateDer<'_>, others: &[CertificateDer<'_>]| {
            let error = verify(&verifier, own, others).expect_err("refused").to_string();
            check_chain(own, others).expect_err(&error)
        };
        let (own, others) = lattice(6, 7);
        assert_eq!(refused(&own, &others), ChainError::TooMany(43));
        // Equal names: each of these may be the issuer.
        let (own, some) = lattice(1, 9);
        assert_eq!(check_chain(&own, &some), Err(ChainError::TooManyWays));
        check_chain(&own, &some[..5]).expect("none of them leads on");
        let circle = root("circle");
        let equal: Vec<_> = (0..9).map(|_| circle.sub("circle").certificate).collect();
        assert_eq!(refused(&circle.server(), &equal), ChainError::TooManyWays);
        check_chain(&circle.server(), &equal[..2]).expect("five searches");
        assert_eq!(check_chain(&circle.server(), &equal[..3]), Err(ChainError::TooManyWays));
        let (own, others) = lattice(2, 2);
        check_chain(&own, &others).expect("four searches");
        let (own, others) = lattice(3, 2);
        assert_eq!(refused(&own, &others), ChainError::TooManyWays);
        let large = CertificateDer::from(vec![0; MAX_SIZE]);
        assert_eq!(refused(&own, &[large]), ChainError::TooLarge(MAX_SIZE + own.len()));
        assert!(rustls::Error::from(ChainError::TooMany(281)).to_string().contains("281 certificates"));
    }

    #[test]
    fn what_is_no_certificate_has_no_names() {
        let certificate = root("x").certificate;
        assert!(Names::of(&certificate).is_some());
        for length in 0..certificate.len() {
            assert!(Names::of(&certificate[..length]).is_none(), "{length}");
        }
        for der in [&[0x30, 0x85, 0, 0, 0, 0, 0][..], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x80]] {
            assert!(Names::of(der).is_none());
        }
    }
}
