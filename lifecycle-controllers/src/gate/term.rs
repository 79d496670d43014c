//! What the controllers of a part get for one term.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use cloudprovider::Term;
use component::{
    api_client::ControllerClients,
    events::EventRecorder,
    leader_election::{Fence, NotLeading},
};
use controller_kit::clients::TermFence;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::{Client, client::Body};
use tower::{BoxError, Service};

use super::{Part, Writers, foreign::SeenWrites};

/// Until when a part may write: while the daemon leads, and the part holds its Leases. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PartFence {
    daemon: TermFence,
    leases: Vec<Fence>,
    seen: SeenWrites,
}

impl From<Fence> for PartFence {
    /// Without Leases of other managers.
    fn from(fence: Fence) -> Self {
        Self { daemon: fence.into(), ..Self::default() }
    }
}

impl PartFence {
    pub(super) fn new(daemon: TermFence, leases: Vec<Fence>, seen: SeenWrites) -> Self {
        Self { daemon, leases, seen }
    }

    /// A client of this API server, whose writes fail once the term is over, and in namespaces where another manager works.
    /// Reads still work.
    pub fn guard(&self, client: Client) -> Client {
        self.guard_in(None, client)
    }

    /// A client of the workload cluster of a Cluster in this namespace. As [`guard`](Self::guard).
    pub fn guard_workload(&self, namespace: &str, client: Client) -> Client {
        self.guard_in(Some(namespace.into()), client)
    }

    fn guard_in(&self, namespace: Option<Arc<str>>, client: Client) -> Client {
        let client = self.leases.iter().fold(self.daemon.guard(client), |client, fence| fence.guard(client));
        let default_namespace = client.default_namespace().to_owned();
        Client::new(InNamespaces { client, namespace, seen: self.seen.clone() }, default_namespace)
    }

    /// How long from now nobody else works on the part's objects, whatever becomes of this process. Zero after the term.
    pub fn alone_for(&self) -> Duration {
        let leases = self.leases.iter().map(Fence::alone_for);
        leases.chain([self.daemon.alone_for()]).min().unwrap_or_default()
    }

    /// Makes a call that changes something outside of the cluster. It is checked at each poll, so the call does not go on
    /// after the term.
    ///
    /// # Errors
    /// The term is over. The call was dropped, wherever it was.
    pub async fn pass<T>(&self, call: impl Future<Output = T>) -> Result<T, NotLeading> {
        let own = self.clone();
        let mut call = pin!(Term::new(move || !own.alone_for().is_zero()).scope(call));
        let poll = |cx: &mut Context<'_>| {
            if self.alone_for().is_zero() {
                return Poll::Ready(Err(NotLeading));
            }
            call.as_mut().poll(cx).map(Ok)
        };
        poll_fn(poll).await
    }
}

/// Refuses writes in namespaces where another manager works.
#[derive(Clone)]
struct InNamespaces {
    client: Client,
    /// The namespace of all writes. `None`: that of the path.
    namespace: Option<Arc<str>>,
    seen: SeenWrites,
}

impl Service<Request<Body>> for InNamespaces {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let writes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        let namespace = self.namespace.as_deref().or_else(|| namespace_of(request.uri().path()));
        let allowed = match namespace.filter(|_| writes) {
            Some(namespace) => self.seen.check(namespace),
            None => Ok(()),
        };
        let client = self.client.clone();
        Box::pin(async move {
            allowed?;
            Ok(client.send(request).await?)
        })
    }
}

/// The namespace in the path of a request about a namespaced object: `/api/v1/namespaces/NAME/...`, or `/apis/GROUP/VERSION/...`.
fn namespace_of(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = &parts[..] else { return None };
    match *rest {
        ["namespaces", namespace, _, ..] => Some(namespace),
        _ => None,
    }
}

/// One term of a part.
#[derive(Clone, Debug)]
pub struct PartTerm {
    /// The part.
    pub part: &'static Part,
    /// Until when it may write.
    pub fence: PartFence,
    /// The part's clients. Their writes pass the fence.
    pub clients: ControllerClients,
    /// Records events. They are written through the fence.
    pub events: EventRecorder,
    /// When the part began, by the API server's clock.
    pub since: Timestamp,
    /// What the caches show of other managers' writes.
    pub writers: Writers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_a_request() {
        for (path, namespace) in [
            ("/api/v1/namespaces/a/configmaps/b", Some("a")),
            ("/api/v1/namespaces/a/configmaps", Some("a")),
            ("/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines/b/status", Some("a")),
            ("/api/v1/namespaces/a", None),
            ("/api/v1/namespaces", None),
            ("/apis/cluster.x-k8s.io/v1beta2/machines", None),
            ("/apis/g/v1/namespaces/namespaces/namespaces/x", Some("namespaces")),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(namespace_of(path), namespace, "{path}");
        }
    }
}
