//! The controllers of the cloud-controller-manager, and the daemon that runs them.
//!
//! ```text
//!   watch ──> NodeStore ──> node controller           ──> patches, events
//!                      └──> node-lifecycle controller ──> taints, deletions, events
//!                                │
//!                                └── Cloud ──> provider (any panic, delay or wrong answer ends here)
//! ```
//!
//! Of several daemons one leads ([`leader_election`]), and only that one runs controllers.
//!
//! Each controller is a folder in [`controllers`]: what to do is decided by pure functions (Node, answer of the
//! cloud, what was seen before -> what to write), apart from the loop that acts on it.

pub mod app;
pub mod clients;
pub mod cloud;
pub mod cloud_config;
pub mod commands;
pub mod conditions;
pub mod controllers;
pub mod daemon;
pub mod flags;
mod labels;
pub mod manifests;
pub mod metrics;
pub mod nodes;
pub mod permissions;
mod rbac;
pub mod secrets;

/// What any daemon of Kubernetes needs: the crate [`component`], module by module.
#[doc(no_inline)]
pub use component::{
    api_client, api_text, backoff, debug_state, events, files, health, inspection, leader_election,
    leader_migration, logging, program, reload, serving, version, watching, work_queue, yaml,
};

/// The example there is compiled as a crate of its own, as its readers do.
#[cfg(doctest)]
#[doc = include_str!("../../docs/writing-a-provider.md")]
mod writing_a_provider {}
