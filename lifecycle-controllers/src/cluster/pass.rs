//! One pass over a Cluster.

use std::sync::Arc;

use basics::LogOnce;
use cluster_api::{
    Cluster, ClusterPhase, ClusterStatus,
    names::{conditions as types, finalizers},
};
use component::events::EventType;
use jiff::Timestamp;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::json;

use super::{
    deletion,
    descendants::Descendants,
    kubeconfig,
    options::ClusterOptions,
    related::{RelatedObjects, endpoint},
    status::{Observed, paused_status, status},
};
use crate::{
    adoption::without_finalizer,
    core::{Core, is_paused, workload_key},
    engine::{
        conditions::Conditions,
        control::{Failure, Then},
        object::{Meta as _, Stored, split_key},
    },
    workload::{ClusterKey, Connection},
};

/// `waits`: the Clusters that wait for their certificate authority.
pub(super) async fn reconcile(
    core: &Core,
    options: &ClusterOptions,
    waits: &Mutex<LogOnce>,
    of: &str,
) -> Result<Then, Failure> {
    let (namespace, name) = split_key(of);
    let workload = workload_key(namespace, name);
    let Some(cluster) = core.stores.clusters.get(of).filter(|cluster| core.is_ours(&***cluster)) else {
        core.workload.forget(&workload);
        waits.lock().ends(of);
        return Ok(Then::WhenChanged);
    };
    follow(core, &workload, &cluster);
    let now = Timestamp::now().as_second();
    let cluster = prepared(core, cluster).await?;
    if is_paused(Some(&**cluster), &**cluster) {
        let status = paused_status(&cluster, now);
        core.writer.patch_status(&core.stores.clusters, &**cluster, &status).await?;
        return Ok(Then::WhenChanged);
    }
    let related = RelatedObjects::observe(core, &cluster).await?;
    let cluster = with_endpoint(core, cluster, &related).await?;
    finish(core, options, waits, &workload, &cluster, &related, now).await
}

/// Keeps a connection to the workload cluster once there may be one. Upstream's rule: the infrastructure is provisioned. The control
/// plane cannot be a condition, since those that have no object of their own are initialized by a Node that is seen there.
fn follow(core: &Core, workload: &ClusterKey, cluster: &Cluster) {
    let initialization = cluster.status.as_ref().map(|status| &status.initialization);
    let is_provisioned = initialization.and_then(|one| one.infrastructure_provisioned).unwrap_or_default();
    // One that was let go may stay for the finalizer of another program. Each change of its connection is a pass.
    let is_let_go = cluster.is_deleting() && !cluster.has_finalizer(finalizers::CLUSTER);
    if is_provisioned && !is_let_go {
        core.workload.follow(workload, cluster.uid_or_empty());
    } else {
        core.workload.forget(workload);
    }
}

/// The finalizer. A Cluster that is paused from its creation on gets it too, but none that was paused later: `clusterctl move` takes the
/// finalizer away and then deletes the Cluster, which would stay for ever with another one.
async fn prepared(core: &Core, cluster: Arc<Stored<Cluster>>) -> Result<Arc<Stored<Cluster>>, Failure> {
    let was_seen = cluster.status.is_some();
    if cluster.is_deleting()
        || cluster.has_finalizer(finalizers::CLUSTER)
        || (was_seen && is_paused(Some(&**cluster), &**cluster))
    {
        return Ok(cluster);
    }
    let mut all = cluster.finalizers().to_vec();
    all.push(finalizers::CLUSTER.to_owned());
    let patch = json!({"metadata": {"finalizers": all}});
    Ok(Arc::new(core.writer.patch(&core.stores.clusters, &**cluster, patch).await?))
}

/// The Cluster with the endpoint that infrastructure or control plane say.
async fn with_endpoint(
    core: &Core,
    cluster: Arc<Stored<Cluster>>,
    related: &RelatedObjects,
) -> Result<Arc<Stored<Cluster>>, Failure> {
    let Some(endpoint) = endpoint(&cluster, related) else { return Ok(cluster) };
    let endpoint = json!({"host": endpoint.host, "port": endpoint.port});
    let patch = json!({"spec": {"controlPlaneEndpoint": endpoint}});
    Ok(Arc::new(core.writer.patch(&core.stores.clusters, &**cluster, patch).await?))
}

