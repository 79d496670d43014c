//! The `MachineSet`s and Machines of a deployment.

use std::sync::Arc;

use cluster_api::{Machine, MachineDeployment, MachineSet};
use component::events::EventType;
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    core::Core,
    engine::{
        control::Failure,
        object::{Meta as _, Stored, owner_reference},
        writer::to_json,
    },
    replicas::{Machines, selector, selects},
};

/// The `MachineSet`s that the deployment selects or controls, and that nothing else controls.
pub(super) fn sets_of(
    core: &Core,
    deployment: &MachineDeployment,
) -> Result<Vec<Arc<Stored<MachineSet>>>, Failure> {
    let selector = selector(&deployment.spec.selector)?;
    let uid = deployment.uid_or_empty();
    let mut sets: Vec<_> = core
        .stores
        .machine_sets
        .all()
        .into_iter()
        .filter(|set| set.namespace_or_empty() == deployment.namespace_or_empty())
        .filter(|set| match set.controller() {
            Some(owner) => owner.uid == uid,
            None => selects(&selector, set.labels()),
        })
        .collect();
    sets.sort_by(|one, other| one.name_or_empty().cmp(other.name_or_empty()));
    Ok(sets)
}

/// The Machines that the sets control.
pub(super) fn counted(
    core: &Core,
    deployment: &MachineDeployment,
    sets: &[Arc<Stored<MachineSet>>],
) -> Machines {
    Machines::counted(
        core.machines_in(deployment.namespace_or_empty(), |machine| {
            sets.iter().any(|set| is_of(machine, set))
        }),
    )
}

pub(super) fn machines_of(core: &Core, deployment: &MachineDeployment) -> Result<Machines, Failure> {
    let selector = selector(&deployment.spec.selector)?;
    let namespace = deployment.namespace_or_empty();
    Ok(Machines::new(core.machines_in(namespace, |machine| selects(&selector, machine.labels()))))
}

/// Makes the deployment the controller of a `MachineSet` that has none.
pub(super) async fn adopt(
    core: &Core,
    deployment: &MachineDeployment,
    set: &Stored<MachineSet>,
) -> Result<(), Failure> {
    if set.controller().is_some() || set.is_deleting() {
        return Ok(());
    }
    let mut owners = set.owner_references().to_vec();
    owners.push(owner_reference(deployment, true));
    let patch = json!({"metadata": {"ownerReferences": to_json(&owners)?}});
    core.writer.patch(&core.stores.machine_sets, &**set, patch).await?;
    let message = format!("Adopted MachineSet {:?}", set.name_or_empty());
    core.record(deployment, EventType::Normal, "SuccessfulAdopt", message);
    Ok(())
}

pub(super) fn is_of(machine: &Machine, set: &MachineSet) -> bool {
    machine.controller().is_some_and(|owner| owner.uid == set.uid_or_empty())
}
