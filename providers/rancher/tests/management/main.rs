//! The provider against Rancher 2.x: `/v3` is a server in the process that answers as a real Rancher 2.9 was
//! seen to answer, and `/apis` is a real kube-apiserver with Rancher's custom resources.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests may")]

#[path = "../fake_server/mod.rs"]
mod fake_server;
#[path = "../private_authority/mod.rs"]
mod private_authority;
#[path = "../running/mod.rs"]
mod running;

mod clusters;
mod conformance;
mod detection;
mod faults;
mod machines;
mod mirror;
mod nodes;
mod support;
mod testing;
mod tls;

use testing::{kinds, management_cluster, rancher};
