//! What changed in workload clusters, for controllers that requeue what depends on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ClusterKey;

/// More Nodes of one cluster, or provider IDs of one Node, than this are reported as [`ClusterChange::Everything`].
const MOST_NAMED: usize = 1_000;

/// What changed in one cluster since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// The connection came or went, or more changed than is worth naming.
    Everything,
    /// These Nodes, by name, each with all provider IDs that it had before the changes and has after them.
    Nodes(BTreeMap<String, BTreeSet<String>>),
}

/// The changes that one subscriber has not taken yet. Each Node is there once, however often it changed.
#[derive(Debug)]
pub struct Changes {
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    clusters: Mutex<BTreeMap<ClusterKey, ClusterChange>>,
    notify: Notify,
}

/// All subscribers.
#[derive(Debug, Default)]
pub(super) struct Subscribers(Mutex<Vec<Arc<Pending>>>);

impl Subscribers {
    pub(super) fn subscribe(&self) -> Changes {
        let pending = Arc::new(Pending::default());
        self.0.lock().push(pending.clone());
        Changes { pending }
    }

    /// Reports that anything of a cluster may have changed.
    pub(super) fn everything(&self, cluster: &ClusterKey) {
        self.each(cluster, |change| *change = ClusterChange::Everything);
    }

    /// Reports a Node that changed.
    pub(super) fn node(&self, cluster: &ClusterKey, name: &str, provider_ids: &[Option<&str>]) {
        self.each(cluster, |change| {
            let ClusterChange::Nodes(nodes) = change else { return };
            let ids = nodes.entry(name.to_owned()).or_default();
            ids.extend(provider_ids.iter().flatten().map(|id| (*id).to_owned()));
            if ids.len() > MOST_NAMED || nodes.len() > MOST_NAMED {
                *change = ClusterChange::Everything;
            }
        });
    }

    fn each(&self, cluster: &ClusterKey, add: impl Fn(&mut ClusterChange)) {
        let mut subscribers = self.0.lock();
        // The subscriber is gone if this is the only reference.
        subscribers.retain(|pending| Arc::strong_count(pending) > 1);
        for pending in subscribers.iter() {
            let mut clusters = pending.clusters.lock();
            add(clusters.entry(cluster.clone()).or_insert_with(|| ClusterChange::Nodes(BTreeMap::new())));
            pending.notify.notify_one();
        }
    }
}

impl Changes {
    /// Takes what changed since the last look.
    pub fn take(&mut self) -> BTreeMap<ClusterKey, ClusterChange> {
        std::mem::take(&mut *self.pending.clusters.lock())
    }

    /// Waits until something changed and takes it. Cancel-safe.
    pub async fn next(&mut self) -> BTreeMap<ClusterKey, ClusterChange> {
        loop {
            let changes = self.take();
            if !changes.is_empty() {
                return changes;
            }
            self.pending.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn changes_of_one_node_are_one_change() {
        let subscribers = Subscribers::default();
        let mut changes = subscribers.subscribe();
        let (one, two) = (ClusterKey::new("a", "one"), ClusterKey::new("a", "two"));
        subscribers.node(&one, "n", &[None, Some("x://1")]);
        subscribers.node(&one, "n", &[Some("x://1"), Some("x://2")]);
        subscribers.node(&two, "m", &[None, None]);
        let taken = changes.next().await;
        let ids: BTreeSet<String> = ["x://1", "x://2"].map(str::to_owned).into();
        assert_eq!(taken[&one], ClusterChange::Nodes([("n".to_owned(), ids)].into()));
        assert_eq!(taken[&two], ClusterChange::Nodes([("m".to_owned(), BTreeSet::new())].into()));
        assert!(changes.next().now_or_never().is_none());
        subscribers.everything(&one);
        subscribers.node(&one, "n", &[None]);
        assert_eq!(changes.take()[&one], ClusterChange::Everything);
        for number in 0..=MOST_NAMED {
            subscribers.node(&one, "n", &[Some(&number.to_string())]);
        }
        assert_eq!(changes.take()[&one], ClusterChange::Everything);
        drop(changes);
        subscribers.everything(&one);
        assert!(subscribers.0.lock().is_empty());
    }
}
