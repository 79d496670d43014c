//! Certificates made by a test.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// A certificate authority.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = parameters.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(parameters, key) })
    }

    /// Writes the authority's certificate.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<PathBuf> {
        fs::write(path, &self.pem)?;
        Ok(path.to_owned())
    }

    /// Certificate and key of a client, in PEM.
    fn sign(&self, parameters: &CertificateParams) -> anyhow::Result<(String, String)> {
        let key = KeyPair::generate()?;
        Ok((parameters.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// Writes `NAME.crt` and `NAME.key` of a client.
    pub(super) fn client(&self, folder: &Path, name: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        if let [group] = groups {
            parameters.distinguished_name.push(DnType::OrganizationName, *group);
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.sign(&parameters)?;
        let path = folder.join(format!("{name}.crt"));
        fs::write(&path, certificate)?;
        fs::write(path.with_extension("key"), key)?;
        Ok(path)
    }

    /// The same as an X.509 version 1 certificate in DER, with an invalid signature. Go and OpenSSL accept
    /// this version.
    pub(super) fn client_of_version_1(&self, folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        let of_certificate = elements(elements(certificate.der())[0].content);
        let [body, algorithm, signature] = of_certificate[..] else { anyhow::bail!("no certificate") };
        // Leave out [0], the version, and [3], the extensions.
        let fields = elements(body.content).into_iter().filter(|field| field.all[0] & 0x80 == 0);
        let body = sequence(&fields.map(|field| field.all).collect::<Vec<_>>().concat());
        let path = folder.join(format!("{name}.crt"));
        fs::write(&path, sequence(&[&body, algorithm.all, signature.all].concat()))?;
        fs::write(path.with_extension("key"), key.serialize_pem())?;
        Ok(path)
    }

    /// Certificate and key of a server for these names, in PEM.
    pub(super) fn server(&self, names: &[&str]) -> anyhow::Result<(String, String)> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.push(DnType::CommonName, "server");
        self.sign(&parameters)
    }
}

/// One element of DER.
#[derive(Clone, Copy)]
struct Element<'a> {
    all: &'a [u8],
    content: &'a [u8],
}

fn elements(mut der: &[u8]) -> Vec<Element<'_>> {
    let mut elements = Vec::new();
    while let [_, length, ..] = *der {
        let bytes = if length < 0x80 { 0 } else { usize::from(length & 0x7f) };
        let long = der[2..2 + bytes].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let length = if bytes == 0 { usize::from(length) } else { long };
        let (all, rest) = der.split_at(2 + bytes + length);
        elements.push(Element { all, content: &all[2 + bytes..] });
        der = rest;
    }
    elements
}

fn sequence(content: &[u8]) -> Vec<u8> {
    let [.., high, low] = content.len().to_be_bytes();
    [&[0x30, 0x82, high, low], content].concat()
}
