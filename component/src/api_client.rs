//! The clients of the Kubernetes API server: where it is, who we are, how fast we may ask.
//!
//! ```text
//!   Location ──load──> Connection <── follows the kubeconfig and the files that it names
//!                          │
//!            ┌─────────────┼──────────────────┐
//!         Sender        Sender             Sender          one for each name: user agent, account, throttle,
//!       (main client)  (informers)     (controllers)       retries, metrics, --dry-run
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
mod metrics;
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

use crate::files::FileChanges;
use account::Account;
use connection::Connection;
use dry_run::DryRun;
use sender::Sender;
use throttle::Throttle;

pub use fault::describe;
pub use location::{Location, config, connect};
pub use metrics::ClientMetrics;
pub use start::wait_for_api_server;

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

/// The clients of controllers that act as one service account.
#[derive(Clone)]
pub struct ControllerClients {
    /// For what they do.
    pub client: Client,
    /// For reads that must not queue behind other requests: no limit holds for them.
    pub unthrottled: Client,
}

impl ControllerClients {
    /// Each client with something around it.
    #[must_use]
    pub fn map(self, around: impl Fn(Client) -> Client) -> Self {
        // All fields are named, so that a further client does not compile before it is here.
        let Self { client, unthrottled } = self;
        Self { client: around(client), unthrottled: around(unthrottled) }
    }
}

impl std::fmt::Debug for ControllerClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerClients").finish_non_exhaustive()
    }
}

/// The API server: one pool of connections, from which clients are made. Cloning shares it.
#[derive(Clone)]
pub struct ApiServer {
    location: Option<Location>,
    connection: Connection,
    election: Connection,
    options: ClientOptions,
    metrics: ClientMetrics,
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
    pub async fn new(
        location: Location,
        options: ClientOptions,
        metrics: ClientMetrics,
    ) -> anyhow::Result<Self> {
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
    pub fn over(client: Client, options: ClientOptions, metrics: ClientMetrics) -> Self {
        let connection = Connection::over(client);
        Self::assemble(connection.clone(), connection, options, metrics)
    }

    fn assemble(
        connection: Connection,
        election: Connection,
        options: ClientOptions,
        metrics: ClientMetrics,
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

    /// A client for an election, whose renewals must not queue behind other requests: over a connection of its own, and
    /// with no throttle.
    pub fn election_client(&self, name: &str) -> Client {
        let mut sender = self.sender(name, &self.election);
        sender.throttle = Throttle::none();
        sender.into_client()
    }

    /// A client for lists and watches. It sends nothing again by itself: whoever watches asks anew, after pauses of its
    /// own.
    pub fn informer_client(&self, name: &str) -> Client {
        let mut sender = self.sender(name, &self.connection);
        sender.retries = false;
        sender.into_client()
    }

    /// The clients of controllers: as the service account `kube-system/<name>` where the flags want that, which `tokens`
    /// makes and requests tokens for.
    pub fn controller_clients(&self, name: &'static str, tokens: Client) -> ControllerClients {
        let mut sender = self.sender(name, &self.connection);
        // The account may have to be made, which is a write; whoever may read as a controller may do so as ourselves.
        if self.options.service_accounts && !self.options.dry_run {
            sender.account = Some(Arc::new(Account::new(name, tokens)));
            sender.user_agent = user_agent::with_suffix(&account::user_name(name));
        }
        let unthrottled = Sender { throttle: Throttle::none(), ..sender.clone() };
        ControllerClients { client: sender.into_client(), unthrottled: unthrottled.into_client() }
    }

    fn sender(&self, name: &str, connection: &Connection) -> Sender {
        Sender {
            connection: connection.clone(),
            user_agent: user_agent::with_suffix(name),
            throttle: Throttle::new(self.options.limit),
            account: None,
            retries: true,
            metrics: self.metrics.clone(),
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
    use crate::metrics::MetricSet as _;

    #[tokio::test(start_paused = true)]
    async fn reads_of_leases_wait_for_nobody() {
        let answer = |_: Request<Body>| async { Ok::<_, std::io::Error>(Response::new(Body::empty())) };
        let over = Client::new(tower::service_fn(answer), "default");
        // A request in 1,000 s.
        let options = ClientOptions { limit: Some((0.001, 1)), ..ClientOptions::default() };
        let metrics = ClientMetrics::unregistered().expect("metrics");
        let api_server = ApiServer::over(over, options, metrics);
        let clients = api_server.controller_clients("node-controller", api_server.client("ccm"));
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
        assert_eq!(within_a_minute(&clients.client).await, 1, "--kube-api-qps");
        assert_eq!(within_a_minute(&clients.unthrottled).await, 3);
    }
}
