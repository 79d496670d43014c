//! The deletion of a Cluster: [`lifecycle::cluster::deletion`] says what is next, and this does it.

use std::{sync::Arc, time::Duration};

use cluster_api::{Cluster, Machine};
use controller_kit::writes::WriteError;
use futures::{StreamExt as _, stream};
use lifecycle::{
    cluster::deletion::{Found, Next, Referred, Remaining, next},
    conditions::{Statement, Status},
};

use super::{
    descendants::{Descendants, Listed, is_of_cluster},
    related::RelatedObjects,
};
use crate::{
    core::{Core, Referenced},
    engine::{
        control::{Failure, Then},
        object::{Kind, Meta as _, Stored},
        place::Guard,
        stores::Store,
    },
};

/// How many objects of a Cluster are deleted at the same time.
const AT_ONCE: usize = 8;

/// When to look again at objects that the API server has and the caches do not show.
const UNTIL_SHOWN: Duration = Duration::from_secs(5);

/// How far a deletion came.
pub(super) struct Outcome {
    /// Nothing is left. The finalizer may go.
    pub(super) is_done: bool,
    /// The condition `Deleting`.
    pub(super) statement: Statement,
    pub(super) then: Then,
    pub(super) failure: Option<Failure>,
}

/// Takes the next step.
pub(super) async fn proceed(
    core: &Core,
    cluster: &Cluster,
    related: &RelatedObjects,
    descendants: &Descendants,
) -> Outcome {
    let (step, statement) = decide(cluster, related, descendants, &Listed::default());
    match take(core, cluster, related, descendants, step).await {
        Ok(Stepped::Waits(then)) => Outcome { is_done: false, statement, then, failure: None },
        Ok(Stepped::Says(statement, then)) => Outcome { is_done: false, statement, then, failure: None },
        Ok(Stepped::Done) => Outcome { is_done: true, statement, then: Then::WhenChanged, failure: None },
        Err(failure) => {
            let message = "Please check controller logs for errors";
            let statement = Statement::new(Status::True, "InternalError", message);
            Outcome { is_done: false, statement, then: Then::WhenChanged, failure: Some(failure) }
        }
    }
}

/// What became of a step.
enum Stepped {
    /// Nothing is left to be done.
    Done,
    /// It takes time.
    Waits(Then),
    /// The same, and this is what the condition says in place of the words of the step.
    Says(Statement, Then),
}

async fn take(
    core: &Core,
    cluster: &Cluster,
    related: &RelatedObjects,
    descendants: &Descendants,
    step: Next,
) -> Result<Stepped, Failure> {
    let waits = Ok(Stepped::Waits(Then::WhenChanged));
    match step {
        Next::DeleteWorkers => {
            delete_workers(core, cluster, descendants).await?;
            return waits;
        }
        // The pass fails for what could not be read, and is tried again.
        Next::Stop | Next::WaitForControlPlane | Next::WaitForInfrastructure => return waits,
        Next::DeleteControlPlane
        | Next::DeleteControlPlaneMachines
        | Next::DeleteInfrastructure
        | Next::Release => {}
    }
    // Nothing that others still need goes because a watch is late.
    let listed = Listed::of(core, cluster).await?;
    let (confirmed, statement) = decide(cluster, related, descendants, &listed);
    if confirmed != step {
        return Ok(Stepped::Says(statement, Then::After(UNTIL_SHOWN)));
    }
    match step {
        Next::DeleteControlPlane => delete_referred(core, related.control_plane.as_ref()).await?,
        Next::DeleteInfrastructure => delete_referred(core, related.infrastructure.as_ref()).await?,
        Next::DeleteControlPlaneMachines => {
            delete_all(core, &core.stores.machines, &descendants.control_plane_machines).await?;
        }
        _ => return Ok(Stepped::Done),
    }
    waits
}

