//! What a daemon does to the world outside, in order: calls of the cloud, and writes of Services. One tape may belong to several daemons.

use std::{collections::BTreeMap, fmt, ops::Deref, sync::Arc};

use cloudprovider::{
    CloudProvider, LoadBalancer, LoadBalancerService, LoadBalancerStatus, NodeIdentity, StartContext,
    async_trait,
};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Service;
use kube::{Client, client::Body};
use parking_lot::{Mutex, MutexGuard};

use super::objects::{has_finalizer, ingress};
use crate::stage::{self, Life};

const SERVICES: &str = "services";

/// The steps, such as `ensure n1,n2` or `+finalizer`, and what was wrong with calls of the cloud.
#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    steps: stage::Tape,
    calls: Arc<Mutex<Calls>>,
}

impl Deref for Tape {
    type Target = stage::Tape;

    fn deref(&self) -> &stage::Tape {
        &self.steps
    }
}

#[derive(Debug, Default)]
struct Calls {
    /// The calls of the cloud that are in progress, by daemon and Service.
    running: BTreeMap<(u64, String), usize>,
    most_at_once: usize,
    /// Services for which one daemon made two calls of the cloud at the same time.
    overlaps: Vec<String>,
    /// Services for which the cloud was told to make something without our finalizer on them.
    unprotected: Vec<String>,
    /// Services whose load balancer was to be deleted while their status had addresses of it.
    shown: Vec<String>,
}

impl Tape {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }

    fn write(&self, service: &str, what: String) {
        self.record(SERVICES, service, what, String::new());
    }

    /// The most calls of the cloud that were in progress at the same time.
    pub(super) fn most_at_once(&self) -> usize {
        self.calls().most_at_once
    }

    pub(super) fn overlaps(&self) -> Vec<String> {
        self.calls().overlaps.clone()
    }

    pub(super) fn unprotected(&self) -> Vec<String> {
        self.calls().unprotected.clone()
    }

    pub(super) fn shown(&self) -> Vec<String> {
        self.calls().shown.clone()
    }

    fn begin(&self, life: &Life, service: &str) -> Running {
        let key = (life.number(), service.to_owned());
        let mut calls = self.calls();
        let running = calls.running.entry(key.clone()).or_default();
        *running += 1;
        if *running > 1 {
            calls.overlaps.push(service.to_owned());
        }
        calls.most_at_once = calls.most_at_once.max(calls.running.values().sum());
        Running { tape: self.clone(), key }
    }

    /// The same client, whose writes of Services are on the tape. `observer` reads what a write has changed.
    pub(super) fn client(&self, client: &Client, observer: &Client) -> Client {
        let parts = (client.clone(), observer.clone(), self.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, observer, tape) = parts.clone();
            async move {
                match written_service(&request) {
                    Some(name) => tape.trapped(tape.send(&client, &observer, request, name)).await,
                    None => client.send(request).await,
                }
            }
        });
        Client::new(service, "default")
    }

    /// Sends what writes a Service, and takes note of it.
    async fn send(
        &self,
        client: &Client,
        observer: &Client,
        request: Request<Body>,
        (namespace, name): (String, String),
    ) -> kube::Result<Response<Body>> {
        let services = kube::Api::<Service>::namespaced(observer.clone(), &namespace);
        let _flight = self.in_flight(&name);
        let before = services.get_opt(&name).await?;
        let (head, body) = client.send(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        if head.status.is_success() {
            let after = services.get_opt(&name).await?;
            for change in changes(before.as_ref(), after.as_ref()) {
                self.write(&name, change);
            }
        } else {
            self.write(&name, format!("refused {}", head.status.as_u16()));
        }
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

/// A call of the cloud that is in progress, or was given up.
struct Running {
    tape: Tape,
    key: (u64, String),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(running) = self.tape.calls().running.get_mut(&self.key) {
            *running -= 1;
        }
    }
}

fn written_service<B>(request: &Request<B>) -> Option<(String, String)> {
    let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "v1", "namespaces", namespace, SERVICES, name, ..] if request.method() != Method::GET => {
            Some(((*namespace).to_owned(), (*name).to_owned()))
        }
        _ => None,
    }
}

