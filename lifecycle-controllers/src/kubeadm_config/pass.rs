//! One pass over a `KubeadmConfig`.

use std::{sync::Arc, time::Duration};

use cluster_api::{
    Cluster, KubeadmConfig, Machine,
    names::{conditions as types, labels},
};
use component::events::{EventObject, EventType};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kubeadm_bootstrap::{Role, needs_token};
use lifecycle::conditions::Status;

use super::{
    controller::{KubeadmConfigController, machine_of},
    data_secret, init_lock, material,
    problem::Problem,
    status::{Progress, status},
};
use crate::{
    bootstrap::Bootstrap,
    core::{is_paused, workload_key},
    engine::{
        conditions::Conditions,
        control::{Failure, Then},
        object::{Meta as _, Stored, key},
        status::Urgent,
    },
    workload::tokens::{self, Refreshed},
};

/// Secrets that are missing are looked for again after this time, since they are not watched.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

pub(super) async fn reconcile(controller: &KubeadmConfigController, of: &str) -> Result<Then, Failure> {
    let bootstrap = &*controller.bootstrap;
    let Some((config, machine, cluster)) = found(bootstrap, of) else {
        controller.leave(of);
        return Ok(Then::WhenChanged);
    };
    let now = Timestamp::now().as_second();
    if is_paused(Some(&cluster), &**config) {
        write(controller, &config, Some(&cluster), &Progress::Paused, now).await?;
        return Ok(Then::WhenChanged);
    }
    let initialization = config.status.as_ref().map(|status| &status.initialization);
    let is_created = initialization.and_then(|one| one.data_secret_created).unwrap_or_default();
    let progress = match progress(controller, &config, &machine, &cluster, is_created).await {
        Ok(progress) | Err(Problem::Said(progress)) => progress,
        Err(Problem::Failed(failure)) => return Err(failure),
    };
    let written = write(controller, &config, Some(&cluster), &progress, now).await?;
    match progress {
        Progress::Available(_) => keep_token(controller, &config, &machine, &cluster).await,
        Progress::Waits(_) | Progress::WithoutCertificates(_) => Ok(written.or(Then::After(LOOK_AGAIN))),
        Progress::Paused => Ok(Then::WhenChanged),
    }
}

/// A config that is to be worked on, with its Machine and Cluster.
type Found = (Arc<Stored<KubeadmConfig>>, Arc<Stored<Machine>>, Arc<Stored<Cluster>>);

fn found(bootstrap: &Bootstrap, of: &str) -> Option<Found> {
    let config = bootstrap.configs.get(of).filter(|config| !config.is_deleting())?;
    let filter = bootstrap.watch_filter.as_deref();
    if filter.is_some_and(|filter| config.label(labels::WATCH_FILTER) != Some(filter)) {
        return None;
    }
    // The Machine comes after its config, and takes it over.
    let machine = machine_of(bootstrap, &config)?;
    let cluster = bootstrap.clusters.get(&key(config.namespace_or_empty(), &machine.spec.cluster_name))?;
    Some((config, machine, cluster))
}

async fn write(
    controller: &KubeadmConfigController,
    config: &Arc<Stored<KubeadmConfig>>,
    cluster: Option<&Cluster>,
    progress: &Progress,
    now: i64,
) -> Result<Then, Failure> {
    let status = status(config, cluster, progress, now);
    let Bootstrap { writer, configs, .. } = &*controller.bootstrap;
    match progress {
        // The infrastructure waits for the data.
        Progress::Available(_) | Progress::Paused => {
            writer.patch_status(configs, &***config, &status).await?;
            Ok(Then::WhenChanged)
        }
        Progress::Waits(_) | Progress::WithoutCertificates(_) => {
            Ok(writer.patch_status_soon(configs, &***config, &status, Urgent::All).await?)
        }
    }
}

