//! The controllers of the cloud-controller-manager, and the daemon that runs them.
//!
//! ```text
//!   watch ──> NodeStore ──> node controller           ──> patches, events
//!                      ├──> node-lifecycle controller ──> taints, deletions, events
//!                      └──> route controller          ──> conditions, events
//!                                │
//!                                └── Cloud ──> provider (any panic, delay or wrong answer ends here)
//! ```
//!
//! Of several replicas one is the leader ([`leader_election`]), and only the leader runs controllers.
//!
//! Each controller is a folder in [`controllers`]. Pure functions decide what to write, from the Node, the
//! cloud's answer and what was seen before. The loop that acts on the decision is apart from them.

pub mod app;
pub mod cloud_config;
pub mod commands;
pub mod controllers;
pub mod daemon;
pub mod flags;
pub mod manifests;
pub mod metrics;
pub mod permissions;
#[cfg(feature = "serving")]
mod webhooks;

/// The modules of the crate [`component`], which has what any Kubernetes daemon needs.
#[doc(no_inline)]
pub use component::{
    api_client, api_text, backoff, debug_state, events, files, health, inspection, leader_election,
    leader_migration, logging, program, reload, serving, version, watching, work_queue, yaml,
};

/// Definitions of a provider's kinds, for authors, and the controller of machines.
#[doc(no_inline)]
pub use machine_controller as machines;

/// The example in that document is compiled as a crate of its own, as its readers would compile it.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tutorials/writing-a-provider.md")]
mod writing_a_provider {}
