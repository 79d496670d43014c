//! The order in which a Cluster is deleted, and what its condition `Deleting` says meanwhile.
//!
//! Workers go first, while the control plane answers. Then the control plane goes, whether it is an object or Machines that stand alone.
//! The infrastructure goes last, since Machines are in it.

#[cfg(test)]
mod tests;

use crate::{
    conditions::{Statement, Status, first_names},
    machine::SEE_LOG,
};

/// So many objects of a kind are named.
const NAMED: usize = 5;

/// Where an object is that a Cluster refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The reference is empty.
    NotReferred,
    /// It is there.
    There,
    /// It has a deletion timestamp.
    Deleting,
    /// The API server confirms that there is none.
    Gone,
    /// The API server did not say.
    Unknown,
}

/// An object that a Cluster refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referred<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Where it is.
    pub found: Found,
}

/// What is left of a Cluster that is being deleted. Names are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining<'a> {
    /// Its `MachineDeployment`s.
    pub machine_deployments: &'a [&'a str],
    /// Its `MachineSet`s.
    pub machine_sets: &'a [&'a str],
    /// Its Machines that are no control plane.
    pub workers: &'a [&'a str],
    /// Its Machines that are the control plane.
    pub control_plane_machines: &'a [&'a str],
    /// The object of `spec.controlPlaneRef`.
    pub control_plane: Referred<'a>,
    /// The object of `spec.infrastructureRef`.
    pub infrastructure: Referred<'a>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Delete `MachineDeployment`s, `MachineSet`s and Machines of workers.
    DeleteWorkers,
    /// Delete the control plane object.
    DeleteControlPlane,
    /// Wait until it is gone.
    WaitForControlPlane,
    /// Delete Machines of the control plane that no control plane object deletes.
    DeleteControlPlaneMachines,
    /// Delete the infrastructure cluster.
    DeleteInfrastructure,
    /// Wait until it is gone.
    WaitForInfrastructure,
    /// Nothing is left: remove the finalizer.
    Release,
    /// Something cannot be read. Nothing is done until it can.
    Stop,
}

/// The next step, and what `Deleting` says while it is done.
#[must_use]
pub fn next(cluster: &Remaining<'_>) -> (Next, Statement) {
    let says = |reason: &str, message: String| Statement::new(Status::True, reason, message);
    let stands_alone = cluster.control_plane.found == Found::NotReferred;
    let unknown = || (Next::Stop, says("InternalError", SEE_LOG.to_owned()));
    let waits_for = |of: &Referred<'_>| format!("Waiting for {} to be deleted", of.kind);
    let workers = [
        ("MachineDeployments", cluster.machine_deployments),
        ("MachineSets", cluster.machine_sets),
        ("Worker Machines", cluster.workers),
    ];
    let machines = ("Control plane Machines", cluster.control_plane_machines);
    if workers.iter().any(|(_, names)| !names.is_empty()) {
        let machines = stands_alone.then_some(machines);
        let message = lines(machines.into_iter().chain(workers));
        return (Next::DeleteWorkers, says("WaitingForWorkersDeletion", message));
    }
    let reason = "WaitingForControlPlaneDeletion";
    match cluster.control_plane.found {
        Found::Unknown => return unknown(),
        Found::There => {
            return (Next::DeleteControlPlane, says(reason, waits_for(&cluster.control_plane)));
        }
        Found::Deleting => {
            return (Next::WaitForControlPlane, says(reason, waits_for(&cluster.control_plane)));
        }
        Found::Gone | Found::NotReferred => {}
    }
    if !cluster.control_plane_machines.is_empty() {
        return (Next::DeleteControlPlaneMachines, says(reason, lines([machines])));
    }
    let reason = "WaitingForInfrastructureDeletion";
    match cluster.infrastructure.found {
        Found::Unknown => unknown(),
        Found::There => (Next::DeleteInfrastructure, says(reason, waits_for(&cluster.infrastructure))),
        Found::Deleting => (Next::WaitForInfrastructure, says(reason, waits_for(&cluster.infrastructure))),
        Found::Gone | Found::NotReferred => {
            (Next::Release, says("DeletionCompleted", "Deletion completed".to_owned()))
        }
    }
}

/// One line for each kind that is left.
fn lines<'a>(all: impl IntoIterator<Item = (&'a str, &'a [&'a str])>) -> String {
    let left = all.into_iter().filter(|(_, names)| !names.is_empty());
    let lines: Vec<_> =
        left.map(|(kind, names)| format!("* {kind}: {}", first_names(names, NAMED))).collect();
    lines.join("\n")
}
