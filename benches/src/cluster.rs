//! A cluster to measure in: API server, etcd and Nodes, and a watch that notes when Nodes are complete.

mod lifecycle;
mod machines;
mod managed;
mod networks;

use std::{
    collections::BTreeMap,
    net::TcpListener,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::PartialObjectMeta,
};
use parking_lot::Mutex;
use sandbox::kubelet;
use test_env::{ControlPlane, ControlPlaneOptions};
use tokio::{task::JoinHandle, time::sleep};

use crate::usage::Usage;

pub(crate) use self::{machines::LIBVIRT_MACHINES, managed::ACCOUNT_USER};

/// How many Nodes are posted at the same time.
const POSTERS: usize = 32;
/// All Nodes are complete when no Node has changed for this time and the list confirms it.
const QUIET: Duration = Duration::from_secs(2);
/// A manager that has not initialised a Node after this time is stuck.
pub(crate) const STUCK: Duration = Duration::from_secs(120);
/// The pause between two reads of one Node.
const POLL: Duration = Duration::from_millis(10);
const ZONE: &str = "topology.kubernetes.io/zone";

/// How much a Node's status holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeSize {
    /// With 50 images, about 12 kB.
    Real,
    /// Without images, about 2 kB.
    Bare,
}

/// A control plane of its own.
#[derive(Debug)]
pub(crate) struct Cluster {
    control_plane: ControlPlane,
    pub(crate) client: NoDebug,
}

/// A client with a short `Debug` output.
#[derive(Clone)]
pub(crate) struct NoDebug(pub(crate) Client);

impl std::fmt::Debug for NoDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let control_plane = ControlPlane::start(&ControlPlaneOptions::default())?;
        let (client, _) = ccm::api_client::connect(Some(control_plane.kubeconfig()), "").await?;
        let client = NoDebug(client);
        Ok(Self { control_plane, client })
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        self.control_plane.kubeconfig()
    }

    /// The bearer token of the administrator.
    pub(crate) fn admin_token(&self) -> &str {
        self.control_plane.admin_token()
    }

    /// The CPU time that API server and etcd have taken so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let (api_server, etcd) = self.control_plane.process_ids();
        let api_server = api_server.context("the API server is stopped")?;
        Ok(Usage::of(api_server)?.cpu + Usage::of(etcd)?.cpu)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.0.clone())
    }

    /// Posts uninitialised Nodes, called `node-N`. Their kubelets are not ready yet.
    pub(crate) async fn post(&self, numbers: Range<usize>, size: NodeSize) -> Result<()> {
        self.post_with(numbers, size, false).await
    }

    /// Like [`post`](Self::post), with kubelets that report that they are ready, as in a settled cluster.
    pub(crate) async fn post_ready(&self, numbers: Range<usize>, size: NodeSize) -> Result<()> {
        self.post_with(numbers, size, true).await
    }

    async fn post_with(&self, numbers: Range<usize>, size: NodeSize, is_ready: bool) -> Result<()> {
        stream::iter(numbers)
            .map(Ok)
            .try_for_each_concurrent(POSTERS, |number| async move {
                let (name, uuid) = (name(number), format!("5a3c0de0-0000-4000-8000-{number:012x}"));
                let mut node = match size {
                    NodeSize::Real => kubelet::node_of_real_size(&name, &uuid),
                    NodeSize::Bare => kubelet::node(&name, &uuid),
                };
                let conditions = node.status.as_mut().and_then(|status| status.conditions.as_mut());
                for ready in conditions.into_iter().flatten().filter(|condition| condition.type_ == "Ready") {
                    if is_ready { "True" } else { "False" }.clone_into(&mut ready.status);
                }
                kubelet::register(&self.client.0, &node).await?;
                anyhow::Ok(())
            })
            .await
    }

    /// Starts a watch of all Nodes' metadata, which costs the API server the least.
    pub(crate) async fn watch(&self) -> Result<Progress> {
        let nodes = self.nodes();
        let from = nodes.list_metadata(&ListParams::default().limit(1)).await?;
        let mut version = from.metadata.resource_version.unwrap_or_default();
        let seen = Arc::<Mutex<Seen>>::default();
        let of_task = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let params = WatchParams::default().timeout(290);
                let Ok(events) = nodes.watch_metadata(&params, &version).await else {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let mut events = std::pin::pin!(events);
                while let Some(Ok(event)) = events.next().await {
                    match event {
                        WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                            version = node.resource_version().unwrap_or_default();
                            of_task.lock().note(&node);
                        }
                        WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                        WatchEvent::Deleted(_) | WatchEvent::Error(_) => {}
                    }
                }
            }
        });
        Ok(Progress { seen, task })
    }

    /// Waits until `count` Nodes are complete. Returns when the last change of a Node was, and which CPU time
    /// API server and etcd had taken until shortly after that.
    pub(crate) async fn all_complete(&self, count: usize, progress: &Progress) -> Result<Done> {
        let began = Instant::now();
        loop {
            sleep(Duration::from_millis(100)).await;
            let (zoned, last) = progress.state();
            let quiet = last.unwrap_or(began).elapsed();
            if zoned >= count && quiet >= QUIET {
                let cluster_cpu = self.cpu()?;
                if self.count_complete().await? >= count {
                    return Ok(Done { at: last.unwrap_or(began), cluster_cpu });
                }
                sleep(QUIET).await;
            }
            if quiet > STUCK {
                bail!("only {zoned} of {count} Nodes have a zone, and nothing has changed for {STUCK:?}");
            }
        }
    }

    async fn count_complete(&self) -> Result<usize> {
        let mut params = ListParams::default().limit(500);
        let mut complete = 0;
        loop {
            let page = self.nodes().list(&params).await?;
            complete += page.items.iter().filter(|node| is_complete(node)).count();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(complete),
            }
        }
    }

    /// Waits until `is_wanted` accepts this Node, which is `None` when it is gone.
    pub(crate) async fn until(&self, name: &str, is_wanted: impl Fn(Option<&Node>) -> bool) -> Result<()> {
        let began = Instant::now();
        loop {
            let node = self.nodes().get_opt(name).await?;
            if is_wanted(node.as_ref()) {
                return Ok(());
            }
            ensure!(began.elapsed() < STUCK, "{name} is not as wanted after {STUCK:?}");
            sleep(POLL).await;
        }
    }

    /// Posts one Node and returns how long it took from there until it was complete.
    pub(crate) async fn join(&self, number: usize, size: NodeSize) -> Result<Duration> {
        let name = name(number);
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
        let from = self.nodes().list_metadata(&ListParams::default().limit(1)).await?;
        let version = from.metadata.resource_version.unwrap_or_default();
        let nodes = self.nodes();
        let mut events = std::pin::pin!(nodes.watch(&params, &version).await?);
        let began = Instant::now();
        self.post(number..number + 1, size).await?;
        while let Some(event) = tokio::time::timeout(STUCK, events.try_next()).await?? {
            if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event
                && is_complete(&node)
            {
                return Ok(began.elapsed());
            }
        }
        bail!("the watch ended before {name} was complete")
    }
}

