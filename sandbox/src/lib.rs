//! An in-process Kubernetes API: for demos, for fast tests and for authors of cloud providers.
//!
//! [`Sandbox`] keeps objects in memory and answers as kube-apiserver does: resourceVersions and optimistic
//! concurrency, lists with pages, watches with bookmarks and streaming lists, all patch formats, status
//! subresources, preconditions, finalizers, field and label selectors, tables for `kubectl get`. It is a
//! `tower` service, so [`Sandbox::client`] gives a `kube::Client` without any socket, which also works while
//! tokio's clock is paused; [`Sandbox::serve`] puts it on a loopback port for `kubectl`.
//!
//! ```
//! # tokio_test(async {
//! use k8s_openapi::api::core::v1::Node;
//! use kube::{Api, api::PostParams};
//!
//! let sandbox = sandbox::Sandbox::new();
//! let nodes: Api<Node> = Api::all(sandbox.client());
//! let node = sandbox::kubelet::node("worker-1", "6d1f4a4e-0b6a-4c58-9d52-5d1f6c1c2b3a");
//! let created = nodes.create(&PostParams::default(), &node).await?;
//! assert!(created.metadata.uid.is_some());
//! # Ok::<_, kube::Error>(())
//! # });
//! # fn tokio_test<T>(f: impl Future<Output = T>) {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f);
//! # }
//! ```
//!
//! Built-in kinds are Node, Namespace, Event (core and `events.k8s.io`), `ConfigMap`, Secret, Service,
//! `ServiceAccount`, Pod, Endpoints, `EndpointSlice`, `IPAddress`, Lease and `CustomResourceDefinition`; a definition serves its kinds as soon
//! as it is created, and [`Sandbox::register`] adds kinds without one. [`Sandbox::faults`] makes requests fail
//! or wait, and [`Sandbox::requests`] counts them. [`conformance`] holds the cases that run against this API
//! and a real kube-apiserver alike. Creation times are those of the wall clock, also on a paused tokio clock.
//!
//! # Not supported, on purpose
//! No authentication, authorisation or schemas: unknown fields are kept, and pods get no defaults. The only
//! admission is the not-ready taint of new Nodes. No garbage collection by owner reference: propagation
//! policies are accepted and ignored. No `IPAddress` objects for the cluster
//! IPs of Services. No managed fields: server-side apply merges and never conflicts. A
//! deleted Namespace is removed at once, with all objects in it. Protobuf is not supported.

pub mod conformance;
mod crd;
mod definition;
mod discovery;
mod faults;
mod kinds;
pub mod kubelet;
mod list;
mod object;
mod patch;
mod render;
mod request;
mod resources;
mod response;
mod reviews;
mod selector;
mod server;
mod service;
mod status;
mod store;
mod table;
mod time;
mod validation;
mod verbs;
mod watch;

use std::sync::Arc;

use crate::{faults::RequestLog, resources::Registry, store::Store};
pub use crate::{
    faults::{Action, Counts, Fault, Faults, Matcher, Request, Spoil},
    resources::{Column, ResourceKind},
    response::ResponseBody,
    server::Server,
    service::Service,
};

/// An in-process Kubernetes API. Clones share all state.
#[derive(Debug, Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    registry: Registry,
    store: Arc<Store>,
    faults: Faults,
    requests: RequestLog,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// An API with the namespaces of a new cluster and no other objects.
    pub fn new() -> Self {
        let store = Arc::new(Store::default());
        let registry = Registry::built_in();
        if let Some(kind) = registry.find("", "v1", "namespaces") {
            for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
                let mut object = serde_json::json!({"metadata": {
                    "name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": time::now(),
                }});
                object::defaults(&kind, &mut object);
                store.lock().put(&kind, (String::new(), name.to_owned()), object);
            }
        }
        let faults = Faults::new(store.clone());
        Self { inner: Arc::new(Inner { registry, store, faults, requests: RequestLog::default() }) }
    }

    /// An in-process client of this API. Must be called inside a tokio runtime, as for any `kube::Client`.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The API as a `tower` service, for clients with layers of their own.
    pub fn service(&self) -> Service {
        Service { inner: self.inner.clone() }
    }

    /// Serves another kind, or replaces the one with the same group, version and plural.
    pub fn register(&self, kind: ResourceKind) {
        self.inner.registry.register(kind);
    }

    /// Injects faults and delays.
    pub fn faults(&self) -> Faults {
        self.inner.faults.clone()
    }

    /// The number of requests since the last reset, by (verb, resource, subresource). Includes requests that
    /// were refused or met a fault, but not discovery and health checks.
    pub fn requests(&self) -> Counts {
        self.inner.requests.counts()
    }

    /// The requests that match, oldest first; the log holds the last 100,000.
    pub fn requests_matching(&self, matcher: &Matcher) -> Vec<Request> {
        self.inner.requests.matching(matcher)
    }

    /// Sets the counters of [`requests`](Self::requests) to zero and empties the log.
    pub fn reset_requests(&self) {
        self.inner.requests.reset();
    }
}
