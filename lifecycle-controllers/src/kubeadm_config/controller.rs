//! The controller with its tokens.

use std::{collections::HashMap, sync::Arc};

use cluster_api::{KubeadmConfig, Machine};
use parking_lot::Mutex;

use crate::{
    bootstrap::Bootstrap,
    engine::object::{Meta as _, Stored, key, names_kind},
    workload::tokens::BootstrapToken,
};

/// The controller of `KubeadmConfig`s.
#[derive(Debug)]
pub struct KubeadmConfigController {
    pub(super) bootstrap: Arc<Bootstrap>,
    /// Tokens of machines that have not joined, by the UID of the config.
    tokens: Mutex<HashMap<String, BootstrapToken>>,
}

impl KubeadmConfigController {
    /// A controller of all configs of these caches.
    pub fn new(bootstrap: Arc<Bootstrap>) -> Self {
        Self { bootstrap, tokens: Mutex::default() }
    }

    pub(super) fn token(&self, config: &KubeadmConfig) -> Option<BootstrapToken> {
        self.tokens.lock().get(config.uid_or_empty()).cloned()
    }

    pub(super) fn remember(&self, config: &KubeadmConfig, token: BootstrapToken) {
        self.tokens.lock().insert(config.uid_or_empty().to_owned(), token);
    }

    pub(super) fn forget(&self, config: &KubeadmConfig) -> Option<BootstrapToken> {
        self.tokens.lock().remove(config.uid_or_empty())
    }
}

/// The Machine that controls a config.
pub(super) fn machine_of(bootstrap: &Bootstrap, config: &KubeadmConfig) -> Option<Arc<Stored<Machine>>> {
    let owner = config.controller().filter(|owner| names_kind(owner, "cluster.x-k8s.io", "Machine"))?;
    let machine = bootstrap.machines.get(&key(config.namespace_or_empty(), &owner.name))?;
    (machine.uid_or_empty() == owner.uid).then_some(machine)
}
