//! Never beside a Go manager: a part of the controllers works only while it holds the Lease that the manager of
//! Cluster API works under.
//!
//! ```text
//!   look (namespaces) ──> hold (all Leases, or none) ──> work ──> stop: Leases released
//!      ^                       │                          │
//!      │                       └── held by another        │
//!      └────── a Lease lost, or another namespace ────────┘
//! ```
//!
//! Cluster API's managers are three programs with one Lease each. So each [`Part`] of ours takes its Lease by itself: our
//! bootstrap part may work beside a Go core, for example. Where a Go manager holds the Lease, the part is a candidate, and
//! the other controllers of the daemon are not affected.
//!
//! Rules:
//! - The part looks for the namespace where the Go manager runs or would run: its Lease is there. Where it finds several
//!   namespaces, it holds the Leases of all of them or of none.
//! - Every write of the part passes the fences of all these Leases and that of the daemon's own term ([`PartFence`]). So
//!   nothing is written after one of them, whatever the process has noticed.
//! - The controllers end at once when a Lease is lost. The part is a candidate again.
//! - A Go manager without an election (`--leader-elect=false`) takes no Lease. It is noticed by the field manager of its
//!   writes ([`foreign_writer`]). The part writes nothing in that namespace then, until nothing was written there for [`QUIET`].

mod foreign;
mod held;
mod part;
mod places;
mod run;
mod state;
mod term;

pub use foreign::{ForeignManagerWorks, ForeignWrite, QUIET, Writers, foreign_writer};
pub use part::{BOOTSTRAP, CORE, PARTS, Part, ProviderKind};
pub use run::{Gate, GateOptions, run};
pub use term::{PartFence, PartTerm};
