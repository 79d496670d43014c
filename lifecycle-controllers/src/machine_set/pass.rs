//! One pass over a `MachineSet`.

use std::{sync::Arc, time::Duration};

use cluster_api::{
    Cluster, Machine, MachineDeployment, MachineSet,
    names::{annotations, finalizers, labels},
};
use component::events::EventType;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    create::{Unusable, create, delete_orphans, unusable_templates},
    preflight::{Preflight, preflight},
    remediation::remediate,
    scale_down::{delete, marks_are_shown},
    status::{Observed, status},
    sync::sync,
};
use crate::{
    adoption::{adopted, defaults, without_finalizer},
    core::{Core, UNTIL_THERE, is_paused},
    engine::{
        control::{FailedPass, Failure, Failures, Then},
        object::{Meta as _, Stored, key, owner_reference},
        status::Urgent,
        writer::to_json,
    },
    kept::{self, Kept},
    replicas::{Machines, selector, selects},
};

/// How many Machines of a set are written at the same time.
const AT_ONCE: usize = 8;

/// How many Machines one pass over a set creates at most. The next pass is due at once, but in its turn: a user who writes a large number
/// into a set holds up no pass over a set of another namespace.
const MOST_CREATED: usize = 64;

pub(super) async fn reconcile(core: &Core, of: &str) -> Result<Then, FailedPass> {
    let Some(set) = core.stores.machine_sets.get(of).filter(|set| core.is_ours(&***set)) else {
        return Ok(Then::WhenChanged);
    };
    let now = Timestamp::now().as_second();
    let cluster = core.cluster(set.namespace_or_empty(), &set.spec.cluster_name);
    let cluster = cluster.as_deref().map(|cluster| &**cluster);
    if is_paused(cluster, &**set) {
        let observed = Observed { cluster, ..Observed::default() };
        let status = status(&set, &observed, now);
        core.writer.patch_status(&core.stores.machine_sets, &**set, &status).await?;
        return Ok(Then::WhenChanged);
    }
    let Some(cluster) = cluster else {
        if set.is_deleting() {
            return delete_all(core, &set, None, now).await;
        }
        tracing::info!(machine_set = of, cluster = set.spec.cluster_name, "waiting for the Cluster to exist");
        return Ok(Then::WhenChanged);
    };
    if set.is_deleting() {
        return delete_all(core, &set, Some(cluster), now).await;
    }
    let had = set.status.as_ref().and_then(|status| status.replicas);
    let operations = defaults(&**set, had)?;
    let set = if operations.is_empty() {
        set
    } else {
        Arc::new(core.writer.patch_by_operations(&core.stores.machine_sets, &**set, &operations).await?)
    };
    let deployment = deployment_of(core, &set);
    let owner = (deployment.is_none() && set.controller().is_none()).then_some(cluster);
    let set = match adopted(&**set, &set.spec.cluster_name, finalizers::MACHINE_SET, owner)? {
        Some(patch) => Arc::new(core.writer.patch(&core.stores.machine_sets, &**set, patch).await?),
        None => set,
    };
    let mut observed = Observed { cluster: Some(cluster), ..Observed::default() };
    let result =
        scale(core, &set, deployment.as_deref().map(|one| &**one), cluster, &mut observed, now).await;
    let machines = Machines::new(machines_of(core, &set)?);
    let observed = Observed { machines: Some(&machines), ..observed };
    let status = status(&set, &observed, now);
    let written =
        core.writer.patch_status_soon(&core.stores.machine_sets, &**set, &status, Urgent::All).await?;
    let until_there =
        if observed.missing_templates.is_empty() { Then::WhenChanged } else { Then::After(UNTIL_THERE) };
    let comes_back = written.or(until_there);
    match result {
        Ok(then) => Ok(then.or(comes_back)),
        Err(why) => Err(FailedPass { why, then: comes_back }),
    }
}

/// Brings the Machines to what the set wants, and says when there is more to do. A step that fails holds back none that does not depend
/// on it.
async fn scale(
    core: &Core,
    set: &MachineSet,
    deployment: Option<&MachineDeployment>,
    cluster: &Cluster,
    observed: &mut Observed<'_>,
    now: i64,
) -> Result<Then, Failure> {
    let (mut failures, mut then) = (Failures::default(), Then::WhenChanged);
    let unusable = unusable_templates(core, set.namespace_or_empty(), &set.spec.template.spec, cluster).await;
    // Of templates that are not known, no Machine is made.
    let (unusable, are_known) = match unusable {
        Ok(unusable) => (unusable, true),
        Err(failure) => {
            failures.add(Err(failure));
            (Unusable::default(), false)
        }
    };
    observed.missing_templates = unusable.missing;
    for machine in machines_of(core, set)? {
        failures.add(adopt(core, set, &machine).await);
    }
    failures.add(remediate(core, set, deployment, cluster, &owned(core, set)?, now).await);
    let synced = owned(core, set)?.into_iter().map(|machine| async move { sync(core, set, &machine).await });
    let synced: Vec<_> = stream::iter(synced).buffer_unordered(AT_ONCE).collect().await;
    for one in synced {
        failures.add(one);
    }
    let orphans = delete_orphans(core, set).await;
    // While they stay, it is not sure that all Machines are known, and more would come of each pass.
    let may_create = orphans.is_ok() && are_known;
    failures.add(orphans);
    let machines = machines_of(core, set)?;
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    if machines.len() > wanted {
        // A deployment has looked for marks before it scaled the set.
        if deployment.is_none() && wanted > 0 {
            marks_are_shown(core, set.namespace_or_empty(), &selector(&set.spec.selector)?).await?;
        }
        failures.add(delete(core, set, &owned(core, set)?, machines.len() - wanted).await);
    }
    let creates = set.annotation(annotations::DISABLE_MACHINE_CREATE) != Some("true");
    if machines.len() < wanted && creates {
        let Preflight { holds, failure } = preflight(core, set, cluster).await;
        observed.holds = holds;
        failures.add(failure.map_or(Ok(()), Err));
        // No event says when that changes.
        let unreadable = unusable.unreadable.first().cloned();
        failures.add(unreadable.map_or(Ok(()), |why| Err(Failure::Failed(why))));
        observed.holds.extend(unusable.unreadable);
        if may_create && observed.holds.is_empty() && observed.missing_templates.is_empty() {
            let missing = wanted - machines.len();
            failures.add(create(core, set, missing.min(MOST_CREATED)).await);
            if missing > MOST_CREATED {
                then = Then::After(Duration::ZERO);
            }
        }
    }
    failures.end().map(|()| then)
}

