//! Helpers for waiting, and for reading Nodes.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use crate::trial;

pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const POLL: Duration = Duration::from_millis(50);
/// The longest pause between two looks in real time. A look is a request, which the test and the API server pay for.
const LONGEST_POLL: Duration = Duration::from_millis(250);

/// How long to wait for what should come within `limit`. On a paused clock that is `limit`, a time that does not depend on the
/// machine. In real time a wait only ends a hang.
pub(crate) fn patience(limit: Duration) -> Duration {
    if trial::is_paused() { limit } else { limit.max(test_env::PATIENCE) }
}

/// The pause until the next look of a wait that has lasted for this long. What comes soon is seen soon. On a paused clock a look
/// at each step shows the time of a change.
fn pause(waited: Duration) -> Duration {
    if trial::is_paused() { POLL } else { (waited / 10).clamp(POLL, LONGEST_POLL) }
}

/// Waits until `look` returns a value, with [`patience`].
pub(crate) async fn eventually<T, F>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let limit = patience(limit);
    let began = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if began.elapsed() >= limit {
            bail!("not within {limit:?}: {what}");
        }
        sleep(pause(began.elapsed())).await;
    }
}

/// The last lines of a log, for a failure's message.
pub(crate) fn tail(log: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

pub(crate) fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

/// Waits until `check` accepts the Node.
pub(crate) async fn node_becomes(
    client: &Client,
    name: &str,
    limit: Duration,
    what: &str,
    check: impl Fn(&Node) -> bool,
) -> anyhow::Result<Node> {
    let api = nodes(client);
    let outcome = eventually(limit, &format!("node {name}: {what}"), || async {
        Ok(api.get_opt(name).await?.filter(|node| check(node)))
    })
    .await;
    match outcome {
        Ok(node) => Ok(node),
        Err(error) => {
            let now = api.get_opt(name).await?;
            let status = now.as_ref().map(|n| json!({"metadata": {"labels": n.metadata.labels, "annotations": n.metadata.annotations}, "spec": n.spec,
                "addresses": n.status.as_ref().map(|s| &s.addresses), "conditions": n.status.as_ref().map(|s| &s.conditions)}));
            Err(error.context(format!("it is {status:?}")))
        }
    }
}

/// Waits until the Node is gone.
pub(crate) async fn node_vanishes(client: &Client, name: &str, limit: Duration) -> anyhow::Result<()> {
    let api = nodes(client);
    eventually(limit, &format!("node {name} is deleted"), || async {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

/// Fails if the Node is deleted within this time, or is gone already.
pub(crate) async fn node_stays(client: &Client, name: &str, time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    loop {
        nodes(client).get(name).await.with_context(|| format!("node {name} must not be deleted"))?;
        if Instant::now() >= end {
            return Ok(());
        }
        sleep(POLL.max(time / 200)).await;
    }
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|s| s.taints.iter().flatten()).any(|t| t.key == key)
}

pub(crate) fn is_initialized(node: &Node) -> bool {
    !has_taint(node, UNINITIALIZED)
}

pub(crate) fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

/// Addresses as `InternalIP 10.0.0.1`, in order.
pub(crate) fn addresses(node: &Node) -> Vec<String> {
    let addresses = node.status.iter().flat_map(|s| s.addresses.iter().flatten());
    addresses.map(|a| format!("{} {}", a.type_, a.address)).collect()
}

/// The status, reason and message of a condition.
pub(crate) fn condition(node: &Node, kind: &str) -> Option<(String, String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|c| c.type_ == kind)?;
    Some((
        found.status.clone(),
        found.reason.clone().unwrap_or_default(),
        found.message.clone().unwrap_or_default(),
    ))
}

/// The status of a condition.
pub(crate) fn condition_status(node: &Node, kind: &str) -> Option<String> {
    condition(node, kind).map(|(status, _, _)| status)
}

/// Waits for an event with this reason about the object, and returns it.
pub(crate) async fn event(
    client: &Client,
    namespace: &str,
    object: &str,
    reason: &str,
) -> anyhow::Result<Event> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    eventually(Duration::from_secs(40), &format!("event {reason} on {object}"), || async {
        let events = api.list(&ListParams::default()).await?;
        Ok(events.items.into_iter().find(|event| {
            event.involved_object.name.as_deref() == Some(object) && event.reason.as_deref() == Some(reason)
        }))
    })
    .await
}

/// Applies a merge patch to the Node, for example to its labels or annotations.
pub(crate) async fn merge(client: &Client, name: &str, patch: Value) -> anyhow::Result<Node> {
    Ok(nodes(client).patch(name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(patch)).await?)
}

/// Does what kube-controller-manager does if a kubelet has long been silent.
pub(crate) async fn set_ready_unknown(client: &Client, name: &str) -> anyhow::Result<()> {
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}});
    nodes(client)
        .patch_status(name, &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(patch))
        .await?;
    Ok(())
}

/// All versions of a Node from `first` on, from a watch.
pub(crate) struct History {
    versions: mpsc::UnboundedReceiver<Node>,
}

impl History {
    pub(crate) fn record(client: &Client, first: &Node) -> anyhow::Result<Self> {
        let (sender, versions) = mpsc::unbounded_channel();
        let name = first.metadata.name.clone().context("a name")?;
        let version = first.metadata.resource_version.clone().context("a version")?;
        let api = nodes(client);
        tokio::spawn(async move {
            let params = WatchParams::default().fields(&format!("metadata.name={name}"));
            let Ok(events) = api.watch(&params, &version).await else { return };
            pin_mut!(events);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event
                    && sender.send(node).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { versions })
    }

    /// All versions up to the one given.
    pub(crate) async fn up_to(&mut self, last: &Node) -> anyhow::Result<Vec<Node>> {
        let mut versions = Vec::new();
        loop {
            let next = tokio::time::timeout(test_env::PATIENCE, self.versions.recv()).await;
            let node = next.context("the watch is late")?.context("the watch ended")?;
            let is_last = node.metadata.resource_version == last.metadata.resource_version;
            versions.push(node);
            if is_last {
                return Ok(versions);
            }
        }
    }
}

/// Checks the order of writes: no version without the taint lacks any field.
pub(crate) fn check_order(versions: &[Node]) -> anyhow::Result<()> {
    let (mut with_taint, mut without) = (0, 0);
    for node in versions {
        if !is_initialized(node) {
            with_taint += 1;
            continue;
        }
        without += 1;
        let complete = provider_id(node).is_some()
            && addresses(node).iter().any(|a| a.starts_with("InternalIP"))
            && addresses(node).iter().any(|a| a.starts_with("Hostname"))
            && [
                "node.kubernetes.io/instance-type",
                "topology.kubernetes.io/zone",
                "topology.kubernetes.io/region",
            ]
            .iter()
            .all(|key| label(node, key).is_some())
            && condition_status(node, "CloudProviderInitialized").as_deref() == Some("True");
        if !complete {
            bail!("this version has no taint and is not complete: {}", serde_json::to_string(node)?);
        }
    }
    if with_taint == 0 || without == 0 {
        bail!("the watch missed the change: {with_taint} versions with the taint, {without} without");
    }
    Ok(())
}

/// A system UUID for the machine with this number.
pub(crate) fn uuid(number: usize) -> String {
    format!("5a3c0de0-0000-4000-8000-{number:012x}")
}
