use cluster_api::SecretText;
use cluster_api::kubeadm::KubeadmConfigSpec;
use serde_json::{Value, json};

use super::scalar::{block, scalar};
use crate::{Certificates, ClusterFacts, Error, MOST_BYTES, Request, Role, SecretValues, bootstrap_data};

/// Texts that would be more than a text without quotes, or end the place in which they stand.
const HOSTILE: [&str; 44] = [
    "a\nruncmd: [evil]",
    "a\n\n- evil",
    "a\u{2028}runcmd: [evil]",
    "a\u{85}runcmd: [evil]",
    "a\rruncmd: [evil]",
    "a: b",
    "a:",
    ": a",
    "a #b",
    "# a",
    "[a",
    "[a]",
    "{a",
    "{a: b}",
    "{{ ds.x }}",
    "{% raw %}",
    "{# a",
    "&a b",
    "*a",
    "|",
    ">-",
    "!tag",
    "%a",
    "@a",
    "`a",
    "- a",
    "-",
    "? a",
    "--- a",
    "...",
    "'a",
    "a'",
    "'a' b",
    "'",
    "\"a",
    "\"a\" b",
    "\"\\",
    "\"a\\\" b",
    "\"\\q\"",
    "a\tb",
    "a\0b",
    "a\u{1b}[0m",
    "a\u{7f}b",
    "\u{feff}a",
];

fn data(mut spec: Value) -> Result<String, Error> {
    if spec.get("joinConfiguration").is_none() {
        spec["joinConfiguration"] = json!({"discovery": {"bootstrapToken": {"caCertHashes": ["sha256:aa"]}}});
    }
    let spec: KubeadmConfigSpec = serde_json::from_value(spec).expect("a spec");
    let facts = ClusterFacts {
        name: "demo".to_owned(),
        endpoint_host: "10.0.0.10".to_owned(),
        endpoint_port: 6443,
        ..ClusterFacts::default()
    };
    let token = SecretText::from("abcdef.0123456789abcdef");
    let data = bootstrap_data(&Request {
        spec: &spec,
        role: Role::JoinWorker,
        kubernetes_version: "v1.35.0",
        cluster: &facts,
        certificates: &Certificates::default(),
        token: Some(&token),
        secrets: &SecretValues::default(),
        control_plane_version: None,
    })?;
    Ok(String::from_utf8(data.bytes).expect("UTF-8"))
}

/// A spec of a worker with the text in every place that takes one.
fn everywhere(text: &str) -> Value {
    json!({
        "files": [{"path": format!("/{text}"), "owner": text, "permissions": text, "content": text}],
        "bootCommands": [text], "preKubeadmCommands": [text], "postKubeadmCommands": [text],
        "ntp": {"servers": [text], "enabled": true},
        "users": [{
            "name": text, "gecos": text, "groups": text, "homeDir": text, "shell": text, "passwd": text,
            "primaryGroup": text, "sudo": text, "sshAuthorizedKeys": [text],
        }],
        "diskSetup": {
            "partitions": [{"device": text, "layout": true}],
            "filesystems": [{
                "device": text, "filesystem": text, "label": text, "partition": text, "replaceFS": text, "extraOpts": [text],
            }],
        },
        "mounts": [[text, text]],
        "joinConfiguration": {
            "caCertPath": text, "skipPhases": [text], "patches": {"directory": text}, "timeouts": {"discoverySeconds": 1},
            "nodeRegistration": {
                "name": text, "criSocket": text, "ignorePreflightErrors": [text], "kubeletExtraArgs": [{"name": text, "value": text}],
                "taints": [{"key": text, "value": text, "effect": text}],
            },
            "discovery": {"bootstrapToken": {"apiServerEndpoint": text, "caCertHashes": [text], "token": text}, "tlsBootstrapToken": text},
        },
    })
}

