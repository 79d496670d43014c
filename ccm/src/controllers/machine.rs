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
//! | [`object`], [`surroundings`], [`names`] | what is read of the objects |
//! | [`plan`], [`outcome`], [`status`], [`conditions`] | the decisions, all of them pure |
//! | [`store`], [`index`], [`view`] | what the watches show, who depends on whom, one object with what surrounds it |
//! | `discovery`, `watch` | which kinds the API server serves, and their watches |
//! | `controller` | the loop: one item for each object, never two pieces of work on one |
//! | `work`, `writer` | one piece of work: what is due is decided again and done |
//!
//! It keeps the rules of Cluster API's contract v1beta2:
//!
//! | Rule | Where |
//! |---|---|
//! | nothing without an owner; pause by annotation or Cluster, also of a deletion; watch filter; managed elsewhere | [`plan`] |
//! | finalizer and identity in one write before the first outside call | [`plan::Next::Adopt`], [`outcome::adoption`] |
//! | one identity is one object's only | [`index::Index::rival`] |
//! | first the infrastructure of the Cluster, then bootstrap data, then a machine; a deletion waits for neither | [`plan`] |
//! | the finalizer goes only after the cloud confirmed that nothing is left | [`outcome::Outcome::is_gone`] |
//! | `provisioned` never goes back; a condition's time moves only with its status | [`status`], [`conditions`] |
//! | a move waits while a task runs, and until the provider ID is written | [`outcome::Outcome::blocks_move`] |
//!
//! Every write carries the UID and the version of the object that the decision was made for. If somebody else was faster, the
//! object is read again, and what follows from the step is computed again. After a step, metadata and spec are written first
//! and the status last.

pub mod conditions;
mod controller;
mod discovery;
pub mod explain;
pub mod index;
mod metrics;
pub mod names;
pub mod object;
pub mod outcome;
pub mod phase;
pub mod plan;
mod row;
pub mod status;
pub mod store;
pub mod subject;
pub mod surroundings;
pub mod view;
mod watch;
mod work;
mod writer;

pub use controller::{MachineController, MachineControllerOptions};
pub use discovery::served_kinds;
pub use metrics::MachineMetrics;
pub(crate) use row::DESCRIPTOR;
