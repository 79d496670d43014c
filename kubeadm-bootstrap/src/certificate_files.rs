//! Which certificates a machine needs, and the files in which it keeps them.

use cluster_api::kubeadm::{ExternalEtcd, KubeadmConfigSpec};

use crate::certificates::Purpose;
use crate::error::Error;
use crate::machine_file::{Content, MachineFile};
use crate::present::is_set;
use crate::request::{Request, Role};

/// The folder of certificates where the spec names none.
const CERTIFICATES_DIR: &str = "/etc/kubernetes/pki";
/// The field with the external etcd.
const EXTERNAL: &str = "spec.clusterConfiguration.etcd.external";

/// A certificate that a machine needs, and the files in which it keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// What it is for.
    pub purpose: Purpose,
    /// The path of the certificate.
    pub certificate_file: String,
    /// The path of the key. `None`: the machine does not get the key.
    pub key_file: Option<String>,
    /// The user provides it. All others may be generated for a cluster without a control plane object.
    pub is_external: bool,
}

/// The certificates that a machine of this role needs, in the order in which the bootstrap data have them. A worker needs the
/// CA of the cluster alone, without its key, and only to know its hash.
pub fn certificate_files(role: Role, spec: &KubeadmConfigSpec) -> Vec<CertificateFiles> {
    if role == Role::JoinWorker {
        let configured = spec.join_configuration.ca_cert_path.clone().filter(|path| !path.is_empty());
        let certificate_file = configured.unwrap_or_else(|| join(CERTIFICATES_DIR, "ca.crt"));
        let purpose = Purpose::ClusterCa;
        return vec![CertificateFiles { purpose, certificate_file, key_file: None, is_external: false }];
    }
    let configured = spec.cluster_configuration.certificates_dir.as_deref().filter(|path| !path.is_empty());
    let folder = configured.unwrap_or(CERTIFICATES_DIR);
    let own = |purpose, certificate: &str, key: &str| CertificateFiles {
        purpose,
        certificate_file: join(folder, certificate),
        key_file: Some(join(folder, key)),
        is_external: false,
    };
    let external = external_etcd(spec);
    let etcd = match external {
        Some(etcd) => CertificateFiles {
            purpose: Purpose::EtcdCa,
            certificate_file: etcd.ca_file.clone(),
            key_file: None,
            is_external: true,
        },
        None => own(Purpose::EtcdCa, "etcd/ca.crt", "etcd/ca.key"),
    };
    let mut files = vec![
        own(Purpose::ClusterCa, "ca.crt", "ca.key"),
        etcd,
        own(Purpose::FrontProxyCa, "front-proxy-ca.crt", "front-proxy-ca.key"),
        own(Purpose::ServiceAccount, "sa.pub", "sa.key"),
    ];
    files.extend(external.map(|etcd| CertificateFiles {
        purpose: Purpose::ApiServerEtcdClient,
        certificate_file: etcd.cert_file.clone(),
        key_file: Some(etcd.key_file.clone()),
        is_external: true,
    }));
    files
}

/// The external etcd, if the spec has one.
fn external_etcd(spec: &KubeadmConfigSpec) -> Option<&ExternalEtcd> {
    let etcd = &spec.cluster_configuration.etcd.external;
    is_set(etcd).then_some(etcd)
}

/// The files with certificates and keys, for a machine of the control plane.
pub(crate) fn files(request: &Request<'_>) -> Result<Vec<MachineFile>, Error> {
    if let Some(etcd) = external_etcd(request.spec) {
        for (name, path) in
            [("caFile", &etcd.ca_file), ("certFile", &etcd.cert_file), ("keyFile", &etcd.key_file)]
        {
            if path.is_empty() {
                return Err(Error::invalid(format!("{EXTERNAL}.{name}"), "is empty"));
            }
        }
    }
    let mut files = Vec::new();
    for needed in certificate_files(request.role, request.spec) {
        let secret = needed.purpose.secret_name(&request.cluster.name);
        let missing = |part: &str| Error::not_ready(format!("the Secret {secret} has no {part}"));
        let pair = request
            .certificates
            .get(needed.purpose)
            .ok_or_else(|| Error::not_ready(format!("the Secret {secret} is missing")))?;
        let field = if needed.is_external { EXTERNAL } else { "spec.clusterConfiguration.certificatesDir" };
        let file = |path: String, permissions: &str, part: &str, bytes: &[u8]| {
            if bytes.is_empty() {
                return Err(missing(part));
            }
            let text = String::from_utf8(bytes.to_vec())
                .map_err(|_| Error::not_ready(format!("{part} of the Secret {secret} is not PEM")))?;
            Ok(MachineFile::of_root(field, path, permissions, Content::Text(text)))
        };
        files.push(file(needed.certificate_file, "0640", "tls.crt", &pair.certificate)?);
        if let Some(path) = needed.key_file {
            files.push(file(path, "0600", "tls.key", &pair.key)?);
        }
    }
    Ok(files)
}

/// A file in a folder, without empty parts and without `.` and `..`.
fn join(folder: &str, file: &str) -> String {
    let is_absolute = folder.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    format!("{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_short_as_possible() {
        for (folder, file, path) in [
            ("/etc/kubernetes/pki", "ca.crt", "/etc/kubernetes/pki/ca.crt"),
            ("/srv/pki/", "etcd/ca.crt", "/srv/pki/etcd/ca.crt"),
            ("/a//b/../c/./", "x", "/a/c/x"),
            ("/../..", "x", "/x"),
            ("../a", "x", "../a/x"),
            ("", "x", "x"),
        ] {
            assert_eq!(join(folder, file), path);
        }
    }
}
