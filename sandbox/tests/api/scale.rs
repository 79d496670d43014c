//! Many large Nodes.

use futures::{StreamExt, TryStreamExt, pin_mut, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use sandbox::{Sandbox, kubelet};

/// A thousand Nodes of real size are registered, listed in pages and watched.
#[tokio::test]
async fn a_thousand_nodes() {
    const NODES: usize = 1_000;
    let sandbox = Sandbox::new();
    let client = sandbox.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let watch = nodes.watch(&WatchParams::default(), "0").await.unwrap();
    stream::iter(0..NODES)
        .for_each_concurrent(16, async |n| {
            let node = kubelet::node_of_real_size(&format!("node-{n}"), &format!("{n:032x}"));
            kubelet::register(&client, &node).await.unwrap();
        })
        .await;
    let mut listed = 0;
    let mut params = ListParams::default().limit(300);
    loop {
        let page = nodes.list(&params).await.unwrap();
        listed += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(listed, NODES);
    pin_mut!(watch);
    for _ in 0..NODES {
        assert!(matches!(watch.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    }
}
