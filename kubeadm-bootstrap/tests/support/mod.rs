//! The cases in `cases/`, which the Go program in `oracle/` reads too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster_api::SecretText;
use cluster_api::kubeadm::KubeadmConfigSpec;
use kubeadm_bootstrap::{
    BootstrapData, Certificates, ClusterFacts, Error, KeyPair, Purpose, Request, Role, SecretValues,
    bootstrap_data, needs_token,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The token where the spec has none. The Go program puts it in the place of the random one.
const TOKEN: &str = "abcdef.0123456789abcdef";

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Case {
    like: Option<String>,
    role: Option<String>,
    version: Option<String>,
    spec: KubeadmConfigSpec,
    cluster: Option<Cluster>,
    secrets: BTreeMap<String, BTreeMap<String, String>>,
    control_plane_version: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Cluster {
    name: String,
    host: String,
    port: i32,
    service_domain: String,
    services: Vec<String>,
    pods: Vec<String>,
}

#[derive(Deserialize)]
struct Certificate {
    cert: String,
    key: String,
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn read<T: DeserializeOwned>(file: &Path) -> T {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// All cases by name.
pub(crate) fn cases() -> BTreeMap<String, Case> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder("cases")).expect("the folder of the cases") {
        let path = entry.expect("an entry").path();
        if path.ends_with("certificates.yaml") {
            continue;
        }
        let cases: BTreeMap<String, Case> = read(&path);
        for (name, case) in &cases {
            let like = case.like.as_ref().map(|like| &cases[like]);
            let case = match like {
                Some(like) => Case {
                    role: case.role.clone().or(like.role.clone()),
                    version: case.version.clone().or(like.version.clone()),
                    ..like.clone()
                },
                None => case.clone(),
            };
            assert!(all.insert(name.clone(), case).is_none(), "two cases {name}");
        }
    }
    all
}

fn certificates() -> Certificates {
    let mut pairs: BTreeMap<String, Certificate> = read(&folder("cases/certificates.yaml"));
    let purposes = [
        Purpose::ClusterCa,
        Purpose::EtcdCa,
        Purpose::FrontProxyCa,
        Purpose::ServiceAccount,
        Purpose::ApiServerEtcdClient,
    ];
    let pair = |purpose: Purpose| {
        let pair = pairs.remove(purpose.suffix()).expect("a certificate of each purpose");
        (purpose, KeyPair { certificate: pair.cert.into_bytes(), key: pair.key.into_bytes() })
    };
    purposes.map(pair).into_iter().collect()
}

impl Case {
    /// The version of Kubernetes.
    pub(crate) fn version(&self) -> &str {
        self.version.as_deref().expect("a version")
    }

    fn role(&self) -> Role {
        match self.role.as_deref() {
            Some("Init") => Role::Init,
            Some("JoinControlPlane") => Role::JoinControlPlane,
            Some("JoinWorker") => Role::JoinWorker,
            other => panic!("{other:?} is no role"),
        }
    }

    /// The data of a machine with this version of Kubernetes.
    pub(crate) fn data(&self, version: &str) -> Result<BootstrapData, Error> {
        let cluster = self.cluster.clone().unwrap_or_else(|| Cluster {
            name: "demo".to_owned(),
            host: "10.0.0.10".to_owned(),
            port: 6443,
            service_domain: "cluster.local".to_owned(),
            services: vec!["10.96.0.0/12".to_owned()],
            pods: vec!["192.168.0.0/16".to_owned()],
        });
        let facts = ClusterFacts {
            name: cluster.name,
            endpoint_host: cluster.host,
            endpoint_port: cluster.port,
            service_domain: cluster.service_domain,
            service_cidrs: cluster.services,
            pod_cidrs: cluster.pods,
        };
        let mut secrets = SecretValues::default();
        for (name, (key, text)) in self.secrets.iter().flat_map(|(name, keys)| iter::repeat(name).zip(keys)) {
            let value = match text.strip_prefix("base64:") {
                Some(encoded) => STANDARD.decode(encoded).expect("base64"),
                None => text.clone().into_bytes(),
            };
            secrets.insert(name, key, value);
        }
        let token = SecretText::from(TOKEN);
        bootstrap_data(&Request {
            spec: &self.spec,
            role: self.role(),
            kubernetes_version: version,
            cluster: &facts,
            certificates: &certificates(),
            token: needs_token(&self.spec).then_some(&token),
            secrets: &secrets,
            control_plane_version: self.control_plane_version.as_deref(),
        })
    }
}
