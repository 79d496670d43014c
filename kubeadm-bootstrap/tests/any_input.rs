//! No input makes the crate panic, and what it makes can be read.

use std::collections::BTreeMap;

use cluster_api::SecretText;
use cluster_api::kubeadm::KubeadmConfigSpec;
use kubeadm_bootstrap::{
    Certificates, ClusterFacts, Error, KeyPair, Purpose, Request, Role, SecretValues, bootstrap_data,
    ca_cert_hashes, secret_references,
};
use serde_json::{Value, json};

const ALPHABET: &str =
    "abz019 \n\n\r\t-/::##'\"\\{}[]()?!&*|>%@`,~.+_\u{e9}\u{2028}\u{85}\u{1b}\0\u{feff}\u{1f600}=<\u{301}";

struct Random(fastrand::Rng);

impl Random {
    fn text(&mut self) -> String {
        let known = [
            "",
            "a",
            "/a",
            "0640",
            "v1.35.0",
            "{{ .controlPlane.version }}",
            "abcdef.0123456789abcdef",
            "aGVsbG8=",
            "{{ if .controlPlane }}",
            "1e3",
            "2020-01-02",
            "Linux",
            "-----BEGIN CERTIFICATE-----\n",
        ];
        if self.0.u8(..3) > 0 {
            return self.0.choice(known).unwrap_or_default().to_owned();
        }
        let alphabet: Vec<char> = ALPHABET.chars().collect();
        let length = self.0.usize(0..200);
        (0..length).map(|_| alphabet[self.0.usize(..alphabet.len())]).collect()
    }

    /// A value that is valid in its place, or, one time in twenty, any text.
    fn usually(&mut self, valid: &str) -> String {
        if self.0.u8(..20) > 0 { valid.to_owned() } else { self.text() }
    }

    fn number(&mut self) -> Value {
        if self.0.u8(..20) > 0 {
            return json!(self.0.i32(0..100));
        }
        let numbers = [0, 1, -1, 100, 101, i32::MAX, i32::MIN];
        json!(self.0.choice(numbers))
    }

    /// Some of the fields of an object.
    fn some(&mut self, fields: Value) -> Value {
        let Value::Object(fields) = fields else { return fields };
        Value::Object(fields.into_iter().filter(|_| self.0.u8(..4) > 0).collect())
    }

    fn spec(&mut self) -> Value {
        let (path, mode, name) = (self.usually("x"), self.usually("0640"), self.usually("x"));
        let (sudo, server, token) =
            (self.usually("ALL"), self.usually("time"), self.usually("abcdef.0123456789abcdef"));
        let (control_plane, external) = (self.0.u8(..3) == 0, self.0.u8(..3) == 0);
        let mut t = || self.text();
        let registration = json!({
            "name": t(), "criSocket": t(), "taints": [{"key": t(), "value": t(), "effect": t()}],
            "kubeletExtraArgs": [{"name": t(), "value": t()}, {"name": t(), "value": t()}], "ignorePreflightErrors": [t()],
        });
        let component = json!({
            "extraArgs": [{"name": t(), "value": t()}], "extraEnvs": [{"name": t(), "value": t()}],
            "extraVolumes": [{"name": t(), "hostPath": t(), "mountPath": t()}],
        });
        let files = json!([
            {"path": format!("/1{path}"), "owner": t(), "permissions": mode, "content": t()},
            {"path": format!("/2{path}"), "content": t(), "contentFormat": "Raw"},
            {"path": format!("/3{path}"), "contentFrom": {"secret": {"name": "s", "key": "k"}}},
        ]);
        let users = json!([{
            "name": format!("u{name}"), "gecos": t(), "groups": t(), "sudo": sudo, "passwdFrom": {"secret": {"name": "s", "key": "k"}},
            "sshAuthorizedKeys": [t()], "lockPassword": false,
        }]);
        let mut cluster = json!({
            "apiServer": component, "scheduler": component, "certificatesDir": t(), "controlPlaneEndpoint": t(),
            "etcd": {"external": {"endpoints": [t()], "caFile": t(), "certFile": t(), "keyFile": t()}},
            "featureGates": {t(): true, t(): false}, "certificateValidityPeriodDays": 1,
        });
        if !external {
            cluster["etcd"] = json!({"local": {"dataDir": t()}});
        }
        let mut join = json!({
            "nodeRegistration": registration, "skipPhases": [t()], "patches": {"directory": t()},
            "discovery": {
                "bootstrapToken": {"token": t(), "apiServerEndpoint": t(), "caCertHashes": [t()]},
                "file": {"kubeConfigPath": format!("/{}", t()), "kubeConfig": {
                    "cluster": {"server": t(), "certificateAuthorityData": "AAAA"},
                    "user": {"exec": {"command": t(), "args": [t()], "env": [{"name": t(), "value": t()}]}},
                }},
            },
        });
        if control_plane {
            join["controlPlane"] = json!({});
        }
        let disks = json!({
            "partitions": [{"device": t(), "diskLayout": [{"percentage": 50, "partitionType": "LVM"}]}],
            "filesystems": [{"device": t(), "filesystem": "xfs", "label": t(), "extraOpts": [t()]}],
        });
        let mounts = json!([[t(), t()], [], [t()]]);
        let commands = json!([t(), t()]);
        let servers = json!([server]);
        let timeouts = json!({"discoverySeconds": self.number(), "tlsBootstrapSeconds": self.number()});
        let token = json!({"token": token, "ttlSeconds": self.number()});
        let init = self.some(json!({
            "nodeRegistration": registration, "bootstrapTokens": [token], "timeouts": timeouts.clone(),
        }));
        let mut join = self.some(join);
        join["timeouts"] = if self.0.bool() { timeouts } else { json!({}) };
        let formats = ["cloud-config", "ignition"];
        let format = self.0.choice(formats).unwrap_or_default();
        let mut spec = json!({
            "format": format, "verbosity": self.number(), "files": files, "users": users, "mounts": mounts,
            "clusterConfiguration": self.some(cluster), "initConfiguration": init, "joinConfiguration": join,
            "diskSetup": self.some(disks), "bootCommands": commands, "preKubeadmCommands": commands,
            "postKubeadmCommands": commands, "ntp": {"servers": servers, "enabled": true},
        });
        // most specs for Ignition have nothing that it does not have
        if let Some(fields) = spec.as_object_mut().filter(|_| format == "ignition" && self.0.u8(..4) > 0) {
            fields.retain(|field, _| !["bootCommands", "mounts", "diskSetup"].contains(&field.as_str()));
        }
        self.some(spec)
    }
}

