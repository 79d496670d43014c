//! The clients of the daemon's parts, each with upstream's name.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloudprovider::Term;
use component::{
    api_client::{self, ApiServer},
    leader_election::Fence,
};
use kube::Client;
use parking_lot::Mutex;

/// Upstream's name of the client for everything that has none of its own.
const MAIN: &str = "cloud-controller-manager";
/// Upstream's name of the client for the leader election.
const ELECTION: &str = "leader-election";
/// Upstream's name of the client for watches.
const INFORMERS: &str = "shared-informers";
/// Upstream's name of the client of both node controllers, and of their service account.
pub const NODE_CONTROLLER_CLIENT: &str = "node-controller";
/// Upstream's name of the client of the service controller, and of its service account.
pub const SERVICE_CONTROLLER_CLIENT: &str = "service-controller";

/// The clients of the daemon's parts.
#[derive(Clone)]
pub struct Clients {
    /// For what has no client of its own: reviews, the daemon's own events, token requests.
    pub main: Client,
    /// For the election, whose renewals must not queue behind other requests.
    pub election: Client,
    /// For lists and watches. It does not retry: the watches do that themselves, after pauses of their own.
    pub informers: Client,
    /// For the controllers and their events.
    pub controllers: ControllerClients,
}

impl Clients {
    /// A client for each part.
    pub fn of(api_server: &ApiServer) -> Self {
        Self {
            main: api_server.client(MAIN),
            election: api_server.election_client(ELECTION),
            informers: api_server.informer_client(INFORMERS),
            controllers: ControllerClients(Source::ApiServer {
                api_server: api_server.clone(),
                made: Arc::default(),
            }),
        }
    }

    /// One client for everything.
    pub fn same(client: &Client) -> Self {
        Self {
            main: client.clone(),
            election: client.clone(),
            informers: client.clone(),
            controllers: ControllerClients(Source::Same(client.clone())),
        }
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// The clients of controllers. One gets at them only through [`TermClients`], which says until when they may write.
#[derive(Clone)]
pub struct ControllerClients(Source);

#[derive(Clone)]
enum Source {
    /// One set for each name, which all controllers of that name share.
    ApiServer {
        api_server: ApiServer,
        made: Arc<Mutex<BTreeMap<&'static str, api_client::ControllerClients>>>,
    },
    Same(Client),
}

impl ControllerClients {
    /// For an elected leader: each client writes only while the fence is open.
    pub fn behind(&self, fence: &Fence) -> TermClients {
        TermClients { clients: self.clone(), fence: Some(fence.clone()) }
    }

    /// For a daemon without an election, where nobody else writes: the clients write at any time.
    pub fn without_election(&self) -> TermClients {
        TermClients { clients: self.clone(), fence: None }
    }
}

impl std::fmt::Debug for ControllerClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerClients").finish_non_exhaustive()
    }
}

/// Until when a controller may change the cloud: to the end of its term. Without an election there is no end.
#[derive(Clone, Debug, Default)]
pub struct TermFence(Option<Fence>);

impl From<Fence> for TermFence {
    fn from(fence: Fence) -> Self {
        Self(Some(fence))
    }
}

impl TermFence {
    /// How long from now no other daemon can lead. Zero if this one does not; `Duration::MAX` without an election.
    pub fn alone_for(&self) -> Duration {
        self.0.as_ref().map_or(Duration::MAX, Fence::alone_for)
    }

    /// The same client, but its writes fail once the term is over. For clients that are not among [`TermClients`].
    pub fn guard(&self, client: Client) -> Client {
        match &self.0 {
            Some(fence) => fence.guard(client),
            None => client,
        }
    }

    /// Makes a call in the term, which what the call spawns may ask for. `None`: the term is over, and the call was not begun or was dropped.
    pub async fn pass<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        match &self.0 {
            Some(fence) => {
                let own = fence.clone();
                let term = Term::new(move || !own.alone_for().is_zero());
                fence.pass(term.scope(call)).await.ok()
            }
            None => Some(call.await),
        }
    }
}

/// The clients of controllers for one term.
#[derive(Clone, Debug)]
pub struct TermClients {
    clients: ControllerClients,
    fence: Option<Fence>,
}

impl TermClients {
    /// Until when the cloud may be changed.
    pub fn fence(&self) -> TermFence {
        TermFence(self.fence.clone())
    }

    /// The clients with this name, which is also the name of their service account.
    pub fn named(&self, name: &'static str) -> api_client::ControllerClients {
        let clients = match &self.clients.0 {
            Source::Same(client) => {
                api_client::ControllerClients { client: client.clone(), unthrottled: client.clone() }
            }
            Source::ApiServer { api_server, made } => made
                .lock()
                .entry(name)
                .or_insert_with(|| api_server.controller_clients(name, api_server.client(MAIN)))
                .clone(),
        };
        match &self.fence {
            Some(fence) => clients.map(|client| fence.guard(client)),
            None => clients,
        }
    }
}
