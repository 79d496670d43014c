//! The clients of the Kubernetes API server: where it is, who we are, how fast we may ask.
//!
//! ```text
//!   Location ──load──> Connection <── follows the kubeconfig and the files that it names
//!                          │
//!            ┌─────────────┼──────────────────┐
//!         Sender        Sender             Sender          one for each name: user agent, account, throttle,
//!       (main client) (shared-informers) (node-controller)  retries, metrics, --dry-run
//! ```
//!
//! All of them share one pool of connections. The election has a `Connection` of its own,
//! and no throttle: its renewals must not queue behind anything.

mod account;
mod answer;
mod connection;
mod credentials;
mod dry_run;
mod fault;
mod follow;
mod location;
mod plugin;
mod proxy;
mod request_log;
mod retry;
mod sender;
mod start;
mod target;
mod throttle;
mod tls;
mod transport;
mod url;
mod user_agent;
mod whoami;

use std::sync::{Arc, Mutex};

use kube::Client;

use crate::{files::FileChanges, metrics::Metrics};
use account::Account;
use connection::Connection;
use dry_run::DryRun;
use sender::Sender;
use throttle::Throttle;

pub use fault::describe;
pub use location::{Location, config, connect};
pub use start::wait_for_api_server;

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

/// What the flags say about the clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientOptions {
    /// `--kube-api-qps` and `--kube-api-burst`: average rate a second and burst of each client but the election's, as
    /// upstream, and the one for kubelets' leases. `None` for no limit.
    pub limit: Option<(f64, u32)>,
    /// `--use-service-account-credentials`: controllers act as service accounts of their own.
    pub service_accounts: bool,
    /// `--dry-run`: writes are answered here and never sent.
    pub dry_run: bool,
}

/// The API server: one pool of connections, from which clients are made. Cloning shares it.
#[derive(Clone)]
pub struct ApiServer {
    location: Option<Location>,
    connection: Connection,
    election: Connection,
    options: ClientOptions,
    metrics: Metrics,
    dry_run: Option<Arc<DryRun>>,
    /// For the one who follows.
    changes: Arc<Mutex<Option<FileChanges>>>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer")
            .field("location", &self.location)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Reads where the API server is and who we are; a credential plugin runs once. Connects when the first request is
    /// sent. Dropping the future ends the plugin.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn new(location: Location, options: ClientOptions, metrics: Metrics) -> anyhow::Result<Self> {
        // First the files, then what they say: no change can be missed.
        let changes = FileChanges::new(location.load().await?.files).await;
        let ready = location.ready().await?;
        let connection = Connection::new(ready.clone()).await.map_err(|error| location.blame(error))?;
        let election = Connection::new(ready).await.map_err(|error| location.blame(error))?;
        Ok(Self {
            location: Some(location),
            changes: Arc::new(Mutex::new(Some(changes))),
            ..Self::assemble(connection, election, options, metrics)
        })
    }

    /// The same over any client, which stays what it is.
    pub fn over(client: Client, options: ClientOptions, metrics: Metrics) -> Self {
        let connection = Connection::over(client);
        Self::assemble(connection.clone(), connection, options, metrics)
    }

    fn assemble(
        connection: Connection,
        election: Connection,
        options: ClientOptions,
        metrics: Metrics,
    ) -> Self {
        let dry_run = options.dry_run.then(|| Arc::new(DryRun::new(metrics.dry_run_writes.clone())));
        Self { location: None, connection, election, options, metrics, dry_run, changes: Arc::default() }
    }

    /// The address, without what may be secret in it. It may be another one after the configuration changed.
    pub fn url(&self) -> String {
        self.connection.current().url.clone()
    }

    /// A client as ourselves; `name` ends its user agent, as upstream.
    pub fn client(&self, name: &str) -> Client {
        self.sender(name, &self.connection).into_client()
    }

    /// A client of a controller: as the service account `kube-system/<name>` where the flags want that.
    pub fn controller_client(&self, name: &'static str) -> Client {
        self.controller_sender(name).into_client()
    }

    fn controller_sender(&self, name: &'static str) -> Sender {
        let mut sender = self.sender(name, &self.connection);
        // The account may have to be made, which is a write; whoever may read as a controller may do so as ourselves.
        if self.options.service_accounts && !self.options.dry_run {
            sender.account = Some(Arc::new(Account::new(name, self.client(MAIN))));
            sender.user_agent = user_agent::with_suffix(&account::user_name(name));
        }
        sender
    }

    /// A client for each part of the daemon.
    pub fn clients(&self) -> Clients {
        let mut election = self.sender(ELECTION, &self.election);
        election.throttle = Throttle::none();
        let mut informers = self.sender(INFORMERS, &self.connection);
        informers.retries = false;
        let node_controller = self.controller_sender(NODE_CONTROLLER_CLIENT);
        let mut leases = self.sender(NODE_CONTROLLER_CLIENT, &self.connection);
        leases.throttle = Throttle::none();
        leases.account.clone_from(&node_controller.account);
        leases.user_agent.clone_from(&node_controller.user_agent);
        Clients {
            main: self.client(MAIN),
            election: election.into_client(),
            informers: informers.into_client(),
            node_controller: node_controller.into_client(),
            leases: leases.into_client(),
        }
    }

    fn sender(&self, name: &str, connection: &Connection) -> Sender {
        Sender {
            connection: connection.clone(),
            user_agent: user_agent::with_suffix(name),
            throttle: Throttle::new(self.options.limit),
            account: None,
            retries: true,
            metrics: self.metrics.rest_client.clone(),
            dry_run: self.dry_run.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reads_of_leases_wait_for_nobody() {
        let answer = |_: Request<Body>| async { Ok::<_, std::io::Error>(Response::new(Body::empty())) };
        let over = Client::new(tower::service_fn(answer), "default");
        // A request in 1,000 s.
        let options = ClientOptions { limit: Some((0.001, 1)), ..ClientOptions::default() };
        let clients = ApiServer::over(over, options, Metrics::new().expect("metrics")).clients();
        let within_a_minute = async |client: &Client| {
            let mut answered = 0;
            for _ in 0..3 {
                let request = Request::get("/x").body(Body::empty()).expect("a request");
                let sent =
                    tokio::time::timeout(std::time::Duration::from_secs(60), client.send(request)).boxed();
                answered += usize::from(sent.await.is_ok());
            }
            answered
        };
        assert_eq!(within_a_minute(&clients.node_controller).await, 1, "--kube-api-qps");
        assert_eq!(within_a_minute(&clients.leases).await, 3);
    }
}
