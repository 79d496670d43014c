//! Decisions of a `MachineSet`: which machines go, which unhealthy ones are replaced, what holds new ones back, and what they are called.
//!
//! Source of the rules: `core/reconcilers/machineset` of Cluster API 1.14.2.

mod deletion;
mod naming;
mod preflight;
mod remediation;

pub use deletion::{DeletionOrder, Standing, deletion_order};
pub use naming::{ALPHABET, InvalidTemplate, RANDOM, machine_name};
pub use preflight::{Check, ControlPlane, Hold, preflight};
pub use remediation::{Remediation, Unhealthy, remediate};
