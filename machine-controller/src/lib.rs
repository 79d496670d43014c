//! The controller of machines and clusters of a provider, for Cluster API.
//!
//! ```text
//!   caches (one watch for each kind) ──> queue ──> turn: view of an object ──> plan ──> work
//!                                          ^                                             │
//!   cloud: "this machine changed" ─────────┤             a step, a patch, a status <─────┘
//!   clock ─────────────────────────────────┘
//! ```
//!
//! | Part | What it is |
//! |---|---|
//! | [`object`], [`cluster_api`], [`names`] | what is read of the objects |
//! | [`plan`], [`outcome`], [`status`], [`conditions`], [`v1beta1_conditions`] | the decisions, all of them pure |
//! | [`store`], [`packed`], [`index`], [`view`] | what the watches show and how it is kept, who depends on whom, one object with what surrounds it |
//! | [`auxiliary`], [`dependents`] | objects of the provider's auxiliary kinds, and which steps read or want which |
//! | [`owned`] | what is written so that objects become as a step wants them |
//! | [`reboot`] | reboots of unhealthy Machines before they are replaced |
//! | [`status_only`] | objects that users make, and whose status the provider says: the same loop observes them |
//! | `discovery`, `watch` | which kinds the API server serves, and their watches |
//! | [`deferred`] | statuses that are written a little later |
//! | `controller`, `concurrency`, `failing` | the one loop: one item for each object, never two pieces of work on one, not too many at a time, and namespaces in turns |
//! | `work`, `writer` | one piece of work: what is due is decided again and done |
//!
//! It keeps the rules of Cluster API's contract v1beta2:
//!
//! | Rule | Where |
//! |---|---|
//! | nothing without an owner; pause by annotation or Cluster, also of a deletion; watch filter; managed elsewhere | [`plan`] |
//! | finalizer and mark in one write before the first outside call | [`plan::Next::Adopt`], [`outcome::adoption`] |
//! | one identity is one object's only | [`index::Index::rival`] |
//! | the mark stays when the label with the Cluster's name changes | [`object::InfraObject::marked_cluster`] |
//! | infrastructure of a cluster goes after every machine that may be its own | [`index::Index::machines_of`] |
//! | first the infrastructure of the Cluster, then bootstrap data, then a machine; a deletion waits for neither | [`plan`] |
//! | the finalizer goes only after the cloud confirmed that nothing is left | [`outcome::Outcome::is_gone`] |
//! | `provisioned` never goes back; a condition's time moves only with its status | [`status`], [`conditions`] |
//! | a move waits while a task runs, and until the provider ID is written | [`outcome::Outcome::blocks_move`] |
//!
//! Every write carries the UID and the version of the object that the decision was made for. If another
//! program was faster, the object is read again, and what follows from the step is computed again. So what
//! others write meanwhile stays: their finalizers, annotations and conditions. After a step, the objects that
//! it wants to have are written first, then metadata and spec, and the status last. So whatever the daemon
//! had no time for is decided by the next step.

pub mod auxiliary;
pub mod cluster_api;
mod concurrency;
pub mod conditions;
mod controller;
pub mod crds;
pub mod deferred;
pub mod dependents;
mod discovery;
pub mod explain;
mod failing;
pub mod index;
mod metrics;
mod misconfigured;
pub mod names;
pub mod object;
pub mod object_key;
pub mod outcome;
pub mod owned;
pub mod packed;
pub mod phase;
pub mod plan;
pub mod reboot;
pub mod reference;
pub mod status;
pub mod status_only;
pub mod store;
pub mod v1beta1_conditions;
pub mod view;
mod watch;
mod work;
mod writer;

pub use controller::{MachineController, MachineControllerOptions};
pub use discovery::{read_one_of_each, served_kinds};
pub use metrics::{ControllerMachineMetrics, MachineMetrics};
pub use misconfigured::misconfigured;
