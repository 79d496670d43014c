//! What is wrong with the files that options name, before anything is served with them.

use super::{certificates::Certificates, trust::Trust};
use crate::{
    api_client::{Location, check_files},
    serving::{AuthenticationOptions, AuthorizationOptions, CertificateOptions, ServingOptions},
};

impl ServingOptions {
    /// Whether a file is named.
    pub fn names_files(&self) -> bool {
        let Self { certificates, authentication, authorization, .. } = self;
        certificates.names_files()
            || authentication.kubeconfig.is_some()
            || authentication.client_ca_file.is_some()
            || authentication.request_header.client_ca_file.is_some()
            || authorization.kubeconfig.is_some()
    }

    /// What is wrong with the files that are named, each with its flag: certificates, authorities and kubeconfigs. Nothing is
    /// written, nobody is asked, and no credential plugin is run.
    pub async fn faults_of_files(&self) -> Vec<String> {
        let AuthenticationOptions { kubeconfig: of_users, .. } = &self.authentication;
        let AuthorizationOptions { kubeconfig: of_rights, .. } = &self.authorization;
        let mut faults = self.certificates.faults_of_files();
        let kubeconfigs =
            [("--authentication-kubeconfig", of_users), ("--authorization-kubeconfig", of_rights)];
        for (flag, kubeconfig) in kubeconfigs {
            let Some(path) = kubeconfig else { continue };
            let read = check_files(&Location::of_flag(flag, Some(path.clone()))).await;
            faults.extend(read.err().map(|error| format!("{error:#}")));
        }
        faults.extend(Trust::faults(&self.authentication).iter().map(|error| format!("{error:#}")));
        faults
    }
}

impl CertificateOptions {
    /// Whether a file or a folder is named.
    pub fn names_files(&self) -> bool {
        self.tls_cert_file.is_some()
            || self.tls_private_key_file.is_some()
            || self.cert_dir.is_some()
            || !self.tls_sni_cert_key.is_empty()
    }

    /// What is wrong with the files of the certificates, each with its flag. A pair that would be made need not be there, but its folder
    /// must let that happen.
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
        assert!(all.names_files() && !ServingOptions::new("x", 10258).names_files());
    }

    #[tokio::test]
    async fn the_credentials_of_a_kubeconfig_are_read() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
            clusters: [{name: c, cluster: {server: 'https://a:1', insecure-skip-tls-verify: true}}]\n\
            contexts: [{name: x, context: {cluster: c, user: u}}]\n";
        fs::write(&path, format!("{text}users: [{{name: u, user: {{token: t}}}}]\n")).expect("written");
        let mut all = options(folder.path());
        all.authorization.kubeconfig = Some(path.clone());
        assert_eq!(all.faults_of_files().await, Vec::<String>::new());
        let user = "{client-certificate: none.crt, client-key: none.key}";
        fs::write(&path, format!("{text}users: [{{name: u, user: {user}}}]\n")).expect("written");
        let faults = all.faults_of_files().await;
        assert!(faults.len() == 1 && faults[0].starts_with("--authorization-kubeconfig"), "{faults:?}");
        assert!(faults[0].contains("none."), "{faults:?}");
    }

    #[test]
    fn a_folder_in_which_no_pair_can_be_made_is_a_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let mut certificates = options(folder.path()).certificates;
        certificates.cert_dir = Some(file.join("made"));
        let faults = certificates.faults_of_files();
        assert!(faults.len() == 1 && faults[0].starts_with("--cert-dir"), "{faults:?}");
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
