//! One pass over a `MachineHealthCheck`.

use std::sync::Arc;

use cluster_api::{Cluster, MachineHealthCheck, names::conditions as types};
use component::events::EventType;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use lifecycle::{
    conditions::{Statement, Status},
    health_check::Health,
};

use super::{
    limits::{checks, trigger},
    remediation::write,
    status::{Counts, status},
    targets::{Judged, judge, machines, true_since},
};
use crate::{
    adoption::labelled,
    core::{Core, is_paused, workload_key},
    engine::{
        conditions::read,
        control::{Failure, Then},
        object::{Meta as _, Stored},
    },
    workload::WorkloadCluster,
};

/// How many Machines of a check are written at the same time.
const AT_ONCE: usize = 8;

pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, Failure> {
    let found = core.stores.machine_health_checks.get(of);
    let Some(check) = found.filter(|check| core.is_ours(&***check) && !check.is_deleting()) else {
        return Ok(Then::WhenChanged);
    };
    let now = Timestamp::now().as_second();
    let name = &check.spec.cluster_name;
    let Some(cluster) = core.cluster(check.namespace_or_empty(), name) else {
        tracing::info!(machine_health_check = of, cluster = name, "waiting for the Cluster to exist");
        return Ok(Then::WhenChanged);
    };
    if is_paused(Some(&**cluster), &**check) {
        let status = status(&check, &cluster, None, now);
        core.writer.patch_status(&core.stores.machine_health_checks, &**check, &status).await?;
        return Ok(Then::WhenChanged);
    }
    let check = match labelled(&**check, name, Some(&**cluster))? {
        Some(patch) => {
            Arc::new(core.writer.patch(&core.stores.machine_health_checks, &**check, patch).await?)
        }
        None => check,
    };
    match connect(core, &cluster) {
        Ok(connected) => examine(core, &check, &cluster, connected.as_ref(), now).await,
        Err(why) => {
            // What the Nodes are is unknown. The pass is repeated with the connection.
            tracing::debug!(machine_health_check = of, %why, "nothing is checked");
            let status = status(&check, &cluster, None, now);
            core.writer.patch_status(&core.stores.machine_health_checks, &**check, &status).await?;
            Ok(Then::WhenChanged)
        }
    }
}

/// The workload cluster. `None`: its control plane was never there, so there are no Nodes.
fn connect(core: &Core, cluster: &Cluster) -> Result<Option<WorkloadCluster>, String> {
    let conditions = cluster.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default();
    if true_since(&conditions, types::CONTROL_PLANE_INITIALIZED).is_none() {
        return Ok(None);
    }
    let key = workload_key(cluster.namespace_or_empty(), cluster.name_or_empty());
    core.workload.get(&key).map(Some).map_err(|why| why.to_string())
}

async fn examine(
    core: &Core,
    check: &Stored<MachineHealthCheck>,
    cluster: &Cluster,
    connected: Option<&WorkloadCluster>,
    now: i64,
) -> Result<Then, Failure> {
    let (trigger, limit) = trigger(&check.spec)?;
    let judged = judge(machines(core, check)?, &checks(&check.spec), cluster, connected, now).await?;
    let counts = Counts::of(&judged, trigger);
    let allowed = counts.statement(&limit);
    let is_allowed = counts.allowed.is_some();
    let writes: Vec<_> = judged.iter().map(|one| write(core, check, one, is_allowed, now)).collect();
    let written: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
    let status = status(check, cluster, Some((&judged, &counts, &allowed)), now);
    core.writer.patch_status(&core.stores.machine_health_checks, &**check, &status).await?;
    if !is_allowed && counts.unhealthy > 0 && is_news(check, &allowed) {
        core.record(&**check, EventType::Warning, "RemediationRestricted", allowed.message);
    }
    // One Machine that cannot be written keeps no other from its remediation.
    written.into_iter().collect::<Result<(), _>>()?;
    Ok(again(&judged))
}

/// Whether `RemediationAllowed` says something else than before.
fn is_news(check: &MachineHealthCheck, allowed: &Statement) -> bool {
    let before = check.status.as_ref().map(|status| read(&status.conditions)).unwrap_or_default();
    let before = before.iter().find(|one| one.kind == types::REMEDIATION_ALLOWED);
    before.is_none_or(|one| one.status != Status::False || one.message != allowed.message)
}

/// When the first time limit of a Machine may pass.
fn again(judged: &[Judged]) -> Then {
    let first = judged.iter().filter_map(|one| match one.health {
        Health::Undecided { again } => again,
        Health::Healthy | Health::Unhealthy { .. } => None,
    });
    first.min().map_or(Then::WhenChanged, Then::After)
}
