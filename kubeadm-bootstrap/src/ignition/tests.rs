use cluster_api::SecretText;
use cluster_api::kubeadm::KubeadmConfigSpec;
use serde_json::{Value, json};

use crate::{
    Certificates, ClusterFacts, Error, KeyPair, Purpose, Request, Role, SecretValues, bootstrap_data,
};

fn data(mut spec: Value) -> Result<Value, Error> {
    spec["format"] = json!("ignition");
    spec["joinConfiguration"] = json!({"discovery": {"bootstrapToken": {"caCertHashes": ["sha256:aa"]}}});
    let spec: KubeadmConfigSpec = serde_json::from_value(spec).expect("a spec");
    let facts = ClusterFacts {
        name: "demo".to_owned(),
        endpoint_host: "10.0.0.10".to_owned(),
        endpoint_port: 6443,
        ..ClusterFacts::default()
    };
    let token = SecretText::from("abcdef.0123456789abcdef");
    let certificates: Certificates = [(Purpose::ClusterCa, KeyPair::default())].into_iter().collect();
    let data = bootstrap_data(&Request {
        spec: &spec,
        role: Role::JoinWorker,
        kubernetes_version: "v1.35.0",
        cluster: &facts,
        certificates: &certificates,
        token: Some(&token),
        secrets: &SecretValues::default(),
        control_plane_version: None,
    })?;
    Ok(serde_json::from_slice(&data.bytes).expect("JSON"))
}

#[test]
fn errors_name_the_field() {
    for (spec, field) in [
        (
            json!({"ignition": {"containerLinuxConfig": {"additionalConfig": "a: b"}}}),
            "spec.ignition.containerLinuxConfig",
        ),
        (json!({"bootCommands": ["a"]}), "spec.bootCommands"),
        (json!({"users": [{"name": "a", "inactive": true}]}), "spec.users[0].inactive"),
        (json!({"users": [{"name": "a\nb"}]}), "spec.users[0].name"),
        (json!({"users": [{"name": "../a", "sudo": "ALL"}]}), "spec.users[0].name"),
        (json!({"users": [{"name": "a", "sudo": "x\nroot ALL=(ALL) ALL"}]}), "spec.users[0].sudo"),
        (json!({"ntp": {"enabled": true, "servers": ["a", "b\nc"]}}), "spec.ntp.servers[1]"),
        (json!({"files": [{"path": "/a", "encoding": "gzip"}]}), "spec.files[0].encoding"),
        (json!({"files": [{"path": "/a", "encoding": "base64", "content": "?"}]}), "spec.files[0].content"),
        (json!({"files": [{"path": "a"}]}), "spec.files[0].path"),
        (json!({"files": [{"path": "/a", "permissions": "rw"}]}), "spec.files[0].permissions"),
        (json!({"files": [{"path": "/a", "permissions": "+644"}]}), "spec.files[0].permissions"),
        (json!({"files": [{"path": "/a", "permissions": "77777"}]}), "spec.files[0].permissions"),
        (json!({"mounts": [["a"]]}), "spec.mounts[0]"),
        (json!({"mounts": [["a", "/b", "c\n[Service]"]]}), "spec.mounts[0][2]"),
        (
            json!({"diskSetup": {"partitions": [{"device": "sda", "layout": true}]}}),
            "spec.diskSetup.partitions[0].device",
        ),
        (
            json!({"diskSetup": {"partitions": [{"device": "/a", "layout": true, "tableType": "mbr"}]}}),
            "spec.diskSetup.partitions[0].tableType",
        ),
        (
            json!({"diskSetup": {"filesystems": [{"device": "/a", "filesystem": "zfs"}]}}),
            "spec.diskSetup.filesystems[0].filesystem",
        ),
        (
            json!({"diskSetup": {"filesystems": [{"device": "/a", "filesystem": "xfs", "partition": "auto"}]}}),
            "spec.diskSetup.filesystems[0].partition",
        ),
    ] {
        let error = data(spec.clone()).expect_err(field).to_string();
        assert!(error.starts_with(&format!("{field}: ")), "{spec}: {error}");
    }
}

/// Fields of other parts of the spec than files name paths too.
#[test]
fn paths_of_certificates_are_absolute() {
    let spec: KubeadmConfigSpec = serde_json::from_value(json!({
        "format": "ignition", "clusterConfiguration": {"certificatesDir": "pki"},
    }))
    .expect("a spec");
    let pair = KeyPair { certificate: b"certificate".to_vec(), key: b"key".to_vec() };
    let purposes = [Purpose::ClusterCa, Purpose::EtcdCa, Purpose::FrontProxyCa, Purpose::ServiceAccount];
    let error = bootstrap_data(&Request {
        spec: &spec,
        role: Role::Init,
        kubernetes_version: "v1.35.0",
        cluster: &ClusterFacts { name: "demo".to_owned(), ..ClusterFacts::default() },
        certificates: &purposes.map(|purpose| (purpose, pair.clone())).into_iter().collect(),
        token: None,
        secrets: &SecretValues::default(),
        control_plane_version: None,
    });
    let message = "spec.clusterConfiguration.certificatesDir: is not an absolute path";
    assert_eq!(error.expect_err("an error").to_string(), message);
}

#[test]
fn texts_come_through_as_they_are() {
    let text = "a: b # \"c\" 'd' {{ e }} <&> \u{2028} \u{1f600}";
    let users = json!([{"name": "u", "gecos": text, "shell": text, "sshAuthorizedKeys": [text]}]);
    let document = data(json!({"users": users, "files": [{"path": "/a", "content": text}]})).expect("data");
    let user = &document["passwd"]["users"][0];
    assert_eq!([&user["gecos"], &user["shell"], &user["sshAuthorizedKeys"][0]], [&json!(text); 3]);
    let source = document["storage"]["files"][0]["contents"]["source"].as_str().expect("a URL");
    assert!(source.starts_with("data:,a%3A%20b%20%23%20%22c%22%20'd'%20%7B%7B"), "{source}");
}