/// Makes the data, as far as that is possible now.
async fn progress(
    controller: &KubeadmConfigController,
    config: &KubeadmConfig,
    machine: &Machine,
    cluster: &Cluster,
    is_created: bool,
) -> Result<Progress, Problem> {
    let bootstrap = &*controller.bootstrap;
    if let Some(name) = &machine.spec.bootstrap.data_secret_name {
        // After a move, status is lost.
        return Ok(Progress::Available(name.clone()));
    }
    let known = config.status.as_ref().and_then(|status| status.data_secret_name.clone());
    if let Some(name) = known.filter(|_| is_created) {
        return Ok(Progress::Available(name));
    }
    let is_provisioned =
        cluster.status.as_ref().and_then(|one| one.initialization.infrastructure_provisioned);
    if !is_provisioned.unwrap_or_default() {
        return Ok(Progress::Waits("Waiting for Cluster status.infrastructureReady to be true".to_owned()));
    }
    let is_control_plane = machine.labels().contains_key(labels::CONTROL_PLANE);
    let role = match (is_initialized(cluster), is_control_plane) {
        (true, true) => Role::JoinControlPlane,
        (true, false) => Role::JoinWorker,
        (false, true) => Role::Init,
        (false, false) => {
            return Ok(Progress::Waits("Waiting for Cluster control plane to be initialized".to_owned()));
        }
    };
    let name = config.name_or_empty().to_owned();
    if data_secret::exists(bootstrap, config).await.map_err(Problem::Failed)? {
        return Ok(Progress::Available(name));
    }
    // Of bad data, the lock is not taken.
    let (data, token) = material::data(controller, config, machine, cluster, role).await?;
    if role == Role::Init {
        if !init_lock::lock(bootstrap, cluster, machine).await.map_err(Problem::Failed)? {
            return Ok(Progress::Waits(
                "Waiting for another Machine to initialize the control plane".to_owned(),
            ));
        }
        // Another Machine may have initialized it while the data were made, and a third one have released the lock.
        let cluster = bootstrap.clusters.get(&key(cluster.namespace_or_empty(), cluster.name_or_empty()));
        if cluster.is_none_or(|cluster| is_initialized(&cluster)) {
            return Err(Problem::Failed(Failure::Stale));
        }
    }
    if let Some(token) = &token {
        controller.remember(config, token.clone());
    }
    // The Secret may be there in spite of an error, so the lock stays with the Machine that may have read it.
    let stored = data_secret::create(bootstrap, config, machine, &data, token.as_ref()).await;
    stored.map_err(Problem::Failed)?;
    if role == Role::JoinControlPlane {
        init_lock::unlock(bootstrap, cluster).await.map_err(Problem::Failed)?;
    }
    Ok(Progress::Available(name))
}

fn is_initialized(cluster: &Cluster) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    Conditions::of(conditions, None).is(types::CONTROL_PLANE_INITIALIZED, Status::True)
}

/// Keeps the token of a machine valid that has not joined, and deletes it afterwards.
async fn keep_token(
    controller: &KubeadmConfigController,
    config: &KubeadmConfig,
    machine: &Machine,
    cluster: &Cluster,
) -> Result<Then, Failure> {
    let bootstrap = &*controller.bootstrap;
    let of = key(config.namespace_or_empty(), config.name_or_empty());
    let has_joined = machine.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty());
    if has_joined {
        // Of a daemon before this one it ends by itself.
        if let Some(token) = controller.token(config) {
            let cluster = workload_key(cluster.namespace_or_empty(), cluster.name_or_empty());
            // One that stays ends by itself. The cluster of a machine that has joined is not held for it.
            if let Ok(connected) = bootstrap.workload.get(&cluster)
                && let Err(error) = tokens::delete(&connected, &token).await
            {
                tracing::debug!(config = of, error = %error, "the bootstrap token of a machine that has joined stays");
            }
        }
    }
    let token = if has_joined || machine.is_deleting() || !needs_token(&config.spec) {
        None
    } else if let Some(token) = controller.token(config) {
        Some(token)
    } else {
        data_secret::token(bootstrap, config).await?
    };
    let Some(token) = token else {
        controller.leave(&of);
        return Ok(Then::WhenChanged);
    };
    let connected = controller.connected(config, cluster);
    controller.remember(config, token.clone());
    // The connection is a change.
    let Ok(connected) = connected else { return Ok(Then::WhenChanged) };
    match tokens::refresh(&connected, &token, bootstrap.token_ttl).await? {
        Refreshed::Valid(again) => Ok(Then::After(again)),
        Refreshed::Gone => {
            let about = EventObject {
                api_version: "bootstrap.cluster.x-k8s.io/v1beta2".into(),
                kind: "KubeadmConfig",
                namespace: config.namespace_or_empty().to_owned(),
                name: config.name_or_empty().to_owned(),
                uid: config.uid_or_empty().to_owned(),
            };
            let message = "the bootstrap token of a machine that has not joined is gone; delete the Machine to replace it";
            bootstrap.events.record(about, EventType::Warning, "BootstrapTokenGone", message);
            Ok(Then::After(bootstrap.token_ttl))
        }
    }
}