fn parsed(text: &str) -> Value {
    // what a reader of YAML 1.1 would refuse, or take for a line break
    let is_allowed =
        |c: char| matches!(c, '\n' | ' '..='~' | '\u{a0}'..) && !matches!(c, '\u{2028}' | '\u{2029}');
    let foreign = text.chars().find(|c| !is_allowed(*c) && *c != '\t');
    assert_eq!(foreign, None, "{text}");
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Checks that the text is where it belongs, and nowhere else.
fn check(text: &str) {
    let written = data(everywhere(text)).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let document = parsed(&written);
    let keys: Vec<&String> = document.as_object().expect("a mapping").keys().collect();
    assert_eq!(
        keys,
        ["bootcmd", "disk_setup", "fs_setup", "mounts", "ntp", "runcmd", "users", "write_files"],
        "{text:?}"
    );
    let value = json!(text.trim_matches([' ', '\t', '\n', '\r']));
    assert_eq!(document["bootcmd"], json!([text]));
    assert_eq!(document["runcmd"][0], json!(text));
    assert_eq!(document["runcmd"][2], json!(text));
    assert_eq!(document["runcmd"].as_array().map(Vec::len), Some(3));
    assert_eq!(document["ntp"], json!({"enabled": true, "servers": [value]}));
    assert_eq!(
        document["users"],
        json!([{
            "name": value, "gecos": value, "groups": value, "homedir": value, "shell": value, "passwd": value,
            "primary_group": value, "sudo": value, "ssh_authorized_keys": [value],
        }])
    );
    let disks = document["disk_setup"].as_object().expect("a mapping");
    assert_eq!(disks.len(), 1);
    assert_eq!(
        disks.get(value.as_str().expect("a text")),
        Some(&json!({"layout": true})),
        "{text:?}: {disks:?}"
    );
    assert_eq!(
        document["fs_setup"],
        json!([{
            "label": value, "filesystem": value, "device": value, "partition": value, "replace_fs": value, "extra_opts": [value],
        }])
    );
    assert_eq!(document["mounts"], json!([[value, value]]));
    let files = document["write_files"].as_array().expect("a list");
    assert_eq!(files.len(), 3, "{text:?}");
    assert_eq!(files[0]["path"], json!(format!("/{text}").trim_end_matches([' ', '\t', '\n', '\r'])));
    assert_eq!(files[0]["owner"], value);
    assert_eq!(files[0]["permissions"], json!(text));
    assert_eq!(files[0]["content"].as_str().map(str::trim_end), Some(text.trim_end()));
    let join: Value = parsed(files[1]["content"].as_str().expect("kubeadm's configuration"));
    let node = &join["nodeRegistration"];
    assert_eq!(node["kubeletExtraArgs"], json!([{"name": text, "value": text}]));
    assert_eq!([&node["name"], &node["criSocket"], &join["caCertPath"]], [&json!(text); 3]);
    assert_eq!(node["taints"][0], json!({"key": text, "value": text, "effect": text}));
    assert_eq!(join["skipPhases"], json!([text]));
    assert_eq!(join["discovery"]["tlsBootstrapToken"], json!(text));
}

#[test]
fn hostile_texts_stay_in_their_places() {
    for text in HOSTILE {
        check(text);
    }
}

/// Random texts of what ends or begins something in YAML. Texts that stand without quotes are prefixed, so that they are no
/// number, no boolean and no quoted text. Carriage returns are not among them: a reader takes one before a line break for a part of it.
#[test]
fn random_texts_stay_in_their_places() {
    let mut random = fastrand::Rng::with_seed(11);
    let alphabet: Vec<char> =
        "ab \n\n\t-::##'\"\\{}[]?!&*|>%@`,~.\u{e9}\u{2028}\u{85}\u{1b}\u{1f600}=<".chars().collect();
    for _ in 0..2_000 {
        let length = random.usize(1..10);
        let text: String = (0..length).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
        check(&format!("{}x{text}", if random.bool() { "- " } else { "" }));
    }
}

#[test]
fn scalars_that_a_reader_takes_for_one_are_left_alone() {
    for text in [
        "a",
        "ALL=(ALL) NOPASSWD:ALL",
        "sudo, docker",
        "1",
        "true",
        "$6$x/.",
        "'a: b'",
        "'it''s'",
        "\"a # b\"",
        "-F",
        "a'b",
    ] {
        assert_eq!(scalar(text), text);
    }
    for (text, written) in [
        ("", ""),
        (" \n", "''"),
        (" a\n", "a"),
        ("a: b", "'a: b'"),
        ("it's: b", "'it''s: b'"),
        ("a\tb", "\"a\\tb\""),
        ("{{ x[\"y\"] }}", "'{{ x[\"y\"] }}'"),
    ] {
        assert_eq!(scalar(text), written, "{text:?}");
    }
}

#[test]
fn contents_of_files() {
    for (content, written) in [
        ("", "|\n      "),
        ("a\nb", "|\n      a\n      b"),
        (" a\nb", "|2\n       a\n      b"),
        ("\n  a", "|2\n      \n        a"),
        ("a\r\nb", "|\n      a\r\n      b"),
        ("a\rb", "\"a\\rb\""),
        ("a\0", "\"a\\x00\""),
    ] {
        assert_eq!(block(content), written, "{content:?}");
    }
}

#[test]
fn data_that_no_secret_holds_are_an_error() {
    let large = "x".repeat(1 << 20);
    let error = data(json!({"files": [{"path": "/a", "content": large}]})).expect_err("too large");
    assert!(error.to_string().starts_with("spec.files[0]: "), "{error}");
    for spec in [
        json!({"preKubeadmCommands": [large]}),
        json!({"files": [{"path": "/a", "content": "\n".repeat(MOST_BYTES - 10)}]}),
        json!({"users": [{"name": "a", "gecos": "'".repeat(MOST_BYTES)}]}),
    ] {
        let error = data(spec).expect_err("too large").to_string();
        assert!(error.starts_with("spec: the bootstrap data have "), "{error}");
    }
}
