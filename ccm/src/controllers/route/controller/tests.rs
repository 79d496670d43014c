//! Tests of the loop with a sandbox and a fake cloud, for what tests of the pure functions cannot cover. Time is paused.

mod failures;
mod hanging_calls;
mod histories;

use cloudprovider::{
    Route,
    testing::{FakeCloud, Operation},
};
use component::{
    debug_state::DebugState,
    events::{EventMetrics, EventObject, event_recorder},
    health::HealthChecks,
    metrics::{MetricSet as _, Metrics},
};
use controller_kit::{
    cloud::{CloudMetrics, Started},
    conditions::NETWORK_UNAVAILABLE,
    nodes::watch_nodes,
};
use k8s_openapi::api::core::v1::{Event, Node as ApiNode};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use sandbox::{Matcher, Sandbox, kubelet};
use tokio::{task::JoinHandle, time::sleep};

use super::{super::COMPONENT, *};

/// The period without a flag.
const PERIOD: Duration = Duration::from_secs(300);

/// A cluster with a cloud, and perhaps a running controller.
struct Cluster {
    sandbox: Sandbox,
    fake: FakeCloud,
    cloud: Cloud,
    fence: TermFence,
    nodes: NodeStore,
    metrics: Metrics,
    stop: CancellationToken,
}

