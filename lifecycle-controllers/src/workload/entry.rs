//! What is known of one Cluster that is followed.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use lifecycle::machine::Probe;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    ClusterKey, WorkloadCluster, failure::ConnectionFailure, health::Health, nodes::Nodes, pace::Pace,
    words::words,
};

/// Whether there is a connection to a workload cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// There is none.
    NotConnected(NotConnected),
    /// Its API server answers, and its Nodes are known.
    Connected {
        /// Since when.
        since: Timestamp,
    },
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection to the workload cluster: {shown}")]
pub struct NotConnected {
    /// The reason for people: what is missing or wrong, or the network's own word. It has no secrets and at most 300 characters.
    pub reason: String,
    /// The same for the users of the Cluster, whose kubeconfig may lead into the operator's network: it does not say what answers there.
    pub shown: String,
    /// Since when there is none.
    pub since: Timestamp,
}

impl NotConnected {
    pub(super) fn new(why: ConnectionFailure, since: Timestamp) -> Self {
        Self { reason: words(&why.reason), shown: words(&why.shown), since }
    }
}

/// One Cluster that is followed.
pub(super) struct Entry {
    pub(super) cluster: ClusterKey,
    /// The Cluster's UID.
    pub(super) uid: String,
    pub(super) nodes: Nodes,
    /// How fast its API server may send, whatever the connection: a new kubeconfig gives no new burst.
    pub(super) pace: Arc<Pace>,
    /// The Secret with the kubeconfig may have changed.
    pub(super) secret_changed: Notify,
    /// The Cluster is followed no more.
    pub(super) stop: CancellationToken,
    state: Mutex<State>,
}

struct State {
    connected: Result<(WorkloadCluster, Timestamp), NotConnected>,
    health: Health,
}

impl Entry {
    pub(super) fn new(cluster: ClusterKey, uid: String, stop: CancellationToken) -> Self {
        let not_yet = NotConnected::new("not connected yet".into(), Timestamp::now());
        let state = State { connected: Err(not_yet), health: Health::default() };
        Self {
            cluster,
            uid,
            nodes: Nodes::default(),
            pace: Arc::default(),
            secret_changed: Notify::new(),
            stop,
            state: Mutex::new(state),
        }
    }

    pub(super) fn connection(&self) -> Connection {
        match &self.state.lock().connected {
            Ok((_, since)) => Connection::Connected { since: *since },
            Err(why) => Connection::NotConnected(why.clone()),
        }
    }

    pub(super) fn get(&self) -> Result<WorkloadCluster, NotConnected> {
        self.state.lock().connected.as_ref().map(|(cluster, _)| cluster.clone()).map_err(Clone::clone)
    }

    pub(super) fn probe(&self, grace: Duration) -> Probe {
        let health = self.state.lock().health;
        // The time of the success is that of a clock which no one sets. Both parts have their fractions of seconds, so that the
        // difference is the same second whenever it is asked for.
        let time = |success: Instant| {
            let ago = SignedDuration::try_from(success.elapsed()).unwrap_or(SignedDuration::MAX);
            Timestamp::now().saturating_sub(ago).map_or(0, Timestamp::as_second)
        };
        Probe { last_success: health.last_success().map(time), failures: health.failures(), grace }
    }

    pub(super) fn health<T>(&self, change: impl FnOnce(&mut Health) -> T) -> T {
        change(&mut self.state.lock().health)
    }

    /// Gives whether it was not connected before.
    pub(super) fn connected(&self, cluster: WorkloadCluster) -> bool {
        let mut state = self.state.lock();
        let since = state.connected.as_ref().map_or_else(|_| Timestamp::now(), |(_, since)| *since);
        std::mem::replace(&mut state.connected, Ok((cluster, since))).is_err()
    }

    /// Gives whether it was connected before, or had another reason.
    pub(super) fn not_connected(&self, why: ConnectionFailure) -> bool {
        let mut state = self.state.lock();
        let since = match &state.connected {
            Err(before) if before.reason == words(&why.reason) => return false,
            Err(before) => before.since,
            Ok(_) => Timestamp::now(),
        };
        state.connected = Err(NotConnected::new(why, since));
        true
    }
}
