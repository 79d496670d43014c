//! Decisions of a `MachineSet`: which machines go, which unhealthy ones are replaced, and what holds new ones back.
//!
//! Source of the rules: `core/reconcilers/machineset` of Cluster API 1.14.2.

mod deletion;
mod preflight;
mod remediation;

pub use deletion::{DeletionOrder, Standing, deletion_order};
pub use preflight::{Check, ControlPlane, Hold, preflight};
pub use remediation::{Remediation, Unhealthy, remediate};
