//! What a daemon does to the world outside, in order: calls of the cloud, and writes of Services.
//!
//! One tape may belong to several daemons. Each of them has a [`Life`], which may end in the middle of a call
//! or stand still for a while.

use std::{collections::BTreeMap, fmt, sync::Arc};

use cloudprovider::{
    CloudProvider, Clusters, DynMachines, Instances, LoadBalancer, LoadBalancerService, LoadBalancerStatus,
    NodeIdentity, Routes, StartContext, Zones, async_trait,
};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Service;
use kube::{Client, client::Body};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::objects::{has_finalizer, ingress};
use crate::{
    in_flight::InFlight,
    replicas::Life,
    trap::{Side, Trap},
};

/// One thing that was done, such as `ensure web n1,n2` or `web +finalizer`.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) at: Instant,
    pub(super) service: String,
    pub(super) what: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tape {
    state: Arc<Mutex<State>>,
    in_flight: InFlight,
    /// Where a daemon dies.
    pub(super) trap: Trap,
}

#[derive(Debug, Default)]
struct State {
    steps: Vec<Step>,
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
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn write(&self, service: &str, what: String) {
        let step = Step { at: Instant::now(), service: service.to_owned(), what };
        self.lock().steps.push(step);
    }

    /// Waits until every write of this Service that the API server shows is on the tape.
    pub(super) async fn has_writes_of(&self, service: &str) {
        self.in_flight.none_of(service).await;
    }

    /// All steps so far.
    pub(super) fn steps(&self) -> Vec<Step> {
        self.lock().steps.clone()
    }

    /// What was done to this Service so far.
    pub(super) fn of(&self, service: &str) -> Vec<String> {
        let state = self.lock();
        state.steps.iter().filter(|step| step.service == service).map(|step| step.what.clone()).collect()
    }

    /// How many steps of this Service begin with `what`.
    pub(super) fn count(&self, service: &str, what: &str) -> usize {
        self.of(service).iter().filter(|step| step.starts_with(what)).count()
    }

    /// When such steps of this Service were done.
    pub(super) fn times(&self, service: &str, what: &str) -> Vec<Instant> {
        let state = self.lock();
        let wanted = state.steps.iter().filter(|step| step.service == service && step.what.starts_with(what));
        wanted.map(|step| step.at).collect()
    }

    pub(super) fn clear(&self) {
        self.lock().steps.clear();
    }

    /// The most calls of the cloud that were in progress at the same time.
    pub(super) fn most_at_once(&self) -> usize {
        self.lock().most_at_once
    }

    pub(super) fn overlaps(&self) -> Vec<String> {
        self.lock().overlaps.clone()
    }

    pub(super) fn unprotected(&self) -> Vec<String> {
        self.lock().unprotected.clone()
    }

    pub(super) fn shown(&self) -> Vec<String> {
        self.lock().shown.clone()
    }

    fn begin(&self, life: &Life, service: &str) -> Running {
        let key = (life.number(), service.to_owned());
        let mut state = self.lock();
        let running = state.running.entry(key.clone()).or_default();
        *running += 1;
        if *running > 1 {
            state.overlaps.push(service.to_owned());
        }
        state.most_at_once = state.most_at_once.max(state.running.values().sum());
        Running { tape: self.clone(), key }
    }
}

/// A call of the cloud that is in progress, or was given up.
struct Running {
    tape: Tape,
    key: (u64, String),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(running) = self.tape.lock().running.get_mut(&self.key) {
            *running -= 1;
        }
    }
}

/// The client of a daemon. `observer` reads what a write has changed.
pub(super) fn taped_client(client: &Client, observer: &Client, tape: &Tape, life: &Life) -> Client {
    let parts = (client.clone(), observer.clone(), tape.clone(), life.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, observer, tape, life) = parts.clone();
        async move {
            life.allows().await;
            let Some((namespace, name)) = written_service(&request) else {
                let answer = client.send(request).await?;
                return Ok::<_, kube::Error>(answer);
            };
            let services = kube::Api::<Service>::namespaced(observer, &namespace);
            let number = tape.trap.pass();
            tape.trap.stumble(number, Side::Before).await;
            let flight = tape.in_flight.enter(&name);
            let before = services.get_opt(&name).await?;
            let (head, body) = client.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            if head.status.is_success() {
                let after = services.get_opt(&name).await?;
                for change in changes(before.as_ref(), after.as_ref()) {
                    tape.write(&name, change);
                }
            } else {
                tape.write(&name, format!("refused {}", head.status.as_u16()));
            }
            drop(flight);
            tape.trap.stumble(number, Side::After).await;
            life.allows().await;
            Ok(Response::from_parts(head, Body::from(body)))
        }
    });
    Client::new(service, "default")
}

fn written_service<B>(request: &Request<B>) -> Option<(String, String)> {
    let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "v1", "namespaces", namespace, "services", name, ..] if request.method() != Method::GET => {
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

/// A provider whose calls for load balancers are on the tape.
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
            self.tape.lock().unprotected.push(service.name.clone());
        }
    }

    /// Another Service may get an address as soon as a load balancer is deleted.
    async fn check_status(&self, service: &LoadBalancerService) {
        if self.now(service).await.is_some_and(|now| !ingress(&now).is_empty()) {
            self.tape.lock().shown.push(service.name.clone());
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
        let number = self.tape.trap.pass();
        self.tape.trap.stumble(number, Side::Before).await;
        let running = self.tape.begin(&self.life, &service.name);
        let mut names: Vec<&str> = nodes.into_iter().flatten().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        let what = if nodes.is_some() { format!("{what} {}", names.join(",")) } else { what.to_owned() };
        self.tape.write(&service.name, what);
        let answer = call.await;
        self.tape.trap.stumble(number, Side::After).await;
        drop(running);
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

    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }

    fn zones(&self) -> Option<&dyn Zones> {
        self.inner.zones()
    }

    fn load_balancer(&self) -> Option<&dyn LoadBalancer> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.inner.routes()
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        self.inner.clusters()
    }

    fn machines(&self) -> Option<&dyn DynMachines> {
        self.inner.machines()
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
