//! The API server that a scenario runs against.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Client,
    api::DeleteParams,
    client::{Body, ClientBuilder},
};
use parking_lot::{Mutex, MutexGuard};
use sandbox::Sandbox;
use test_env::{Refusal, StartError};
use tower::{Layer, Service};

use crate::{peers::Borrowed, shipped_roles};

/// The kind of API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Sandbox,
    ApiServer,
    /// A real API server of the previous minor version.
    PreviousApiServer,
}

impl Target {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::ApiServer => "apiserver",
            Self::PreviousApiServer => "previous",
        }
    }
}

/// An empty cluster: no Nodes, no leases, no events, no Services but that of the API server.
pub(crate) struct Api {
    /// The client of the test.
    pub(crate) client: Client,
    /// The client of the daemon, which counts its requests. On the real API server it is the shipped service
    /// account.
    pub(crate) daemon_client: Client,
    pub(crate) requests: RequestCounts,
    pub(crate) sandbox: Option<Sandbox>,
    /// The control plane, if the API server is a real one.
    pub(crate) control_plane: Option<Borrowed>,
    /// The position in its audit log at the start of the scenario.
    audit_position: u64,
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
                Ok(Self {
                    client,
                    daemon_client,
                    requests,
                    sandbox: Some(sandbox),
                    control_plane: None,
                    audit_position: 0,
                })
            }
            Target::ApiServer | Target::PreviousApiServer => {
                let control_plane = match target {
                    Target::PreviousApiServer => Borrowed::previous_control_plane()?,
                    Target::Sandbox | Target::ApiServer => Borrowed::control_plane()?,
                };
                let client = client(control_plane.kubeconfig()).await?;
                let daemon_client =
                    counted_client(&shipped_roles::kubeconfig(&control_plane).await?, &requests).await?;
                let audit_position = control_plane.audit_position();
                Ok(Self {
                    client,
                    daemon_client,
                    requests,
                    sandbox: None,
                    control_plane: Some(control_plane),
                    audit_position,
                })
            }
        }
    }
}

impl Api {
    /// Fails if the shipped roles were not enough, for a daemon in this process or in a process of its own.
    pub(crate) fn nothing_was_refused(&self) -> anyhow::Result<()> {
        let refused = self.requests.refused();
        anyhow::ensure!(refused.is_empty(), "refused by the shipped roles: {refused:?}");
        let refused = self.refused_to(&[shipped_roles::USER])?;
        anyhow::ensure!(refused.is_empty(), "refused by the shipped roles: {refused:?}");
        Ok(())
    }

    /// The requests of these users that the real API server has refused so far.
    pub(crate) fn refused_to(&self, users: &[&str]) -> anyhow::Result<Vec<Refusal>> {
        let Some(control_plane) = &self.control_plane else { return Ok(Vec::new()) };
        let mut refused = control_plane.refusals_after(self.audit_position)?;
        refused.retain(|refusal| users.contains(&&*refusal.user));
        Ok(refused)
    }
}

/// A client for this kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(ccm::api_client::connect(Some(kubeconfig), "").await?.0)
}

/// The same, with counted requests.
pub(crate) async fn counted_client(kubeconfig: &Path, requests: &RequestCounts) -> anyhow::Result<Client> {
    let config = ccm::api_client::config(Some(kubeconfig), "").await?;
    let stack = ClientBuilder::try_from(config).map_err(anyhow::Error::from)?;
    Ok(stack.with_layer(requests).build())
}

/// Deletes a Node.
pub(crate) async fn delete_node(client: &Client, name: &str) -> anyhow::Result<()> {
    kube::Api::<Node>::all(client.clone()).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Counts requests by method and resource, such as `PATCH nodes/status`.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<String, usize>,
    /// Requests that RBAC refused: method and path.
    refused: BTreeSet<String>,
}

impl RequestCounts {
    /// The number of such requests so far.
    pub(crate) fn of(&self, what: &str) -> usize {
        self.lock().requests.get(what).copied().unwrap_or_default()
    }

    /// The number of all requests so far.
    pub(crate) fn total(&self) -> usize {
        self.lock().requests.values().sum()
    }

    /// All writes so far, except those of events.
    pub(crate) fn writes(&self) -> BTreeMap<String, usize> {
        let counts = self.lock();
        counts
            .requests
            .iter()
            .filter(|(what, _)| !what.starts_with("GET") && !what.ends_with("events"))
            .map(|(k, v)| (k.clone(), *v))
            .collect()
    }

    /// Resets the counts. Refused requests are kept.
    pub(crate) fn reset(&self) {
        self.lock().requests.clear();
    }

    /// Requests with the response 403 Forbidden.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.lock().refused.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }

    fn add(&self, method: &Method, path: &str) {
        let parts: Vec<&str> = path.split('/').collect();
        let resource = match parts.as_slice() {
            [.., "nodes", _, "status"] => "nodes/status",
            [.., "nodes"] | [.., "nodes", _] => "nodes",
            [.., "services", _, "status"] => "services/status",
            [.., "services"] | [.., "services", _] => "services",
            [.., "events"] | [.., "events", _] => "events",
            [.., "leases"] | [.., "leases", _] => "leases",
            _ => path,
        };
        *self.lock().requests.entry(format!("{method} {resource}")).or_default() += 1;
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

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
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
        let what = format!("{} {}", request.method(), request.uri());
        let (counts, response) = (self.counts.clone(), self.inner.call(request));
        Box::pin(async move {
            let response = response.await?;
            if response.status() == StatusCode::FORBIDDEN {
                counts.lock().refused.insert(what);
            }
            Ok(response)
        })
    }
}
