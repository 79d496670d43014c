//! What the data have in them: contents of Secrets, certificates, a token.

use std::collections::BTreeMap;

use cluster_api::{Cluster, KubeadmConfig, Machine, SecretText};
use controller_kit::writes::WriteError;
use k8s_openapi::api::core::v1::Secret;
use kubeadm_bootstrap::{
    BootstrapData, ClusterFacts, Error, MOST_BYTES, Request, Role, SecretReference, SecretValues,
    bootstrap_data, needs_token, secret_references,
};
use secrecy::ExposeSecret as _;

use super::{
    certificates::certificates,
    controller::KubeadmConfigController,
    problem::{Problem, waits},
    secrets::{secret, value},
};
use crate::{
    bootstrap::Bootstrap,
    engine::object::Meta as _,
    workload::tokens::{self, BootstrapToken, Refreshed},
};

/// The most Secrets that the files and users of one config may name. They are read in each pass that makes data.
const MOST_SECRETS: usize = 100;

/// Makes the data, and the token that is in them.
pub(super) async fn data(
    controller: &KubeadmConfigController,
    config: &KubeadmConfig,
    machine: &Machine,
    cluster: &Cluster,
    role: Role,
) -> Result<(BootstrapData, Option<BootstrapToken>), Problem> {
    let bootstrap = &*controller.bootstrap;
    let version = machine.spec.version.as_deref();
    let version = version.ok_or_else(|| waits("Waiting for spec.version of the Machine"))?;
    let secrets = values(bootstrap, config).await?;
    let certificates = certificates(bootstrap, config, machine, cluster, role).await?;
    let token = match role {
        Role::JoinWorker | Role::JoinControlPlane if needs_token(&config.spec) => {
            Some(token(controller, config, cluster).await?)
        }
        _ => None,
    };
    let of_token = token.as_ref().map(|token| SecretText::from(token.value().expose_secret()));
    let facts = facts(cluster);
    let request = Request {
        spec: &config.spec,
        role,
        kubernetes_version: version,
        cluster: &facts,
        certificates: &certificates,
        token: of_token.as_ref(),
        secrets: &secrets,
        control_plane_version: None,
    };
    match bootstrap_data(&request) {
        Ok(data) => Ok((data, token)),
        Err(error) => {
            // Nobody joins with it.
            if let (Some(token), Ok(connected)) = (&token, controller.connected(config, cluster)) {
                drop(tokens::delete(&connected, token).await);
            }
            Err(waits(match error {
                Error::Invalid { .. } => error.to_string(),
                Error::NotReady { what } => format!("Waiting: {what}"),
            }))
        }
    }
}

fn facts(cluster: &Cluster) -> ClusterFacts {
    let (network, endpoint) = (&cluster.spec.cluster_network, &cluster.spec.control_plane_endpoint);
    ClusterFacts {
        name: cluster.name_or_empty().to_owned(),
        endpoint_host: endpoint.host.clone().unwrap_or_default(),
        endpoint_port: endpoint.port.unwrap_or_default(),
        service_domain: network.service_domain.clone().unwrap_or_default(),
        service_cidrs: network.services.cidr_blocks.clone(),
        pod_cidrs: network.pods.cidr_blocks.clone(),
    }
}

/// The values of Secrets that files and users name, all of the config's own namespace.
async fn values(bootstrap: &Bootstrap, config: &KubeadmConfig) -> Result<SecretValues, Problem> {
    let mut by_secret: BTreeMap<String, Vec<SecretReference>> = BTreeMap::new();
    for reference in secret_references(&config.spec) {
        by_secret.entry(reference.name.clone()).or_default().push(reference);
    }
    if by_secret.len() > MOST_SECRETS {
        return Err(waits(format!("spec.files and spec.users name more than {MOST_SECRETS} Secrets")));
    }
    let (mut values, mut bytes) = (SecretValues::default(), 0);
    for (name, references) in by_secret {
        let place = secret(config.namespace_or_empty(), &name);
        let found: Option<Secret> = match bootstrap.writer.read_at(&place).await {
            Ok(found) => Some(found),
            Err(WriteError::Gone) => None,
            Err(error) => return Err(error.into()),
        };
        for SecretReference { field, key, .. } in references {
            let found =
                found.as_ref().ok_or_else(|| waits(format!("{field}: Secret {name} does not exist")))?;
            let value = value(found, &key)
                .ok_or_else(|| waits(format!("{field}: Secret {name} has no key {key}")))?;
            bytes += value.len();
            if bytes > MOST_BYTES {
                return Err(waits(format!(
                    "{field}: with this value, those of Secrets have more than the {MOST_BYTES} bytes that bootstrap data may have"
                )));
            }
            values.insert(name.as_str(), key, value.to_vec());
        }
    }
    Ok(values)
}

async fn token(
    controller: &KubeadmConfigController,
    config: &KubeadmConfig,
    cluster: &Cluster,
) -> Result<BootstrapToken, Problem> {
    let connected = controller.connected(config, cluster).map_err(|error| {
        tracing::debug!(
            cluster = cluster.name_or_empty(),
            reason = error.reason,
            "no token, since there is no connection"
        );
        waits("Waiting for the connection to the workload cluster")
    })?;
    let ttl = controller.bootstrap.token_ttl;
    // That of a try whose data were not stored.
    if let Some(token) = controller.token(config)
        && let Refreshed::Valid(_) = tokens::refresh(&connected, &token, ttl).await?
    {
        return Ok(token);
    }
    Ok(tokens::create(&connected, ttl).await?)
}
