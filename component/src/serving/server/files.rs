//! What is wrong with the files that options name, before anything is served with them.

use super::{certificates::Certificates, trust::Trust};
use crate::{
    api_client::Location,
    serving::{AuthenticationOptions, AuthorizationOptions, CertificateOptions, ServingOptions},
};

impl ServingOptions {
    /// What is wrong with the files that are named, each with its flag: certificates, authorities and kubeconfigs. Nothing is
    /// written, and nobody is asked. Empty where nothing is served.
    pub async fn faults_of_files(&self) -> Vec<String> {
        if self.secure_port == 0 {
            return Vec::new();
        }
        let AuthenticationOptions { kubeconfig: of_users, .. } = &self.authentication;
        let AuthorizationOptions { kubeconfig: of_rights, .. } = &self.authorization;
        let mut faults = self.certificates.faults_of_files();
        let kubeconfigs =
            [("--authentication-kubeconfig", of_users), ("--authorization-kubeconfig", of_rights)];
        for (flag, kubeconfig) in kubeconfigs {
            let Some(path) = kubeconfig else { continue };
            let read = Location::of_flag(flag, Some(path.clone())).check_files().await;
            faults.extend(read.err().map(|error| format!("{error:#}")));
        }
        faults.extend(Trust::faults(&self.authentication).iter().map(|error| format!("{error:#}")));
        faults
    }
}

impl CertificateOptions {
    /// What is wrong with the files of the certificates, each with its flag. A pair that would be made need not be there.
    pub fn faults_of_files(&self) -> Vec<String> {
        Certificates::faults(self).iter().map(|error| format!("{error:#}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::serving::NamedCertificate;

    fn options(folder: &Path) -> ServingOptions {
        let mut options = ServingOptions::new("x", 10258);
        options.certificates.cert_dir = Some(folder.join("made"));
        options
    }

    #[tokio::test]
    async fn each_file_is_named_with_its_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(options(folder.path()).faults_of_files().await, Vec::<String>::new());
        assert!(!folder.path().join("made").exists(), "nothing is written");

        let none = folder.path().join("none");
        let mut all = options(folder.path());
        all.certificates.tls_cert_file = Some(none.clone());
        all.certificates.tls_private_key_file = Some(none.clone());
        let named = NamedCertificate { cert_file: none.clone(), key_file: none.clone(), names: Vec::new() };
        all.certificates.tls_sni_cert_key = vec![named];
        all.authentication.kubeconfig = Some(none.clone());
        all.authentication.client_ca_file = Some(none.clone());
        all.authentication.request_header.client_ca_file = Some(none.clone());
        all.authorization.kubeconfig = Some(none.clone());
        let faults = all.faults_of_files().await;
        let flags = [
            "--tls-cert-file, --tls-private-key-file",
            "--tls-sni-cert-key",
            "--authentication-kubeconfig",
            "--authorization-kubeconfig",
            "--client-ca-file",
            "--requestheader-client-ca-file",
        ];
        assert_eq!(faults.len(), flags.len(), "{faults:#?}");
        for (fault, flag) in faults.iter().zip(flags) {
            assert!(fault.starts_with(flag) && fault.contains(&*none.to_string_lossy()), "{fault}");
        }
        all.secure_port = 0;
        assert_eq!(all.faults_of_files().await, Vec::<String>::new());
    }

    #[test]
    fn half_a_made_pair_is_a_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        let certificates = options(folder.path()).certificates;
        fs::create_dir(folder.path().join("made")).expect("a folder");
        fs::write(folder.path().join(format!("made/{}.crt", certificates.pair_name)), "").expect("written");
        let faults = certificates.faults_of_files();
        assert!(faults.len() == 1 && faults[0].starts_with("--cert-dir"), "{faults:?}");
    }
}
