//! Tests of the loop with a sandbox, a fake cloud and tokio's paused clock, for what tests of the pure functions cannot cover.

use cloudprovider::{
    CloudProvider, Error, ErrorKind, default_load_balancer_name,
    testing::{FakeCloud, Fault, Operation},
};
use component::{
    debug_state::DebugState,
    events::{EventMetrics, EventObject, event_recorder},
    health::HealthChecks,
    metrics::MetricSet as _,
    work_queue::WorkQueueMetrics,
};
use controller_kit::{
    cloud::{CloudMetrics, Started},
    nodes::watch_nodes,
    services::{AccessTerm, ClusterServices, LOAD_BALANCER_CLEANUP_FINALIZER, watch_services},
};
use k8s_openapi::api::core::v1::{Event, Node as ApiNode, Service as ApiService};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use sandbox::{Matcher, Sandbox, kubelet};
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::*;
use crate::controllers::service::{COMPONENT, nodes::TO_BE_DELETED_TAINT};

mod addresses;
mod deletion;
mod following_nodes;
mod old_views;
mod provider_writes;
mod retries;
mod steady;
mod the_end;

const PERIOD: Duration = Duration::from_secs(600);

/// A running controller.
struct Working {
    sandbox: Sandbox,
    fake: FakeCloud,
    cloud: Cloud,
    metrics: ServiceMetrics,
    /// What the provider can do in the cluster.
    access: Arc<ClusterServices>,
    run: JoinHandle<()>,
    _term: AccessTerm,
    _stop: DropGuard,
}

fn options() -> ServiceControllerOptions {
    ServiceControllerOptions {
        cluster_name: "kubernetes".to_owned(),
        concurrent_syncs: 64,
        verification_period: Some(PERIOD),
        dry_run: false,
    }
}

impl Working {
    /// A controller with two Nodes.
    async fn start() -> Self {
        let sandbox = Sandbox::new();
        for name in ["n1", "n2"] {
            kubelet::register(&sandbox.client(), &kubelet::node(name, name)).await.expect("registered");
        }
        Self::on(sandbox, FakeCloud::new().with_load_balancers(), options())
    }

    fn on(sandbox: Sandbox, fake: FakeCloud, options: ServiceControllerOptions) -> Self {
        Self::with(sandbox, fake, options, TermFence::default(), |_| {})
    }

    /// A controller behind this fence, with this change.
    fn with(
        sandbox: Sandbox,
        fake: FakeCloud,
        options: ServiceControllerOptions,
        fence: TermFence,
        change: impl FnOnce(&mut ServiceController),
    ) -> Self {
        let (client, stop) = (sandbox.client(), CancellationToken::new());
        let (services, nodes) = (ServiceStore::new(), NodeStore::new());
        let access = Arc::new(ClusterServices::new(client.clone(), client.clone(), services.clone()));
        let cloud = Cloud::new(
            Started::new(fake.provider(), stop.child_token()),
            CloudMetrics::unregistered().expect("metrics"),
        );
        let daemon = EventObject::lease("kube-system", "ccm", "");
        let event_metrics = EventMetrics::unregistered().expect("metrics");
        let (events, writer) = event_recorder(COMPONENT, client.clone(), daemon, event_metrics);
        let metrics = ServiceMetrics::unregistered().expect("metrics");
        let queue = WorkQueueMetrics::unregistered().expect("metrics").named("service");
        let mut controller = ServiceController::new(
            (services.clone(), nodes.clone()),
            (cloud.clone(), fence.clone()),
            (ServiceWriter::new(client.clone()), access.activity().clone()),
            events.clone(),
            metrics.clone(),
            queue,
            options,
        );
        change(&mut controller);
        let inspection = Inspection::register(COMPONENT, &HealthChecks::new(), &DebugState::new());
        let term = access.begin_term(client.clone(), fence, events);
        tokio::spawn(writer.run(stop.clone()));
        tokio::spawn(watch_nodes(client.clone(), nodes, stop.clone()));
        tokio::spawn(watch_services(client, services, stop.clone()));
        let run = tokio::spawn(controller.run(stop.clone(), inspection));
        Self { sandbox, fake, cloud, metrics, access, run, _term: term, _stop: stop.drop_guard() }
    }

