//! The clients of the Kubernetes API server: its address, the daemon's credentials, and the rate limits.
//!
//! ```text
//!   Location ──load──> Connection <── follows the kubeconfig and the files that it names
//!                          │
//!            ┌─────────────┼──────────────────┐
//!         Sender        Sender             Sender          one for each name: user agent, account, throttle,
//!       (main client)  (informers)     (controllers)       retries, metrics, --dry-run
//! ```
//!
//! All of them share one pool of connections. The election has a `Connection` of its own and no throttle,
//! since its renewals must not queue behind other requests.

mod account;
mod answer;
mod connection;
mod credentials;
mod dry_run;
mod fault;
mod follow;
mod foreign;
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

use std::{path::Path, sync::Arc};

use kube::Client;
use parking_lot::Mutex;

use crate::{files::FileChanges, metrics::MetricSet as _};
use account::Account;
use connection::Connection;
use dry_run::DryRun;
use sender::Sender;
use throttle::Throttle;

pub use fault::describe;
pub use foreign::{Reach, foreign_client};
pub use location::{Location, config};
pub use metrics::ClientMetrics;
pub use start::wait_for_api_server;

/// The client options from the flags.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientOptions {
    /// `--kube-api-qps` and `--kube-api-burst`: the average rate per second and the burst. As in upstream,
    /// they apply to each client except the election's. The client for kubelets' leases is exempt too. `None`
    /// means no limit.
    pub limit: Option<(f64, u32)>,
    /// `--use-service-account-credentials`: each controller acts as its own service account.
    pub service_accounts: bool,
    /// `--dry-run`: writes are answered in this process and never sent.
    pub dry_run: bool,
}

/// The clients of the controllers that act as one service account.
#[derive(Clone)]
pub struct ControllerClients {
    /// For all ordinary requests.
    pub client: Client,
    /// For reads that must not queue behind other requests. It has no rate limit.
    pub unthrottled: Client,
}

impl ControllerClients {
    /// Applies `around` to each client.
    #[must_use]
    pub fn map(self, around: impl Fn(Client) -> Client) -> Self {
        // Names all fields, so that a new client does not compile until it is added here.
        let Self { client, unthrottled } = self;
        Self { client: around(client), unthrottled: around(unthrottled) }
    }
}

impl std::fmt::Debug for ControllerClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerClients").finish_non_exhaustive()
    }
}

/// Reads the files at this location, those of the credentials included, and connects to nobody. Does not run a plugin.
///
/// # Errors
/// What cannot be read, parsed or used, with the flag or file that is wrong.
#[cfg(feature = "serving")]
pub(crate) async fn check_files(location: &Location) -> anyhow::Result<()> {
    let loaded = location.load().await?;
    if !loaded.has_plugin() {
        Connection::new(loaded.ready().await?).await.map_err(|error| location.blame(error))?;
    }
    Ok(())
}

/// Creates a client of the API server. It is found as in upstream: `--kubeconfig`, with `--master` in place
/// of its server; without both, the configuration of the cluster that runs this pod. Also returns the
/// address, without parts that may be secret.
///
/// The client keeps its first credentials. Long-running code uses the clients of an [`ApiServer`] instead. Like them, it comes
/// again when the API server asks for it with `Retry-After`.
///
/// # Errors
/// A file that cannot be read or parsed, with its path and without its content. Credentials that cannot be
/// used.
pub async fn connect(kubeconfig: Option<&Path>, master: &str) -> anyhow::Result<(Client, String)> {
    let (client, url) = Location::new(kubeconfig.map(Path::to_owned), master).connect().await?;
    let api_server = ApiServer::over(client, ClientOptions::default(), ClientMetrics::unregistered()?);
    Ok((api_server.client("command"), url))
}

/// The API server: one pool of connections, from which clients are created. Clones share the pool.
#[derive(Clone)]
pub struct ApiServer {
    location: Option<Location>,
    connection: Connection,
    election: Connection,
    options: ClientOptions,
    metrics: ClientMetrics,
    dry_run: Option<Arc<DryRun>>,
    /// The changes of files, until [`follow`](Self::follow) takes them.
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
    /// Reads the address and the credentials, and runs the credential plugin once. The first request opens a
    /// connection. Dropping the future ends the plugin.
    ///
    /// # Errors
    /// The same as [`connect`].
    pub async fn new(
        location: Location,
        options: ClientOptions,
        metrics: ClientMetrics,
    ) -> anyhow::Result<Self> {
        // Starts watching the files before reading them again, so that no change is missed.
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

    /// An API server that is reached through `client`, which is never replaced.
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

    /// The address, without parts that may be secret. It may change with the configuration.
    pub fn url(&self) -> String {
        self.connection.current().url.clone()
    }

    /// A client with the daemon's own credentials. `name` is the end of its user agent, as in upstream.
    pub fn client(&self, name: &str) -> Client {
        self.sender(name, &self.connection).into_client()
    }

    /// A client for an election. Its renewals must not queue behind other requests, so it has a connection of
    /// its own and no throttle.
    pub fn election_client(&self, name: &str) -> Client {
        let mut sender = self.sender(name, &self.election);
        sender.throttle = Throttle::none();
        sender.into_client()
    }

    /// A client for lists and watches. It never retries a request: the watching code repeats it, with its own
    /// backoff.
    pub fn informer_client(&self, name: &str) -> Client {
        let mut sender = self.sender(name, &self.connection);
        sender.retries = false;
        sender.into_client()
    }

    /// The clients of controllers. If the flags ask for it, they act as the service account
    /// `kube-system/<name>`. The client `tokens` creates that account and requests its tokens.
    pub fn controller_clients(&self, name: &'static str, tokens: Client) -> ControllerClients {
        let mut sender = self.sender(name, &self.connection);
        // Not in a dry run, since creating the account is a write. The daemon's own credentials suffice for
        // reading.
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

    #[tokio::test(start_paused = true)]
    async fn reads_of_leases_wait_for_nobody() {
        let answer = |_: Request<Body>| async { Ok::<_, std::io::Error>(Response::new(Body::empty())) };
        let over = Client::new(tower::service_fn(answer), "default");
        // One request per 1,000 s.
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