#[test]
fn any_spec_gives_data_or_an_error_that_says_why() {
    let mut random = Random(fastrand::Rng::with_seed(3));
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..2_000 {
        let spec = random.spec();
        let spec: KubeadmConfigSpec =
            serde_json::from_value(spec.clone()).unwrap_or_else(|error| panic!("{error}: {spec}"));
        let facts = ClusterFacts {
            name: random.text(),
            endpoint_host: random.text(),
            endpoint_port: 6443,
            service_domain: random.text(),
            service_cidrs: vec![random.text()],
            pod_cidrs: vec![random.text()],
        };
        let purposes = [
            Purpose::ClusterCa,
            Purpose::EtcdCa,
            Purpose::FrontProxyCa,
            Purpose::ServiceAccount,
            Purpose::ApiServerEtcdClient,
        ];
        let mut pair = |purpose| {
            (
                purpose,
                KeyPair {
                    certificate: format!("c{}", random.text()).into_bytes(),
                    key: format!("k{}", random.text()).into_bytes(),
                },
            )
        };
        let certificates: Certificates = purposes.map(&mut pair).into_iter().collect();
        let mut secrets = SecretValues::default();
        for reference in secret_references(&spec) {
            let value = if random.0.u8(..10) == 0 { vec![0xff, 0, 1] } else { random.text().into_bytes() };
            secrets.insert(reference.name, reference.key, value);
        }
        let (version, token, control_plane) = (random.text(), SecretText::from(random.text()), random.text());
        let roles = [Role::Init, Role::JoinControlPlane, Role::JoinWorker];
        let outcome = bootstrap_data(&Request {
            spec: &spec,
            role: random.0.choice(roles).unwrap_or(Role::Init),
            kubernetes_version: if random.0.u8(..8) > 0 { "v1.30.0" } else { &version },
            cluster: &facts,
            certificates: &certificates,
            token: Some(&token),
            secrets: &secrets,
            control_plane_version: random.0.bool().then_some(control_plane.as_str()),
        });
        let kind = match outcome {
            Ok(data) if data.format_name() == "ignition" => {
                serde_json::from_slice::<Value>(&data.bytes).expect("JSON");
                "ignition"
            }
            Ok(data) => {
                let text = String::from_utf8(data.bytes).expect("UTF-8");
                let document = serde_saphyr::from_str::<Value>(&text);
                document.unwrap_or_else(|error| panic!("{error}\n{text}"));
                "cloud-config"
            }
            Err(Error::Invalid { field, problem }) => {
                assert!(field.starts_with("spec") && !problem.is_empty(), "{field}: {problem}");
                "invalid"
            }
            Err(Error::NotReady { what }) => {
                assert!(!what.is_empty());
                "not ready"
            }
        };
        *outcomes.entry(kind).or_default() += 1;
    }
    // each kind of outcome was reached
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[test]
fn any_certificate_has_hashes_or_an_error() {
    let mut random = Random(fastrand::Rng::with_seed(5));
    let marks = ["-----BEGIN CERTIFICATE-----\n", "MIIB\n", "\n-----END CERTIFICATE-----\n", "AAAA", "="];
    for _ in 0..2_000 {
        let length = random.0.usize(0..8);
        let pem: String = (0..length)
            .map(|_| {
                if random.0.bool() {
                    random.text()
                } else {
                    random.0.choice(marks).unwrap_or_default().to_owned()
                }
            })
            .collect();
        let _ = ca_cert_hashes(pem.as_bytes());
    }
}
