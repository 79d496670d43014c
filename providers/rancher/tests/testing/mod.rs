//! A fake of Rancher 1.6 in the process. Rancher 1.6 cannot run any more, so this is written from its description:
//! the API `v2-beta` with paging, actions, events and the faults that a test asks for. It refuses what the real
//! server refuses. What is shown with it is shown with a fake.

mod connections;
mod objects;
mod requests;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::broadcast};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The API key that the server accepts at first.
pub(crate) const ACCESS_KEY: &str = "8CBD1D2F";
/// Its secret.
pub(crate) const SECRET_KEY: &str = "correct-horse-battery";

/// A running server. It ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct FakeCattle {
    shared: Arc<Shared>,
    address: SocketAddr,
    scheme: &'static str,
}

struct Shared {
    cloud: Mutex<Cloud>,
    events: broadcast::Sender<String>,
    /// Cancelled to break all connections; then replaced.
    connections: Mutex<CancellationToken>,
    stop: CancellationToken,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }
}

/// What the server has, and how it behaves.
#[derive(Default)]
pub(crate) struct Cloud {
    /// Objects by type and ID, such as `host` and `1h5`.
    pub(crate) objects: BTreeMap<(&'static str, String), Value>,
    next_id: u32,
    /// User and password.
    pub(crate) key: (String, String),
    /// How many requests each collection got, and `subscribe`.
    pub(crate) calls: BTreeMap<String, usize>,
    /// The answer to requests while it is set.
    pub(crate) fault: Option<Fault>,
    /// Faults only for the page of this number, from 1, of a listing of hosts.
    pub(crate) bad_page: Option<(usize, Fault)>,
    /// Fails the requests with this method to this collection, which is in lower case.
    pub(crate) crash_point: Option<(&'static str, &'static str)>,
    /// New connections are closed at once.
    pub(crate) is_away: bool,
    /// Requests with this text in their URL or body wait.
    pub(crate) held: Option<String>,
    /// Ports of a load balancer cannot be changed.
    pub(crate) fixes_ports: bool,
    /// How many reads of a load balancer show the ports from before a change, while it is being updated.
    pub(crate) slow_ports: usize,
    /// How many listings of load balancers a removed one stays in.
    pub(crate) slow_removal: usize,
    /// How many reads of a load balancer pass before it has public endpoints.
    pub(crate) late_endpoints: usize,
    /// Whether WebSockets are refused.
    pub(crate) no_events: bool,
    removing: BTreeMap<String, usize>,
    waiting: BTreeMap<String, usize>,
    /// Container settings that load balancers get after some reads.
    updating: BTreeMap<String, (usize, Value)>,
}

/// A wrong answer.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The status.
    pub(crate) status: u16,
    /// Further headers.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body.
    pub(crate) body: String,
}

impl Fault {
    /// An error in the form of the API.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        let body =
            json!({"type": "error", "status": status, "code": code, "message": "scripted"}).to_string();
        Self { status, headers: vec![("content-type", "application/json".to_owned())], body }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// A login page, with status 200.
    pub(crate) fn login_page() -> Self {
        let headers = vec![("content-type", "text/html".to_owned())];
        Self { status: 200, headers, body: "<html><title>Log in</title></html>".to_owned() }
    }

    /// A redirect to a login page.
    pub(crate) fn redirect() -> Self {
        let headers = vec![("location", "https://login.example.org/".to_owned())];
        Self { status: 302, headers, body: String::new() }
    }
}

impl FakeCattle {
    /// A server on a free port of loopback.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// The same with TLS.
    pub(crate) async fn start_with_tls(acceptor: TlsAcceptor) -> Self {
        Self::start_with(Some(acceptor)).await
    }

    async fn start_with(acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let key = (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned());
        let mut cloud = Cloud { key, next_id: 1, ..Cloud::default() };
        cloud.create(
            "setting",
            json!({"name": "lb.instance.image", "value": "rancher/lb-service-haproxy:v0.9.14"}),
        );
        let shared = Arc::new(Shared {
            cloud: Mutex::new(cloud),
            events: broadcast::Sender::new(10_000),
            connections: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        tokio::spawn(connections::serve(listener, acceptor, Arc::downgrade(&shared), shared.stop.clone()));
        Self { shared, address, scheme }
    }

    /// The URL of the server, without a path.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// A configuration for this server, with further lines.
    pub(crate) fn config(&self, more: &str) -> String {
        format!("url: {}\naccessKey: {ACCESS_KEY}\nsecretKey: {SECRET_KEY}\n{more}", self.url())
    }

    /// The state, to look at and to change.
    pub(crate) fn cloud(&self) -> MutexGuard<'_, Cloud> {
        self.shared.cloud()
    }

    /// Adds a host that runs. Returns its ID.
    pub(crate) fn add_host(&self, name: &str, ip: &str) -> String {
        let id = self.cloud().add_host(name, ip);
        self.shared.publish(&id);
        id
    }

    /// Changes fields of a host, and sends the event.
    pub(crate) fn change_host(&self, id: &str, fields: Value) {
        self.cloud().change("host", id, fields);
        self.shared.publish(id);
    }

    /// Removes a host, and sends the event.
    pub(crate) fn remove_host(&self, id: &str) {
        self.change_host(id, json!({"state": "removed", "removed": "2017-08-02T10:00:00Z"}));
    }

    /// Breaks all connections and refuses new ones.
    pub(crate) fn go_away(&self) {
        self.cloud().is_away = true;
        self.shared.break_connections();
    }

    /// Accepts connections again.
    pub(crate) fn come_back(&self) {
        self.cloud().is_away = false;
    }

    /// Sets the answer to every request.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        let is_set = fault.is_some();
        self.cloud().fault = fault;
        if is_set {
            // What is open already would not notice.
            self.shared.break_connections();
        }
    }

    /// How many requests there were so far, of all kinds.
    pub(crate) fn calls(&self) -> usize {
        self.cloud().calls.values().sum()
    }
}

impl Shared {
    fn cloud(&self) -> MutexGuard<'_, Cloud> {
        self.cloud.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, host: &str) {
        let Some(resource) = self.cloud().objects.get(&("host", host.to_owned())).cloned() else { return };
        let event = json!({
            "name": "resource.change", "resourceType": "host", "resourceId": host, "data": {"resource": resource},
        });
        // Nobody may be listening.
        let _ = self.events.send(event.to_string());
    }

    fn break_connections(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.cancel();
        *connections = CancellationToken::new();
    }

    fn connection_token(&self) -> CancellationToken {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
