use std::fmt::Write as _;

use serde_json::{Value, json};

use super::*;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAQID\nBAUG\n-----END CERTIFICATE-----\n";

fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn kubeconfig() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "admin@c",
        "contexts": [{"name": "admin@c", "context": {"cluster": "c", "user": "admin"}}, {"name": "other"}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": base64(CERTIFICATE)}}],
        "users": [{"name": "admin", "user": {"token": "hunter2"}}],
    })
}

fn parse(kubeconfig: &Value) -> Result<Access, String> {
    Access::parse(kubeconfig.to_string().as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn one_with_data_in_it_is_used() {
    let access = parse(&kubeconfig()).expect("good");
    assert_eq!(access.config().cluster_url, "https://10.0.0.1:6443");
    assert_eq!(access.config().root_cert, Some(vec![vec![1, 2, 3, 4, 5, 6]]));
    let token = access.config().auth_info.token.as_ref().expect("a token");
    assert_eq!(token.expose_secret(), "hunter2");
    assert!(!format!("{access:?}").contains("hunter2"));
    let mut two = kubeconfig();
    two["clusters"][0]["cluster"]["certificate-authority-data"] = json!(base64(&CERTIFICATE.repeat(2)));
    two["clusters"][0]["cluster"]["tls-server-name"] = json!("kubernetes");
    two["users"][0]["user"] = json!({"client-certificate-data": base64("c"), "client-key-data": base64("k")});
    let access = parse(&two).expect("good");
    assert_eq!(access.config().root_cert.as_ref().map(Vec::len), Some(2));
    assert_eq!(access.config().tls_server_name.as_deref(), Some("kubernetes"));
    two["users"][0]["user"] = json!({"username": "u", "password": "p"});
    assert!(parse(&two).is_ok());
}

#[test]
fn what_would_be_the_daemons_is_refused_by_its_name() {
    let secret = "/hunter2/file";
    for (part, field, value) in [
        ("cluster", "certificate-authority", json!(secret)),
        ("cluster", "proxy-url", json!("http://hunter2")),
        ("cluster", "insecure-skip-tls-verify", json!(true)),
        ("user", "client-certificate", json!(secret)),
        ("user", "client-key", json!(secret)),
        ("user", "tokenFile", json!(secret)),
        ("user", "as", json!("hunter2")),
        ("user", "as-uid", json!("hunter2")),
        ("user", "as-groups", json!(["hunter2"])),
        ("user", "as-user-extra", json!({"hunter2": ["x"]})),
        ("user", "exec", json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "hunter2"})),
        ("user", "auth-provider", json!({"name": "hunter2", "config": {}})),
    ] {
        let mut bad = kubeconfig();
        let list = if part == "cluster" { "clusters" } else { "users" };
        bad[list][0][part][field] = value;
        let error = parse(&bad).expect_err(field);
        assert!(error.starts_with(&format!("{part}.{field} ")) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let set = |pointer: &str, value: Value| {
        let mut bad = kubeconfig();
        *bad.pointer_mut(pointer).expect("a field") = value;
        parse(&bad).expect_err(pointer)
    };
    for (pointer, value, expected) in [
        ("/current-context", json!(""), "current-context is not set"),
        ("/current-context", json!("hunter2"), "contexts has none"),
        ("/current-context", json!("other"), "contexts has none"),
        ("/contexts/0/context/cluster", json!("hunter2"), "clusters has none"),
        ("/contexts/0/context/user", json!("hunter2"), "users has none"),
        ("/contexts/1/name", json!("admin@c"), "contexts has two"),
        ("/users/0/user", json!({}), "user has no credentials"),
        ("/users/0/user", json!({"username": "hunter2"}), "user has no credentials"),
        ("/users/0/user", json!({"client-certificate-data": "aGk="}), "user.client-key-data"),
        ("/users/0/user", json!({"client-key-data": "aHVudGVyMg=="}), "user.client-certificate-data"),
        ("/users/0/user/token", json!({"hunter2": 1}), "it is no kubeconfig"),
        ("/clusters/0/cluster/server", json!(""), "cluster.server is not set"),
        ("/clusters/0/cluster/server", json!("http://10.0.0.1"), "cluster.server does not begin"),
        ("/clusters/0/cluster/server", json!("10.0.0.1:6443"), "cluster.server does not begin"),
        ("/clusters/0/cluster/server", json!("https://hunter2@10.0.0.1"), "cluster.server has a user"),
        (
            "/clusters/0/cluster/server",
            json!("https://10.0.0.1/?hunter2"),
            "cluster.server has a user or a query",
        ),
        ("/clusters/0/cluster/server", json!("https:// hunter2"), "cluster.server is no URL"),
        (
            "/clusters/0/cluster/certificate-authority-data",
            json!("hunter2!"),
            "cluster.certificate-authority-data",
        ),
        (
            "/clusters/0/cluster/certificate-authority-data",
            json!(base64("hunter2")),
            "cluster.certificate-authority-data",
        ),
    ] {
        let error = set(pointer, value);
        assert!(error.starts_with(expected) && !error.contains("hunter2"), "{pointer}: {error}");
    }
    let mut two = kubeconfig();
    let user = two["users"][0].clone();
    two["users"].as_array_mut().expect("users").push(user);
    assert!(parse(&two).expect_err("two").starts_with("users has two"));
}

#[test]
fn a_kubeconfig_is_small_and_is_one() {
    let error = |bytes: &[u8]| Access::parse(bytes).expect_err("bad").to_string();
    assert!(error(&vec![b' '; LARGEST + 1]).contains("more than 65536 bytes"));
    assert_eq!(error(&[0xff, 0xfe]), "it is not UTF-8");
    assert!(error(b"hunter2: [").starts_with("it is no kubeconfig"));
    assert!(!error(b"clusters: hunter2").contains("hunter2"));
    // Aliases that would unfold to gigabytes.
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in b'b'..=b'j' {
        let (name, before) = (char::from(level), char::from(level - 1));
        let _ = writeln!(bomb, "{name}: &{name} [{}]", vec![format!("*{before}"); 10].join(","));
    }
    assert!(error(bomb.as_bytes()).starts_with("it is no kubeconfig"));
}
