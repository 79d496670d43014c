//! The API that a scenario runs against.

use std::{
    collections::BTreeMap,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use http::{Method, Request};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node},
};
use kube::{
    Client,
    api::{DeleteParams, ListParams},
    client::{Body, ClientBuilder},
};
use sandbox::Sandbox;
use test_env::StartError;
use tower::{Layer, Service};

use crate::peers::Borrowed;

/// Which API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Sandbox,
    ApiServer,
}

impl Target {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::ApiServer => "apiserver",
        }
    }
}

/// An empty cluster: no Nodes, no leases, no events.
pub(crate) struct Api {
    /// For the test itself.
    pub(crate) client: Client,
    /// For the daemon: counts its requests.
    pub(crate) daemon_client: Client,
    pub(crate) requests: RequestCounts,
    pub(crate) sandbox: Option<Sandbox>,
    /// The real one, where it is that.
    pub(crate) control_plane: Option<Borrowed>,
}

impl Api {
    pub(crate) async fn connect(target: Target) -> Result<Self, StartError> {
        let requests = RequestCounts::default();
        match target {
            Target::Sandbox => {
                let sandbox = Sandbox::new();
                let daemon_client =
                    ClientBuilder::new(sandbox.service(), "default").with_layer(&requests).build();
                let client = sandbox.client();
                Ok(Self { client, daemon_client, requests, sandbox: Some(sandbox), control_plane: None })
            }
            Target::ApiServer => {
                let control_plane = Borrowed::control_plane()?;
                let client = client(control_plane.kubeconfig()).await?;
                let config = ccm::api_client::config(Some(control_plane.kubeconfig()), "").await?;
                let stack = ClientBuilder::try_from(config).map_err(anyhow::Error::from)?;
                let daemon_client = stack.with_layer(&requests).build();
                empty(&client).await?;
                Ok(Self {
                    client,
                    daemon_client,
                    requests,
                    sandbox: None,
                    control_plane: Some(control_plane),
                })
            }
        }
    }
}

/// A client for this kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    ccm::api_client::client(ccm::api_client::config(Some(kubeconfig), "").await?)
}

async fn empty(client: &Client) -> anyhow::Result<()> {
    let (all, delete) = (ListParams::default(), DeleteParams::default());
    kube::Api::<Node>::all(client.clone()).delete_collection(&delete, &all).await?;
    kube::Api::<Lease>::namespaced(client.clone(), "kube-node-lease")
        .delete_collection(&delete, &all)
        .await?;
    // What a killed daemon held would be left alone for a while.
    let election = kube::Api::<Lease>::namespaced(client.clone(), "kube-system");
    match election.delete("cloud-controller-manager", &delete).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        outcome => outcome.map(drop)?,
    }
    for namespace in ["default", "kube-system"] {
        kube::Api::<Event>::namespaced(client.clone(), namespace).delete_collection(&delete, &all).await?;
    }
    Ok(())
}

/// Counts requests by method and resource, as in `PATCH nodes/status`.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<BTreeMap<String, usize>>>);

impl RequestCounts {
    /// How many requests so far.
    pub(crate) fn of(&self, what: &str) -> usize {
        self.lock().get(what).copied().unwrap_or_default()
    }

    /// All writes so far but those of events.
    pub(crate) fn writes(&self) -> BTreeMap<String, usize> {
        let counts = self.lock();
        counts
            .iter()
            .filter(|(what, _)| !what.starts_with("GET") && !what.ends_with("events"))
            .map(|(k, v)| (k.clone(), *v))
            .collect()
    }

    /// Begins anew.
    pub(crate) fn reset(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, method: &Method, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        let resource = match parts.as_slice() {
            [.., "nodes", _, "status"] => "nodes/status",
            [.., "nodes"] | [.., "nodes", _] => "nodes",
            [.., "events"] | [.., "events", _] => "events",
            [.., "leases"] | [.., "leases", _] => "leases",
            _ => path,
        };
        *self.lock().entry(format!("{method} {resource}")).or_default() += 1;
    }
}

impl<S> Layer<S> for RequestCounts {
    type Service = Counted<S>;
    fn layer(&self, inner: S) -> Self::Service {
        Counted { inner, counts: self.clone() }
    }
}

pub(crate) struct Counted<S> {
    inner: S,
    counts: RequestCounts,
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.counts.add(request.method(), request.uri().path());
        Box::pin(self.inner.call(request))
    }
}
