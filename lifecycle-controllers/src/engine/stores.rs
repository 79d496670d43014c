//! The caches of the kinds of this crate, and their watches.

use cluster_api::{
    Cluster, ClusterResourceSet, ClusterResourceSetBinding, Machine, MachineDeployment, MachineDrainRule,
    MachineHealthCheck, MachineSet,
};
use component::watching;
use controller_kit::cache::{Cache, watch_objects};
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::object::{Kind, Stored, Wire};

/// How many objects one page of a list has. An object has a few kB.
const PAGE: u32 = 500;

/// The objects of one kind.
pub type Store<K> = Cache<Stored<K>>;

/// The objects of all kinds of the core part. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    /// Clusters.
    pub clusters: Store<Cluster>,
    /// Machines.
    pub machines: Store<Machine>,
    /// `MachineSet`s.
    pub machine_sets: Store<MachineSet>,
    /// `MachineDeployment`s.
    pub machine_deployments: Store<MachineDeployment>,
    /// `MachineHealthCheck`s.
    pub machine_health_checks: Store<MachineHealthCheck>,
    /// `MachineDrainRule`s.
    pub machine_drain_rules: Store<MachineDrainRule>,
    /// `ClusterResourceSet`s.
    pub cluster_resource_sets: Store<ClusterResourceSet>,
    /// `ClusterResourceSetBinding`s.
    pub cluster_resource_set_bindings: Store<ClusterResourceSetBinding>,
}

impl Stores {
    /// Watches all kinds in a namespace, or in all, until `stop` is cancelled. The tasks end before only after a panic.
    pub fn watch(&self, client: &Client, namespace: Option<&str>, stop: &CancellationToken) -> JoinSet<()> {
        let mut watches = Watches { client, namespace, stop, tasks: JoinSet::new() };
        watches.start("clusters", &self.clusters);
        watches.start("machines", &self.machines);
        watches.start("machinesets", &self.machine_sets);
        watches.start("machinedeployments", &self.machine_deployments);
        watches.start("machinehealthchecks", &self.machine_health_checks);
        watches.start("machinedrainrules", &self.machine_drain_rules);
        watches.start("clusterresourcesets", &self.cluster_resource_sets);
        watches.start("clusterresourcesetbindings", &self.cluster_resource_set_bindings);
        watches.tasks
    }

    /// Waits until all lists have arrived.
    pub async fn synced(&self) {
        self.clusters.synced().await;
        self.machines.synced().await;
        self.machine_sets.synced().await;
        self.machine_deployments.synced().await;
        self.machine_health_checks.synced().await;
        self.machine_drain_rules.synced().await;
        self.cluster_resource_sets.synced().await;
        self.cluster_resource_set_bindings.synced().await;
    }

    /// The kinds whose lists have not arrived, for people.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("clusters", self.clusters.is_synced()),
            ("machines", self.machines.is_synced()),
            ("machinesets", self.machine_sets.is_synced()),
            ("machinedeployments", self.machine_deployments.is_synced()),
            ("machinehealthchecks", self.machine_health_checks.is_synced()),
            ("machinedrainrules", self.machine_drain_rules.is_synced()),
            ("clusterresourcesets", self.cluster_resource_sets.is_synced()),
            ("clusterresourcesetbindings", self.cluster_resource_set_bindings.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, is_synced)| (!is_synced).then_some(kind))
        .collect()
    }
}

/// Watches that are being started.
pub(crate) struct Watches<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) stop: &'a CancellationToken,
    pub(crate) tasks: JoinSet<()>,
}

impl Watches<'_> {
    pub(crate) fn start<K: Kind>(&mut self, kind: &'static str, store: &Store<K>) {
        let client = watching::client(self.client.clone());
        let api: Api<Wire<K>> = match self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        self.tasks.spawn(watch_objects(kind, api, PAGE, store.clone(), self.stop.clone()));
    }
}
