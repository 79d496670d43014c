//! The provider on the vCenter simulator, without Kubernetes.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test talks to a person, and fails by panicking where it has nothing better to say"
)]

mod conformance;
mod lookups;
mod sessions;
mod support;
mod unsupported;
