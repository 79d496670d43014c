//! One pass over a `MachineDeployment`.

use std::{sync::Arc, time::Duration};

use cluster_api::{Cluster, MachineDeployment, names::finalizers};
use jiff::Timestamp;

use super::{
    rollout::{desired_before, roll_out},
    sets::{counted, machines_of, sets_of},
    status::{Observed, Owned, status},
};
use crate::{
    adoption::{adopted, defaults, without_finalizer},
    core::{Core, UNTIL_THERE, is_paused},
    engine::{
        control::{FailedPass, Failure, Then},
        object::{Meta as _, Stored},
        status::Urgent,
    },
    machine_set::{Unusable, unusable_templates},
};

pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, FailedPass> {
    let found = core.stores.machine_deployments.get(of);
    let Some(deployment) = found.filter(|deployment| core.is_ours(&***deployment)) else {
        return Ok(Then::WhenChanged);
    };
    let now = Timestamp::now().as_second();
    let cluster = core.cluster(deployment.namespace_or_empty(), &deployment.spec.cluster_name);
    let cluster = cluster.as_deref().map(|cluster| &**cluster);
    if is_paused(cluster, &**deployment) {
        let status = status(&deployment, &Observed { cluster, ..Observed::default() }, now);
        core.writer.patch_status(&core.stores.machine_deployments, &**deployment, &status).await?;
        return Ok(Then::WhenChanged);
    }
    if deployment.is_deleting() {
        return Ok(delete(core, &deployment, cluster, now).await?);
    }
    let Some(cluster) = cluster else {
        tracing::info!(
            machine_deployment = of,
            cluster = deployment.spec.cluster_name,
            "waiting for the Cluster to exist"
        );
        return Ok(Then::WhenChanged);
    };
    let mut sets = core.stores.machine_sets.all();
    // Without a selector, it controls no others.
    sets.retain(|set| set.controller().is_some_and(|owner| owner.uid == deployment.uid_or_empty()));
    let operations = defaults(&**deployment, desired_before(&sets))?;
    let deployment = if operations.is_empty() {
        deployment
    } else {
        let store = &core.stores.machine_deployments;
        Arc::new(core.writer.patch_by_operations(store, &**deployment, &operations).await?)
    };
    let name = &deployment.spec.cluster_name;
    let deployment = match adopted(&**deployment, name, finalizers::MACHINE_DEPLOYMENT, Some(cluster))? {
        Some(patch) => {
            Arc::new(core.writer.patch(&core.stores.machine_deployments, &**deployment, patch).await?)
        }
        None => deployment,
    };
    let unusable =
        unusable_templates(core, deployment.namespace_or_empty(), &deployment.spec.template.spec, cluster);
    let Unusable { missing, unreadable } = unusable.await?;
    let mut rolled = roll_out(core, &deployment, &missing, now).await;
    if let (Ok(()), Some(why)) = (&rolled, unreadable.first()) {
        // No event says when that changes.
        rolled = Err(Failure::Failed(why.clone()));
    }
    // The annotation with the revision may have changed.
    let deployment = core.stores.machine_deployments.get(of).unwrap_or(deployment);
    let sets = sets_of(core, &deployment)?;
    let machines = machines_of(core, &deployment)?;
    let counted = counted(core, &deployment, &sets);
    let owned = Some(Owned { sets: sets.len(), counted: &counted, selected: &machines });
    let observed =
        Observed { cluster: Some(cluster), owned, missing_templates: &missing, holds: &unreadable };
    let status = status(&deployment, &observed, now);
    let written = core
        .writer
        .patch_status_soon(&core.stores.machine_deployments, &**deployment, &status, Urgent::All)
        .await?;
    let until_there = if missing.is_empty() { Then::WhenChanged } else { Then::After(UNTIL_THERE) };
    let then = after(&deployment, now).or(until_there).or(written);
    rolled.map(|()| then).map_err(|why| FailedPass { why, then })
}

/// When `spec.rollout.after` comes.
fn after(deployment: &MachineDeployment, now: i64) -> Then {
    let after = deployment.spec.rollout.after.as_ref().map(|after| after.0.as_second());
    let left = after.map(|after| after.saturating_sub(now)).and_then(|left| u64::try_from(left).ok());
    left.filter(|left| *left > 0).map_or(Then::WhenChanged, |left| Then::After(Duration::from_secs(left)))
}

async fn delete(
    core: &Core,
    deployment: &Stored<MachineDeployment>,
    cluster: Option<&Cluster>,
    now: i64,
) -> Result<Then, Failure> {
    let sets = sets_of(core, deployment)?;
    if sets.is_empty() {
        if let Some(patch) = without_finalizer(&**deployment, finalizers::MACHINE_DEPLOYMENT) {
            core.writer.release(&**deployment, patch).await?;
        }
        return Ok(Then::WhenChanged);
    }
    for set in sets.iter().filter(|set| !set.is_deleting()) {
        core.writer.delete(&core.stores.machine_sets, &***set).await?;
    }
    let machines = machines_of(core, deployment)?;
    let counted = counted(core, deployment, &sets);
    let owned = Some(Owned { sets: sets.len(), counted: &counted, selected: &machines });
    let observed = Observed { cluster, owned, ..Observed::default() };
    let status = status(deployment, &observed, now);
    Ok(core
        .writer
        .patch_status_soon(&core.stores.machine_deployments, &**deployment, &status, Urgent::All)
        .await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pass_comes_when_the_rollout_begins() {
        let begins = |at: i64| {
            let time = jiff::Timestamp::from_second(at).expect("a time").to_string();
            let object = json!({"metadata": {}, "spec": {
                "clusterName": "c", "selector": {}, "rollout": {"after": time},
                "template": {"spec": {
                    "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
                    "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": "n"},
                }},
            }});
            serde_json::from_value::<MachineDeployment>(object).expect("a MachineDeployment")
        };
        assert_eq!(after(&begins(160), 100), Then::After(Duration::from_secs(60)));
        assert_eq!(after(&begins(100), 100), Then::WhenChanged);
        assert_eq!(after(&begins(40), 100), Then::WhenChanged);
    }
}
