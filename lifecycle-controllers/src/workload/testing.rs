//! A management cluster and workload clusters in the process, for tests.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use sandbox::{Sandbox, kubelet};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::gate::PartFence;

use super::{
    Access, ClusterKey, Connector, Options, WorkloadCluster, WorkloadClusters, entry::Connection,
    limits::Limited,
};

/// Clients by the host of the server in the kubeconfig.
#[derive(Default)]
pub(super) struct Hosts {
    clients: Mutex<HashMap<String, Client>>,
    pub(super) connects: AtomicUsize,
    /// The next connection panics.
    pub(super) panics: AtomicBool,
}

impl Hosts {
    pub(super) fn set(&self, host: &str, client: Client) {
        self.clients.lock().insert(host.to_owned(), client);
    }
}

impl Connector for Hosts {
    fn connect(&self, _: &ClusterKey, access: &Access) -> Result<Client, String> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.swap(false, Ordering::Relaxed), "on purpose");
        let host = access.config().cluster_url.host().unwrap_or_default();
        self.clients.lock().get(host).cloned().ok_or_else(|| "no such host".to_owned())
    }
}

/// A management cluster that follows workload clusters.
pub(super) struct Stage {
    pub(super) management: Sandbox,
    pub(super) hosts: Arc<Hosts>,
    pub(super) clusters: WorkloadClusters,
    stop: CancellationToken,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How long a test waits for what must come, on the paused clock.
const PATIENCE: Duration = Duration::from_secs(600);

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(PartFence::default(), Options::default())
    }

    pub(super) fn with(fence: PartFence, options: Options) -> Self {
        let management = Sandbox::new();
        let hosts = Arc::new(Hosts::default());
        let clusters = WorkloadClusters::new(management.client(), fence, hosts.clone(), options);
        let stop = CancellationToken::new();
        let (running, stopped) = (clusters.clone(), stop.clone());
        tokio::spawn(async move { running.run(stopped).await });
        Self { management, hosts, clusters, stop }
    }

    /// Writes the Secret with a kubeconfig of this host.
    pub(super) async fn kubeconfig(&self, cluster: &ClusterKey, host: &str) {
        self.secret(cluster, &kubeconfig(host)).await;
    }

    /// Writes the Secret with this content.
    pub(super) async fn secret(&self, cluster: &ClusterKey, content: &str) {
        let ClusterKey { namespace, name } = cluster;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "stringData": {"value": content},
            "data": {"value": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, content)},
            "metadata": {"name": format!("{name}-kubeconfig"), "namespace": namespace,
                "labels": {"cluster.x-k8s.io/cluster-name": name}},
        });
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}-kubeconfig");
        let request = Request::patch(format!("{path}?fieldManager=test&force=true"))
            .header("content-type", "application/apply-patch+yaml")
            .body(secret.to_string().into_bytes())
            .expect("a request");
        self.management.client().request::<Value>(request).await.expect("applied");
    }

    /// Waits until there is a connection.
    pub(super) async fn connected(&self, cluster: &ClusterKey) -> WorkloadCluster {
        let mut changes = self.clusters.changes();
        let wait = async {
            loop {
                if let Ok(connected) = self.clusters.get(cluster) {
                    return connected;
                }
                changes.next().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("connected")
    }

    /// Waits until there is none, for a reason with these words. Gives the reason.
    pub(super) async fn not_connected(&self, cluster: &ClusterKey, words: &str) -> String {
        let mut changes = self.clusters.changes();
        let wait = async {
            loop {
                match self.clusters.connection(cluster) {
                    Connection::NotConnected(why) if why.reason.contains(words) => return why.reason,
                    _ => changes.next().await,
                };
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| panic!("{words}: {:?}", self.clusters.connection(cluster)))
    }
}

pub(super) fn kubeconfig(host: &str) -> String {
    json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{host}:6443")}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    })
    .to_string()
}

/// A workload cluster with these Nodes, each with the provider ID `x://<name>`.
pub(super) async fn workload(nodes: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    for name in nodes {
        let mut node = kubelet::node(name, name);
        node.spec.get_or_insert_default().provider_id = Some(format!("x://{name}"));
        kubelet::register(&sandbox.client(), &node).await.expect("registered");
    }
    sandbox
}

/// A client whose requests `answer` answers.
pub(super) fn answering<F, B>(answer: impl Fn(Request<Body>) -> F + Clone + Send + 'static) -> Client
where
    F: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<tower::BoxError>> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, std::io::Error>(answer.await) }
    });
    Client::new(service, "default")
}

/// What happens to requests to an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They are served.
    Serves,
    /// They are never answered.
    Hangs,
    /// No connection is made.
    Refuses,
    /// The credentials are refused.
    Unauthorized,
}

/// The API server of a workload cluster that may be away.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) sandbox: Sandbox,
    mode: Arc<Mutex<Mode>>,
}

impl Server {
    pub(super) fn new(sandbox: Sandbox) -> Self {
        Self { sandbox, mode: Arc::new(Mutex::new(Mode::Serves)) }
    }

    /// Requests that come from now on meet this. Watches that are open end.
    pub(super) fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
        self.sandbox.faults().drop_watches();
    }

    pub(super) fn client(&self) -> Client {
        let (client, mode) = (self.sandbox.client(), self.mode.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, mode) = (client.clone(), *mode.lock());
            async move {
                let answer: Result<Response<Body>, tower::BoxError> = match mode {
                    Mode::Serves => client.send(request).await.map_err(Into::into),
                    Mode::Hangs => std::future::pending().await,
                    Mode::Refuses => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
                    Mode::Unauthorized => {
                        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401,
                            "reason": "Unauthorized", "message": "Unauthorized"});
                        let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
                        *answer.status_mut() = http::StatusCode::UNAUTHORIZED;
                        Ok(answer)
                    }
                };
                answer
            }
        });
        Client::new(service, "default")
    }
}

/// A workload cluster as controllers have it, over this client.
pub(super) fn over(client: Client) -> WorkloadCluster {
    let limited = Limited::client(client, PartFence::default(), Arc::default());
    WorkloadCluster::new(ClusterKey::new("ns", "c"), limited, super::Nodes::default())
}
