//! The instances of Rancher 2.x: the machines of a cluster.

use std::sync::{Arc, OnceLock};

use cloudprovider::{InstanceLookup, InstanceStream, Instances, NodeIdentity, async_trait, instance_stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    follow::{self, Source},
    inventory::Machines,
    resolve::{Resolution, Rules, resolve},
};
use crate::{
    config::{Config, ManagementConfig},
    lookups,
    norman::client::Client,
    provider_id,
};

/// The machines of a cluster as instances.
#[derive(Debug)]
pub(crate) struct MachineInstances {
    source: Source,
    machines: Arc<Machines>,
    rules: Rules,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
}

impl MachineInstances {
    /// The machines of this cluster. They are read once [`follow`](Self::follow) is called. `client` is one
    /// of the API below `/v3`.
    pub(crate) fn new(client: Client, config: &Config, management: &ManagementConfig) -> Self {
        Self {
            source: Source {
                client,
                url: config.server.url.clone(),
                config: management.clone(),
                page_size: config.server.page_size,
                refresh_interval: config.refresh_interval,
                poll_interval: config.poll_interval,
            },
            machines: Arc::new(Machines::new()),
            rules: Rules { zones: config.zones.clone(), addresses: management.addresses.clone() },
            started: OnceLock::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// The work that follows the machines until `stop` is cancelled. To be called once.
    pub(crate) fn follow(&self, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let _ = self.started.set(Instant::now());
        let (source, machines, stopped) =
            (self.source.clone(), Arc::clone(&self.machines), self.stopped.clone());
        async move {
            follow::run(source, &machines, stop).await;
            stopped.cancel();
        }
    }

    /// What the token may not do, each with what that costs and which right it takes.
    pub(crate) fn limits(&self) -> Vec<String> {
        self.machines.state().limits.clone()
    }

    fn resolve_all(&self, nodes: &[&NodeIdentity]) -> Vec<Resolution> {
        let state = self.machines.state();
        nodes.iter().map(|node| resolve(node, &state, &self.rules)).collect()
    }
}

#[async_trait]
impl Instances for MachineInstances {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id::is_machine_id(provider_id)
    }

    fn provider_id_form(&self) -> Option<&str> {
        Some(provider_id::MACHINE_FORM)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        lookups::look_up(&*self.machines, self.started.get().copied(), || self.resolve_all(nodes)).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.machines.changes(), self.stopped.clone()))
    }
}
