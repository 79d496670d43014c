//! Nodes in protobuf are the same as in JSON, at the real API server.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use controller_kit::nodes::{Node, NodeStore, protobuf, read_nodes, watch_nodes};
use http::{Request, Response, header};
use k8s_openapi::api::core::v1;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
    client::Body,
};
use parking_lot::Mutex;
use sandbox::kubelet;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{api::Api, scenarios::Trials, support::*};

const SOON: Duration = Duration::from_secs(20);
const BINARY: &str = "application/vnd.kubernetes.protobuf";

pub(crate) fn trials() -> Trials {
    Trials::new()
        .api_server("nodes_in_protobuf_are_those_in_json", lists)
        .api_server("a_watch_in_protobuf_tells_what_one_in_json_does", watches)
        .api_server("refusals_in_protobuf_are_those_in_json", refusals)
}

/// The content types of a client's responses.
type ContentTypes = Arc<Mutex<Vec<String>>>;

fn noting(client: &Client) -> (Client, ContentTypes) {
    let (client, noted) = (client.clone(), ContentTypes::default());
    let seen = Arc::clone(&noted);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, seen) = (client.clone(), Arc::clone(&seen));
        async move {
            let answer: Response<Body> = client.send(request).await?;
            let content_type =
                answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            seen.lock().push(content_type.unwrap_or_default().to_owned());
            Ok::<_, kube::Error>(answer)
        }
    });
    (Client::new(service, "default"), noted)
}

fn all(noted: &ContentTypes) -> Vec<String> {
    noted.lock().clone()
}

async fn lists(api: &Api) -> anyhow::Result<()> {
    post_odd_nodes(&api.client).await?;
    let (client, content_types) = noting(&api.daemon_client);
    let in_protobuf = by_name(read_nodes(protobuf::client(client)).await?);
    let in_json = by_name(read_nodes(api.daemon_client.clone()).await?);
    let_go(&api.client).await?;
    ensure!(in_json.len() == 4 && in_protobuf == in_json, "{in_protobuf:#?} where JSON says {in_json:#?}");
    ensure!(all(&content_types) == [BINARY], "{content_types:?}");
    Ok(())
}

/// Creates a Node of real size, a minimal one, one with all kinds of fields, and one that is being deleted.
async fn post_odd_nodes(client: &Client) -> anyhow::Result<()> {
    kubelet::register(client, &kubelet::node_of_real_size("real", &uuid(1))).await?;
    let least = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "least"}});
    let odd = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "odd", "labels": {"a": "", "example.com/b": "c"}, "annotations": {"text": "\u{1f980} \"x\"\n\t\\"},
        },
        "spec": {"providerID": "odd://\u{e9}", "taints": [
            {"key": "example.com/t", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
            {"key": "example.com/t", "value": "v", "effect": "PreferNoSchedule"},
        ]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalDNS", "address": "x.example.com"},
            ],
            "conditions": [
                {"type": "Ready", "status": "Unknown", "reason": "R", "message": "m"},
                {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated", "message": "\u{fc}"},
            ],
        },
    });
    let going = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "going", "finalizers": ["example.com/stays"]},
    });
    for node in [least, odd, going] {
        kubelet::register(client, &serde_json::from_value(node)?).await?;
    }
    let nodes = kube::Api::<v1::Node>::all(client.clone());
    nodes.delete("going", &DeleteParams::default()).await?;
    Ok(())
}

/// Removes the last finalizer, and with it the Node.
async fn let_go(client: &Client) -> anyhow::Result<()> {
    let nodes = kube::Api::<v1::Node>::all(client.clone());
    let patch = json!({"metadata": {"finalizers": null}});
    nodes.patch("going", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

fn by_name(mut nodes: Vec<Node>) -> Vec<Node> {
    nodes.sort_by(|a, b| a.name().cmp(b.name()));
    nodes
}

async fn watches(api: &Api) -> anyhow::Result<()> {
    post_odd_nodes(&api.client).await?;
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let (client, content_types) = noting(&api.daemon_client);
    let stores = [protobuf::client(client), api.daemon_client.clone()].map(|client| {
        let store = NodeStore::new();
        tokio::spawn(watch_nodes(client, store.clone(), stop.clone()));
        store
    });
    for store in &stores {
        timeout(patience(SOON), store.synced()).await.context("no list")?;
    }
    let nodes = kube::Api::<v1::Node>::all(api.client.clone());
    for number in 0..20 {
        let patch = json!({"metadata": {"labels": {"example.com/number": number.to_string()}}});
        nodes.patch("real", &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    for second in 10..15 {
        let time = format!("2026-01-02T03:04:{second}Z");
        let conditions = json!([{"type": "Ready", "lastHeartbeatTime": time}]);
        for name in ["real", "odd"] {
            let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
            nodes.patch_status(name, &PatchParams::default(), &patch).await?;
        }
    }
    nodes.delete("least", &DeleteParams::default()).await?;
    kubelet::register(&api.client, &kubelet::node_of_real_size("new", &uuid(2))).await?;
    let_go(&api.client).await?;
    let is_done = |store: &NodeStore| {
        let names: Vec<String> = by_name(read(store)).iter().map(|node| node.name().to_owned()).collect();
        let number =
            store.get("real").and_then(|node| node.identity.labels.get("example.com/number").cloned());
        names == ["new", "odd", "real"] && number.as_deref() == Some("19")
    };
    let done = async {
        while !stores.iter().all(is_done) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = timeout(patience(SOON), done).await;
    let [in_protobuf, in_json] = stores.each_ref().map(|store| by_name(read(store)));
    ensure!(in_time.is_ok() && in_protobuf == in_json, "{in_protobuf:#?} where JSON says {in_json:#?}");
    let content_types = all(&content_types);
    ensure!(content_types == [BINARY, &format!("{BINARY};stream=watch")], "{content_types:?}");
    Ok(())
}

fn read(store: &NodeStore) -> Vec<Node> {
    store.all().iter().map(|node| Node::clone(node)).collect()
}

/// An invalid page token, an unsupported selector, and an invalid version.
async fn refusals(api: &Api) -> anyhow::Result<()> {
    let in_protobuf = protobuf::client(api.daemon_client.clone());
    for query in
        ["limit=1&continue=nonsense", "fieldSelector=spec.images%3Dx", "watch=true&resourceVersion=nonsense"]
    {
        let told = async |client: &Client| {
            let request = Request::get(format!("/api/v1/nodes?{query}")).body(Vec::new())?;
            match client.request::<Value>(request).await {
                Err(kube::Error::Api(status)) => anyhow::Ok(serde_json::to_value(status)?),
                other => anyhow::bail!("{query}: {other:?}"),
            }
        };
        let (mut binary, mut json) = (told(&in_protobuf).await?, told(&api.daemon_client).await?);
        // An empty field is the same as a missing one.
        for status in [&mut binary, &mut json] {
            status
                .as_object_mut()
                .context("an object")?
                .retain(|key, _| key != "metadata" && key != "details");
        }
        ensure!(binary == json, "{query}: {binary} where JSON says {json}");
    }
    Ok(())
}
