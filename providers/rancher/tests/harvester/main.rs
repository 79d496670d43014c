//! The mode `harvester` on a real API server that has Harvester's kind `LoadBalancer`. What Harvester's own
//! controller does is played by a script: see `harvester`. The machines are those of the fake of Rancher 1.6.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test talks to a person, and fails by panicking where it has nothing better to say"
)]

#[path = "../fake_server/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod fake_server;
#[path = "../private_authority/mod.rs"]
mod private_authority;
#[path = "../testing/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod testing;

mod conformance;
mod crashes;
mod faults;
mod front;
mod harvester;
mod life;
mod support;