impl Cluster {
    /// Without a controller.
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let (nodes, stop) = (NodeStore::new(), CancellationToken::new());
        let fake = FakeCloud::new().with_routes();
        let cloud_metrics = CloudMetrics::unregistered().expect("metrics");
        let cloud = Cloud::new(Started::new(fake.provider(), stop.child_token()), cloud_metrics);
        tokio::spawn(watch_nodes(sandbox.client(), nodes.clone(), stop.clone()));
        let metrics = Metrics::new("test").expect("metrics");
        Self { sandbox, fake, cloud, fence: TermFence::default(), nodes, metrics, stop }
    }

    fn controller(&self, period: Duration, dry_run: bool) -> RouteController {
        let client = self.sandbox.client();
        let daemon = EventObject::lease("kube-system", "ccm", "");
        let metrics = EventMetrics::unregistered().expect("metrics");
        let (events, writer) = event_recorder(COMPONENT, client.clone(), daemon, metrics);
        tokio::spawn(writer.run(self.stop.clone()));
        let options = RouteControllerOptions {
            cluster_name: "c".into(),
            cluster_cidrs: ClusterCidrs::parse("10.0.0.0/8").expect("a range"),
            period,
            dry_run,
        };
        let metrics = self.metrics.get().expect("metrics");
        RouteController::new(
            self.nodes.clone(),
            (self.cloud.clone(), self.fence.clone()),
            NodeWriter::new(client),
            events,
            metrics,
            options,
        )
    }

    /// Starts a controller, with the token that stops it.
    fn start_with(&self, period: Duration, dry_run: bool) -> (JoinHandle<()>, CancellationToken) {
        let inspection = Inspection::register(COMPONENT, &HealthChecks::new(), &DebugState::new());
        let stop = self.stop.child_token();
        (tokio::spawn(self.controller(period, dry_run).run(stop.clone(), inspection)), stop)
    }

    fn start(&self) {
        self.start_with(PERIOD, false);
    }

    /// With a controller and these Nodes, settled.
    async fn settled(nodes: usize) -> Self {
        let cluster = Self::new();
        for index in 0..nodes {
            cluster.register(index).await;
        }
        cluster.start();
        sleep(Duration::from_secs(5)).await;
        cluster.fake.forget_calls();
        cluster.sandbox.reset_requests();
        cluster
    }

    /// Lets an empty cloud take over, and returns it.
    fn replace(&self) -> FakeCloud {
        let other = FakeCloud::new().with_routes();
        let started = Started::new(other.provider(), self.stop.child_token());
        let candidate = self.cloud.candidate(started, CloudMetrics::unregistered().expect("metrics"));
        self.cloud.replace_with(&candidate);
        other
    }

    fn api(&self) -> Api<ApiNode> {
        Api::all(self.sandbox.client())
    }

    /// Creates the Node `n<index>` with its pod CIDR.
    async fn register(&self, index: usize) {
        self.register_with(&format!("n{index}"), &cidr(index)).await;
    }

    async fn register_with(&self, name: &str, cidr: &str) {
        let mut node = kubelet::node(name, name);
        let spec = node.spec.get_or_insert_default();
        spec.pod_cidr = Some(cidr.to_owned());
        spec.pod_cidrs = Some(vec![cidr.to_owned()]);
        kubelet::register(&self.sandbox.client(), &node).await.expect("registered");
    }

    async fn delete(&self, index: usize) {
        self.delete_named(&format!("n{index}")).await;
    }

    async fn delete_named(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    async fn set_address(&self, index: usize, address: &str) {
        self.try_set_address(index, address).await.expect("patched");
    }

    /// For tests in which such writes may fail.
    async fn try_set_address(&self, index: usize, address: &str) -> kube::Result<ApiNode> {
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        self.api().patch_status(&format!("n{index}"), &PatchParams::default(), &Patch::Merge(status)).await
    }

    /// Status and reason of the condition. Empty: the Node does not have it.
    async fn condition(&self, index: usize) -> String {
        self.condition_of(&format!("n{index}")).await.0
    }

    /// Status and reason of the condition, and its message.
    async fn condition_of(&self, name: &str) -> (String, String) {
        let node = self.api().get(name).await.expect("a Node");
        let mut conditions = node.status.and_then(|status| status.conditions).unwrap_or_default().into_iter();
        let found = conditions.find(|condition| condition.type_ == NETWORK_UNAVAILABLE);
        found
            .map(|found| {
                let state = format!("{} {}", found.status, found.reason.unwrap_or_default());
                (state, found.message.unwrap_or_default())
            })
            .unwrap_or_default()
    }

    /// The messages of the events about routes that are not made.
    async fn refusals(&self) -> Vec<String> {
        let events: Api<Event> = Api::all(self.sandbox.client());
        let listed = events.list(&ListParams::default()).await.expect("events");
        let refusals =
            listed.items.into_iter().filter(|event| event.reason.as_deref() == Some("FailedToCreateRoute"));
        refusals.filter_map(|event| event.message).collect()
    }

    #[track_caller]
    fn made(&self, list: usize, create: usize, delete: usize) {
        let operations = [Operation::ListRoutes, Operation::CreateRoute, Operation::DeleteRoute];
        let counts = operations.map(|operation| self.fake.count(operation));
        assert_eq!(counts, [list, create, delete], "list, create, delete");
    }

    fn status_writes(&self) -> usize {
        let patches = Matcher::any().verb("patch").resource("nodes").subresource("status");
        self.sandbox.requests_matching(&patches).len()
    }

    /// Targets and CIDRs of the cloud's routes, sorted.
    fn routes(&self) -> Vec<(String, String)> {
        let routes = self.fake.routes().into_iter();
        let mut routes: Vec<_> = routes.map(|route| (route.target_node, route.destination_cidr)).collect();
        routes.sort();
        routes
    }

    #[track_caller]
    fn counted(&self, outcome: &str, trigger: &str, count: u64) {
        let line = format!(
            "route_controller_route_sync_total{{outcome=\"{outcome}\",trigger=\"{trigger}\"}} {count}\n"
        );
        let text = self.metrics.text();
        let found: Vec<_> = text.lines().filter(|line| line.starts_with("route_controller")).collect();
        assert!(text.contains(&line), "{line} in {found:#?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn cidr(index: usize) -> String {
    format!("10.{}.{}.0/24", index / 256, index % 256)
}

fn route(target: &str, cidr: &str) -> Route {
    Route { name: cidr.into(), target_node: target.into(), destination_cidr: cidr.into(), ..Route::default() }
}

#[tokio::test(start_paused = true)]
async fn routes_are_made_and_deleted_and_the_nodes_say_so() {
    let cluster = Cluster::new();
    cluster.fake.put_route("c", route("gone", "10.9.0.0/24"));
    cluster.fake.put_route("c", route("gone", "192.168.0.0/24"));
    cluster.fake.put_route("other", route("gone", "10.9.9.0/24"));
    cluster.register(1).await;
    cluster.start();
    sleep(Duration::from_secs(1)).await;
    let foreign = [("gone".into(), "10.9.9.0/24".into())];
    let with = |others: &[(String, String)]| [&foreign[..], others].concat();
    assert_eq!(cluster.routes(), with(&[("n1".into(), cidr(1))]));
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    cluster.made(1, 1, 2);
    cluster.counted("changed", "periodic", 1);
    cluster.register(2).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.routes(), with(&[("n1".into(), cidr(1)), ("n2".into(), cidr(2))]));
    cluster.delete(1).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.routes(), with(&[("n2".into(), cidr(2))]));
    cluster.made(3, 2, 3);
    cluster.counted("changed", "node_change", 2);
    assert_eq!(cluster.status_writes(), 2, "one for each Node");
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_lists_once_in_each_period() {
    let cluster = Cluster::settled(20).await;
    sleep(Duration::from_secs(3600)).await;
    cluster.made(12, 0, 0);
    assert_eq!(cluster.status_writes(), 0);
    cluster.counted("noop", "periodic", 12);
    // Neither heartbeats nor labels matter to routes.
    let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    for index in 0..20 {
        kubelet::heartbeat(&cluster.sandbox.client(), &format!("n{index}"), true).await.expect("a heartbeat");
        cluster.api().patch(&format!("n{index}"), &PatchParams::default(), &labels).await.expect("patched");
    }
    sleep(Duration::from_secs(60)).await;
    cluster.made(12, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_given_period_is_from_start_to_start() {
    let cluster = Cluster::new();
    cluster.fake.set_latency(Duration::from_secs(3));
    cluster.start_with(Duration::from_secs(10), false);
    sleep(Duration::from_secs(95)).await;
    cluster.made(10, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn changes_that_come_together_lead_to_one_pass() {
    let cluster = Cluster::settled(2).await;
    for index in 100..150 {
        cluster.register(index).await;
    }
    cluster.set_address(0, "10.200.0.1").await;
    cluster.delete(1).await;
    sleep(Duration::from_secs(5)).await;
    cluster.made(1, 50, 1);
    assert_eq!(cluster.status_writes(), 51, "50 of ours, and the address");
}

#[tokio::test(start_paused = true)]
async fn changes_during_a_pass_lead_to_one_more() {
    let cluster = Cluster::settled(1).await;
    cluster.fake.set_latency(Duration::from_secs(4));
    cluster.register(1).await;
    sleep(Duration::from_secs(2)).await;
    // While the routes are listed.
    for index in 2..6 {
        cluster.register(index).await;
        sleep(Duration::from_millis(500)).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.fake.count(Operation::ListRoutes), 2);
    assert_eq!(cluster.routes().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn steady_changes_list_once_a_second_at_most() {
    let cluster = Cluster::settled(1).await;
    for index in 0..100 {
        cluster.set_address(0, &format!("10.200.0.{index}")).await;
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let lists = cluster.fake.count(Operation::ListRoutes);
    assert!((9..=12).contains(&lists), "{lists}");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_at_once() {
    let cluster = Cluster::new();
    for index in 0..1000 {
        cluster.register(index).await;
    }
    for index in 0..100 {
        cluster.fake.put_route("c", route("gone", &format!("10.200.{index}.0/24")));
    }
    cluster.fake.set_latency(Duration::from_secs(10));
    cluster.start();
    let begun = || cluster.fake.count(Operation::CreateRoute) + cluster.fake.count(Operation::DeleteRoute);
    for expected in [0, 200, 400, 600, 800, 1000, 1100] {
        sleep(Duration::from_secs(if expected == 0 { 5 } else { 10 })).await;
        assert_eq!(begun(), expected);
    }
    sleep(Duration::from_secs(60)).await;
    cluster.made(1, 1000, 100);
    assert_eq!(cluster.routes().len(), 1000);
    assert_eq!(cluster.status_writes(), 1000, "one for each Node");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_somebody_else_wrote_is_replaced_in_the_next_pass() {
    let cluster = Cluster::settled(1).await;
    let theirs = json!({"status": {"conditions": [
        {"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp", "message": "Calico is running on this node"},
    ]}});
    let patch = Patch::Strategic(theirs);
    cluster.api().patch_status("n0", &PatchParams::default(), &patch).await.expect("patched");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.condition(0).await, "False CalicoIsUp", "two writers must not chase each other");
    sleep(PERIOD).await;
    assert_eq!(cluster.condition(0).await, "False RouteCreated");
    assert_eq!(cluster.status_writes(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_provider_is_compared_at_once() {
    let cluster = Cluster::settled(3).await;
    let other = cluster.replace();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((other.count(Operation::ListRoutes), other.routes().len()), (1, 3));
    cluster.made(0, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_all_nodes_are_known() {
    let mut cluster = Cluster::new();
    cluster.fake.put_route("c", route("n1", &cidr(1)));
    cluster.nodes = NodeStore::new();
    cluster.start();
    sleep(Duration::from_secs(3600)).await;
    cluster.made(0, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.fake.put_route("c", route("gone", "10.9.0.0/24"));
    cluster.start_with(PERIOD, true);
    sleep(Duration::from_secs(1)).await;
    cluster.made(1, 0, 0);
    cluster.counted("noop", "periodic", 1);
}

/// A kubelet may write the CIDRs of its Node when it creates it.
#[tokio::test(start_paused = true)]
async fn a_node_outside_of_the_ranges_gets_no_route_and_loses_one() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.register_with("evil", "192.0.2.0/24").await;
    // As an earlier version left it.
    cluster.fake.put_route("c", route("evil", "192.0.2.0/24"));
    cluster.start();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1))]);
    let (state, message) = cluster.condition_of("evil").await;
    assert_eq!(state, "True NoRouteCreated");
    assert_eq!(
        message,
        "RouteController created no route: the pod CIDR 192.0.2.0/24 is not in --cluster-cidr"
    );
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    let told = cluster.refusals().await;
    let words = " 192.0.2.0/24 for node evil: the pod CIDR 192.0.2.0/24 is not in --cluster-cidr";
    assert!(told.len() == 1 && told[0].ends_with(words), "{told:?}");
    // It is told once, and costs nothing more.
    sleep(PERIOD * 3).await;
    assert_eq!(cluster.refusals().await, told);
    assert_eq!(cluster.status_writes(), 2);
    cluster.made(4, 1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_younger_node_gives_way_where_its_route_exists_already() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    // Timestamps have seconds, and the first name decides within one.
    cluster.register_with("z-evil", "10.0.0.0/22").await;
    cluster.fake.put_route("c", route("z-evil", "10.0.0.0/22"));
    cluster.start();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1))]);
    let (state, message) = cluster.condition_of("z-evil").await;
    assert_eq!(state, "True NoRouteCreated");
    assert!(message.contains("10.0.0.0/22 overlaps") && !message.contains("n1"), "{message}");
    cluster.made(1, 1, 1);
    // Once the older one is gone, its turn has come.
    cluster.delete(1).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(cluster.routes(), [("z-evil".into(), "10.0.0.0/22".into())]);
    assert_eq!(cluster.condition_of("z-evil").await.0, "False RouteCreated");
}
