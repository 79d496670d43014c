//! The conformance cases on the sandbox, and tests of features that only the sandbox has. The integration
//! tests run the same cases on a real API server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod faults;
mod junk;
mod kinds;
mod scale;
mod server;

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

/// All features work on a paused clock, which only advances when all tasks are idle.
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
