//! A Rancher 2.x server in the process. It refuses what a real one refuses, and passes `/apis` on to a real
//! API server.

mod answers;
mod connections;

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

pub(crate) use crate::fake_server::Fault;
use crate::fake_server::{Connections, Fake};

/// The token of a user who may see everything.
pub(crate) const TOKEN: &str = "token-abcde:correct-horse-battery";
/// Another token of that user.
pub(crate) const NEXT_TOKEN: &str = "token-klmno:battery-of-horses";
/// The token of a user who may see everything below `/v3`, and below `/apis` what the API server allows:
/// nothing at first, and never an object of `management.cattle.io`, which is for administrators.
pub(crate) const VIEWER: &str = "token-pqrst:battery-battery";
/// Another token of that user.
pub(crate) const NEXT_VIEWER: &str = "token-vwxyz:battery-stapler";
/// The token of a user who may log in and nothing else.
pub(crate) const POWERLESS: &str = "token-fghij:stapler-stapler";

/// The header of every answer to a user whom the server knows.
const AUTHENTICATED: &str = "x-api-cattle-auth";

/// A running server.
pub(crate) type FakeRancher = Fake<Rancher>;

/// The server.
pub(crate) struct Rancher {
    server: Mutex<Server>,
    connections: Connections,
    upstream: Option<Upstream>,
}

/// The API server behind `/apis`.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    /// The API server's tokens of the user who may see everything, and of all others.
    pub(crate) tokens: [String; 2],
}

/// What the server has, and how it behaves.
#[derive(Default)]
pub(crate) struct Server {
    pub(crate) clusters: Vec<Value>,
    pub(crate) nodes: Vec<Value>,
    /// Tokens that expired. They are unknown to the server, like any other text.
    pub(crate) expired: BTreeSet<&'static str>,
    /// Tokens of users who have become administrators.
    pub(crate) promoted: BTreeSet<&'static str>,
    /// How many requests each collection got.
    pub(crate) calls: BTreeMap<String, usize>,
    /// The answer to every request whose path begins so, while it is set.
    pub(crate) fault: Option<(&'static str, Fault)>,
    /// The answer to the page of this number, from 1, of a listing of nodes.
    pub(crate) bad_page: Option<(usize, Fault)>,
    /// The object with this ID is removed right before the request of this number, from 1, for objects of
    /// this path.
    pub(crate) leaves: Option<(&'static str, usize, String)>,
}

/// What this server and proxies before it answer.
impl Fault {
    /// What an API server answers for an object that there is not, by its path.
    pub(crate) fn no_such_object(path: &str) -> Self {
        let parts: Vec<_> = path.split('/').collect();
        let part = |at: usize| parts.get(at).copied().unwrap_or_default();
        let details = json!({"group": part(2), "kind": part(6), "name": part(7)});
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
            "message": format!("{}.{} {:?} not found", part(6), part(2), part(7)), "details": details,
        });
        Self { body: body.to_string(), ..Self::error(404, "") }
    }

    /// A page of a proxy that has no such path.
    pub(crate) fn no_such_page() -> Self {
        Self { status: 404, body: "<html>404 Not Found</html>".to_owned(), ..Self::login_page() }
    }

    /// What a real 2.9 answers at `/apis/management.cattle.io` to all but administrators, whatever roles
    /// grant: nothing.
    pub(crate) fn for_administrators() -> Self {
        Self { status: 403, headers: Vec::new(), body: String::new() }.with_header(AUTHENTICATED, "true")
    }

    /// What a proxy answers that refuses a request.
    pub(crate) fn refused_by_proxy() -> Self {
        Self { status: 403, body: "<html>403 Forbidden</html>".to_owned(), ..Self::login_page() }
    }
}

impl FakeRancher {
    /// A server without an API server behind it, on a free port of loopback.
    pub(crate) async fn start() -> Self {
        Self::start_with(None, None).await
    }

    /// A server with certificates, an API server behind it, or both.
    pub(crate) async fn start_with(acceptor: Option<TlsAcceptor>, upstream: Option<Upstream>) -> Self {
        let (server, connections) = (Mutex::default(), Connections::default());
        Self::serve(Rancher { server, connections, upstream }, acceptor).await
    }

    /// A configuration for a cluster of this server, with further lines.
    pub(crate) fn config(&self, cluster: &str, more: &str) -> String {
        format!("url: {}\ntoken: {TOKEN}\nclusterID: {cluster}\n{more}", self.url())
    }

    /// Adds a cluster that the server reaches. By its ID it is one that Rancher provisions, or not.
    pub(crate) fn add_cluster(&self, id: &str, name: &str, namespace: &str) {
        let mut annotations = json!({"field.cattle.io/creatorId": "user-abcde"});
        if id.starts_with("c-m-") {
            annotations["provisioning.cattle.io/administrated"] = json!("true");
        }
        let cluster = json!({
            "id": id, "type": "cluster", "baseType": "cluster", "name": name, "state": "active", "driver": "imported",
            "transitioning": "no", "fleetWorkspaceName": namespace, "apiEndpoint": "https://10.43.0.1:443",
            "annotations": annotations,
        });
        self.server().clusters.push(cluster);
    }

    /// Sets the state of a cluster. Its nodes stay as they are.
    pub(crate) fn set_state(&self, cluster: &str, state: &str) {
        for known in self.server().clusters.iter_mut().filter(|known| known["id"] == cluster) {
            known["state"] = json!(state);
        }
    }

    /// Adds the mirror of a Node. Returns its ID.
    pub(crate) fn add_node(&self, cluster: &str, name: &str) -> String {
        let mirror = format!("machine-{:05x}", self.server().nodes.len());
        self.add_mirror(cluster, &mirror, name)
    }

    /// Adds the mirror of this name, of a Node, as a real server showed it. Returns its ID.
    pub(crate) fn add_mirror(&self, cluster: &str, mirror: &str, name: &str) -> String {
        let id = format!("{cluster}:{mirror}");
        self.server().nodes.push(json!({
            "id": id, "type": "node", "baseType": "node", "clusterId": cluster, "name": "", "nodeName": name,
            "requestedHostname": name, "hostname": null, "providerId": "", "ipAddress": "fd00::1",
            "externalIpAddress": "203.0.113.1", "state": "active", "transitioning": "no", "imported": false,
            "worker": true, "etcd": false, "controlPlane": false, "customConfig": null, "annotations": {},
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "of-the-node"},
        }));
        id
    }

    /// Changes fields of a node.
    pub(crate) fn change_node(&self, id: &str, fields: &Value) {
        for node in self.server().nodes.iter_mut().filter(|node| node["id"] == id) {
            for (name, value) in fields.as_object().expect("fields") {
                node[name] = value.clone();
            }
        }
    }

    /// Removes the mirror of a Node.
    pub(crate) fn remove_node(&self, id: &str) {
        self.server().nodes.retain(|node| node["id"] != id);
    }

    /// Sets the answer to every request whose path begins so.
    pub(crate) fn set_fault(&self, fault: Option<(&'static str, Fault)>) {
        let is_set = fault.is_some();
        self.server().fault = fault;
        if is_set {
            // What is open already would not notice.
            self.break_connections();
        }
    }

    /// How many requests there were so far, of all kinds.
    pub(crate) fn calls(&self) -> usize {
        self.server().calls.values().sum()
    }
}

impl Rancher {
    /// The state, to look at and to change.
    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock()
    }
}
