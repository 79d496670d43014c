//! The HTTP server.

use std::time::Duration;

use sandbox::Sandbox;

/// Only ends a hang: a watch would last for longer.
const PATIENCE: Duration = Duration::from_mins(4);

/// A server that shuts down does not wait for watches.
#[tokio::test]
async fn shutdown_ends_watches() {
    let server = Sandbox::new().serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let client = super::client(&server.kubeconfig()).await;
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
    let watch = nodes.watch(&kube::api::WatchParams::default(), "0").await.unwrap();
    tokio::time::timeout(PATIENCE, server.shutdown()).await.unwrap();
    drop(watch);
}
