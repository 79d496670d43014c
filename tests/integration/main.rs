//! Tests that need more than one crate or a real peer, in one binary.
//!
//! A scenario is written once and runs on the sandbox (with tokio's paused clock, so an hour takes no time)
//! and on a real kube-apiserver: `sandbox::…` and `apiserver::…`. A test whose peer is not available on this
//! machine is ignored with the reason; with `CI=true` it fails.

#![allow(
    clippy::wildcard_imports,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test talks to a person, and fails by panicking where it has nothing better to say"
)]

mod address_pools;
mod admission;
mod api;
mod beating;
mod campaign;
mod clients;
mod cluster_api;
mod command_line;
mod config_reload;
mod conformance;
mod cpu;
mod daemon;
mod deployment;
mod documented;
mod evidence;
mod fake_cloud;
#[path = "../../providers/rancher/tests/fake_server/mod.rs"]
#[allow(dead_code, reason = "the provider's own tests use the rest")]
mod fake_server;
mod faults;
mod forwarder;
mod frozen;
mod guest;
mod hypervisors;
mod image;
mod ipam;
mod kubectl;
mod kubelet;
mod lag;
mod leader_election;
mod lifecycle;
mod lifecycle_load;
mod logging;
mod machines;
mod manifest;
mod metrics;
mod node;
mod node_lifecycle;
mod outage;
mod packets;
mod peers;
mod permissions;
mod protobuf;
mod rancher;
mod route;
mod scale;
mod scenarios;
mod secrets;
mod services;
mod serving;
mod shipped_roles;
mod stage;
mod support;
mod swap_in;
mod tools;
mod trial;
mod upstream_flags;
mod vsphere;
mod webhook;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use scenarios::Trials;

fn main() -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(code) = campaign::other_main().or_else(packets::other_main) {
        return code;
    }
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .init();
    }
    let parts = match std::env::var("CCM_TRIALS").as_deref() {
        Err(_) => (true, true),
        Ok("together") => (true, false),
        Ok("alone") => (false, true),
        Ok(other) => {
            eprintln!("CCM_TRIALS={other}: want together or alone, or no CCM_TRIALS for both");
            return ExitCode::from(2);
        }
    };
    test_env::around_builds(|wait| admission::aside(wait));
    let arguments = Arguments::from_args();
    let mut failed = false;
    if parts.0 {
        failed |= run_together(arguments.clone());
    }
    if parts.1 {
        failed |= run_alone(arguments);
    }
    peers::stop_all();
    cluster_api::stop();
    trial::report_slowest();
    trial::report_skipped();
    lag::report_unjudged();
    if failed { ExitCode::from(101) } else { ExitCode::SUCCESS }
}

/// The trials that run side by side. Whether one failed.
fn run_together(mut arguments: Arguments) -> bool {
    let trials = Trials::new()
        // the long ones first
        .and(campaign::trials())
        .and(kubelet::trials())
        .and(guest::trials())
        .and(cluster_api::with_guests())
        .and(frozen::trials())
        .and(scale::trials())
        .and(vsphere::trials())
        .and(outage::trials())
        .and(packets::trials())
        .and(cluster_api::trials())
        .and(leader_election::trials())
        .and(address_pools::trials())
        .and(swap_in::trials())
        .and(node::trials())
        .and(services::trials())
        .and(node_lifecycle::trials())
        .and(route::trials())
        .and(lifecycle::trials())
        .and(lifecycle_load::trials())
        .and(clients::trials())
        .and(metrics::trials())
        .and(logging::trials())
        .and(machines::trials())
        .and(faults::trials())
        .and(hypervisors::trials())
        .and(rancher::trials())
        .and(image::trials())
        .and(config_reload::trials())
        .and(conformance::trials())
        .and(protobuf::trials())
        .and(serving::trials())
        .and(kubectl::trials())
        .and(command_line::trials())
        .and(deployment::trials())
        .and(permissions::trials())
        .and(secrets::trials())
        .and(tools::trials())
        .and(upstream_flags::trials())
        .and(admission::trials());
    let trials = mixed(trials);
    // Those that wait for admission, or for a control plane, take a thread too, and the others go past them.
    arguments.test_threads.get_or_insert(trials.len());
    libtest_mimic::run(&arguments, trials).has_failed()
}

/// Each second one is of those that take turns at the control planes, as long as there are both: they are never more than a few at
/// a time, and would be left for the end.
fn mixed(trials: Trials) -> Vec<Trial> {
    let (shared, own): (Vec<_>, Vec<_>) =
        trials.into_iter().partition(|trial| trial.name().starts_with("apiserver::"));
    let (mut shared, mut own) = (shared.into_iter(), own.into_iter());
    let mut mixed = Vec::new();
    loop {
        let before = mixed.len();
        mixed.extend(own.next());
        mixed.extend(shared.next());
        if mixed.len() == before {
            return mixed;
        }
    }
}

/// These load the machine so much that nothing else responds in time, and some measure response times. Whether one failed.
fn run_alone(mut arguments: Arguments) -> bool {
    arguments.test_threads = Some(1);
    let trials = Trials::new().and(serving::alone()).and(machines::alone());
    libtest_mimic::run(&arguments, trials.into_iter().collect()).has_failed()
}