    /// From now on this provider is called.
    fn call(&self, provider: Arc<dyn CloudProvider>) {
        let started = Started::new(provider, CancellationToken::new());
        let metrics = CloudMetrics::unregistered().expect("metrics");
        self.cloud.replace_with(&self.cloud.candidate(started, metrics));
    }

    fn services(&self) -> Api<ApiService> {
        Api::namespaced(self.sandbox.client(), "default")
    }

    fn nodes(&self) -> Api<ApiNode> {
        Api::all(self.sandbox.client())
    }

    async fn create(&self, name: &str) -> ApiService {
        let service = serde_json::from_value(json!({
            "metadata": {"name": name, "finalizers": ["example.com/other"]},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
        }));
        let params = PostParams::default();
        self.services().create(&params, &service.expect("a Service")).await.expect("created")
    }

    async fn patch(&self, name: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.services().patch(name, &params, &patch).await.expect("patched");
    }

    async fn patch_status(&self, name: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.services().patch_status(name, &params, &patch).await.expect("patched");
    }

    async fn patch_node(&self, name: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.nodes().patch(name, &params, &patch).await.expect("patched");
    }

    async fn get(&self, name: &str) -> ApiService {
        self.services().get(name).await.expect("there")
    }

    async fn has_finalizer(&self, name: &str) -> bool {
        self.get(name).await.finalizers().iter().any(|one| one == LOAD_BALANCER_CLEANUP_FINALIZER)
    }

    /// The addresses in the status.
    async fn addresses(&self, name: &str) -> Vec<String> {
        let status = self.get(name).await.status.and_then(|status| status.load_balancer?.ingress);
        status.unwrap_or_default().into_iter().filter_map(|ingress| ingress.ip).collect()
    }

    /// Waits, and gives the calls of the cloud since the last time.
    async fn calls_after(&self, wait: Duration) -> Vec<Operation> {
        tokio::time::sleep(wait).await;
        let calls = self.fake.calls().into_iter().map(|call| call.operation).collect();
        self.fake.forget_calls();
        calls
    }

    /// From now on writes to Services by the controller fail.
    fn refuse_writes(&self, times: u64) {
        let patches = Matcher::any().verb("patch").resource("services").subresource("status");
        self.sandbox
            .faults()
            .inject(sandbox::Fault::new(patches, sandbox::Action::InternalError).times(times));
    }

    /// Ends the watch. Until [`Faults::clear`](sandbox::Faults::clear) there is no other one.
    fn lose_watch(&self) {
        for verb in ["watch", "list"] {
            let matcher = Matcher::any().verb(verb).resource("services");
            let fault = sandbox::Fault::new(matcher, sandbox::Action::ServiceUnavailable);
            self.sandbox.faults().inject(fault);
        }
        self.sandbox.faults().drop_watches();
    }

    /// Waits, and gives the number of writes to Services by the controller since the last time.
    fn writes(&self) -> usize {
        let all = Matcher::any().verb("patch").resource("services").subresource("status");
        let count = self.sandbox.requests_matching(&all).len();
        self.sandbox.reset_requests();
        count
    }

    /// The reasons of all events on Services, in the order of their last occurrence.
    async fn events(&self) -> Vec<String> {
        self.all_events().await.into_iter().map(|event| event.reason.unwrap_or_default()).collect()
    }

    /// Their messages.
    async fn messages(&self) -> Vec<String> {
        self.all_events().await.into_iter().map(|event| event.message.unwrap_or_default()).collect()
    }

    async fn all_events(&self) -> Vec<Event> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let api: Api<Event> = Api::all(self.sandbox.client());
        let mut events = api.list(&ListParams::default()).await.expect("listed").items;
        events.retain(|event| event.involved_object.kind.as_deref() == Some("Service"));
        events.sort_by_key(|event| {
            event.meta().resource_version.as_deref().and_then(|version| version.parse::<u64>().ok())
        });
        events
    }
}

fn quota() -> Error {
    Error::new(ErrorKind::Unavailable, "quota")
}

const SOON: Duration = Duration::from_secs(2);