/// Deletion or kubeconfig, and the status. Whatever fails, the status says how far it came.
async fn finish(
    core: &Core,
    options: &ClusterOptions,
    waits: &Mutex<LogOnce>,
    workload: &ClusterKey,
    cluster: &Arc<Stored<Cluster>>,
    related: &RelatedObjects,
    now: i64,
) -> Result<Then, Failure> {
    let descendants = Descendants::of(core, cluster);
    let unreadable = related.unreadable(cluster);
    if let Some(why) = &unreadable {
        core.record(&***cluster, EventType::Warning, "ReferenceNotUsable", why.clone());
    }
    let mut failure = unreadable.map(Failure::Failed);
    let mut then = Then::WhenChanged;
    let mut stage = None;
    if cluster.is_deleting() {
        let deletion = deletion::proceed(core, cluster, related, &descendants).await;
        if deletion.is_done {
            return release(core, workload, cluster).await;
        }
        then = deletion.then;
        failure = deletion.failure.or(failure);
        stage = Some(deletion.statement);
    } else {
        match kubeconfig::ensure(core, cluster, waits, now).await {
            Ok(again) => then = again,
            Err(error) => failure = Some(error),
        }
        then = then.or(related.until_there());
    }
    // What was deleted is shown by the caches already.
    let descendants = if stage.is_some() { Descendants::of(core, cluster) } else { descendants };
    let observed = Observed {
        related,
        descendants: &descendants,
        deletion: stage,
        probe: core.workload.probe(workload),
        trouble: match core.workload.connection(workload) {
            Connection::Connected { .. } => None,
            Connection::NotConnected(why) => Some(why.shown),
        },
        connection_grace: options.connection_grace,
        now,
    };
    let (status, by_time) = status(cluster, &observed);
    core.writer.patch_status(&core.stores.clusters, &***cluster, &status).await?;
    announce(core, cluster, &status);
    match failure {
        Some(failure) => Err(failure),
        None => Ok(then.or(by_time)),
    }
}

/// Lets go of a Cluster that has nothing left.
async fn release(
    core: &Core,
    workload: &ClusterKey,
    cluster: &Arc<Stored<Cluster>>,
) -> Result<Then, Failure> {
    if let Some(patch) = without_finalizer(&***cluster, finalizers::CLUSTER) {
        core.writer.release(&***cluster, patch).await?;
        let name = cluster.name_or_empty();
        core.record(&***cluster, EventType::Normal, "Deleted", format!("Cluster {name} has been deleted"));
    }
    core.workload.forget(workload);
    Ok(Then::WhenChanged)
}

/// Events of what is new in a status.
fn announce(core: &Core, cluster: &Stored<Cluster>, after: &ClusterStatus) {
    let before = cluster.status.clone().unwrap_or_default();
    let name = cluster.name_or_empty();
    let normal = |reason, message| core.record(&**cluster, EventType::Normal, reason, message);
    if let Some(phase) = after.phase.filter(|phase| before.phase != Some(*phase)).and_then(phase_name) {
        normal(phase, format!("Cluster {name} is {phase}"));
    }
    let is_new = |before: Option<bool>, after: Option<bool>| after == Some(true) && before != Some(true);
    let (of_before, of_after) = (&before.initialization, &after.initialization);
    if is_new(of_before.infrastructure_provisioned, of_after.infrastructure_provisioned) {
        normal("InfrastructureReady", format!("Cluster {name} InfrastructureProvisioned is now True"));
    }
    if is_new(of_before.control_plane_initialized, of_after.control_plane_initialized) {
        normal("ControlPlaneInitialized", format!("Cluster {name} ControlPlaneInitialized is now True"));
    }
    let of_topology = |status: &ClusterStatus| {
        let conditions = Conditions::of(&status.conditions, None);
        conditions.get(types::TOPOLOGY_RECONCILED).map(|one| (one.reason.clone(), one.message.clone()))
    };
    if let Some((reason, message)) = of_topology(after)
        && of_topology(&before) != Some((reason, message.clone()))
    {
        core.record(&**cluster, EventType::Warning, "TopologyNotReconciled", message);
    }
}

fn phase_name(phase: ClusterPhase) -> Option<&'static str> {
    match phase {
        ClusterPhase::Pending => Some("Pending"),
        ClusterPhase::Provisioning => Some("Provisioning"),
        ClusterPhase::Provisioned => Some("Provisioned"),
        ClusterPhase::Deleting => Some("Deleting"),
        ClusterPhase::Failed | ClusterPhase::Unknown => None,
    }
}
