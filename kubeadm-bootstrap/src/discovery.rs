//! How a joining machine finds the cluster and trusts it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster_api::SecretText;
use cluster_api::kubeadm::{
    FileDiscovery, FileDiscoveryKubeConfig, JoinConfiguration, JoinControlPlane, KubeadmConfigSpec,
};
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use crate::certificates::{Purpose, ca_cert_hashes};
use crate::error::Error;
use crate::machine_file::{Content, MachineFile};
use crate::present::is_set;
use crate::request::{Request, Role};
use crate::yaml;

/// The version of the exec plugins' API where the spec names none.
const EXEC_API: &str = "client.authentication.k8s.io/v1";

const KUBECONFIG_PATH: &str = "spec.joinConfiguration.discovery.file.kubeConfigPath";

/// Whether a joining machine needs a bootstrap token that its spec does not have. The caller makes one in the cluster that the
/// machine joins.
pub fn needs_token(spec: &KubeadmConfigSpec) -> bool {
    let discovery = &spec.join_configuration.discovery;
    !is_set(&discovery.file) && discovery.bootstrap_token.token.as_deref().is_none_or(str::is_empty)
}

/// The spec's `joinConfiguration` with what is missing in it for discovery: endpoint, token and hashes of the CA, or the server
/// and CA of a kubeconfig. Cluster API writes `discovery` of the result back into the object, so that the token can be refreshed.
///
/// # Errors
/// [`Error::NotReady`] if the endpoint, the certificate of the CA or the token is not known.
pub fn complete_join(request: &Request<'_>) -> Result<JoinConfiguration, Error> {
    let mut join = request.spec.join_configuration.clone();
    match request.role {
        Role::JoinControlPlane => {
            join.control_plane.get_or_insert_with(JoinControlPlane::default);
        }
        Role::JoinWorker if join.control_plane.is_some() => {
            let problem = "is for machines of the control plane, and this one has no such label";
            return Err(Error::invalid("spec.joinConfiguration.controlPlane", problem));
        }
        Role::JoinWorker | Role::Init => {}
    }
    if is_set(&join.discovery.file) {
        complete_file(request, &mut join.discovery.file)?;
    } else {
        complete_token(request, &mut join)?;
    }
    Ok(join)
}

fn complete_token(request: &Request<'_>, join: &mut JoinConfiguration) -> Result<(), Error> {
    let discovery = &mut join.discovery.bootstrap_token;
    if discovery.ca_cert_hashes.is_empty() {
        discovery.ca_cert_hashes = ca_cert_hashes(cluster_ca(request)?)?;
    }
    if discovery.api_server_endpoint.as_deref().is_none_or(str::is_empty) {
        discovery.api_server_endpoint = Some(endpoint(request)?);
    }
    if discovery.token.as_deref().is_none_or(str::is_empty) {
        let token = request.token.cloned().filter(|token| !token.is_empty());
        discovery.token = Some(token.ok_or_else(|| Error::not_ready("there is no bootstrap token yet"))?);
    }
    Ok(())
}

fn complete_file(request: &Request<'_>, file: &mut FileDiscovery) -> Result<(), Error> {
    if file.kube_config_path.is_empty() {
        return Err(Error::invalid(KUBECONFIG_PATH, "is empty"));
    }
    if !is_set(&file.kube_config) {
        return Ok(());
    }
    let cluster = &mut file.kube_config.cluster;
    if cluster.server.as_deref().is_none_or(str::is_empty) {
        cluster.server = Some(format!("https://{}", endpoint(request)?));
    }
    if cluster.certificate_authority_data.as_ref().is_none_or(|data| data.0.is_empty()) {
        cluster.certificate_authority_data = Some(ByteString(cluster_ca(request)?.to_vec()));
    }
    Ok(())
}

fn endpoint(request: &Request<'_>) -> Result<String, Error> {
    let missing = || Error::not_ready("the Cluster has no spec.controlPlaneEndpoint yet");
    request.cluster.endpoint().ok_or_else(missing)
}

fn cluster_ca<'a>(request: &Request<'a>) -> Result<&'a [u8], Error> {
    let secret = Purpose::ClusterCa.secret_name(&request.cluster.name);
    let pair = request.certificates.get(Purpose::ClusterCa).filter(|pair| !pair.certificate.is_empty());
    Ok(&pair.ok_or_else(|| Error::not_ready(format!("the Secret {secret} has no certificate")))?.certificate)
}

/// The kubeconfig by which kubeadm finds the cluster, if the spec describes one.
pub(crate) fn kubeconfig(join: &JoinConfiguration) -> Option<MachineFile> {
    let file = &join.discovery.file;
    is_set(&file.kube_config).then(|| {
        let text = yaml::document(&document(&file.kube_config));
        MachineFile::of_root(KUBECONFIG_PATH, file.kube_config_path.clone(), "0640", Content::Text(text))
    })
}

/// A kubeconfig as client-go writes it.
fn document(config: &FileDiscoveryKubeConfig) -> Value {
    let mut cluster = Map::new();
    let mut add = |name: &str, value: Option<&String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            cluster.insert(name.to_owned(), json!(value));
        }
    };
    add("proxy-url", config.cluster.proxy_url.as_ref());
    add("tls-server-name", config.cluster.tls_server_name.as_ref());
    cluster.insert("server".to_owned(), json!(config.cluster.server));
    if config.cluster.insecure_skip_tls_verify == Some(true) {
        cluster.insert("insecure-skip-tls-verify".to_owned(), json!(true));
    }
    let ca = config.cluster.certificate_authority_data.as_ref().map(|data| STANDARD.encode(&data.0));
    cluster.insert("certificate-authority-data".to_owned(), json!(ca));
    json!({
        "clusters": [{"name": "default", "cluster": cluster}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
        "users": [{"name": "default", "user": user(config)}],
    })
}

fn user(config: &FileDiscoveryKubeConfig) -> Value {
    let mut user = Map::new();
    let provider = &config.user.auth_provider;
    if is_set(provider) {
        let entries = if provider.config.is_empty() { Value::Null } else { json!(provider.config) };
        user.insert("auth-provider".to_owned(), json!({"name": provider.name, "config": entries}));
    }
    let exec = &config.user.exec;
    if is_set(exec) {
        let pairs = exec
            .env
            .iter()
            .map(|entry| json!({"name": entry.name, "value": SecretText::as_str(&entry.value)}));
        let list = |items: Vec<Value>| if items.is_empty() { Value::Null } else { Value::Array(items) };
        let api = exec.api_version.as_deref().filter(|version| !version.is_empty()).unwrap_or(EXEC_API);
        user.insert(
            "exec".to_owned(),
            json!({
                "apiVersion": api,
                "args": list(exec.args.iter().map(|argument| json!(argument)).collect()),
                "command": exec.command,
                "env": list(pairs.collect()),
                "interactiveMode": "Never",
                "provideClusterInfo": exec.provide_cluster_info == Some(true),
            }),
        );
    }
    Value::Object(user)
}
