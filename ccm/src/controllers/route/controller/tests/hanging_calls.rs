//! A call that hangs holds up its own route only, and a pass meets one provider only.

use cloudprovider::{Error, ErrorKind, testing::Fault};

use super::*;

/// A failure after which the provider wants a long pause.
fn much_later() -> Fault {
    let error = Error::new(ErrorKind::Unavailable, "the cloud is away");
    error.with_retry_after(Duration::from_secs(200)).into()
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_hangs_does_not_hold_up_other_nodes() {
    let cluster = Cluster::settled(0).await;
    cluster.fake.fail_next(Operation::CreateRoute, Fault::Hang);
    cluster.register(1).await;
    sleep(Duration::from_secs(1)).await;
    cluster.made(1, 1, 0);
    cluster.register(2).await;
    cluster.register(3).await;
    sleep(Duration::from_secs(8)).await;
    assert_eq!(cluster.routes(), [("n2".into(), cidr(2)), ("n3".into(), cidr(3))]);
    assert_eq!(cluster.condition(2).await, "False RouteCreated");
    assert_eq!(cluster.condition(1).await, "", "nothing is known yet");
    cluster.made(2, 3, 0);
    // Nobody is asked again while nothing changes.
    sleep(Duration::from_secs(30)).await;
    cluster.made(2, 3, 0);
    // It is given up after a minute, and tried again.
    sleep(Duration::from_secs(25)).await;
    assert_eq!(cluster.routes().len(), 3);
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    assert_eq!(cluster.fake.count(Operation::CreateRoute), 4);
    let text = cluster.metrics.text();
    assert!(!text.contains("cloud_controller_manager_routes{state=\"missing\"} 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_hangs_holds_up_its_own_cidr_only() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.register(2).await;
    // The first one has addresses, so creations wait for all deletions, though not for ever.
    let old = Route { node_addresses_enabled: true, ..route("gone", &cidr(1)) };
    cluster.fake.put_route("c", old);
    cluster.fake.fail_next(Operation::DeleteRoute, Fault::Hang);
    cluster.start();
    sleep(Duration::from_secs(7)).await;
    assert_eq!(cluster.condition(2).await, "False RouteCreated");
    // Other Nodes come while it hangs.
    cluster.register(3).await;
    sleep(Duration::from_secs(7)).await;
    assert_eq!(cluster.condition(3).await, "False RouteCreated");
    cluster.made(2, 2, 1);
    assert_eq!(cluster.condition(1).await, "", "its CIDR is not free yet");
    // Given up after a minute, and tried again.
    sleep(Duration::from_secs(60)).await;
    let expected: Vec<_> = (1..=3).map(|index| (format!("n{index}"), cidr(index))).collect();
    assert_eq!(cluster.routes(), expected);
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    assert_eq!(cluster.fake.count(Operation::DeleteRoute), 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_route_of_a_node_that_is_gone_is_deleted() {
    let cluster = Cluster::settled(0).await;
    cluster.fake.set_latency(Duration::from_secs(20));
    cluster.register(1).await;
    // The list takes 20 s, and the creation another 20 s.
    sleep(Duration::from_secs(25)).await;
    cluster.fake.set_latency(Duration::ZERO);
    cluster.delete(1).await;
    cluster.register(2).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.condition(2).await, "False RouteCreated", "it does not wait for the creation");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.routes(), [("n2".into(), cidr(2))]);
    cluster.made(3, 2, 1);
}

#[tokio::test(start_paused = true)]
async fn what_has_not_begun_is_planned_anew() {
    let cluster = Cluster::new();
    for index in 0..300 {
        cluster.register(index).await;
    }
    cluster.fake.set_latency(Duration::from_secs(10));
    cluster.start();
    // The list took 10 s, and 200 calls are under way, in the order of names. The other 100 Nodes go.
    sleep(Duration::from_secs(12)).await;
    cluster.made(1, 200, 0);
    let mut indices: Vec<usize> = (0..300).collect();
    indices.sort_by_key(ToString::to_string);
    for index in &indices[200..] {
        cluster.delete(*index).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.routes().len(), 200);
    assert_eq!(cluster.fake.count(Operation::CreateRoute), 200, "none was made for a Node that is gone");
}

#[tokio::test(start_paused = true)]
async fn a_pass_meets_one_provider_only() {
    let cluster = Cluster::new();
    for index in 0..300 {
        cluster.register(index).await;
    }
    cluster.fake.set_latency(Duration::from_secs(10));
    cluster.start();
    sleep(Duration::from_secs(12)).await;
    cluster.made(1, 200, 0);
    let other = cluster.replace();
    sleep(Duration::from_secs(60)).await;
    // The first one finishes what it has begun, and the other one is compared from its own list on.
    cluster.made(1, 200, 0);
    assert_eq!(cluster.fake.routes().len(), 200);
    assert_eq!((other.routes().len(), other.count(Operation::CreateRoute)), (300, 300));
}

#[tokio::test(start_paused = true)]
async fn what_hangs_is_finished_when_it_stops() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.fake.set_latency(Duration::from_secs(20));
    let (task, stop) = cluster.start_with(PERIOD, false);
    sleep(Duration::from_secs(25)).await;
    // Another pass begins beside the call.
    cluster.register(2).await;
    sleep(Duration::from_secs(8)).await;
    stop.cancel();
    task.await.expect("it ends");
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1))]);
    cluster.made(2, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_try_that_hangs_causes_no_passes() {
    let cluster = Cluster::settled(0).await;
    cluster.fake.fail_next(Operation::CreateRoute, Error::new(ErrorKind::Unavailable, "the cloud is away"));
    cluster.fake.fail_next(Operation::CreateRoute, Fault::Hang);
    cluster.register(1).await;
    sleep(Duration::from_secs(30)).await;
    cluster.made(2, 2, 0);
    // Nor does it after a pass beside it, which leaves it alone.
    cluster.register(2).await;
    sleep(Duration::from_secs(25)).await;
    cluster.made(3, 3, 0);
    // It is given up after a minute, and tried again.
    sleep(Duration::from_secs(15)).await;
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    assert_eq!(cluster.routes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_replaced_provider_is_not_waited_for() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.fake.set_latency(Duration::from_secs(10));
    cluster.fake.fail(Operation::ListRoutes, much_later());
    cluster.start();
    sleep(Duration::from_secs(5)).await;
    let other = cluster.replace();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((other.count(Operation::ListRoutes), other.routes().len()), (1, 1));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(other.count(Operation::ListRoutes), 1);
    cluster.made(1, 0, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_failure_of_a_replaced_provider_does_not_hold_up_the_next_one() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.fake.set_latency(Duration::from_secs(10));
    cluster.fake.fail(Operation::CreateRoute, much_later());
    cluster.start();
    // The list took 10 s, and the creation takes as long.
    sleep(Duration::from_secs(12)).await;
    let other = cluster.replace();
    sleep(Duration::from_secs(13)).await;
    cluster.made(1, 1, 0);
    assert_eq!(other.routes().len(), 1);
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_made_late_is_counted_in_the_next_pass() {
    let cluster = Cluster::settled(1).await;
    cluster.counted("changed", "periodic", 1);
    cluster.fake.set_latency(Duration::from_secs(20));
    cluster.register(1).await;
    // The list takes 20 s, and the creation as long. Another pass begins beside it.
    sleep(Duration::from_secs(25)).await;
    cluster.fake.set_latency(Duration::ZERO);
    cluster.set_address(0, "10.200.0.1").await;
    sleep(Duration::from_secs(10)).await;
    cluster.counted("noop", "node_change", 2);
    sleep(Duration::from_secs(10)).await;
    cluster.counted("changed", "periodic", 2);
    cluster.made(3, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changed_beside_its_call_is_tried_at_once_when_that_fails() {
    let cluster = Cluster::settled(0).await;
    cluster.fake.set_latency(Duration::from_secs(20));
    cluster.fake.fail_next(Operation::CreateRoute, much_later());
    cluster.register(1).await;
    sleep(Duration::from_secs(25)).await;
    cluster.fake.set_latency(Duration::ZERO);
    // A pass begins beside the call, which fails 15 s later.
    cluster.set_address(1, "10.200.0.1").await;
    sleep(Duration::from_secs(10)).await;
    cluster.made(2, 1, 0);
    sleep(Duration::from_secs(10)).await;
    cluster.made(3, 2, 0);
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    // The change has asked for one pass only. The last one is a retry.
    cluster.counted("changed", "periodic", 1);
}
