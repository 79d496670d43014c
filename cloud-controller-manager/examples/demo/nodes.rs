//! What an observer sees of the Nodes: a watch, folded into a map.

use std::{collections::BTreeMap, pin::pin};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use sandbox::kubelet::UNINITIALIZED_TAINT;
use tokio::{sync::watch, time::Instant};

/// The current Nodes.
#[derive(Default)]
pub(crate) struct Seen {
    pub nodes: BTreeMap<String, Node>,
    /// When a Node was first seen without the uninitialized taint.
    pub initialized: BTreeMap<String, Instant>,
}

/// Watches all Nodes until the receiver is dropped.
pub(crate) fn watch(client: Client) -> watch::Receiver<Seen> {
    let (sender, receiver) = watch::channel(Seen::default());
    tokio::spawn(async move {
        let follow = async {
            let events = watcher(Api::<Node>::all(client), watcher::Config::default()).default_backoff();
            let mut events = pin!(events);
            loop {
                match events.try_next().await {
                    Ok(Some(event)) => sender.send_modify(|seen| seen.note(event)),
                    Ok(None) => return,
                    Err(error) => tracing::debug!(%error, "watch of nodes interrupted"),
                }
            }
        };
        tokio::select! {
            () = follow => {}
            () = sender.closed() => {}
        }
    });
    receiver
}

impl Seen {
    fn note(&mut self, event: watcher::Event<Node>) {
        match event {
            watcher::Event::Apply(node) | watcher::Event::InitApply(node) => {
                let name = node.name_any();
                if !has_taint(&node, UNINITIALIZED_TAINT) {
                    self.initialized.entry(name.clone()).or_insert_with(Instant::now);
                }
                self.nodes.insert(name, node);
            }
            watcher::Event::Delete(node) => {
                self.nodes.remove(&node.name_any());
            }
            watcher::Event::Init => self.nodes.clear(),
            watcher::Event::InitDone => {}
        }
    }

    pub(crate) fn has_taint(&self, name: &str, key: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| has_taint(node, key))
    }
}

fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

/// The first address of the type `InternalIP`.
pub(crate) fn address(node: &Node) -> Option<&str> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP").map(|address| address.address.as_str())
}

pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// Status, reason and message of a condition.
pub(crate) fn condition(node: &Node, condition_type: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == condition_type)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!(
        "{condition_type}={} ({}: {})",
        condition.status,
        text(&condition.reason),
        text(&condition.message)
    ))
}
