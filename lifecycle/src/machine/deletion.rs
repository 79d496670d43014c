//! The order in which a Machine is deleted, and what its condition `Deleting` says meanwhile.

use std::{fmt, time::Duration};

use jiff::Timestamp;

use crate::conditions::{Statement, Status};

/// Why nothing is done about the Node of a Machine that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNodeWork {
    /// The whole cluster goes.
    ClusterIsDeleted,
    /// The control plane goes, and the Nodes with it.
    ControlPlaneIsDeleted,
    /// The Machine has no Node.
    NoNode,
    /// No control plane would be left to ask.
    NoControlPlaneLeft,
}

impl fmt::Display for NoNodeWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIsDeleted => "the Cluster is being deleted",
            Self::ControlPlaneIsDeleted => "the control plane is being deleted",
            Self::NoNode => "the Machine has no Node",
            Self::NoControlPlaneLeft => "no other Machine of the control plane is left",
        })
    }
}

/// The Node that is drained and deleted with the Machine, or why there is none, as far as the control plane does not matter. `node` is
/// `status.nodeRef.name`, or the name of the Node that has the Machine's provider ID.
///
/// # Errors
/// Why nothing is done about it.
pub fn node_to_delete(cluster_is_deleting: bool, node: Option<&str>) -> Result<&str, NoNodeWork> {
    if cluster_is_deleting {
        return Err(NoNodeWork::ClusterIsDeleted);
    }
    node.ok_or(NoNodeWork::NoNode)
}

/// The control plane of the cluster of a Machine that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwningControlPlane {
    /// The object of `spec.controlPlaneRef` has a deletion timestamp.
    pub is_deleting: bool,
    /// That object says that others manage the control plane, which then has no Machines.
    pub is_external: bool,
    /// Machines of the control plane that are not being deleted.
    pub machines: usize,
}

impl OwningControlPlane {
    /// Whether it stays, so that Nodes are drained and deleted.
    ///
    /// # Errors
    /// Why nothing is done about Nodes.
    pub fn stays(&self) -> Result<(), NoNodeWork> {
        if self.is_deleting {
            return Err(NoNodeWork::ControlPlaneIsDeleted);
        }
        if !self.is_external && self.machines == 0 {
            return Err(NoNodeWork::NoControlPlaneLeft);
        }
        Ok(())
    }
}

/// Where an object is that goes with the Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is there.
    There,
    /// It has a deletion timestamp.
    Deleting,
    /// There is none, or none any more.
    Gone,
}

/// `spec.deletion`: how long each may take. `None` and 0: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// `nodeDrainTimeoutSeconds`
    pub drain: Option<Duration>,
    /// `nodeVolumeDetachTimeoutSeconds`
    pub volumes: Option<Duration>,
}

/// `status.deletion`: when each began, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Began {
    /// `nodeDrainStartTime`
    pub drain: Option<i64>,
    /// `waitForNodeVolumeDetachStartTime`
    pub volumes: Option<i64>,
    /// `waitForPreTerminateHookStartTime`
    pub pre_terminate_hooks: Option<i64>,
}

/// A Machine that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletingMachine<'a> {
    /// Whether something is done about its Node.
    pub has_node_work: bool,
    /// Its annotations `pre-drain.delete.hook.machine.cluster.x-k8s.io/...`.
    pub pre_drain_hooks: &'a [&'a str],
    /// Its annotations `pre-terminate.delete.hook.machine.cluster.x-k8s.io/...`.
    pub pre_terminate_hooks: &'a [&'a str],
    /// It has the annotation `machine.cluster.x-k8s.io/exclude-node-draining`.
    pub excludes_drain: bool,
    /// It has the annotation `machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach`.
    pub excludes_volumes: bool,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// When it began what.
    pub began: Began,
    /// Whether this pass has found the Node drained.
    pub is_drained: bool,
    /// Whether this pass has found all volumes detached.
    pub is_detached: bool,
    /// Whether the Node is gone, or nobody waits for that any more.
    pub is_node_gone: bool,
    /// Kind and presence of its infrastructure machine.
    pub infrastructure: (&'a str, Presence),
    /// Kind and presence of its bootstrap config, if it refers to one.
    pub bootstrap: Option<(&'a str, Presence)>,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait until others remove their hooks.
    WaitForPreDrainHooks,
    /// Drain the Node.
    Drain,
    /// Look whether all volumes are detached.
    DetachVolumes,
    /// Wait until others remove their hooks.
    WaitForPreTerminateHooks,
    /// Delete the infrastructure machine.
    DeleteInfrastructure,
    /// Wait until it is gone.
    WaitForInfrastructure,
    /// Delete the bootstrap config.
    DeleteBootstrap,
    /// Wait until it is gone.
    WaitForBootstrap,
    /// Delete the Node. `Deleting` says so only where that fails: otherwise the finalizer goes in the same pass.
    DeleteNode,
    /// Remove the finalizer.
    Release,
}

impl DeletingMachine<'_> {
    /// Neither is begun once the machine is on its way out, or once others were asked whether it may go.
    fn may_touch_node(&self) -> bool {
        self.began.pre_terminate_hooks.is_none() && self.infrastructure.1 == Presence::There
    }

    fn is_over(limit: Option<Duration>, began: Option<i64>, now: i64) -> bool {
        let limit =
            limit.filter(|limit| !limit.is_zero()).and_then(|limit| i64::try_from(limit.as_secs()).ok());
        matches!((limit, began), (Some(limit), Some(began)) if now.saturating_sub(began) >= limit)
    }
}

