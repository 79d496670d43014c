//! The kinds that can be explained, and their controllers.

use std::sync::Arc;

use cluster_api::{KubeadmConfig, names::labels};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    bootstrap::Bootstrap,
    cluster::{ClusterController, ClusterOptions},
    core::Core,
    engine::{
        control::{Controller as _, FailedPass, Then},
        object::{Kind, Meta as _, key},
        place::Place,
        stores::{Store, Watches},
    },
    kubeadm_config::KubeadmConfigController,
    machine::MachineController,
    machine_deployment::MachineDeploymentController,
    machine_health_check::MachineHealthCheckController,
    machine_set::MachineSetController,
    options::LifecycleOptions,
};

/// A kind that can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainedKind {
    /// A Cluster.
    Cluster,
    /// A Machine of Cluster API.
    Machine,
    /// A `MachineSet`.
    MachineSet,
    /// A `MachineDeployment`.
    MachineDeployment,
    /// A `MachineHealthCheck`.
    MachineHealthCheck,
    /// A `KubeadmConfig`.
    KubeadmConfig,
}

impl ExplainedKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Cluster,
        Self::Machine,
        Self::MachineSet,
        Self::MachineDeployment,
        Self::MachineHealthCheck,
        Self::KubeadmConfig,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Machine => "Machine",
            Self::MachineSet => "MachineSet",
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineHealthCheck => "MachineHealthCheck",
            Self::KubeadmConfig => "KubeadmConfig",
        }
    }

    /// The kind that a word means, as kubectl takes it: its name, the plural, a short name.
    pub fn of_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::ALL.into_iter().find(|kind| {
            let short: &[&str] = match kind {
                Self::Cluster => &["cl"],
                Self::Machine => &["ma"],
                Self::MachineSet => &["ms"],
                Self::MachineDeployment => &["md"],
                Self::MachineHealthCheck => &["mhc", "mhcs"],
                Self::KubeadmConfig => &[],
            };
            let name = kind.name().to_ascii_lowercase();
            word == name || word.strip_suffix('s') == Some(&name) || short.contains(&word.as_str())
        })
    }
}

/// An object that is there.
pub(super) struct Found {
    pub(super) place: Place,
    /// The name of its Cluster.
    pub(super) cluster: String,
    pub(super) is_ours: bool,
}

/// The objects of a kind, and their controller.
pub(super) struct Subjects {
    kind: ExplainedKind,
    core: Arc<Core>,
    /// With the same caches of what both parts watch.
    bootstrap: Arc<Bootstrap>,
}

impl Subjects {
    pub(super) fn new(kind: ExplainedKind, core: &Arc<Core>, options: &LifecycleOptions) -> Self {
        let bootstrap = Arc::new(Bootstrap {
            clusters: core.stores.clusters.clone(),
            machines: core.stores.machines.clone(),
            configs: Store::default(),
            workload: core.workload.clone(),
            writer: core.writer.clone(),
            events: core.events.clone(),
            watch_filter: options.watch_filter.clone(),
            token_ttl: options.bootstrap_token_ttl,
        });
        Self { kind, core: Arc::clone(core), bootstrap }
    }

    fn is_of_bootstrap(&self) -> bool {
        self.kind == ExplainedKind::KubeadmConfig
    }

    /// Watches what a pass reads. The tasks end with the answer, and with `stop`.
    pub(super) fn watch(&self, client: &Client, namespace: &str, stop: &CancellationToken) -> JoinSet<()> {
        let tasks = self.core.stores.watch(client, Some(namespace), stop);
        let mut watches = Watches { client, namespace: Some(namespace), stop, tasks };
        if self.is_of_bootstrap() {
            watches.start("kubeadmconfigs", &self.bootstrap.configs);
        }
        watches.tasks
    }

    pub(super) async fn synced(&self) {
        self.core.stores.synced().await;
        if self.is_of_bootstrap() {
            self.bootstrap.configs.synced().await;
        }
    }

    /// The kinds whose lists have not arrived, for people.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let mut missing = self.core.stores.missing();
        if self.is_of_bootstrap() && !self.bootstrap.configs.is_synced() {
            missing.push("kubeadmconfigs");
        }
        missing
    }

    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<Found> {
        let (stores, key) = (&self.core.stores, key(namespace, name));
        match self.kind {
            ExplainedKind::Cluster => self.found(&stores.clusters, &key, |_| name.to_owned()),
            ExplainedKind::Machine => self.found(&stores.machines, &key, |one| one.spec.cluster_name.clone()),
            ExplainedKind::MachineSet => {
                self.found(&stores.machine_sets, &key, |one| one.spec.cluster_name.clone())
            }
            ExplainedKind::MachineDeployment => {
                self.found(&stores.machine_deployments, &key, |one| one.spec.cluster_name.clone())
            }
            ExplainedKind::MachineHealthCheck => {
                self.found(&stores.machine_health_checks, &key, |one| one.spec.cluster_name.clone())
            }
            ExplainedKind::KubeadmConfig => {
                let cluster =
                    |one: &KubeadmConfig| one.label(labels::CLUSTER_NAME).unwrap_or_default().to_owned();
                self.found(&self.bootstrap.configs, &key, cluster)
            }
        }
    }

    fn found<K: Kind>(
        &self,
        store: &Store<K>,
        key: &str,
        cluster: impl FnOnce(&K) -> String,
    ) -> Option<Found> {
        let object = store.get(key)?;
        Some(Found {
            place: Place::of(&**object),
            cluster: cluster(&object),
            is_ours: self.core.is_ours(&**object),
        })
    }

    /// One pass.
    pub(super) async fn pass(&self, key: &str) -> Result<Then, FailedPass> {
        let core = Arc::clone(&self.core);
        match self.kind {
            ExplainedKind::Cluster => {
                ClusterController::new(core, ClusterOptions::default()).reconcile(key).await
            }
            ExplainedKind::Machine => MachineController::new(core).reconcile(key).await,
            ExplainedKind::MachineSet => MachineSetController::new(core).reconcile(key).await,
            ExplainedKind::MachineDeployment => MachineDeploymentController::new(core).reconcile(key).await,
            ExplainedKind::MachineHealthCheck => MachineHealthCheckController::new(core).reconcile(key).await,
            ExplainedKind::KubeadmConfig => {
                KubeadmConfigController::new(Arc::clone(&self.bootstrap)).reconcile(key).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_meant_by_the_words_of_kubectl() {
        for (words, kind) in [
            (&["cluster", "clusters", "cl", "Cluster"][..], ExplainedKind::Cluster),
            (&["machine", "machines", "ma"], ExplainedKind::Machine),
            (&["machineset", "machinesets", "ms"], ExplainedKind::MachineSet),
            (&["machinedeployment", "MachineDeployments", "md"], ExplainedKind::MachineDeployment),
            (&["machinehealthcheck", "machinehealthchecks", "mhc"], ExplainedKind::MachineHealthCheck),
            (&["kubeadmconfig", "kubeadmconfigs"], ExplainedKind::KubeadmConfig),
        ] {
            for word in words {
                assert_eq!(ExplainedKind::of_word(word), Some(kind), "{word}");
            }
        }
        assert_eq!(["pod", "m", "s", ""].map(ExplainedKind::of_word), [None; 4]);
    }
}
