//! The Secret with the data of one machine. It has the name of its `KubeadmConfig`.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cluster_api::{
    KubeadmConfig, Machine,
    names::{labels, secrets},
};
use controller_kit::writes::WriteError;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kubeadm_bootstrap::BootstrapData;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::secrets::{secret, value};
use crate::{
    bootstrap::Bootstrap,
    engine::{
        control::Failure,
        object::{Meta as _, owner_reference},
        writer::to_json,
    },
    workload::tokens::BootstrapToken,
};

/// The key of the token, so that it is kept valid after the daemon was started again.
const TOKEN: &str = "bootstrap-token";

/// Whether the data are there, as after a crash before the status was written.
///
/// # Errors
/// If a Secret of this name is another's. It may have anything in it, such as a kubeconfig.
pub(super) async fn exists(bootstrap: &Bootstrap, config: &KubeadmConfig) -> Result<bool, Failure> {
    let name = config.name_or_empty();
    let found: Secret = match bootstrap.writer.read_at(&secret(config.namespace_or_empty(), name)).await {
        Ok(found) => found,
        Err(WriteError::Gone) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if found.owner_references().iter().any(|owner| owner.uid == config.uid_or_empty()) {
        return Ok(true);
    }
    Err(Failure::Failed(format!("Secret {name} exists, and is not of this KubeadmConfig")))
}

/// Creates it.
pub(super) async fn create(
    bootstrap: &Bootstrap,
    config: &KubeadmConfig,
    machine: &Machine,
    data: &BootstrapData,
    token: Option<&BootstrapToken>,
) -> Result<(), Failure> {
    let encode = |bytes: &[u8]| Value::from(BASE64_STANDARD.encode(bytes));
    let mut values = json!({
        secrets::VALUE_KEY: encode(&data.bytes),
        secrets::FORMAT_KEY: encode(data.format_name().as_bytes()),
    });
    if let Some(token) = token {
        values[TOKEN] = encode(token.value().expose_secret().as_bytes());
    }
    let owner = to_json(&owner_reference(config, true))?;
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "type": secrets::CLUSTER_TYPE,
        "metadata": {
            "namespace": config.namespace_or_empty(), "name": config.name_or_empty(),
            "labels": {labels::CLUSTER_NAME: machine.spec.cluster_name}, "ownerReferences": [owner],
        },
        "data": values,
    });
    let place = secret(config.namespace_or_empty(), config.name_or_empty());
    match bootstrap.writer.create_at::<Value>(&place, &body).await {
        Ok(_) => Ok(()),
        // The API server may show what it refuses.
        Err(WriteError::Failed(_)) => {
            Err(Failure::Failed("the Secret with the bootstrap data was not created".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

/// The token in the data of a machine that has not joined.
pub(super) async fn token(
    bootstrap: &Bootstrap,
    config: &KubeadmConfig,
) -> Result<Option<BootstrapToken>, Failure> {
    let place = secret(config.namespace_or_empty(), config.name_or_empty());
    let found: Secret = match bootstrap.writer.read_at(&place).await {
        Ok(found) => found,
        Err(WriteError::Gone) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = value(&found, TOKEN).and_then(|bytes| std::str::from_utf8(bytes).ok());
    Ok(text.and_then(|text| BootstrapToken::parse(text).ok()))
}