/// What is done next about a Machine that is being deleted, and what `Deleting` says. A step that begins with this pass has begun `now`.
#[must_use]
pub fn next(machine: &DeletingMachine<'_>, now: i64) -> (Next, Statement) {
    let next = decide(machine, now);
    let hooks = |hooks: &[&str]| {
        let mut names = hooks.to_vec();
        names.sort_unstable();
        names.join(",")
    };
    let time = |began: Option<i64>| {
        let time = Timestamp::from_second(began.unwrap_or(now));
        time.map_or_else(|_| String::new(), |time| time.to_string())
    };
    let infrastructure = machine.infrastructure.0;
    let bootstrap = machine.bootstrap.map_or("", |(kind, _)| kind);
    let (reason, message) = match next {
        Next::WaitForPreDrainHooks => (
            "WaitingForPreDrainHook",
            format!("Waiting for pre-drain hooks to succeed (hooks: {})", hooks(machine.pre_drain_hooks)),
        ),
        Next::Drain => {
            ("DrainingNode", format!("Drain not completed yet (started at {}):", time(machine.began.drain)))
        }
        Next::DetachVolumes => (
            "WaitingForVolumeDetach",
            format!("Waiting for Node volumes to be detached (started at {})", time(machine.began.volumes)),
        ),
        Next::WaitForPreTerminateHooks => (
            "WaitingForPreTerminateHook",
            format!(
                "Waiting for pre-terminate hooks to succeed (hooks: {})",
                hooks(machine.pre_terminate_hooks)
            ),
        ),
        Next::DeleteInfrastructure | Next::WaitForInfrastructure => {
            ("WaitingForInfrastructureDeletion", format!("Waiting for {infrastructure} to be deleted"))
        }
        Next::DeleteBootstrap | Next::WaitForBootstrap => {
            ("WaitingForBootstrapDeletion", format!("Waiting for {bootstrap} to be deleted"))
        }
        Next::DeleteNode => {
            ("DeletingNode", "Error deleting Node, please check controller logs for errors".into())
        }
        Next::Release => ("DeletionCompleted", "Deletion completed".into()),
    };
    (next, Statement::new(Status::True, reason, message))
}

fn decide(machine: &DeletingMachine<'_>, now: i64) -> Next {
    if machine.has_node_work {
        if !machine.pre_drain_hooks.is_empty() {
            return Next::WaitForPreDrainHooks;
        }
        let may_wait = |is_excluded: bool, limit, began| {
            !is_excluded && machine.may_touch_node() && !DeletingMachine::is_over(limit, began, now)
        };
        if !machine.is_drained
            && may_wait(machine.excludes_drain, machine.timeouts.drain, machine.began.drain)
        {
            return Next::Drain;
        }
        if !machine.is_detached
            && may_wait(machine.excludes_volumes, machine.timeouts.volumes, machine.began.volumes)
        {
            return Next::DetachVolumes;
        }
    }
    if !machine.pre_terminate_hooks.is_empty() {
        return Next::WaitForPreTerminateHooks;
    }
    match machine.infrastructure.1 {
        Presence::There => return Next::DeleteInfrastructure,
        Presence::Deleting => return Next::WaitForInfrastructure,
        Presence::Gone => {}
    }
    match machine.bootstrap.map(|(_, presence)| presence) {
        Some(Presence::There) => return Next::DeleteBootstrap,
        Some(Presence::Deleting) => return Next::WaitForBootstrap,
        Some(Presence::Gone) | None => {}
    }
    // The Node goes after its machine: a kubelet that still runs would register it again.
    if machine.has_node_work && !machine.is_node_gone {
        return Next::DeleteNode;
    }
    Next::Release
}

#[cfg(test)]
mod tests;
