//! The clients of the daemon's parts, each with upstream's name.

use component::api_client::{ApiServer, ControllerClients};
use kube::Client;

/// Upstream's name of the client that is nobody else's.
const MAIN: &str = "cloud-controller-manager";
/// Upstream's name of the client that elects.
const ELECTION: &str = "leader-election";
/// Upstream's name of the client that watches.
const INFORMERS: &str = "shared-informers";
/// Upstream's name of the client of both node controllers, and of their service account.
pub const NODE_CONTROLLER_CLIENT: &str = "node-controller";

/// The clients of the daemon's parts.
#[derive(Clone)]
pub struct Clients {
    /// For what has no client of its own: reviews, events of the daemon itself, requests of tokens.
    pub main: Client,
    /// For the election, whose renewals must not queue behind other requests.
    pub election: Client,
    /// For lists and watches. Sends nothing again by itself: whoever watches asks anew, after pauses of its own.
    pub informers: Client,
    /// For the two node controllers and their events.
    pub node_controller: Client,
    /// For reads of kubelets' leases, which must not queue behind other requests: a late answer counts as none.
    pub leases: Client,
}

impl Clients {
    /// A client for each part.
    pub fn of(api_server: &ApiServer) -> Self {
        let ControllerClients { client, unthrottled } =
            api_server.controller_clients(NODE_CONTROLLER_CLIENT, api_server.client(MAIN));
        Self {
            main: api_server.client(MAIN),
            election: api_server.election_client(ELECTION),
            informers: api_server.informer_client(INFORMERS),
            node_controller: client,
            leases: unthrottled,
        }
    }

    /// One client for everything.
    pub fn same(client: &Client) -> Self {
        Self {
            main: client.clone(),
            election: client.clone(),
            informers: client.clone(),
            node_controller: client.clone(),
            leases: client.clone(),
        }
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
