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

pub mod api_client;
pub mod api_text;
pub mod app;
pub mod backoff;
mod classified;
pub mod clients;
pub mod cloud;
pub mod cloud_config;
pub mod commands;
pub mod conditions;
pub mod controllers;
pub mod daemon;
pub mod debug_state;
pub mod events;
pub mod files;
pub mod flags;
pub mod health;
pub mod inspection;
mod labels;
pub mod leader_election;
pub mod leader_migration;
pub mod logging;
pub mod manifests;
pub mod metrics;
pub mod nodes;
pub mod permissions;
pub mod program;
pub mod reload;
pub mod secrets;
mod seldom;
pub mod serving;
pub mod version;
pub mod watching;
pub mod work_queue;
pub mod yaml;

/// The example there is compiled as a crate of its own, as its readers do.
#[cfg(doctest)]
#[doc = include_str!("../../docs/writing-a-provider.md")]
mod writing_a_provider {}
