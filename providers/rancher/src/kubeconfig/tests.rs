use std::{collections::BTreeMap, io, path::Path};

use rcgen::{CertificateParams, KeyPair};

use super::*;

const TOKEN: &str = "correct-horse-battery";

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: guest\ncontexts:\n- name: guest\n  context: {{cluster: harvester, \
         user: ccm, namespace: vms}}\nclusters:\n- name: harvester\n  cluster: {{{cluster}}}\nusers:\n- name: ccm\n  user: \
         {{{user}}}\n"
    )
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

fn with_files(text: &str, files: &[(&str, &str)]) -> Result<KubernetesAccess, String> {
    let mut all: BTreeMap<_, _> = files
        .iter()
        .map(|(name, text)| (PathBuf::from(format!("/etc/ccm/{name}")), (*text).to_owned()))
        .collect();
    all.insert("/etc/ccm/harvester".into(), text.to_owned());
    let input = FactoryInput::new("").with_reader(move |path: &Path| {
        all.get(path).map(|text| text.clone().into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
    });
    KubernetesAccess::read(&input, Path::new("/etc/ccm/harvester"))
}

fn read(text: &str) -> Result<KubernetesAccess, String> {
    with_files(text, &[])
}

fn fault(text: &str) -> String {
    let fault = read(text).expect_err("refused");
    assert!(!fault.contains(TOKEN), "{fault}");
    fault.strip_prefix("/etc/ccm/harvester: ").unwrap_or(&fault).to_owned()
}

/// A certificate of its own authority, and its key.
fn identity() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["ccm".to_owned()]).expect("parameters");
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

#[test]
fn the_current_context_counts() {
    let access = read(&kubeconfig(SERVER, &format!("token: {TOKEN}"))).expect("good");
    assert_eq!((access.namespace(), access.is_insecure()), (Some("vms"), false));
    assert_eq!(access.server, "https://10.0.0.1:6443");
    assert_eq!(access.auth.token.as_ref().map(ExposeSecret::expose_secret), Some(TOKEN));
    let shown = format!("{access:?}");
    assert!(shown.contains("10.0.0.1") && !shown.contains(TOKEN), "{shown}");
}

#[test]
fn files_beside_it_are_read_with_it() {
    let (certificate, key) = identity();
    let cluster = format!("{SERVER}, certificate-authority: ca.pem, tls-server-name: harvester");
    let files =
        [("ca.pem", &*certificate), ("token", "from-a-file\n"), ("tls.crt", &certificate), ("tls.key", &key)];
    let access = with_files(&kubeconfig(&cluster, "tokenFile: /etc/ccm/token"), &files).expect("good");
    assert_eq!(access.auth.token.as_ref().map(ExposeSecret::expose_secret), Some("from-a-file"));
    assert_eq!(access.auth.token_file, None, "nothing is read again later");
    assert_eq!(access.authorities.map(|all| all.len()), Some(1));
    assert_eq!(access.server_name.as_deref(), Some("harvester"));
    let user = "client-certificate: tls.crt, client-key: tls.key";
    let access = with_files(&kubeconfig(SERVER, user), &files).expect("good");
    assert!(access.auth.client_certificate_data.is_some() && access.auth.client_certificate.is_none());
}

#[test]
fn data_takes_precedence_over_a_file() {
    let (certificate, _) = identity();
    let data = BASE64_STANDARD.encode(&certificate);
    let cluster = format!("{SERVER}, certificate-authority: missing.pem, certificate-authority-data: {data}");
    assert!(read(&kubeconfig(&cluster, "token: t")).expect("good").authorities.is_some());
}

#[test]
fn a_client_is_made_without_a_connection() {
    let (certificate, key) = identity();
    let files = [("tls.crt", &*certificate), ("tls.key", &key)];
    let user = "client-certificate: tls.crt, client-key: tls.key";
    let access = with_files(&kubeconfig(SERVER, user), &files).expect("good");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let client = runtime.block_on(async { access.client("vms", Duration::from_secs(1)) }).expect("a client");
    assert_eq!(client.default_namespace(), "vms");
}

#[test]
fn what_is_wrong_is_told() {
    let token = format!("token: {TOKEN}");
    let (certificate, _) = identity();
    let (_, other_key) = identity();
    let encoded = |text: &str| BASE64_STANDARD.encode(text);
    for (text, expected) in [
        (format!("users: {{token: {TOKEN}"), "is no kubeconfig"),
        (format!("users: [{{name: 1, user: {{token: [{TOKEN}]}}}}]"), "is no kubeconfig"),
        ("kind: Config".to_owned(), "has no current-context"),
        ("current-context: x".to_owned(), "has no context with the name in current-context"),
        (kubeconfig("", &token), "has a cluster whose server is not a URL"),
        (kubeconfig("server: 10.0.0.1", &token), "has a cluster whose server is not a URL"),
        (kubeconfig("server: 'http://10.0.0.1'", &token), "has a cluster whose server is not a URL"),
        (kubeconfig(&format!("{SERVER}, proxy-url: 'http://p'"), &token), "has a proxy-url"),
        (
            kubeconfig(&format!("{SERVER}, certificate-authority: no.pem"), &token),
            "cannot read /etc/ccm/no.pem",
        ),
        (
            kubeconfig(&format!("{SERVER}, certificate-authority-data: '!'"), &token),
            "has certificate-authority-data that is no base64",
        ),
        (
            kubeconfig(&format!("{SERVER}, certificate-authority-data: {}", encoded("x")), &token),
            "certificate-authority holds no certificate",
        ),
        (kubeconfig(SERVER, ""), "has a user without credentials"),
        (kubeconfig(SERVER, "exec: {command: aws}"), "has a user with a credential plugin"),
        (kubeconfig(SERVER, "auth-provider: {name: gcp}"), "has a user with a credential plugin"),
        (kubeconfig(SERVER, "tokenFile: no"), "cannot read /etc/ccm/no"),
        (
            kubeconfig(SERVER, &format!("client-certificate-data: {}", encoded(&certificate))),
            "has a client-certificate without a client-key",
        ),
        (
            kubeconfig(
                SERVER,
                &format!(
                    "client-certificate-data: {}, client-key-data: {}",
                    encoded(&certificate),
                    encoded(&other_key)
                ),
            ),
            "has a client-key that does not belong to its client-certificate",
        ),
    ] {
        let fault = fault(&text);
        assert!(fault.starts_with(expected), "{fault}");
    }
    let missing = KubernetesAccess::read(&FactoryInput::new(""), Path::new("/no/such")).expect_err("missing");
    assert!(missing.starts_with("cannot read /no/such: "), "{missing}");
}
