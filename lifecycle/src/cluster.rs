//! What the status of a Cluster says, and the order in which a Cluster is deleted.
//!
//! | In the status | From | Function |
//! |---|---|---|
//! | `RemoteConnectionProbe` | the probes of the connection to the workload cluster | [`remote_connection`] |
//! | `InfrastructureReady`, `ControlPlaneAvailable`, `ControlPlaneInitialized` | what the Cluster refers to | [`infrastructure_ready`], [`control_plane_available`], [`control_plane_initialized`] |
//! | `WorkersAvailable`, `RollingOut`, `ScalingUp`, `ScalingDown` | conditions of the control plane, of `MachineDeployment`s and `MachineSet`s | [`workers_available`], [`in_progress`] |
//! | `ControlPlaneMachinesReady` and the others of Machines | the Machines | [`machines_ready`](crate::replicas::machines_ready), [`machines_up_to_date`](crate::replicas::machines_up_to_date) |
//! | `Remediating` | the Machines | [`remediating`] |
//! | `TopologyReconciled` | `spec.topology`, which nothing here follows | [`topology_reconciled`] |
//! | `Deleting`, `Available` | the order of the deletion, and the conditions above | [`deletion`], [`available`] |
//! | `controlPlane`, `workers` | counters of what there is | [`Counts`] |
//! | `phase` | | [`phase`] |
//!
//! Source of the rules: `core/reconcilers/cluster` of Cluster API 1.14.2.

mod available;
mod counts;
pub mod deletion;
mod descendants;
mod phase;
mod probe;
mod related;
#[cfg(test)]
mod tests;

pub use available::{available, topology_reconciled};
pub use counts::Counts;
pub use descendants::{Change, in_progress, remediating, workers_available};
pub use phase::{Phase, Progress, phase};
pub use probe::{Remote, remote_connection};
pub use related::{
    Reference, StandAlone, control_plane_available, control_plane_initialized, infrastructure_ready,
};