/// What differs between two versions of a Service. The second one is absent if it was deleted.
fn changes(before: Option<&Service>, after: Option<&Service>) -> Vec<String> {
    let mut changes = Vec::new();
    match (before.is_some_and(has_finalizer), after.is_some_and(has_finalizer)) {
        (false, true) => changes.push("+finalizer".to_owned()),
        (true, false) => changes.push("-finalizer".to_owned()),
        _ => {}
    }
    if let (Some(before), Some(after)) = (before, after)
        && ingress(before) != ingress(after)
    {
        changes.push(format!("status {}", ingress(after).join(",")));
    }
    if changes.is_empty() {
        changes.push("nothing".to_owned());
    }
    changes
}

/// A provider of load balancers alone, whose calls are on the tape.
pub(super) struct TapedProvider {
    pub(super) inner: Arc<dyn CloudProvider>,
    /// Reads the Services of the calls.
    pub(super) observer: Client,
    pub(super) tape: Tape,
    pub(super) life: Life,
}

impl fmt::Debug for TapedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapedProvider").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl TapedProvider {
    /// The Service of a call as it is now.
    async fn now(&self, service: &LoadBalancerService) -> Option<Service> {
        let services = kube::Api::<Service>::namespaced(self.observer.clone(), &service.namespace);
        let now = services.get_opt(&service.name).await.ok().flatten();
        now.filter(|now| now.metadata.uid.as_deref() == Some(&service.uid))
    }

    /// Nothing may be made for a Service that could vanish before its cleanup.
    async fn check_protection(&self, service: &LoadBalancerService) {
        if self.now(service).await.is_some_and(|now| !has_finalizer(&now)) {
            self.tape.calls().unprotected.push(service.name.clone());
        }
    }

    /// Another Service may get an address as soon as a load balancer is deleted.
    async fn check_status(&self, service: &LoadBalancerService) {
        if self.now(service).await.is_some_and(|now| !ingress(&now).is_empty()) {
            self.tape.calls().shown.push(service.name.clone());
        }
    }

    fn inner(&self) -> &dyn LoadBalancer {
        self.inner.load_balancer().expect("the fake cloud has load balancers")
    }

    async fn call<T>(
        &self,
        what: &str,
        service: &LoadBalancerService,
        nodes: Option<&[&NodeIdentity]>,
        call: impl Future<Output = cloudprovider::Result<T>>,
    ) -> cloudprovider::Result<T> {
        self.life.allows().await;
        let step = async {
            let _running = self.tape.begin(&self.life, &service.name);
            let mut names: Vec<&str> = nodes.into_iter().flatten().map(|node| node.name.as_str()).collect();
            names.sort_unstable();
            let what = if nodes.is_some() { format!("{what} {}", names.join(",")) } else { what.to_owned() };
            self.tape.write(&service.name, what);
            call.await
        };
        let answer = self.tape.trapped(step).await;
        self.life.allows().await;
        answer
    }
}

#[async_trait]
impl CloudProvider for TapedProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn start(&self, context: StartContext) -> cloudprovider::Result<()> {
        self.inner.start(context).await
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(self)
    }
}

#[async_trait]
impl LoadBalancer for TapedProvider {
    fn name(&self, cluster: &str, service: &LoadBalancerService) -> String {
        self.inner().name(cluster, service)
    }

    async fn get(
        &self,
        cluster: &str,
        service: &LoadBalancerService,
    ) -> cloudprovider::Result<Option<LoadBalancerStatus>> {
        self.call("get", service, None, self.inner().get(cluster, service)).await
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> cloudprovider::Result<LoadBalancerStatus> {
        self.check_protection(service).await;
        self.call("ensure", service, Some(nodes), self.inner().ensure(cluster, service, nodes)).await
    }

    async fn update(
        &self,
        cluster: &str,
        service: &LoadBalancerService,
        nodes: &[&NodeIdentity],
    ) -> cloudprovider::Result<()> {
        self.call("update", service, Some(nodes), self.inner().update(cluster, service, nodes)).await
    }

    async fn delete(&self, cluster: &str, service: &LoadBalancerService) -> cloudprovider::Result<()> {
        self.check_status(service).await;
        self.call("delete", service, None, self.inner().delete(cluster, service)).await
    }
}
