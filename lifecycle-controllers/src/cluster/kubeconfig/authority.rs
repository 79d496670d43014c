//! A certificate authority that signs the client certificate of a kubeconfig. Texts of errors name what is wrong, and none of its content.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kube::config::Kubeconfig;
use rcgen::{DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use x509_parser::{
    parse_x509_certificate,
    pem::{Pem, parse_x509_pem},
};

use crate::x509;

/// The user of the client certificate and its group, whom every API server permits everything, as upstream has them.
const USER: &str = "kubernetes-admin";
const GROUP: &str = "system:masters";

/// For how many days a client certificate is valid.
const DAYS: i64 = 365;

/// A certificate authority.
pub(super) struct Authority {
    /// The certificate, in DER.
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads certificate and key, in PEM. Of several certificates the first counts.
    ///
    /// # Errors
    /// What cannot be used.
    pub(super) fn read(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let certificate = pem(certificate, "tls.crt")?;
        if certificate.label != "CERTIFICATE" {
            return Err("tls.crt is no certificate".to_owned());
        }
        let key = key_pair(&pem(key, "tls.key")?)?;
        let (_, parsed) = parse_x509_certificate(&certificate.contents)
            .map_err(|_| "tls.crt is no X.509 certificate".to_owned())?;
        if !parsed.is_ca() {
            return Err("tls.crt is no certificate of an authority".to_owned());
        }
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err("tls.key is not the key of tls.crt".to_owned());
        }
        let issuer = Issuer::from_ca_cert_der(&certificate.contents.as_slice().into(), key)
            .map_err(|_| "tls.crt has a subject or extensions that cannot be used".to_owned())?;
        Ok(Self { certificate: certificate.contents, issuer })
    }

    /// A kubeconfig of an administrator of this cluster.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub(super) fn kubeconfig(&self, cluster: &str, server: &str, now: Timestamp) -> Result<String, String> {
        let (certificate, key) = self
            .client_certificate(now)
            .map_err(|()| "no client certificate can be signed with tls.key".to_owned())?;
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let data = |pem: &str| BASE64_STANDARD.encode(pem);
        let user = format!("{cluster}-admin");
        let (context, cluster, user) = (quoted(&format!("{user}@{cluster}")), quoted(cluster), quoted(&user));
        let (server, authority) = (quoted(server), data(&as_pem(&self.certificate)));
        let (certificate, key) = (data(&certificate), data(&key));
        Ok(format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n    certificate-authority-data: {authority}\n\
             contexts:\n- name: {context}\n  context:\n    cluster: {cluster}\n    user: {user}\n\
             current-context: {context}\n\
             users:\n- name: {user}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
        ))
    }

    /// Certificate and key, in PEM.
    fn client_certificate(&self, now: Timestamp) -> Result<(String, String), ()> {
        let mut parameters = x509::parameters(now, DAYS)?;
        parameters.distinguished_name.push(DnType::CommonName, USER);
        parameters.distinguished_name.push(DnType::OrganizationName, GROUP);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(drop)?;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(drop)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn pem(text: &[u8], field: &str) -> Result<Pem, String> {
    let read = parse_x509_pem(text);
    read.map(|(_, pem)| pem).map_err(|_| format!("{field} is not set, or is no PEM"))
}

fn key_pair(pem: &Pem) -> Result<KeyPair, String> {
    let pkcs8 = match pem.label.as_str() {
        "PRIVATE KEY" => pem.contents.clone(),
        "RSA PRIVATE KEY" => pkcs8_of_rsa(&pem.contents),
        // A label may be any text of the Secret, so it is not repeated.
        _ => return Err("tls.key is neither a PKCS #8 key nor a PKCS #1 key of RSA".to_owned()),
    };
    KeyPair::try_from(pkcs8)
        .map_err(|_| "tls.key is no key of RSA, ECDSA or Ed25519 that can be used".to_owned())
}

/// PKCS #8 of a PKCS #1 key (RFC 5208): version 0, the algorithm `rsaEncryption`, and the key in an octet string.
fn pkcs8_of_rsa(pkcs1: &[u8]) -> Vec<u8> {
    const VERSION_AND_ALGORITHM: [u8; 18] = [
        0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05,
        0x00,
    ];
    let key = tagged(0x04, pkcs1);
    tagged(0x30, &[&VERSION_AND_ALGORITHM, key.as_slice()].concat())
}

/// A value of DER with its tag and its length.
fn tagged(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut length: Vec<u8> = value.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    if value.len() >= 0x80 {
        length.insert(0, 0x80 | u8::try_from(length.len()).unwrap_or_default());
    } else if length.is_empty() {
        length.push(0);
    }
    [&[tag], length.as_slice(), value].concat()
}

fn as_pem(certificate: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let encoded = BASE64_STANDARD.encode(certificate);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// The URL of an API server.
pub(super) fn server(host: &str, port: i32) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

/// How long a client certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    /// The time until half of its life is over. `None`: it is.
    pub(super) fn until_half(&self, now: i64) -> Option<Duration> {
        let half = self.until.saturating_sub(self.from) / 2;
        let left = self.from.saturating_add(half).saturating_sub(now);
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs)
    }
}

/// The validity of the first client certificate of a kubeconfig. `None`: it has none that can be read.
pub(super) fn validity(kubeconfig: &[u8]) -> Option<Validity> {
    let text = std::str::from_utf8(kubeconfig).ok()?;
    let read: Kubeconfig = serde_saphyr::from_str(text).ok()?;
    let user = read.auth_infos.into_iter().find_map(|user| user.auth_info)?;
    let certificate = BASE64_STANDARD.decode(user.client_certificate_data?.trim()).ok()?;
    let (_, pem) = parse_x509_pem(&certificate).ok()?;
    let (_, parsed) = parse_x509_certificate(&pem.contents).ok()?;
    let validity = parsed.validity();
    Some(Validity { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
}

#[cfg(test)]
mod tests;
