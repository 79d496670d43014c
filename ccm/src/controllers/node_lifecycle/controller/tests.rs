//! Tests of single looks, with a sandbox and tokio's paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use cloudprovider::{
    Instance, InstanceLookup, PowerState,
    testing::{FakeCloud, Fault},
};
use component::{
    debug_state::DebugState,
    events::{EventMetrics, EventObject, event_recorder},
    health::HealthChecks,
    metrics::MetricSet as _,
};
use controller_kit::{
    cloud::{CloudMetrics, Started},
    nodes::watch_nodes,
};
use http::{Method, Request};
use kube::client::Body;
use parking_lot::Mutex;
use sandbox::{Sandbox, kubelet};
use tokio::time::sleep;

use super::{super::verdict::HeldBack, *};

/// The duration of requests by method and path, and their number.
#[derive(Debug, Default)]
struct Delays {
    by: Mutex<Vec<(Method, &'static str, Duration)>>,
    leases_read: AtomicUsize,
}

struct World {
    client: Client,
    delays: Arc<Delays>,
    /// A cloud without instances.
    cloud: FakeCloud,
    controller: NodeLifecycleController,
    inspection: Inspection,
    stop: CancellationToken,
    _sandbox: Sandbox,
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl World {
    /// Nodes `n0`, `n1`, ... that are not Ready and have no lease. Only the cloud and the kubelet can prevent
    /// their deletion.
    async fn new(count: usize, change: impl Fn(&mut k8s_openapi::api::core::v1::Node)) -> Self {
        let sandbox = Sandbox::new();
        let client = sandbox.client();
        for number in 0..count {
            let name = format!("n{number}");
            let mut node = kubelet::node(&name, &name);
            node.spec.get_or_insert_default().provider_id = Some(format!("gone:///{number}"));
            change(&mut node);
            kubelet::register(&client, &node).await.expect("registered");
            kubelet::heartbeat(&client, &name, false).await.expect("a heartbeat");
        }
        let delays = Arc::<Delays>::default();
        let slow = slow(client.clone(), &delays);
        let (nodes, stop) = (NodeStore::new(), CancellationToken::new());
        tokio::spawn(watch_nodes(client.clone(), nodes.clone(), stop.clone()));
        nodes.synced().await;
        let daemon = EventObject::lease("kube-system", "l", "");
        let event_metrics = EventMetrics::unregistered().expect("metrics");
        let (events, _) = event_recorder("test", client.clone(), daemon, event_metrics);
        let options = NodeLifecycleOptions {
            monitor_period: seconds(5),
            concurrent_syncs: 1,
            deletion_grace_period: Some(seconds(5)),
            deletion_unseen_grace_period: Some(Duration::ZERO),
            deletion_minimum_age: Duration::ZERO,
            breaker: BreakerLimits { count: 0, percent: 100 },
            dry_run: false,
        };
        let cloud = FakeCloud::named("gone").without_changes();
        let boundary = Cloud::new(
            Started::new(cloud.provider(), stop.clone()),
            CloudMetrics::unregistered().expect("metrics"),
        );
        let metrics = NodeLifecycleMetrics::unregistered().expect("metrics");
        let controller =
            NodeLifecycleController::new(nodes, boundary, slow.clone(), slow, events, metrics, options);
        let inspection = Inspection::register("test", &HealthChecks::new(), &DebugState::new());
        Self { client, delays, cloud, controller, inspection, stop, _sandbox: sandbox }
    }

    /// One look at all Nodes.
    async fn look(&mut self) {
        let nodes = self.controller.nodes.all();
        self.controller.look_at(nodes, &self.stop, &self.inspection).await;
        sleep(Duration::from_millis(100)).await;
    }

    fn delay(&self, method: Method, path: &'static str, time: Duration) {
        self.delays.by.lock().push((method, path, time));
    }

    async fn reason(&self, name: &str) -> Option<String> {
        let node = kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.client.clone());
        let conditions = node.get(name).await.ok()?.status?.conditions?;
        conditions.into_iter().find(|c| c.type_ == INSTANCE_EXISTS)?.reason
    }
}

fn slow(client: Client, delays: &Arc<Delays>) -> Client {
    let delays = Arc::clone(delays);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, delays) = (client.clone(), Arc::clone(&delays));
        async move {
            let path = request.uri().path();
            if path.contains("/leases/") {
                delays.leases_read.fetch_add(1, Ordering::Relaxed);
            }
            let is_meant = |(method, part, _): &&(Method, &str, Duration)| {
                request.method() == *method && path.contains(part)
            };
            let delay = delays.by.lock().iter().find(is_meant).map(|delay| delay.2);
            sleep(delay.unwrap_or_default()).await;
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_pass_counts_each_node_a_few_times_however_many_there_are() {
    for count in [10, 40] {
        let mut world = World::new(count, |_| {}).await;
        world.look().await;
        sleep(seconds(6)).await;
        world.look().await;
        assert!(world.controller.nodes.is_empty(), "all are deleted, one after the other");
        let work = world.controller.breaker.work;
        assert!(work <= 4 * count, "{work} for {count} nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_too_old_by_their_turn_delete_nothing() {
    let mut world = World::new(20, |_| {}).await;
    world.look().await;
    sleep(seconds(6)).await;
    world.delays.leases_read.store(0, Ordering::Relaxed);
    world.delay(Method::GET, "/leases/", Duration::from_millis(1_500));
    world.controller.due.clear();
    world.look().await;
    // The limit of 10 s passes during the seventh read.
    assert_eq!(world.controller.nodes.len(), 14);
    assert_eq!(world.controller.due.len(), 14, "the others are asked about again at once");
    let reads = world.delays.leases_read.load(Ordering::Relaxed);
    assert_eq!(reads, 7, "what is not used is not asked for");
}

/// The call about the other Nodes takes long after the call that found the instance gone. Meanwhile the
/// instance comes back.
#[tokio::test(start_paused = true)]
async fn an_answer_of_a_call_long_before_the_end_of_the_batch_deletes_nothing() {
    let mut world = World::new(4, |_| {}).await;
    let back_at = Arc::new(Mutex::new(None::<Instant>));
    world.cloud.answer_with({
        let back_at = Arc::clone(&back_at);
        move |node| {
            let is_back = back_at.lock().is_some_and(|then| then <= Instant::now());
            if node.name == "n3" && !is_back {
                return InstanceLookup::Absent;
            }
            Instance::new(None, PowerState::Running).into()
        }
    });
    let look = async |world: &mut World| {
        let mut nodes = world.controller.nodes.all();
        nodes.sort_by_key(|node| node.name().to_owned());
        world.controller.look_at(nodes, &world.stop, &world.inspection).await;
    };
    // The duration of calls about all Nodes.
    world.cloud.set_latency(seconds(30));
    look(&mut world).await;
    sleep(seconds(6)).await;
    world.cloud.set_latency(Duration::from_millis(500));
    world.cloud.fail_nodes(|node| node.name == "n0", Fault::Panic);
    *back_at.lock() = Some(Instant::now() + seconds(2));
    let cloud = world.cloud.clone();
    tokio::spawn(async move {
        // The first call has failed, and the half with `n3` has its answer.
        sleep(Duration::from_millis(900)).await;
        cloud.set_latency(seconds(28));
    });
    let began = Instant::now();
    look(&mut world).await;
    assert!(began.elapsed() > seconds(28), "{:?}", began.elapsed());
    sleep(seconds(1)).await;
    assert_eq!(world.controller.nodes.len(), 4);
    let due = world.controller.due.get("n3").copied();
    assert!(due.is_some_and(|due| due <= Instant::now()), "it is asked about again at once");
    look(&mut world).await;
    assert_eq!(world.controller.memories["n3"].answer(), "present");
}

#[tokio::test(start_paused = true)]
async fn a_slow_cloud_deletes_and_one_that_takes_too_long_is_told_of() {
    for (latency, is_deleted) in [(15, true), (50, false)] {
        let mut world = World::new(1, |_| {}).await;
        world.cloud.set_latency(seconds(latency));
        world.look().await;
        sleep(seconds(5)).await;
        world.look().await;
        assert_eq!(world.controller.nodes.is_empty(), is_deleted, "{latency} s");
        if is_deleted {
            continue;
        }
        assert!(world.controller.due["n0"] <= Instant::now(), "it is asked about again at once");
        world.look().await;
        assert_eq!(world.reason("n0").await.as_deref(), Some("CloudTooSlow"));
        world.cloud.set_latency(seconds(2));
        world.look().await;
        assert!(world.controller.nodes.is_empty(), "alone it is answered quickly");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_never_seen_is_kept_while_another_configuration_is_tried() {
    let mut world = World::new(1, |_| {}).await;
    world.controller.options.deletion_unseen_grace_period = Some(seconds(30));
    world.look().await;
    let trial = world.controller.cloud.begin_trial();
    for _ in 0..10 {
        sleep(seconds(30)).await;
        world.look().await;
        assert_eq!(world.controller.nodes.len(), 1);
    }
    assert_eq!(world.reason("n0").await.as_deref(), Some("InstanceNeverSeen"));
    drop(trial);
    world.look().await;
    assert_eq!(world.controller.nodes.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_row_of_answers_ends_where_the_node_is_another_clouds() {
    let mut world = World::new(1, |_| {}).await;
    world.look().await;
    // The present configuration is that of another cloud.
    world.cloud.own_with(|_| false);
    sleep(seconds(3600)).await;
    world.look().await;
    world.cloud.own_with(|_| true);
    world.look().await;
    assert_eq!(world.controller.nodes.len(), 1, "it is the first answer again");
    sleep(seconds(6)).await;
    world.look().await;
    assert_eq!(world.controller.nodes.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_hangs_is_given_up_with_its_proof() {
    let mut world = World::new(1, |_| {}).await;
    world.look().await;
    sleep(seconds(6)).await;
    world.delay(Method::DELETE, "/nodes/", seconds(20));
    let began = Instant::now();
    world.look().await;
    assert!(began.elapsed() < seconds(4), "{:?}", began.elapsed());
    sleep(seconds(60)).await;
    assert_eq!(world.controller.nodes.len(), 1, "nothing is sent after that");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_not_asked_about_the_leases_of_all_that_are_kept() {
    const COUNT: usize = 20;
    let mut world = World::new(COUNT, |_| {}).await;
    for _ in 0..10 {
        for number in 0..COUNT {
            kubelet::renew_lease(&world.client, &format!("n{number}")).await.expect("renewed");
        }
        world.look().await;
        sleep(seconds(5)).await;
    }
    for number in 0..COUNT {
        let name = format!("n{number}");
        assert_eq!(world.reason(&name).await.as_deref(), Some("KubeletAlive"), "{name}");
    }
    assert!(world.controller.leases.observed().is_empty(), "nobody is listened to for them any more");
    world.delays.leases_read.store(0, Ordering::Relaxed);
    world.delay(Method::GET, "/leases/", seconds(3));
    world.look().await;
    assert_eq!(world.delays.leases_read.load(Ordering::Relaxed), 1, "the first one tells enough");
    assert_eq!(world.controller.nodes.len(), COUNT);
    let is_kept = |memory: &Memory| memory.held_back == Some(HeldBack::KubeletAlive);
    assert!(world.controller.memories.values().all(is_kept), "nothing else is known of them");
}

/// Otherwise the next leader would treat a Node that the breaker held back once as still held back.
#[tokio::test(start_paused = true)]
async fn what_the_breaker_held_back_once_is_written_over_while_its_kubelet_is_listened_to() {
    let allow = super::super::ALLOW_DELETION.to_owned();
    let mut world = World::new(1, |node| {
        node.metadata.annotations.get_or_insert_default().insert(allow.clone(), "true".to_owned());
    })
    .await;
    kubelet::renew_lease(&world.client, "n0").await.expect("renewed");
    let held = json!({"status": {"conditions": [{"type": INSTANCE_EXISTS, "status": "False", "reason": "BreakerOpen"}]}});
    kube::Api::<k8s_openapi::api::core::v1::Node>::all(world.client.clone())
        .patch_status("n0", &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(held))
        .await
        .expect("patched");
    sleep(seconds(1)).await;
    world.look().await;
    assert_eq!(world.reason("n0").await.as_deref(), Some("BreakerOpen"), "it is not clear yet");
    sleep(seconds(6)).await;
    world.look().await;
    assert_eq!(world.reason("n0").await.as_deref(), Some("LeaseRecent"), "the breaker holds nothing back");
}
