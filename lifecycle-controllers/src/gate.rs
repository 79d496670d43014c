//! Never beside a Go manager: a part of the controllers works only while it holds the Lease that the manager of
//! Cluster API works under.
//!
//! ```text
//!   look (namespaces) ──> hold (all Leases, or none) ──> work ──────────> stop: Leases released
//!      ^                       │                          │
//!      │                       └── held by another        ├── Lease lost, or a namespace more: look again
//!      └────────── quiet for 10 min <── stopped <─────────┴── a manager without an election writes
//! ```
//!
//! Cluster API's managers are three programs with one Lease each. So each [`Part`] of ours takes its Lease by itself: our
//! bootstrap part may work beside a Go core, for example. Where a Go manager holds the Lease, the part is a candidate, and
//! the other controllers of the daemon are not affected.
//!
//! Rules:
//! - The Lease is in the namespace where the Go manager would run. [`Places`](places::Places) finds it. Where several
//!   namespaces are found, the part holds the Leases of all of them or of none.
//! - Every write of the part passes the fences of all these Leases and that of the daemon's own term ([`PartFence`]). So
//!   nothing is written after one of them, whatever the process has noticed.
//! - The controllers end at once when a Lease is lost. The part is a candidate again.
//! - A Go manager without an election (`--leader-elect=false`) takes no Lease. It is noticed by the field manager of its
//!   writes ([`foreign_writer`]). The part stops then, and starts again when nothing was written for [`QUIET`].

mod foreign;
mod held;
mod part;
mod places;
mod run;
mod state;
mod term;

pub use foreign::{ForeignWrite, QUIET, Writers, foreign_writer};
pub use part::{BOOTSTRAP, CORE, JudgedKind, PARTS, Part, ProviderKind};
pub use run::{Gate, GateOptions, run};
pub use term::{PartFence, PartTerm};
