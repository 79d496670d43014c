//! Tests of the loop with a sandbox, for what tests of the pure functions cannot cover.

use cloudprovider::{Instance, InstanceMetadata, NodeAddress, PowerState, ProviderId, testing::FakeCloud};
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
};
use k8s_openapi::api::core::v1::{Event, Node as ApiNode};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use sandbox::{Action, Fault, Matcher, Sandbox, kubelet};

use super::{super::COMPONENT, *};

/// The period of full comparisons in these tests.
const PERIOD: Duration = Duration::from_secs(3600);

/// A cloud with an instance for each Node.
fn everything() -> FakeCloud {
    let fake = FakeCloud::named("every").without_changes();
    fake.answer_with(|node| {
        let addresses = vec![NodeAddress::internal_ip("10.0.0.1")];
        let metadata = InstanceMetadata { addresses, ..InstanceMetadata::default() };
        let id = ProviderId::new("every", &format!("/{}", node.name));
        Instance::new(id, PowerState::Running).with_metadata(metadata).into()
    });
    fake
}

/// A running controller.
struct Working {
    sandbox: Sandbox,
    nodes: NodeStore,
    cloud: Cloud,
    metrics: NodeMetrics,
    _stop: tokio_util::sync::DropGuard,
}

fn start() -> Working {
    start_with(&everything(), PERIOD)
}

fn start_with(fake: &FakeCloud, period: Duration) -> Working {
    let (sandbox, nodes, stop) = (Sandbox::new(), NodeStore::new(), CancellationToken::new());
    let client = sandbox.client();
    let cloud_metrics = CloudMetrics::unregistered().expect("metrics");
    let cloud = Cloud::new(Started::new(fake.provider(), stop.child_token()), cloud_metrics);
    let daemon = EventObject::lease("kube-system", "ccm", "");
    let (events, writes) =
        event_recorder(COMPONENT, client.clone(), daemon, EventMetrics::unregistered().expect("metrics"));
    let options = NodeControllerOptions {
        concurrent_syncs: 1,
        status_update_frequency: period,
        foreign_labels: ForeignValue::Stays,
        dry_run: false,
    };
    let writer = NodeWriter::new(client.clone());
    let metrics = NodeMetrics::unregistered().expect("metrics");
    let queue = WorkQueueMetrics::unregistered().expect("metrics").named("Nodes");
    let controller =
        NodeController::new(nodes.clone(), cloud.clone(), writer, events, metrics.clone(), queue, options);
    let inspection = Inspection::register(COMPONENT, &HealthChecks::new(), &DebugState::new());
    tokio::spawn(watch_nodes(client, nodes.clone(), stop.clone()));
    tokio::spawn(writes.run(stop.clone()));
    tokio::spawn(controller.run(stop.clone(), inspection));
    Working { sandbox, nodes, cloud, metrics, _stop: stop.drop_guard() }
}

impl Working {
    fn api(&self) -> Api<ApiNode> {
        Api::all(self.sandbox.client())
    }

    async fn register(&self, name: &str) {
        kubelet::register(&self.sandbox.client(), &kubelet::node(name, name)).await.expect("registered");
    }

    /// How often an event with this reason was written for this Node.
    async fn events(&self, name: &str, reason: &str) -> i32 {
        let events = Api::<Event>::all(self.sandbox.client()).list(&ListParams::default()).await;
        let is_it = |event: &&Event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        };
        events.expect("events").iter().filter(is_it).map(|event| event.count.unwrap_or(1)).sum()
    }

    /// How long it takes until this Node is initialised, `most` at most.
    async fn initialized_after(&self, name: &str, most: Duration) -> Duration {
        let began = Instant::now();
        while began.elapsed() < most
            && self.nodes.get(name).is_none_or(|node| node.has_taint(UNINITIALIZED_TAINT))
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_in_between_denied_is_tried_again_in_a_minute() {
    let working = start();
    let not_found = Fault::new(Matcher::any().verb("patch").resource("nodes"), Action::ErrorEvent(404));
    working.sandbox.faults().inject(not_found.times(1));
    working.register("n1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Changes of the Node cause no work meanwhile, because the API server said that there is no such Node.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    working.api().patch("n1", &PatchParams::default(), &patch).await.expect("patched");
    let took = working.initialized_after("n1", PERIOD).await;
    assert!((Duration::from_secs(30)..=GONE_FOR).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_really_gone_is_asked_about_no_more() {
    let working = start();
    let not_found = Fault::new(Matcher::any().verb("patch").resource("nodes"), Action::ErrorEvent(404));
    working.sandbox.faults().inject(not_found.times(1));
    working.register("n1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    working.api().delete("n1", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    // A new Node of the same name does not wait.
    working.register("n1").await;
    let took = working.initialized_after("n1", PERIOD).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_of_nodes_that_are_gone_is_forgotten_without_the_other_controller() {
    let working = start();
    working.register("n1").await;
    working.register("n2").await;
    for name in ["n1", "n2"] {
        working.initialized_after(name, PERIOD).await;
    }
    let [gone, stays] = ["n1", "n2"].map(|name| working.nodes.get(name).expect("there"));
    assert!(working.cloud.has_seen(&gone) && working.cloud.has_seen(&stays));
    working.api().delete("n1", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(PERIOD).await;
    assert!(!working.cloud.has_seen(&gone));
    assert!(working.cloud.has_seen(&stays));
}

/// Without a word of its own, a Node that the cloud has no instance for would stay for ever.
#[tokio::test(start_paused = true)]
async fn a_node_without_an_instance_is_counted_and_its_event_comes_again() {
    let fake = FakeCloud::named("empty").without_changes();
    let working = start_with(&fake, Duration::from_secs(300));
    let mut left = kubelet::node("left", "left");
    left.spec.get_or_insert_default().taints = None;
    kubelet::register(&working.sandbox.client(), &left).await.expect("registered");
    working.register("new").await;
    let events = async || {
        let left = working.events("left", "InstanceNotFound").await;
        (left, working.events("new", "InitializationFailed").await)
    };
    let counted = || {
        let NodeMetrics { unfollowed_nodes, uninitialized_nodes, .. } = &working.metrics;
        [unfollowed_nodes, uninitialized_nodes]
            .map(|gauge| gauge.with_label_values(&["InstanceNotFound"]).get())
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((events().await, counted()), ((1, 1), [1, 1]));
    tokio::time::sleep(Duration::from_secs(9 * 3600)).await;
    let (said_of_left, said_of_new) = events().await;
    assert!(
        (5..=7).contains(&said_of_left) && (5..=7).contains(&said_of_new),
        "with growing pauses: {said_of_left} {said_of_new}"
    );
    assert_eq!(counted(), [1, 1]);
    for name in ["left", "new"] {
        working.api().delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(counted(), [0, 0]);
}
