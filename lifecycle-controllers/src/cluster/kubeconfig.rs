//! The Secret with the kubeconfig of a Cluster without a control plane object, which would make one.
//!
//! It is made once `spec.controlPlaneEndpoint` is known and the Secret with the certificate authority exists, and anew when half of the life
//! of its client certificate is over; upstream leaves it to expire. A Secret that a user made is left alone.

mod authority;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use basics::LogOnce;
use cluster_api::{
    Cluster,
    names::{labels, secrets},
};
use controller_kit::{cache::CachedObject as _, writes::WriteError};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::authority::{Authority, Validity, server, validity};
use super::related::has_endpoint;
use crate::{
    core::{Core, has_control_plane},
    engine::{
        control::{Failure, Then},
        object::{Meta as _, Stored, owner_reference},
        place::{Guard, Place},
        writer::to_json,
    },
};

/// When to look again for a certificate authority that does not exist.
const UNTIL_THERE: Duration = Duration::from_secs(30);

/// Makes the Secret, or renews it. `waits`: the Clusters of which the log says already that they have no certificate authority.
pub(super) async fn ensure(
    core: &Core,
    cluster: &Stored<Cluster>,
    waits: &Mutex<LogOnce>,
    now: i64,
) -> Result<Then, Failure> {
    if has_control_plane(cluster) || !has_endpoint(cluster) {
        return Ok(Then::WhenChanged);
    }
    let place = place(cluster, secrets::KUBECONFIG);
    let there = match core.writer.read_at::<Secret>(&place).await {
        Ok(secret) => Some(secret),
        Err(WriteError::Gone) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(secret) = &there {
        let Some(validity) = renewable(secret, cluster) else { return Ok(Then::WhenChanged) };
        if let Some(left) = validity.until_half(now) {
            return Ok(Then::After(left));
        }
    }
    let Some(kubeconfig) = kubeconfig(core, cluster, waits, now).await? else {
        return Ok(Then::After(UNTIL_THERE));
    };
    let value = BASE64_STANDARD.encode(kubeconfig);
    match &there {
        None => {
            let body = body(cluster, &place.name, &value)?;
            let _: Secret = core.writer.create_at(&place, &body).await?;
            tracing::info!(secret = place.name, namespace = place.namespace, "kubeconfig made");
        }
        Some(secret) => {
            let data = json!({"data": {secrets::VALUE_KEY: value}});
            let _: Secret = core.writer.patch_at(&place, Guard::of(secret), data).await?;
            tracing::info!(secret = place.name, namespace = place.namespace, "kubeconfig renewed");
        }
    }
    Ok(Then::WhenChanged)
}

fn place(cluster: &Cluster, purpose: &str) -> Place {
    let name = secrets::name(cluster.name_or_empty(), purpose);
    Place::of_core("secrets", cluster.namespace_or_empty(), &name)
}

/// The validity of the client certificate of a Secret that a controller made for this Cluster.
fn renewable(secret: &Secret, cluster: &Cluster) -> Option<Validity> {
    let is_made = secret.type_.as_deref() == Some(secrets::CLUSTER_TYPE);
    if !is_made || !secret.is_owned_by(cluster.uid_or_empty()) {
        return None;
    }
    let ByteString(kubeconfig) = secret.data.as_ref()?.get(secrets::VALUE_KEY)?;
    validity(kubeconfig)
}

/// A kubeconfig of an administrator. `None`: there is no certificate authority yet.
async fn kubeconfig(
    core: &Core,
    cluster: &Stored<Cluster>,
    waits: &Mutex<LogOnce>,
    now: i64,
) -> Result<Option<String>, Failure> {
    let place = place(cluster, secrets::CLUSTER_CA);
    let of = cluster.key();
    let secret: Secret = match core.writer.read_at(&place).await {
        Ok(secret) => secret,
        Err(WriteError::Gone) => {
            if waits.lock().begins(&*of) {
                tracing::info!(
                    cluster = %of,
                    secret = place.name,
                    namespace = place.namespace,
                    "waiting for the Secret with the certificate authority, to make a kubeconfig"
                );
            }
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    waits.lock().ends(&*of);
    let data = secret.data.unwrap_or_default();
    let of = |key: &str| data.get(key).map(|ByteString(value)| value.as_slice()).unwrap_or_default();
    let failed = |why: String| Failure::Failed(format!("Secret {}: {why}", place.name));
    let authority =
        Authority::read(of(secrets::CERTIFICATE_KEY), of(secrets::PRIVATE_KEY_KEY)).map_err(failed)?;
    let endpoint = &cluster.spec.control_plane_endpoint;
    let server = server(endpoint.host.as_deref().unwrap_or_default(), endpoint.port.unwrap_or_default());
    let now = Timestamp::from_second(now).unwrap_or_default();
    authority.kubeconfig(cluster.name_or_empty(), &server, now).map(Some).map_err(failed)
}

fn body(cluster: &Cluster, name: &str, value: &str) -> Result<Value, Failure> {
    let owner = to_json(&owner_reference(cluster, false))?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": secrets::CLUSTER_TYPE,
        "metadata": {
            "name": name, "namespace": cluster.namespace_or_empty(),
            "labels": {labels::CLUSTER_NAME: cluster.name_or_empty()},
            "ownerReferences": [owner],
        },
        "data": {secrets::VALUE_KEY: value},
    }))
}
