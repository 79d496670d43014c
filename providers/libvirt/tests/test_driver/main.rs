//! The provider on libvirt's own `test:///` driver: a real libvirt in this process, with domains from a file.
#![allow(clippy::expect_used, clippy::panic, reason = "tests may")]

mod namespace;
mod support;

mod conformance;
mod events;
mod listing;
mod matching;
mod routes;
mod traps;
