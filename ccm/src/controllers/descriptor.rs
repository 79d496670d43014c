//! What the daemon has to know of a controller.

use cloudprovider::InstanceLookup;
use component::{
    api_client::ControllerClients, events::EventRecorder, inspection::Inspection, metrics::Metrics,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::ControllerPermissions;
use crate::{
    clients::TermClients,
    cloud::Cloud,
    flags::{ControllerNames, Flags},
    nodes::{Node, NodeStore},
};

/// A controller.
pub(crate) struct ControllerDescriptor {
    /// What it is called by `--controllers`, leader migration, the health check, the debug state and metrics.
    pub(crate) names: ControllerNames,
    /// Upstream's name of its client, which is that of its service account too.
    pub(crate) client: &'static str,
    /// `source.component` of its events.
    pub(crate) events_from: &'static str,
    /// What the cloud provider has to support.
    pub(crate) needs: Option<Capability>,
    /// `None` where it does not exist yet.
    pub(crate) implementation: Option<Implementation>,
}

/// What a controller that exists has.
pub(crate) struct Implementation {
    /// Makes the controller.
    pub(crate) build: fn(ControllerContext<'_>) -> anyhow::Result<Run>,
    /// Registers its metrics. They are shown from the beginning, whoever leads.
    pub(crate) metrics: fn(&Metrics) -> prometheus::Result<()>,
    /// What it does in the cluster.
    pub(crate) permissions: fn() -> ControllerPermissions,
    /// What it would do next about a Node, for people: nothing for one that is right. `None` where it does nothing about
    /// Nodes.
    pub(crate) explain: Option<fn(&NodeQuestion<'_>) -> Vec<String>>,
}

/// Runs a controller that was made until the token is cancelled; writes that have begun are finished.
pub(crate) type Run = Box<dyn FnOnce(CancellationToken, Inspection) -> BoxFuture<'static, ()> + Send>;

/// Something that not every cloud provider supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Instances,
    LoadBalancer,
    Routes,
}

impl Capability {
    /// Whether this cloud has it.
    pub(crate) fn is_of(self, cloud: &Cloud) -> bool {
        match self {
            Self::Instances => cloud.has_instances(),
            Self::LoadBalancer => cloud.provider().load_balancer().is_some(),
            Self::Routes => cloud.provider().routes().is_some(),
        }
    }
}

/// A Node, of which a controller is asked what it would do about it.
pub(crate) struct NodeQuestion<'a> {
    pub(crate) node: &'a Node,
    /// What the cloud says about it.
    pub(crate) answer: &'a InstanceLookup,
    /// The name of the cloud provider.
    pub(crate) provider: &'a str,
    pub(crate) flags: &'a Flags,
    pub(crate) now: Timestamp,
}

/// What a controller is made from. All that it can write with belongs to one term: there is no client here that writes
/// after it.
pub(crate) struct ControllerContext<'a> {
    pub(crate) flags: &'a Flags,
    pub(crate) nodes: NodeStore,
    pub(crate) cloud: Cloud,
    pub(crate) metrics: &'a Metrics,
    pub(crate) clients: ControllerClients,
    pub(crate) events: EventRecorder,
}

impl<'a> ControllerContext<'a> {
    /// That of one controller. Of `events` the queue is taken; the controller's events are written with its client.
    pub(crate) fn new(
        controller: &ControllerDescriptor,
        flags: &'a Flags,
        (nodes, cloud): (&NodeStore, &Cloud),
        metrics: &'a Metrics,
        events: &EventRecorder,
        clients: &TermClients,
    ) -> Self {
        let clients = clients.named(controller.client);
        Self {
            flags,
            nodes: nodes.clone(),
            cloud: cloud.clone(),
            metrics,
            events: events.for_component(controller.events_from, clients.client.clone()),
            clients,
        }
    }
}
