//! The provider on the vCenter simulator, without Kubernetes.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test talks to a person, and fails by panicking where it has nothing better to say"
)]

mod bootstrap;
mod clones;
mod conformance;
mod controller;
mod crashes;
mod disks;
mod edits;
mod faults;
mod identities;
mod lookups;
mod machines;
mod modules;
mod named_vcenters;
mod naming;
mod placement;
mod pools;
mod relay;
mod resets;
mod sessions;
mod slow_line;
mod support;
mod take_over;
mod tenants;
mod unsupported;
mod zones;
