//! Authorities that sign the certificates of this program, where nobody gives it any.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use x509_parser::{
    asn1_rs::Tag,
    oid_registry::OID_X509_COMMON_NAME,
    prelude::{FromDer as _, X509Certificate},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an authority lasts.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How long a certificate lasts that it signs.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Certificates begin so long before they are made, since clocks differ.
const BACKDATED: Duration = DAY;

/// An authority: its certificate and its private key, which is never shown.
pub struct Authority {
    name: String,
    certificate: String,
    key: KeyPair,
    begins: Timestamp,
    ends: Timestamp,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("name", &self.name)
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one. Its name ends with the time, so that no two have the same.
    ///
    /// # Errors
    /// The system has no random numbers, or the name cannot be in a certificate.
    pub fn make(name: &str, now: Timestamp) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let name = format!("{name}@{}", now.as_second());
        let mut parameters = parameters_of_authority(&name);
        parameters.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now - BACKDATED);
        parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now + AUTHORITY_LIFETIME);
        let certificate = parameters.self_signed(&key)?.pem();
        Self::with(certificate, key)
    }

    /// One that was made earlier, from its certificate and its key in PEM.
    ///
    /// # Errors
    /// What is wrong, without anything of the key.
    pub fn parse(certificate: &str, key: &str) -> anyhow::Result<Self> {
        let key = KeyPair::from_pem(key).map_err(|_| anyhow!("the key is not a private key in PEM"))?;
        Self::with(certificate.to_owned(), key)
    }

    fn with(certificate: String, key: KeyPair) -> anyhow::Result<Self> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| anyhow!("the certificate is not a certificate in PEM"))?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|_| anyhow!("the certificate is not an X.509 certificate"))?;
        ensure!(parsed.is_ca(), "the certificate is not that of an authority");
        ensure!(
            *parsed.public_key().subject_public_key.data == *key.public_key_raw(),
            "the key does not belong to the certificate"
        );
        let name = name_of(&parsed).context(
            "the certificate's subject is not a common name in UTF-8 alone, so what it signs would not be trusted",
        )?;
        let (begins, ends) = validity(&parsed)?;
        Ok(Self { name, certificate, key, begins, ends })
    }

    /// The certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private key, in PEM.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// When it was made.
    pub fn made(&self) -> Timestamp {
        self.begins + BACKDATED
    }

    /// When it ends.
    pub fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Signs a serving certificate for these DNS names and IP addresses, with a new key. It ends a year later, or with the
    /// authority.
    ///
    /// # Errors
    /// A name that cannot be in a certificate.
    pub fn sign(&self, names: &[String], now: Timestamp) -> anyhow::Result<SignedCertificate> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(names)?;
        if let Some(first) = names.first() {
            parameters.distinguished_name.push(DnType::CommonName, first.clone());
        }
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let ends = (now + CERTIFICATE_LIFETIME).min(self.ends);
        parameters.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now - BACKDATED);
        parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(ends);
        let issuer = Issuer::new(parameters_of_authority(&self.name), &self.key);
        let certificate = parameters.signed_by(&key, &issuer)?;
        let private = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|_| anyhow!("the key that was made cannot be used"))?;
        let certified =
            CertifiedKey::from_der(vec![certificate.der().clone()], private, &ring::default_provider())?;
        Ok(SignedCertificate {
            certified: Arc::new(certified),
            renew: now + ends.duration_since(now).unsigned_abs() / 2,
        })
    }
}

/// A serving certificate with its key.
#[derive(Clone, Debug)]
pub struct SignedCertificate {
    /// As TLS needs it.
    pub certified: Arc<CertifiedKey>,
    /// When another one is due.
    pub renew: Timestamp,
}

/// When the certificate in this PEM ends.
///
/// # Errors
/// It is not one.
fn end_of(certificate: &str) -> anyhow::Result<Timestamp> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|_| anyhow!("the certificate is not a certificate in PEM"))?;
    let (_, parsed) = X509Certificate::from_der(&der)
        .map_err(|_| anyhow!("the certificate is not an X.509 certificate"))?;
    Ok(validity(&parsed)?.1)
}