/// Deletes all Machines, those that are kept included, and then lets go.
async fn delete_all(
    core: &Core,
    set: &Arc<Stored<MachineSet>>,
    cluster: Option<&Cluster>,
    now: i64,
) -> Result<Then, FailedPass> {
    let machines = remaining(core, set)?;
    if machines.is_empty() {
        delete_orphans(core, set).await?;
        if let Some(patch) = without_finalizer(&***set, finalizers::MACHINE_SET) {
            core.writer.release(&***set, patch).await?;
        }
        return Ok(Then::WhenChanged);
    }
    let mut failures = Failures::default();
    for machine in machines.iter().filter(|machine| !machine.is_deleting()) {
        let deleted = core.writer.delete(&core.stores.machines, &***machine).await;
        failures.add(deleted.map_err(Failure::from));
    }
    let machines = Machines::new(remaining(core, set)?);
    let observed = Observed { cluster, machines: Some(&machines), ..Observed::default() };
    let status = status(set, &observed, now);
    let written =
        core.writer.patch_status_soon(&core.stores.machine_sets, &***set, &status, Urgent::All).await?;
    failures.end().map(|()| written).map_err(|why| FailedPass { why, then: written })
}

/// The Machines of the set's Cluster that the set selects and that nothing else controls. A Machine that is being deleted counts too, and
/// one that is kept does not: a set that selects what lacks a label would take it.
fn machines_of(core: &Core, set: &MachineSet) -> Result<Vec<Arc<Stored<Machine>>>, Failure> {
    let selector = selector(&set.spec.selector)?;
    let mut machines = core.machines_in(set.namespace_or_empty(), |machine| {
        let controller = machine.controller().map(|owner| owner.uid.as_str());
        machine.spec.cluster_name == set.spec.cluster_name
            && controller.is_none_or(|uid| uid == set.uid_or_empty())
            && selects(&selector, machine.labels())
            && Kept::of(machine).is_none()
    });
    machines.sort_by(|one, other| one.name_or_empty().cmp(other.name_or_empty()));
    Ok(machines)
}

/// What goes with the set.
fn remaining(core: &Core, set: &MachineSet) -> Result<Vec<Arc<Stored<Machine>>>, Failure> {
    let mut machines = machines_of(core, set)?;
    machines.extend(kept::machines_of(core, set));
    Ok(machines)
}

/// Those that the set controls. One whose adoption failed counts, since it may be adopted soon. But another set may have been faster, so
/// nothing is done to it.
fn owned(core: &Core, set: &MachineSet) -> Result<Vec<Arc<Stored<Machine>>>, Failure> {
    let mut machines = machines_of(core, set)?;
    machines.retain(|machine| machine.controller().is_some_and(|owner| owner.uid == set.uid_or_empty()));
    Ok(machines)
}

/// Makes the set the controller of a Machine that has none. One that is being deleted is adopted too, as upstream does: it counts, and its
/// end is an event of its controller.
async fn adopt(core: &Core, set: &MachineSet, machine: &Stored<Machine>) -> Result<(), Failure> {
    if machine.controller().is_some() {
        return Ok(());
    }
    let mut owners = machine.owner_references().to_vec();
    owners.push(owner_reference(set, true));
    let patch = json!({"metadata": {"ownerReferences": to_json(&owners)?}});
    core.writer.patch(&core.stores.machines, &**machine, patch).await?;
    let message = format!("Adopted Machine {:?}", machine.name_or_empty());
    core.record(set, EventType::Normal, "SuccessfulAdopt", message);
    Ok(())
}

/// The `MachineDeployment` that has the set.
pub(crate) fn deployment_of(core: &Core, set: &MachineSet) -> Option<Arc<Stored<MachineDeployment>>> {
    let name = set.label(labels::DEPLOYMENT_NAME)?;
    let found = core.stores.machine_deployments.get(&key(set.namespace_or_empty(), name))?;
    set.is_owned_by(found.uid_or_empty()).then_some(found)
}
