//! The workload clusters that are followed.

use std::{collections::BTreeMap, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use cloudprovider::{LogOnce, error_chain};
use cluster_api::names::labels::CLUSTER_NAME;
use component::{
    loop_tasks::LoopTasks,
    watching::{self, watch},
};

use futures::{FutureExt as _, StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::watcher::{self, Event},
};
use lifecycle::machine::Probe;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::gate::PartFence;

use super::{
    ClusterKey, Connection, NotConnected, WorkloadCluster,
    changes::{Changes, Subscribers},
    connect::Connector,
    entry::Entry,
    session,
    shared::Shared,
};

/// How many Secrets one page of a list has; a page has metadata alone.
const PAGE: u32 = 500;
/// A session that panicked begins again after this time.
const AFTER_PANIC: Duration = Duration::from_secs(60);

/// How workload clusters are followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of the Clusters, and so of the Secrets that are watched. `None`: all.
    pub namespace: Option<String>,
    /// For how long the conditions of Nodes stay after the last successful probe: upstream's `--remote-conditions-grace-period`.
    pub conditions_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { namespace: None, conditions_grace: Duration::from_secs(300) }
    }
}

/// One connection for each Cluster, for all controllers. Clones share them.
#[derive(Clone)]
pub struct WorkloadClusters(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    options: Options,
    entries: Mutex<BTreeMap<ClusterKey, Arc<Entry>>>,
    /// Those whose session is to begin.
    starting: Mutex<Vec<Arc<Entry>>>,
    started: Notify,
}

impl fmt::Debug for WorkloadClusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadClusters")
            .field("clusters", &self.0.entries.lock().len())
            .finish_non_exhaustive()
    }
}

impl WorkloadClusters {
    /// No cluster yet. `management` reads Secrets, `fence` ends all writes to workload clusters with the term.
    pub fn new(
        management: Client,
        fence: PartFence,
        connector: Arc<dyn Connector>,
        options: Options,
    ) -> Self {
        let shared = Shared { management, fence, connector, subscribers: Subscribers::default() };
        Self(Arc::new(Inner {
            shared: Arc::new(shared),
            options,
            entries: Mutex::default(),
            starting: Mutex::default(),
            started: Notify::new(),
        }))
    }

    /// Follows a Cluster, with its UID, until [`forget`](Self::forget). Again for the same one it does nothing; a Cluster of the
    /// same name with another UID replaces it.
    pub fn follow(&self, cluster: &ClusterKey, uid: &str) {
        let entry = {
            let mut entries = self.0.entries.lock();
            match entries.get(cluster) {
                Some(entry) if entry.uid == uid => return,
                Some(entry) => entry.stop.cancel(),
                None => {}
            }
            let entry = Arc::new(Entry::new(cluster.clone(), uid.to_owned(), CancellationToken::new()));
            entries.insert(cluster.clone(), entry.clone());
            entry
        };
        self.0.starting.lock().push(entry);
        self.0.started.notify_one();
        self.0.shared.subscribers.everything(cluster);
    }

    /// Follows a Cluster no more. Its connection is closed.
    pub fn forget(&self, cluster: &ClusterKey) {
        if let Some(entry) = self.0.entries.lock().remove(cluster) {
            entry.stop.cancel();
            self.0.shared.subscribers.everything(cluster);
        }
    }

    /// Whether there is a connection to a Cluster.
    pub fn connection(&self, cluster: &ClusterKey) -> Connection {
        self.entry(cluster)
            .map_or_else(|| Connection::NotConnected(not_followed()), |entry| entry.connection())
    }

    /// The probes of the connection, as conditions of Machines and Clusters need them.
    pub fn probe(&self, cluster: &ClusterKey) -> Probe {
        let grace = self.0.options.conditions_grace;
        let none = Probe { last_success: None, failures: 0, grace };
        self.entry(cluster).map_or(none, |entry| entry.probe(grace))
    }

    /// The workload cluster of a Cluster.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn get(&self, cluster: &ClusterKey) -> Result<WorkloadCluster, NotConnected> {
        self.entry(cluster).ok_or_else(not_followed)?.get()
    }

    /// Subscribes to what changes from now on.
    pub fn changes(&self) -> Changes {
        self.0.shared.subscribers.subscribe()
    }

    /// Watches the Secrets with kubeconfigs and keeps the connections, until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut sessions: LoopTasks<()> = LoopTasks::new("a session with a workload cluster");
        let client = watching::client(self.0.shared.management.clone());
        let secrets: Api<PartialObjectMeta<Secret>> = match &self.0.options.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let config = watcher::Config::default().labels(CLUSTER_NAME).page_size(PAGE);
        let events = watch(secrets, config);
        pin_mut!(events);
        let mut failing = LogOnce::<()>::default();
        loop {
            let begin = std::mem::take(&mut *self.0.starting.lock());
            for entry in begin {
                sessions.spawn(guarded(self.0.shared.clone(), entry));
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.0.started.notified() => {}
                ended = sessions.next() => if ended.is_none() { break },
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        if !matches!(event, Event::Init) && failing.ends(&()) {
                            tracing::info!("watch of Secrets of Clusters works again");
                        }
                        self.secret_event(&event);
                    }
                    Some(Err(error)) => if failing.begins(&()) {
                        tracing::warn!(error = %error_chain(&error), "watch of Secrets of Clusters failed, trying again");
                    },
                    None => break,
                },
            }
        }
        for entry in std::mem::take(&mut *self.0.entries.lock()).into_values() {
            entry.stop.cancel();
        }
        sessions.end(&CancellationToken::new()).await;
    }

    /// Tells the session of the Cluster that its Secret may have changed.
    fn secret_event(&self, event: &Event<PartialObjectMeta<Secret>>) {
        let (Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret)) = event else { return };
        let metadata = &secret.metadata;
        let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return };
        let cluster = ClusterKey::of_kubeconfig_secret(namespace, name);
        if let Some(entry) = cluster.and_then(|cluster| self.entry(&cluster)) {
            entry.secret_changed.notify_one();
        }
    }

    fn entry(&self, cluster: &ClusterKey) -> Option<Arc<Entry>> {
        self.0.entries.lock().get(cluster).cloned()
    }
}

fn not_followed() -> NotConnected {
    NotConnected::new("the Cluster is not followed".into(), jiff::Timestamp::now())
}

/// The session of one Cluster. A panic in it, such as one over an odd answer, costs this Cluster its connection and no other.
async fn guarded(shared: Arc<Shared>, entry: Arc<Entry>) {
    loop {
        let session = AssertUnwindSafe(session::follow(&shared, &entry)).catch_unwind();
        match entry.stop.run_until_cancelled(session).await {
            None | Some(Ok(())) => break,
            Some(Err(_)) => {
                tracing::error!(cluster = %entry.cluster, "the session with a workload cluster panicked, it begins again in {AFTER_PANIC:?}");
                session::lost(&shared, &entry, "internal error, see the log".into());
                if entry.stop.run_until_cancelled(sleep(AFTER_PANIC)).await.is_none() {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