/// What is next. `listed` has objects that the caches may not show.
fn decide(
    cluster: &Cluster,
    related: &RelatedObjects,
    descendants: &Descendants,
    listed: &Listed,
) -> (Next, Statement) {
    let machine_deployments = descendants.machine_deployments.iter().map(|one| one.object.name_or_empty());
    let machine_sets = descendants.machine_sets.iter().map(|one| one.object.name_or_empty());
    let control_plane_machines: Vec<_> = names(&descendants.control_plane_machines).collect();
    let is_control_plane = |name: &&str| control_plane_machines.contains(name);
    let new_machines = listed.machines.iter().map(String::as_str).filter(|name| !is_control_plane(name));
    let machine_deployments =
        merged(machine_deployments, listed.machine_deployments.iter().map(String::as_str));
    let machine_sets = merged(machine_sets, listed.machine_sets.iter().map(String::as_str));
    let workers = merged(names(&descendants.workers), new_machines);
    next(&Remaining {
        machine_deployments: &machine_deployments,
        machine_sets: &machine_sets,
        workers: &workers,
        control_plane_machines: &control_plane_machines,
        control_plane: Referred {
            kind: &cluster.spec.control_plane_ref.kind,
            found: found(related.control_plane.as_ref()),
        },
        infrastructure: Referred {
            kind: &cluster.spec.infrastructure_ref.kind,
            found: found(related.infrastructure.as_ref()),
        },
    })
}

fn names(machines: &[Arc<Stored<Machine>>]) -> impl Iterator<Item = &str> {
    machines.iter().map(|machine| machine.name_or_empty())
}

fn merged<'a>(known: impl Iterator<Item = &'a str>, listed: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<_> = known.chain(listed).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn found(of: Option<&Referenced>) -> Found {
    match of {
        None => Found::NotReferred,
        Some(Referenced::There(_, object)) if object.is_deleting() => Found::Deleting,
        Some(Referenced::There(..)) => Found::There,
        Some(Referenced::Missing) => Found::Gone,
        Some(Referenced::Unreadable(_)) => Found::Unknown,
    }
}

/// Deletes what the Cluster owns itself. What belongs to that is deleted by its own controller.
async fn delete_workers(core: &Core, cluster: &Cluster, descendants: &Descendants) -> Result<(), Failure> {
    let deployments = descendants.machine_deployments.iter().map(|one| Arc::clone(&one.object));
    let sets = descendants.machine_sets.iter().map(|one| Arc::clone(&one.object));
    let deployments: Vec<_> = deployments.filter(|one| is_of_cluster(&***one, cluster)).collect();
    let sets: Vec<_> = sets.filter(|one| is_of_cluster(&***one, cluster)).collect();
    let workers = descendants.workers.iter().filter(|one| is_of_cluster(&****one, cluster)).cloned();
    delete_all(core, &core.stores.machine_deployments, &deployments).await?;
    delete_all(core, &core.stores.machine_sets, &sets).await?;
    delete_all(core, &core.stores.machines, &workers.collect::<Vec<_>>()).await
}

/// Deletes those that are not being deleted yet. What fails keeps none of the others.
async fn delete_all<K: Kind>(
    core: &Core,
    store: &Store<K>,
    objects: &[Arc<Stored<K>>],
) -> Result<(), Failure> {
    let staying = objects.iter().filter(|object| !object.is_deleting());
    let deletions = staying.map(|object| async move {
        tracing::info!(kind = %K::kind(&()), namespace = object.namespace_or_empty(), name = object.name_or_empty(), "deleted with its Cluster");
        core.writer.delete(store, &***object).await
    });
    let deletions: Vec<_> = deletions.collect();
    let deleted: Vec<_> = stream::iter(deletions).buffer_unordered(AT_ONCE).collect().await;
    deleted.into_iter().collect::<Result<(), _>>().map_err(Failure::from)
}

/// Deletes the object of a reference. The watch shows when it is gone.
async fn delete_referred(core: &Core, found: Option<&Referenced>) -> Result<(), Failure> {
    let Some(Referenced::There(kind, object)) = found else { return Ok(()) };
    let place = kind.place(object.namespace_or_empty(), object.name_or_empty());
    let guard = Guard::of_any_version(&**object);
    match core.writer.delete_at(&place, guard).await {
        Ok(()) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
