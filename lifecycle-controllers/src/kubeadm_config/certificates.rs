//! The certificates of a cluster, each with its key in a Secret of the Cluster's namespace: those that a control plane or a user provides,
//! and new ones for a control plane that is Machines alone.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use cluster_api::{
    Cluster, KubeadmConfig, Machine,
    names::{labels, secrets},
};
use controller_kit::writes::WriteError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kubeadm_bootstrap::{CertificateFiles, Certificates, KeyPair, Role, certificate_files};
use serde_json::{Value, json};

use super::{
    key_pairs,
    problem::Problem,
    secrets::{secret, value},
    status::Progress,
};
use crate::{
    bootstrap::Bootstrap,
    core::has_control_plane,
    engine::{
        object::{Meta as _, owner_reference},
        writer::to_json,
    },
};

/// Reads those that a machine of this role needs. For the first machine of a control plane without an object of its own, what is missing
/// is made: nobody else would, and each cluster has its own (source: `LookupOrGenerate` in `util/secret` of Cluster API 1.14.2).
pub(super) async fn certificates(
    bootstrap: &Bootstrap,
    config: &KubeadmConfig,
    machine: &Machine,
    cluster: &Cluster,
    role: Role,
) -> Result<Certificates, Problem> {
    let mut certificates = Certificates::default();
    for file in certificate_files(role, &config.spec) {
        let name = file.purpose.secret_name(cluster.name_or_empty());
        let mut found = read(bootstrap, config, &name).await?;
        if found.is_none() && role == Role::Init && is_made_here(&file, cluster) {
            // They would go with a Cluster that had the same name before.
            if !is_of(machine, cluster) {
                return Err(Problem::Said(Progress::Waits(
                    "Waiting for the Cluster to own the Machine".to_owned(),
                )));
            }
            // One that another Machine has made in this moment counts.
            create(bootstrap, config, cluster, &file).await?;
            found = read(bootstrap, config, &name).await?;
        }
        let found = found.ok_or_else(|| missing(format!("Secret {name} does not exist")))?;
        let certificate = value(&found, "tls.crt");
        let certificate = certificate.ok_or_else(|| missing(format!("Secret {name} has no key tls.crt")))?;
        let key = value(&found, "tls.key").unwrap_or_default();
        certificates.insert(file.purpose, KeyPair { certificate: certificate.to_vec(), key: key.to_vec() });
    }
    Ok(certificates)
}

fn missing(message: String) -> Problem {
    Problem::Said(Progress::WithoutCertificates(message))
}

fn is_made_here(file: &CertificateFiles, cluster: &Cluster) -> bool {
    !has_control_plane(cluster) && !file.is_external
}

/// The machine controller makes the Cluster the owner of a Machine that has no controller.
fn is_of(machine: &Machine, cluster: &Cluster) -> bool {
    machine.controller().is_some() || machine.is_owned_by(cluster.uid_or_empty())
}

async fn read(bootstrap: &Bootstrap, config: &KubeadmConfig, name: &str) -> Result<Option<Secret>, Problem> {
    match bootstrap.writer.read_at(&secret(config.namespace_or_empty(), name)).await {
        Ok(found) => Ok(Some(found)),
        Err(WriteError::Gone) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates the Secret with a new key pair. The Cluster owns it: the first machine may be replaced.
async fn create(
    bootstrap: &Bootstrap,
    config: &KubeadmConfig,
    cluster: &Cluster,
    file: &CertificateFiles,
) -> Result<(), Problem> {
    let name = file.purpose.secret_name(cluster.name_or_empty());
    let pair = key_pairs::generate(file.purpose, &config.spec.cluster_configuration, Timestamp::now())
        .map_err(|why| missing(format!("Secret {name} does not exist, {why}")))?;
    let encode = |bytes: &[u8]| Value::from(BASE64_STANDARD.encode(bytes));
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "type": secrets::CLUSTER_TYPE,
        "metadata": {
            "namespace": cluster.namespace_or_empty(), "name": name,
            "labels": {labels::CLUSTER_NAME: cluster.name_or_empty()},
            "ownerReferences": [to_json(&owner_reference(cluster, true))?],
        },
        "data": {"tls.crt": encode(&pair.certificate), "tls.key": encode(&pair.key)},
    });
    match bootstrap.writer.create_at::<Value>(&secret(cluster.namespace_or_empty(), &name), &body).await {
        Ok(_) => {
            tracing::info!(
                secret = name,
                namespace = cluster.namespace_or_empty(),
                cluster = cluster.name_or_empty(),
                "made the key pair of a new control plane"
            );
            Ok(())
        }
        Err(WriteError::Stale(_)) => Ok(()),
        // The API server may show what it refuses.
        Err(WriteError::Failed(_)) => Err(missing(format!("Secret {name} was not created"))),
        Err(error) => Err(error.into()),
    }
}
