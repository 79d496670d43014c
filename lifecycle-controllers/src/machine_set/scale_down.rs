//! Which Machines go when there are too many.

use std::sync::Arc;

use cluster_api::{
    Machine, MachineSet, MachineSetDeletionOrder,
    names::{annotations, conditions as types},
};
use component::events::EventType;
use kube::{ResourceExt as _, core::Selector};
use lifecycle::{
    conditions::Status,
    machine_set::{DeletionOrder, Standing, deletion_order},
};

use crate::{
    core::{Core, workload_key},
    engine::{
        conditions::read,
        control::Failure,
        object::{Meta as _, Stored, key},
        writer::shows,
    },
};

/// The taint that cluster-autoscaler puts on a Node before it scales its group down. It may die between the taint and the annotation on
/// the Machine, and then another Machine would go.
pub(crate) const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Deletes so many Machines. Those that are being deleted already count.
pub(super) async fn delete(
    core: &Core,
    set: &MachineSet,
    machines: &[Arc<Stored<Machine>>],
    count: usize,
) -> Result<(), Failure> {
    let mut standings: Vec<_> = machines.iter().map(|machine| standing(core, machine)).collect();
    let order = match set.spec.deletion.order {
        None | Some(MachineSetDeletionOrder::Random) => DeletionOrder::Random,
        Some(MachineSetDeletionOrder::Newest) => DeletionOrder::Newest,
        Some(MachineSetDeletionOrder::Oldest) => DeletionOrder::Oldest,
    };
    deletion_order(&mut standings, order);
    let names: Vec<_> = standings.iter().take(count).map(|standing| standing.name.to_owned()).collect();
    let mut failure = None;
    for name in names {
        let Some(machine) = machines.iter().find(|machine| machine.name_or_empty() == name) else { continue };
        if machine.is_deleting() {
            continue;
        }
        if let Err(error) = core.writer.delete(&core.stores.machines, &***machine).await {
            failure = Some(error);
            continue;
        }
        tracing::info!(
            machine = name,
            machine_set = set.name_or_empty(),
            "Machine deleted, since there are too many"
        );
        core.record(set, EventType::Normal, "SuccessfulDelete", format!("Deleted Machine {name:?}"));
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// What the order of deletions looks at.
pub(crate) fn standing<'a>(core: &Core, machine: &'a Stored<Machine>) -> Standing<'a> {
    let status = machine.status.as_ref();
    let conditions = status.map(|status| read(&status.conditions)).unwrap_or_default();
    let is_false = |kind: &str| {
        conditions.iter().any(|condition| condition.kind == kind && condition.status == Status::False)
    };
    let node = status.map_or("", |status| status.node_ref.name.as_str());
    let is_healthy =
        !node.is_empty() && !is_false(types::NODE_HEALTHY) && !is_false(types::HEALTH_CHECK_SUCCEEDED);
    Standing {
        name: machine.name_or_empty(),
        created: machine.created(),
        deleting: machine.is_deleting(),
        marked: is_marked(core, machine),
        updating: machine.annotations().contains_key(annotations::UPDATE_IN_PROGRESS),
        healthy: is_healthy,
        available: conditions.iter().any(|one| one.kind == types::AVAILABLE && one.status == Status::True),
    }
}

/// Waits until the cache shows the marks of the Machines that a selector selects. An autoscaler marks a Machine and scales its owner right
/// after, and the watch of the Machines may be later than that of the owner.
pub(crate) async fn marks_are_shown(
    core: &Core,
    namespace: &str,
    selector: &Selector,
) -> Result<(), Failure> {
    let marked = core.writer.annotated::<Machine>(namespace, selector, annotations::DELETE_MACHINE).await?;
    for (name, version) in marked {
        shows(&core.stores.machines, &key(namespace, &name), &version).await?;
    }
    Ok(())
}

/// Whether a user or an autoscaler has chosen the Machine.
pub(crate) fn is_marked(core: &Core, machine: &Stored<Machine>) -> bool {
    if machine.annotations().contains_key(annotations::DELETE_MACHINE) {
        return true;
    }
    let node = machine.status.as_ref().map_or("", |status| status.node_ref.name.as_str());
    let cluster = workload_key(machine.namespace_or_empty(), &machine.spec.cluster_name);
    let node = core.workload.get(&cluster).ok().and_then(|connected| connected.nodes().get(node));
    node.is_some_and(|node| node.taints.iter().any(|taint| taint.key == AUTOSCALER_TAINT))
}
