//! The conformance cases against the sandbox, and against a real API server when one is named.
//!
//! `SANDBOX_KUBECONFIG=path cargo test -p sandbox --test api` runs every case against that server as well.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test says why it fails or was skipped"
)]

mod faults;
mod junk;
mod kinds;
mod kubectl;
mod scale;

use futures::{StreamExt, stream};
use kube::Client;
use sandbox::{Sandbox, conformance::CASES};

async fn run(client: &Client) {
    let outcomes = stream::iter(CASES).map(async |case| {
        let outcome = (case.run)(client.clone()).await;
        outcome.err().map(|error| format!("{}: {error}", case.name))
    });
    let failures: Vec<String> = outcomes.buffer_unordered(8).filter_map(async |f| f).collect().await;
    assert!(
        failures.is_empty(),
        "{} of {} cases failed:\n{}",
        failures.len(),
        CASES.len(),
        failures.join("\n")
    );
}

#[tokio::test]
async fn in_process() {
    run(&Sandbox::new().client()).await;
}

/// Everything works on a clock that only moves when nothing else can.
#[tokio::test(start_paused = true)]
async fn in_process_on_a_paused_clock() {
    run(&Sandbox::new().client()).await;
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn over_http() {
    let server = Sandbox::new().serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    run(&client(&server.kubeconfig()).await).await;
    server.shutdown().await;
}

#[tokio::test]
async fn real_api_server() {
    let Ok(path) = std::env::var("SANDBOX_KUBECONFIG") else {
        eprintln!("skipped: SANDBOX_KUBECONFIG names no real API server");
        return;
    };
    run(&client(&std::fs::read_to_string(path).unwrap()).await).await;
}
