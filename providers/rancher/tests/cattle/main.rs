//! The provider against a fake of Rancher 1.6 in the process: see `testing`. Rancher 1.6 cannot run any more.

#![allow(clippy::expect_used, clippy::panic, reason = "tests may")]

#[path = "../fake_server/mod.rs"]
mod fake_server;
#[path = "../private_authority/mod.rs"]
mod private_authority;
#[path = "../running/mod.rs"]
mod running;
#[path = "../testing/mod.rs"]
mod testing;

mod conformance;
mod faults;
mod hosts;
mod load_balancers;
mod parallel;
mod support;
mod tls;
