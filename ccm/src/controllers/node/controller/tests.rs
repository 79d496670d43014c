//! Tests of the loop with a sandbox, for what tests of the pure functions cannot cover.

use cloudprovider::{Instance, InstanceMetadata, NodeAddress, PowerState, ProviderId, testing::FakeCloud};
use component::{
    debug_state::DebugState,
    events::{EventMetrics, EventObject, event_recorder},
    health::HealthChecks,
    metrics::MetricSet as _,
    work_queue::WorkQueueMetrics,
};
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use sandbox::{Action, Fault, Matcher, Sandbox, kubelet};

use super::{super::COMPONENT, *};
use crate::{
    cloud::{CloudMetrics, Started},
    nodes::watch_nodes,
};

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
    _stop: tokio_util::sync::DropGuard,
}

fn start() -> Working {
    let (sandbox, nodes, stop) = (Sandbox::new(), NodeStore::new(), CancellationToken::new());
    let client = sandbox.client();
    let cloud_metrics = CloudMetrics::unregistered().expect("metrics");
    let cloud = Cloud::new(Started::new(everything().provider(), stop.child_token()), cloud_metrics);
    let daemon = EventObject::lease("kube-system", "ccm", "");
    let (events, _) =
        event_recorder(COMPONENT, client.clone(), daemon, EventMetrics::unregistered().expect("metrics"));
    let options = NodeControllerOptions {
        concurrent_syncs: 1,
        status_update_frequency: PERIOD,
        foreign_labels: ForeignValue::Stays,
        dry_run: false,
    };
    let writer = NodeWriter::new(client.clone());
    let metrics = NodeMetrics::unregistered().expect("metrics");
    let queue = WorkQueueMetrics::unregistered().expect("metrics").named("Nodes");
    let controller =
        NodeController::new(nodes.clone(), cloud.clone(), writer, events, metrics, queue, options);
    let inspection = Inspection::register(COMPONENT, &HealthChecks::new(), &DebugState::new());
    tokio::spawn(watch_nodes(client, nodes.clone(), stop.clone()));
    tokio::spawn(controller.run(stop.clone(), inspection));
    Working { sandbox, nodes, cloud, _stop: stop.drop_guard() }
}

impl Working {
    fn api(&self) -> Api<ApiNode> {
        Api::all(self.sandbox.client())
    }

    async fn register(&self, name: &str) {
        kubelet::register(&self.sandbox.client(), &kubelet::node(name, name)).await.expect("registered");
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
