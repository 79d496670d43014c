//! A fake of Rancher 1.6 in the process. Rancher 1.6 cannot run any more, so this is written from its
//! description: the API `v2-beta` with paging, actions, events and the faults that a test asks for. It
//! refuses what the real server refuses. What is shown with it is shown with a fake.

mod connections;
mod objects;
mod requests;

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;

pub(crate) use crate::fake_server::Fault;
use crate::fake_server::{Connections, Fake};

/// The API key that the server accepts at first.
pub(crate) const ACCESS_KEY: &str = "8CBD1D2F";
/// Its secret.
pub(crate) const SECRET_KEY: &str = "correct-horse-battery";

/// A running server.
pub(crate) type FakeCattle = Fake<Cattle>;

/// The server.
pub(crate) struct Cattle {
    cloud: Mutex<Cloud>,
    events: broadcast::Sender<String>,
    connections: Connections,
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
        let key = (ACCESS_KEY.to_owned(), SECRET_KEY.to_owned());
        let mut cloud = Cloud { key, next_id: 1, ..Cloud::default() };
        cloud.create(
            "setting",
            json!({"name": "lb.instance.image", "value": "rancher/lb-service-haproxy:v0.9.14"}),
        );
        let server = Cattle {
            cloud: Mutex::new(cloud),
            events: broadcast::Sender::new(10_000),
            connections: Connections::default(),
        };
        Self::serve(server, acceptor).await
    }

    /// A configuration for this server, with further lines.
    pub(crate) fn config(&self, more: &str) -> String {
        format!("url: {}\naccessKey: {ACCESS_KEY}\nsecretKey: {SECRET_KEY}\n{more}", self.url())
    }

    /// Adds a host that runs. Returns its ID.
    pub(crate) fn add_host(&self, name: &str, ip: &str) -> String {
        let id = self.cloud().add_host(name, ip);
        self.publish(&id);
        id
    }

    /// Changes fields of a host, and sends the event.
    pub(crate) fn change_host(&self, id: &str, fields: Value) {
        self.cloud().change("host", id, fields);
        self.publish(id);
    }

    /// Removes a host, and sends the event.
    pub(crate) fn remove_host(&self, id: &str) {
        self.change_host(id, json!({"state": "removed", "removed": "2017-08-02T10:00:00Z"}));
    }

    /// Sets the answer to every request.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        let is_set = fault.is_some();
        self.cloud().fault = fault;
        if is_set {
            // What is open already would not notice.
            self.break_connections();
        }
    }

    /// How many requests there were so far, of all kinds.
    pub(crate) fn calls(&self) -> usize {
        self.cloud().calls.values().sum()
    }
}

impl Cattle {
    /// The state, to look at and to change.
    pub(crate) fn cloud(&self) -> MutexGuard<'_, Cloud> {
        self.cloud.lock()
    }

    fn publish(&self, host: &str) {
        let Some(resource) = self.cloud().objects.get(&("host", host.to_owned())).cloned() else { return };
        let event = json!({
            "name": "resource.change", "resourceType": "host", "resourceId": host, "data": {"resource": resource},
        });
        // Nobody may be listening.
        let _ = self.events.send(event.to_string());
    }
}
