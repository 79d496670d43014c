//! What a `MachineSet` and a `MachineDeployment` say of their Machines, in their status.
//!
//! Both say nearly the same. Where their words differ, [`Owner`] says whose they are.
//!
//! | In the status | Function |
//! |---|---|
//! | `replicas`, `readyReplicas`, `availableReplicas`, `upToDateReplicas` | [`count`] |
//! | `versions` | [`versions`](fn@versions) |
//! | `ScalingUp`, `ScalingDown` | [`scaling_up`], [`scaling_down`] |
//! | `MachinesReady`, `MachinesUpToDate` | [`machines_ready`], [`machines_up_to_date`] |
//! | `Remediating`, `Deleting` | [`remediating`], [`deleting`] |
//! | of a `MachineDeployment` alone: `Available`, `RollingOut`, `phase` | [`available`], [`rolling_out`], [`phase`] |
//!
//! Source of the rules: `core/reconcilers/machineset` and `core/reconcilers/machinedeployment` of Cluster API 1.14.2.

mod deployment;
mod machines;
mod scaling;
#[cfg(test)]
mod tests;
mod versions;

pub use deployment::{Phase, available, phase, rolling_out};
pub(crate) use machines::are;
pub use machines::{Counters, Replica, count, deleting, machines_ready, machines_up_to_date, remediating};
pub use scaling::{Scale, scaling_down, scaling_up};
pub use versions::versions;

use crate::conditions::{Statement, Status};

/// Whose Machines they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A `MachineSet`.
    MachineSet,
    /// A `MachineDeployment`.
    MachineDeployment,
}

/// What is said while `spec.replicas` is not set, which lasts until a default is stored.
fn without_replicas() -> Statement {
    Statement::new(Status::Unknown, "WaitingForReplicasSet", "Waiting for spec.replicas set")
}
