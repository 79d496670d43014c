//! Descriptions of controllers for the daemon.

use std::sync::Arc;

use cloudprovider::{Error, InstanceLookup, Route};
use component::{
    api_client::ControllerClients, debug_state::DebugState, events::EventRecorder, health::HealthChecks,
    inspection::Inspection, metrics::Metrics,
};
use controller_kit::{
    clients::{TermClients, TermFence},
    cloud::Cloud,
    nodes::{Node, NodeStore},
    services::Services,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::ControllerPermissions;
use crate::flags::{ControllerNames, Flags};

/// A controller.
pub(crate) struct ControllerDescriptor {
    /// Its names in `--controllers`, leader migration, health checks, the debug state and metrics.
    pub(crate) names: ControllerNames,
    /// Upstream's name of its API client, which is also the name of its service account.
    pub(crate) client: &'static str,
    /// `source.component` of its events.
    pub(crate) events_from: &'static str,
    /// A capability that the cloud provider must have.
    pub(crate) needs: Option<Capability>,
    /// Creates the controller.
    pub(crate) build: Build,
    /// Registers its metrics. All replicas show them from the start, leader or not.
    pub(crate) metrics: fn(&Metrics) -> prometheus::Result<()>,
    /// Its permissions in the cluster.
    pub(crate) permissions: fn() -> ControllerPermissions,
    /// The next actions for a Node, for people. Empty if there is nothing to do. `None`: the controller does
    /// not act on Nodes.
    pub(crate) explain: Option<fn(&NodeQuestion<'_>) -> Vec<String>>,
}

impl ControllerDescriptor {
    /// Whether the cloud has what the controller needs.
    pub(crate) fn can_run_on(&self, cloud: &Cloud) -> bool {
        self.needs.is_none_or(|needs| needs.is_of(cloud))
    }
}

/// How a controller is created.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// For a cloud. A controller of machines runs once for each provider with machines.
    OnCloud(fn(ControllerContext<'_>, Cloud) -> anyhow::Result<Run>),
    /// Once in the daemon, whatever its providers are.
    Once(fn(ControllerContext<'_>) -> anyhow::Result<Run>),
}

/// Runs a controller until the token is cancelled. Writes that have begun are finished. An error: something that only a leader
/// does may go on, so the Lease must not be given back.
pub(crate) type Run =
    Box<dyn FnOnce(CancellationToken, Inspection) -> BoxFuture<'static, cloudprovider::Result<()>> + Send>;

/// A capability that a cloud provider may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    Instances,
    LoadBalancer,
    Routes,
    Machines,
}

impl Capability {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Instances, Self::LoadBalancer, Self::Routes, Self::Machines];

    /// What the cloud provider does not support without it.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::LoadBalancer => "load balancers",
            Self::Routes => "routes",
            Self::Machines => "machines",
        }
    }

    /// Whether this cloud has the capability.
    pub(crate) fn is_of(self, cloud: &Cloud) -> bool {
        match self {
            Self::Instances => cloud.has_instances(),
            Self::LoadBalancer => cloud.has_load_balancers(),
            Self::Routes => cloud.has_routes(),
            Self::Machines => cloud.has_machines(),
        }
    }
}

/// A Node for which a controller explains its next actions.
pub(crate) struct NodeQuestion<'a> {
    pub(crate) node: &'a Node,
    /// The cloud's answer about it.
    pub(crate) answer: &'a InstanceLookup,
    /// `None` if routes do not matter.
    pub(crate) routes: Option<&'a ClusterRoutes>,
    /// The name of the cloud provider.
    pub(crate) provider: &'a str,
    pub(crate) flags: &'a Flags,
    pub(crate) now: Timestamp,
}

/// The routes of a cluster, for explanations.
pub(crate) struct ClusterRoutes {
    /// The routes in the cloud, or why the cloud does not list them.
    pub(crate) listed: Result<Vec<Route>, Error>,
    /// All Nodes.
    pub(crate) nodes: Vec<Arc<Node>>,
}

/// The parts of which a controller is built. All clients in it that can write belong to one term of
/// leadership, so none of them writes after that term. Calls that change the cloud pass the fence.
pub(crate) struct ControllerContext<'a> {
    pub(crate) flags: &'a Flags,
    pub(crate) nodes: NodeStore,
    pub(crate) services: Services,
    /// Where the controller runs once for each of several providers: the name of this one.
    of: Option<&'a str>,
    pub(crate) fence: TermFence,
    pub(crate) metrics: &'a Metrics,
    pub(crate) clients: ControllerClients,
    pub(crate) events: EventRecorder,
    /// For checks beside that of the loop.
    pub(crate) health: &'a HealthChecks,
    /// For states beside that of the loop.
    pub(crate) debug_state: &'a DebugState,
    /// The client for Leases that the controller itself holds. It does not end with the term.
    pub(crate) election: Client,
}

impl<'a> ControllerContext<'a> {
    /// The context of one controller. Its events go into the queue of `events`, and are written with the
    /// controller's own client.
    pub(crate) fn new(
        controller: &ControllerDescriptor,
        flags: &'a Flags,
        of: Option<&'a str>,
        (nodes, services): (&NodeStore, &Services),
        (metrics, health, debug_state): (&'a Metrics, &'a HealthChecks, &'a DebugState),
        events: &EventRecorder,
        (clients, election): (&TermClients, &Client),
    ) -> Self {
        let (fence, clients) = (clients.fence(), clients.named(controller.client));
        Self {
            flags,
            nodes: nodes.clone(),
            services: services.clone(),
            of,
            fence,
            metrics,
            events: events.for_component(controller.events_from, clients.client.clone()),
            clients,
            health,
            debug_state,
            election: election.clone(),
        }
    }

    /// What a thing of this controller is called: `name`, with the provider's name where the controller runs once for each of
    /// several providers.
    pub(crate) fn named(&self, name: &str) -> String {
        name_of(name, self.of)
    }
}

/// The name of a thing, such as a check, that exists once for each of several providers, or once.
pub(crate) fn name_of(name: &str, provider: Option<&str>) -> String {
    provider.map_or_else(|| name.to_owned(), |provider| format!("{name}-{provider}"))
}
