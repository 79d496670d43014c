//! The controller, with the configs whose machines are yet to join a workload cluster.

use std::{collections::HashMap, sync::Arc};

use cluster_api::{Cluster, KubeadmConfig, Machine};
use parking_lot::Mutex;

use crate::{
    bootstrap::Bootstrap,
    core::workload_key,
    engine::object::{Meta as _, Stored, key, names_kind},
    workload::{ClusterKey, NotConnected, WorkloadCluster, tokens::BootstrapToken},
};

/// The controller of `KubeadmConfig`s.
#[derive(Debug)]
pub struct KubeadmConfigController {
    pub(super) bootstrap: Arc<Bootstrap>,
    /// By the keys of the configs. No other workload cluster is followed.
    joining: Mutex<HashMap<String, Joining>>,
}

/// A config whose machine needs the workload cluster, in which its token is.
#[derive(Debug)]
struct Joining {
    /// Of the config.
    uid: String,
    cluster: ClusterKey,
    token: Option<BootstrapToken>,
}

impl KubeadmConfigController {
    /// A controller of all configs of these caches.
    pub fn new(bootstrap: Arc<Bootstrap>) -> Self {
        Self { bootstrap, joining: Mutex::default() }
    }

    /// The workload cluster of a config, which is followed until [`leave`](Self::leave).
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) fn connected(
        &self,
        config: &KubeadmConfig,
        cluster: &Cluster,
    ) -> Result<WorkloadCluster, NotConnected> {
        let of_cluster = workload_key(cluster.namespace_or_empty(), cluster.name_or_empty());
        let token = self.token(config);
        let uid = config.uid_or_empty().to_owned();
        self.set(&key_of(config), Some(Joining { uid, cluster: of_cluster.clone(), token }));
        self.bootstrap.workload.follow(&of_cluster, cluster.uid_or_empty());
        self.bootstrap.workload.get(&of_cluster)
    }

    /// The config of this key does not need the workload cluster. A cluster that none needs is forgotten.
    pub(super) fn leave(&self, config: &str) {
        self.set(config, None);
    }

    fn set(&self, config: &str, new: Option<Joining>) {
        let mut joining = self.joining.lock();
        let before = match new {
            Some(new) => joining.insert(config.to_owned(), new),
            None => joining.remove(config),
        };
        if let Some(Joining { cluster, .. }) = before
            && !joining.values().any(|one| one.cluster == cluster)
        {
            self.bootstrap.workload.forget(&cluster);
        }
    }

    /// The token of a config that is [`connected`](Self::connected).
    pub(super) fn token(&self, config: &KubeadmConfig) -> Option<BootstrapToken> {
        let joining = self.joining.lock();
        let one = joining.get(&key_of(config)).filter(|one| one.uid == config.uid_or_empty());
        one.and_then(|one| one.token.clone())
    }

    /// Remembers the token of a config that is [`connected`](Self::connected).
    pub(super) fn remember(&self, config: &KubeadmConfig, token: BootstrapToken) {
        if let Some(one) = self.joining.lock().get_mut(&key_of(config)) {
            one.token = Some(token);
        }
    }
}

fn key_of(config: &KubeadmConfig) -> String {
    key(config.namespace_or_empty(), config.name_or_empty())
}

/// The Machine that controls a config.
pub(super) fn machine_of(bootstrap: &Bootstrap, config: &KubeadmConfig) -> Option<Arc<Stored<Machine>>> {
    let owner = config.controller().filter(|owner| names_kind(owner, "cluster.x-k8s.io", "Machine"))?;
    let machine = bootstrap.machines.get(&key(config.namespace_or_empty(), &owner.name))?;
    (machine.uid_or_empty() == owner.uid).then_some(machine)
}