fn validity(certificate: &X509Certificate<'_>) -> anyhow::Result<(Timestamp, Timestamp)> {
    let validity = certificate.validity();
    let time = |seconds| Timestamp::from_second(seconds).context("the certificate's dates are out of range");
    Ok((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

/// The common name, where the subject is written just as [`parameters_of_authority`] writes it. Who verifies a certificate compares the
/// bytes of its issuer with those of the authority's subject.
fn name_of(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut attributes = certificate.subject().iter_attributes();
    let attribute = attributes.next().filter(|one| *one.attr_type() == OID_X509_COMMON_NAME)?;
    let is_alone = attributes.next().is_none() && attribute.attr_value().tag() == Tag::Utf8String;
    is_alone.then(|| attribute.as_str().ok().map(ToOwned::to_owned))?
}

fn parameters_of_authority(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    parameters
}

/// Seconds since 1970, which is how times get into a certificate.
fn since_epoch(at: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default())
}

/// The authorities of a program whose processes share them in a Secret. While one takes the other's place, both are trusted.
#[derive(Clone, Debug)]
pub struct Authorities {
    /// Signs.
    current: Arc<Authority>,
    /// Will sign, once everybody trusts it.
    next: Option<Arc<Authority>>,
    /// The certificate of the one that signed before.
    previous: Option<String>,
}

/// An authority gets a successor so long before it ends.
const RENEW_BEFORE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A successor signs no sooner than this, so that every client has read that it is trusted.
const OVERLAP: Duration = DAY;

/// The keys of the Secret.
const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
const NEXT: [&str; 2] = ["next.crt", "next.key"];
const PREVIOUS: &str = "previous.crt";

impl Authorities {
    /// The first authority.
    ///
    /// # Errors
    /// As [`Authority::make`].
    pub fn first(name: &str, now: Timestamp) -> anyhow::Result<Self> {
        Ok(Self { current: Arc::new(Authority::make(name, now)?), next: None, previous: None })
    }

    /// Those in the data of a Secret. `None`: there is none.
    ///
    /// # Errors
    /// Which key is wrong, and how. Without anything of the data.
    pub fn parse(data: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<Option<Self>> {
        let text = |key: &str| {
            let value = data.get(key).filter(|value| !value.is_empty());
            let text =
                value.map(|value| std::str::from_utf8(value).map_err(|_| anyhow!("{key}: it is not text")));
            text.transpose()
        };
        let pair = |keys: [&str; 2]| match keys.map(text) {
            [Ok(None), Ok(None)] => Ok(None),
            [Ok(Some(certificate)), Ok(Some(key))] => {
                let parsed = Authority::parse(certificate, key);
                parsed.map(Arc::new).map(Some).with_context(|| format!("{} and {}", keys[0], keys[1]))
            }
            [Ok(_), Ok(_)] => Err(anyhow!("{} and {}: one of them is missing", keys[0], keys[1])),
            [certificate, key] => {
                Err(certificate.err().or(key.err()).unwrap_or_else(|| anyhow!("{}", keys[0])))
            }
        };
        let (current, next) = (pair(CURRENT)?, pair(NEXT)?);
        let previous = text(PREVIOUS)?;
        if let Some(certificate) = previous {
            end_of(certificate).context(PREVIOUS)?;
        }
        let previous = previous.map(ToOwned::to_owned);
        Ok(current.map(|current| Self { current, next, previous }))
    }

    /// The data of the Secret.
    pub fn data(&self) -> BTreeMap<String, Vec<u8>> {
        let pairs = [(CURRENT, Some(&self.current)), (NEXT, self.next.as_ref())];
        let pairs = pairs.into_iter().filter_map(|([certificate, key], authority)| {
            let authority = authority?;
            Some([
                (certificate.to_owned(), authority.certificate().into()),
                (key.to_owned(), authority.key().into_bytes()),
            ])
        });
        let previous =
            self.previous.iter().map(|certificate| (PREVIOUS.to_owned(), certificate.clone().into()));
        pairs.flatten().chain(previous).collect()
    }

    /// Another authority, beside which this one's signatures stay trusted.
    ///
    /// # Errors
    /// As [`Authority::make`].
    pub fn another(&self, name: &str, now: Timestamp) -> anyhow::Result<Self> {
        let previous = Some(self.current.certificate().to_owned());
        Ok(Self { current: Arc::new(Authority::make(name, now)?), next: None, previous })
    }

    /// What takes the place of these now. `None`: they stay. `is_trusted` says whether all clients trust a certificate in PEM.
    ///
    /// # Errors
    /// As [`Authority::make`].
    pub fn due(
        &self,
        name: &str,
        now: Timestamp,
        is_trusted: impl Fn(&str) -> bool,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(next) = &self.next {
            let is_trusted = next.made() + OVERLAP <= now && is_trusted(next.certificate());
            // One that has ended is trusted by nobody.
            let signs = is_trusted || self.current.ends() <= now;
            let previous = Some(self.current.certificate().to_owned());
            return Ok(signs.then(|| Self { current: Arc::clone(next), next: None, previous }));
        }
        if self.current.ends() - RENEW_BEFORE <= now {
            let next = Some(Arc::new(Authority::make(name, now)?));
            return Ok(Some(Self { next, ..self.clone() }));
        }
        // What ended needs no trust.
        let has_ended = |certificate: &String| end_of(certificate).is_ok_and(|end| end <= now);
        Ok(self.previous.as_ref().is_some_and(has_ended).then(|| Self { previous: None, ..self.clone() }))
    }

    /// The authority that signs.
    pub fn signer(&self) -> &Authority {
        &self.current
    }

    /// The certificates that clients trust, in PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| next.certificate());
        let all = [Some(self.current.certificate()), next, self.previous.as_deref()];
        // A person may have written one without the end of its last line.
        all.into_iter().flatten().flat_map(|one| [one.trim_end(), "\n"]).collect()
    }
}

#[cfg(test)]
mod tests;
