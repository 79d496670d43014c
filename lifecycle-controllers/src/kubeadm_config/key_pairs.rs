//! New key pairs of a control plane: its authorities, and the keys that sign the tokens of service accounts.

use cluster_api::kubeadm::{ClusterConfiguration, EncryptionAlgorithmType};
use jiff::Timestamp;
use kubeadm_bootstrap::{KeyPair, Purpose};
use rcgen::{
    BasicConstraints, DnType, IsCa, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
};

use crate::x509;

/// The name of each authority, as upstream and kubeadm have it.
const NAME: &str = "kubernetes";

/// For how many days an authority is valid, unless `caCertificateValidityPeriodDays` says something else.
const DAYS: i32 = 3650;

/// Makes a key pair. Its keys are elliptic curves: kubeadm and Kubernetes take them, and they are made in no time.
///
/// # Errors
/// Of what has to be written into the config, or provided in a Secret.
pub(super) fn generate(
    purpose: Purpose,
    configuration: &ClusterConfiguration,
    now: Timestamp,
) -> Result<KeyPair, String> {
    let algorithm = match configuration.encryption_algorithm {
        None | Some(EncryptionAlgorithmType::EcdsaP256) => &PKCS_ECDSA_P256_SHA256,
        Some(EncryptionAlgorithmType::EcdsaP384) => &PKCS_ECDSA_P384_SHA384,
        Some(
            EncryptionAlgorithmType::Rsa2048
            | EncryptionAlgorithmType::Rsa3072
            | EncryptionAlgorithmType::Rsa4096,
        ) => {
            return Err(
                "and keys of RSA are not made here: create it, or write ECDSA-P256 or ECDSA-P384 into \
                        spec.clusterConfiguration.encryptionAlgorithm of the KubeadmConfig"
                    .to_owned(),
            );
        }
    };
    let failed = || "and no key can be made".to_owned();
    let key = rcgen::KeyPair::generate_for(algorithm).map_err(|_| failed())?;
    let certificate = match purpose {
        Purpose::ServiceAccount => key.public_key_pem(),
        Purpose::ClusterCa | Purpose::EtcdCa | Purpose::FrontProxyCa => {
            let days =
                configuration.ca_certificate_validity_period_days.filter(|days| *days > 0).unwrap_or(DAYS);
            let mut parameters = x509::parameters(now, days.into()).map_err(|()| failed())?;
            parameters.distinguished_name.push(DnType::CommonName, NAME);
            parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            parameters.key_usages = vec![
                KeyUsagePurpose::KeyEncipherment,
                KeyUsagePurpose::DigitalSignature,
                KeyUsagePurpose::KeyCertSign,
            ];
            parameters.self_signed(&key).map_err(|_| failed())?.pem()
        }
        Purpose::ApiServerEtcdClient => {
            return Err("which the owner of the external etcd has to provide".to_owned());
        }
    };
    Ok(KeyPair { certificate: certificate.into_bytes(), key: key.serialize_pem().into_bytes() })
}

#[cfg(test)]
mod tests {
    use x509_parser::{parse_x509_certificate, pem::parse_x509_pem};

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn configuration(algorithm: Option<EncryptionAlgorithmType>, days: Option<i32>) -> ClusterConfiguration {
        ClusterConfiguration {
            encryption_algorithm: algorithm,
            ca_certificate_validity_period_days: days,
            ..ClusterConfiguration::default()
        }
    }

    #[test]
    fn an_authority_signs_and_is_valid_for_as_long_as_the_config_says() {
        for (days, until) in [(None, 3650), (Some(100), 100), (Some(36_500), 36_500)] {
            let pair = generate(Purpose::EtcdCa, &configuration(None, days), NOW).expect("a key pair");
            let (_, pem) = parse_x509_pem(&pair.certificate).expect("PEM");
            let (_, certificate) = parse_x509_certificate(&pem.contents).expect("a certificate");
            assert!(certificate.is_ca());
            assert_eq!(certificate.subject().to_string(), "CN=kubernetes");
            assert_eq!(certificate.validity().not_before.timestamp(), -86_400);
            assert_eq!(certificate.validity().not_after.timestamp(), until * 86_400);
            let usage = certificate.key_usage().expect("a usage").expect("one").value;
            assert!(usage.key_cert_sign() && usage.digital_signature() && usage.key_encipherment());
            let key = rcgen::KeyPair::from_pem(str::from_utf8(&pair.key).expect("text")).expect("a key");
            assert_eq!(*key.public_key_raw(), *certificate.public_key().subject_public_key.data);
        }
    }

    #[test]
    fn the_key_of_service_accounts_comes_with_its_public_key() {
        for algorithm in [EncryptionAlgorithmType::EcdsaP256, EncryptionAlgorithmType::EcdsaP384] {
            let pair = generate(Purpose::ServiceAccount, &configuration(Some(algorithm), None), NOW);
            let pair = pair.expect("a key pair");
            let key = rcgen::KeyPair::from_pem(str::from_utf8(&pair.key).expect("text")).expect("a key");
            assert_eq!(str::from_utf8(&pair.certificate), Ok(key.public_key_pem().as_str()));
        }
    }

    #[test]
    fn what_is_not_made_here_is_named() {
        let rsa = configuration(Some(EncryptionAlgorithmType::Rsa2048), None);
        let refused = |purpose, of: &ClusterConfiguration| generate(purpose, of, NOW).expect_err("refused");
        assert!(refused(Purpose::ClusterCa, &rsa).contains("spec.clusterConfiguration.encryptionAlgorithm"));
        assert!(refused(Purpose::ApiServerEtcdClient, &configuration(None, None)).contains("external etcd"));
        assert_eq!(
            refused(Purpose::ClusterCa, &configuration(Some(EncryptionAlgorithmType::Rsa4096), None)),
            refused(Purpose::EtcdCa, &rsa)
        );
        // No date is so far away.
        assert!(refused(Purpose::ClusterCa, &configuration(None, Some(i32::MAX))).contains("no key"));
    }
}
