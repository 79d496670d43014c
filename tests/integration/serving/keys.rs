//! Certificates that a test makes for itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// An authority.
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

    /// Writes its certificate.
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

    /// Certificate and key of a server for these names, in PEM.
    pub(super) fn server(&self, names: &[&str]) -> anyhow::Result<(String, String)> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.push(DnType::CommonName, "server");
        self.sign(&parameters)
    }
}
