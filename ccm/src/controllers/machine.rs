//! The controller of machines and clusters of a provider: what it decides. The loop that acts on it is not here yet.
//!
//! ```text
//!   object, Machine, Cluster, infrastructure of the Cluster, bootstrap data, memory, time
//!     ──> plan    what is next: wait, say, adopt, call a step
//!     ──> outcome what follows from the step's answer: patch, event, when to look again
//!     ──> status  the status that says so, if it changed
//! ```
//!
//! All of it is pure. It keeps the rules of Cluster API's contract v1beta2:
//!
//! | Rule | Where |
//! |---|---|
//! | nothing without an owner; pause by annotation or Cluster, also of a deletion; watch filter; managed elsewhere | [`plan`] |
//! | finalizer and identity in one write before the first outside call | [`plan::Next::Adopt`], [`outcome::adoption`] |
//! | first the infrastructure of the Cluster, then bootstrap data, then a machine; a deletion waits for neither | [`plan`] |
//! | the finalizer goes only after the cloud confirmed that nothing is left | [`outcome::Outcome::is_gone`] |
//! | `provisioned` never goes back; a condition's time moves only with its status | [`status`], [`conditions`] |
//! | a move waits while a task runs, and until the provider ID is written | [`outcome::Outcome::blocks_move`] |

pub mod conditions;
pub mod names;
pub mod object;
pub mod outcome;
pub mod plan;
pub mod status;
pub mod surroundings;
