//! The instances of Rancher 1.6: hosts.

use std::sync::{Arc, OnceLock};

use cloudprovider::{InstanceLookup, InstanceStream, Instances, NodeIdentity, async_trait, instance_stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    client::Client,
    detect::CattleOrNot,
    follow::{self, Intervals},
    inventory::Hosts,
    judge::{Answer, Rules, look_up},
};
use crate::{config::Config, lookups, provider_id};

/// The hosts of a project as instances.
#[derive(Debug)]
pub(crate) struct HostInstances {
    client: Client,
    /// A client below `/v3`, if the configuration does not say that the server is Rancher 1.6.
    asked: Option<Client>,
    hosts: Arc<Hosts>,
    rules: Rules,
    intervals: Intervals,
    started: OnceLock<Instant>,
    stopped: CancellationToken,
}

impl HostInstances {
    /// The hosts that this client sees. They are read once [`follow`](Self::follow) is called. If they cannot be listed,
    /// `asked` says whether the server is Rancher 2.x.
    pub(crate) fn new(client: Client, asked: Option<Client>, config: &Config) -> Self {
        Self {
            client,
            asked,
            hosts: Arc::new(Hosts::new()),
            rules: Rules { address_types: config.cattle.address_types, zones: config.zones.clone() },
            intervals: Intervals {
                with_events: config.refresh_interval,
                without_events: config.poll_interval,
            },
            started: OnceLock::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// The client of the server.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The hosts in memory.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// The work that follows the hosts until `stop` is cancelled. To be called once.
    pub(crate) fn follow(&self, stop: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let _ = self.started.set(Instant::now());
        let source = CattleOrNot { cattle: self.client.clone(), management: self.asked.clone() };
        let (hosts, intervals, stopped) = (Arc::clone(&self.hosts), self.intervals, self.stopped.clone());
        async move {
            follow::run(&source, &hosts, intervals, stop).await;
            stopped.cancel();
        }
    }

    fn look(&self, nodes: &[&NodeIdentity]) -> Vec<Answer> {
        let state = self.hosts.state();
        nodes.iter().map(|node| look_up(node, &state, &self.rules)).collect()
    }
}

#[async_trait]
impl Instances for HostInstances {
    fn owns(&self, provider_id: &str) -> bool {
        provider_id::is_ours(provider_id)
    }

    fn provider_id_form(&self) -> Option<&str> {
        Some(provider_id::FORM)
    }

    async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
        lookups::look_up(&*self.hosts, self.started.get().copied(), || self.look(nodes)).await
    }

    fn changes(&self) -> Option<InstanceStream> {
        Some(instance_stream(self.hosts.changes(), self.stopped.clone()))
    }
}
