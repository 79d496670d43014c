//! The minimal client that writes the same patches: it lists once and writes two patches for each Node. It
//! has no watch, makes no decisions and checks nothing. With the same number of connections, no program that
//! initialises Nodes with these patches can be faster. When it is done it waits, so that its resource usage
//! can be read.
//!
//! With `watch` in place of a number it writes nothing, and receives a watch of all Nodes without decoding
//! it.
//!
//! `floor KUBECONFIG CONNECTIONS|watch`

use std::path::Path;

use anyhow::{Context, bail, ensure};
use controller_kit::nodes::{NodePatch, NodeWriter};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, api::ListParams, client::Body};
use serde_json::json;

const USAGE: &str = "usage: floor KUBECONFIG CONNECTIONS|watch";

/// Longer than any run, because a watch that starts again could receive other events than the daemon's watch.
const WATCH_SECONDS: u32 = 24 * 60 * 60;

// As many threads as the daemon has.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (kubeconfig, work) = (arguments.next().context(USAGE)?, arguments.next().context(USAGE)?);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (client, _) = ccm::api_client::connect(Some(Path::new(&kubeconfig)), "").await?;
    let nodes = Api::<Node>::all(client.clone()).list_metadata(&ListParams::default()).await?;
    if work == "watch" {
        return watch(&client, nodes.metadata.resource_version.as_deref().unwrap_or_default()).await;
    }
    let connections: usize = work.parse().context(USAGE)?;
    let writer = NodeWriter::new(client);
    let listed = nodes.items.iter().map(|node| {
        (node.name_any(), node.uid().unwrap_or_default(), node.resource_version().unwrap_or_default())
    });
    let mut nodes: Vec<_> = listed.collect();
    // The first patch of all Nodes and then the second one, so that the API server's cache has the first
    // patch when the second one comes. Otherwise the API server would apply the second one twice.
    for step in 0..2 {
        nodes = stream::iter(nodes)
            .map(|(name, uid, version)| {
                let writer = &writer;
                async move {
                    let [status, main] = patches(&name, &uid);
                    let mut patch = if step == 0 { status } else { main };
                    patch.set_version(Some(&version));
                    let version = writer.patch(&name, &patch).await?;
                    anyhow::Ok((name, uid, version))
                }
            })
            .buffer_unordered(connections)
            .try_collect()
            .await?;
    }
    std::future::pending().await
}

/// Sends the daemon's watch request.
async fn watch(client: &Client, version: &str) -> anyhow::Result<()> {
    let path = format!(
        "/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
    );
    let request = Request::get(path)
        .header(header::ACCEPT, controller_kit::nodes::protobuf::PROTOBUF)
        .body(Body::empty())?;
    let answer = client.send(request).await?;
    ensure!(answer.status().is_success(), "no watch: {}", answer.status());
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    bail!("the watch has ended")
}

/// Addresses and condition first and everything else second, as the daemon writes them.
fn patches(name: &str, uid: &str) -> [NodePatch; 2] {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let number = digits.parse::<u32>().unwrap_or_default();
    let [_, a, b, c] = number.to_be_bytes();
    let now = Timestamp::now();
    let status = json!({"metadata": {"uid": uid}, "status": {
        "addresses": [
            {"type": "InternalIP", "address": format!("10.{a}.{b}.{c}")}, {"type": "Hostname", "address": name},
            {"$patch": "replace"},
        ],
        "conditions": [{
            "type": "CloudProviderInitialized", "status": "True", "reason": "Initialized",
            "message": "the cloud provider has filled this node in",
            "lastTransitionTime": format!("{now:.0}"), "lastHeartbeatTime": format!("{now:.0}"),
        }],
    }});
    let zone = format!("zone-{}", number % 3);
    let main = json!({
        "metadata": {"uid": uid, "labels": {
            "node.kubernetes.io/instance-type": "4c-8g", "beta.kubernetes.io/instance-type": "4c-8g",
            "topology.kubernetes.io/zone": zone, "failure-domain.beta.kubernetes.io/zone": zone,
            "topology.kubernetes.io/region": "region-1", "failure-domain.beta.kubernetes.io/region": "region-1",
        }},
        "spec": {
            "providerID": format!("ideal:///{name}"),
            "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
        },
    });
    [NodePatch::Status(status), NodePatch::Strategic(main)]
}