/// The name of Node number N.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number}")
}

/// The taint is gone, and provider ID, zone and an address are there: pods can be scheduled and reached.
fn is_complete(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    !has_taint(node, kubelet::UNINITIALIZED_TAINT)
        && spec.is_some_and(|spec| spec.provider_id.is_some())
        && node.labels().contains_key(ZONE)
        && addresses.iter().any(|address| address.type_ == "InternalIP")
}

/// Whether the Node has a taint with this key.
pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == key)
}

/// When all work was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) at: Instant,
    /// CPU time of API server and etcd since they were started.
    pub(crate) cluster_cpu: Duration,
}

/// When Nodes changed, as the watch saw it.
#[derive(Debug)]
pub(crate) struct Progress {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When each Node that has a zone last changed.
    changed: BTreeMap<String, Instant>,
    first: Option<Instant>,
}

impl Seen {
    fn note(&mut self, node: &PartialObjectMeta<Node>) {
        let now = Instant::now();
        if node.labels().contains_key(ZONE) {
            self.first.get_or_insert(now);
            self.changed.insert(node.name_any(), now);
        }
    }
}

impl Progress {
    /// How many Nodes have a zone, and when one of those last changed.
    fn state(&self) -> (usize, Option<Instant>) {
        let seen = self.seen.lock();
        (seen.changed.len(), seen.changed.values().max().copied())
    }

    /// When the first Node got its zone.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.seen.lock().first
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A port on 127.0.0.1 that is free now.
pub(crate) fn free_port() -> Result<u16> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    ensure!(port > 0);
    Ok(port)
}
