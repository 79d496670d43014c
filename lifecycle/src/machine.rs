//! What the status of a Machine says: its conditions and its phase.
//!
//! | Condition | From | Function |
//! |---|---|---|
//! | `BootstrapConfigReady`, `InfrastructureReady` | the bootstrap config and the infrastructure machine | [`bootstrap_config_ready`], [`infrastructure_ready`] |
//! | `NodeReady`, `NodeHealthy` | the Node, and whether the cluster can be asked | [`node_conditions`] |
//! | `UpToDate` | its template, and its kubelet | [`up_to_date`](fn@up_to_date) |
//! | `Deleting`, `Ready`, `Available` | the conditions above, those of health checks, and readiness gates | [`deleting`], [`ready`], [`available`] |
//!
//! The order of a deletion is in [`deletion`].
//!
//! Source of the rules: `core/reconcilers/machine` of Cluster API 1.14.2.

pub mod deletion;
mod nodes;
mod phase;
mod ready;
mod related;
#[cfg(test)]
mod tests;
mod up_to_date;

pub use nodes::{ClusterState, NodeOwner, ObservedNode, Probe, node_conditions};
pub use phase::{Phase, Progress, phase};
pub use ready::{Availability, Deletion, Gate, available, deleting, ready};
pub(crate) use ready::{Delay, delays};
pub use related::{Related, bootstrap_config_ready, infrastructure_ready};
pub use up_to_date::{UpToDateInputs, up_to_date};

/// The message where the log has the error.
pub(crate) const SEE_LOG: &str = "Please check controller logs for errors";
