//! What the controller of the bootstrap part works with.

use std::time::Duration;

use cluster_api::{Cluster, KubeadmConfig, Machine};
use component::events::EventRecorder;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{
        stores::{Store, Watches},
        writer::Writer,
    },
    workload::WorkloadClusters,
};

/// What the controller of the part works with.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// Clusters.
    pub clusters: Store<Cluster>,
    /// Machines.
    pub machines: Store<Machine>,
    /// `KubeadmConfig`s.
    pub configs: Store<KubeadmConfig>,
    /// Writes in the management cluster.
    pub writer: Writer,
    /// The workload clusters, in which tokens are made. Only those are connected whose machines are yet to join.
    pub workload: WorkloadClusters,
    /// Events in the management cluster.
    pub events: EventRecorder,
    /// `--watch-filter`
    pub watch_filter: Option<String>,
    /// `--bootstrap-token-ttl`
    pub token_ttl: Duration,
}

impl Bootstrap {
    /// Watches the kinds in a namespace, or in all, until `stop` is cancelled. The tasks end before only after a panic.
    pub(crate) fn watch(
        &self,
        client: &kube::Client,
        namespace: Option<&str>,
        stop: &CancellationToken,
    ) -> JoinSet<()> {
        let mut watches = Watches { client, namespace, stop, tasks: JoinSet::new() };
        watches.start("clusters", &self.clusters);
        watches.start("machines", &self.machines);
        watches.start("kubeadmconfigs", &self.configs);
        watches.tasks
    }

    pub(crate) async fn synced(&self) {
        self.clusters.synced().await;
        self.machines.synced().await;
        self.configs.synced().await;
    }
}
