//! What fails is tried again, and nothing is made twice.

use cloudprovider::{Error, ErrorKind, testing::Fault};
use sandbox::{Action, Fault as ApiFault};

use super::*;

fn away() -> Error {
    Error::new(ErrorKind::Unavailable, "the cloud is away")
}

/// How many calls of this operation there are in each of these seconds after now.
async fn calls_at<const N: usize>(cluster: &Cluster, operation: Operation, seconds: [u64; N]) -> [usize; N] {
    let began = Instant::now();
    let mut counts = [0; N];
    for (count, at) in counts.iter_mut().zip(seconds) {
        tokio::time::sleep_until(began + Duration::from_secs(at)).await;
        *count = cluster.fake.count(operation);
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn a_failed_route_is_said_and_tried_again_by_itself() {
    let cluster = Cluster::settled(1).await;
    cluster.fake.fail(Operation::CreateRoute, Fault::Error(away()));
    cluster.register(1).await;
    // Tries after 0.1, 1.1, 3.1, 7.1, 15.1, 31.1 ... seconds.
    let tries = calls_at(&cluster, Operation::CreateRoute, [1, 2, 5, 10, 20, 40]).await;
    assert_eq!(tries, [1, 2, 3, 4, 5, 6]);
    assert_eq!(cluster.condition(1).await, "True NoRouteCreated");
    assert_eq!(cluster.condition(0).await, "False RouteCreated", "the other Node has its route");
    assert_eq!(cluster.status_writes(), 1);
    let events: Api<Event> = Api::namespaced(cluster.sandbox.client(), "default");
    let events = events.list(&ListParams::default()).await.expect("events").items;
    let uid = cluster.nodes.get("n1").expect("a Node").identity.uid.clone();
    let event = events.first().expect("an event");
    let message = event.message.as_deref().unwrap_or_default();
    assert_eq!(event.reason.as_deref(), Some("FailedToCreateRoute"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.uid.as_deref(), Some(&*uid));
    let (begin, end) =
        (format!("Could not create route {uid} 10.0.1.0/24 for node n1 after "), ": the cloud is away");
    assert!(message.starts_with(&begin) && message.ends_with(end), "{message}");

    cluster.fake.mend();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    assert_eq!(cluster.status_writes(), 2);
    cluster.counted("changed", "periodic", 2);
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_longer_than_five_minutes_or_a_given_period() {
    for (period, first, expected) in [(300, 400, 3), (10, 60, 60)] {
        let cluster = Cluster::new();
        cluster.fake.fail(Operation::CreateRoute, Fault::Error(away()));
        cluster.register(1).await;
        cluster.start_with(Duration::from_secs(period), false);
        sleep(Duration::from_secs(first)).await;
        cluster.fake.forget_calls();
        sleep(Duration::from_secs(600)).await;
        let tries = cluster.fake.count(Operation::CreateRoute);
        assert!((expected - 1..=expected + 1).contains(&tries), "period {period}: {tries}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_provider_says_when() {
    let cluster = Cluster::settled(0).await;
    let later = away().with_retry_after(Duration::from_secs(45)).wrap("create").wrap("route");
    cluster.fake.fail_next(Operation::CreateRoute, later);
    cluster.register(1).await;
    assert_eq!(calls_at(&cluster, Operation::CreateRoute, [1, 44, 46]).await, [1, 1, 2]);
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_is_tried_at_once_and_the_others_wait() {
    let cluster = Cluster::settled(0).await;
    cluster
        .fake
        .fail(Operation::CreateRoute, Fault::Error(away().with_retry_after(Duration::from_secs(200))));
    cluster.register(1).await;
    cluster.register(2).await;
    sleep(Duration::from_secs(5)).await;
    cluster.made(1, 2, 0);
    cluster.fake.mend();
    cluster.set_address(1, "10.200.0.1").await;
    sleep(Duration::from_secs(5)).await;
    cluster.made(2, 3, 0);
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1))]);
    assert_eq!(cluster.condition(2).await, "True NoRouteCreated");
    sleep(Duration::from_secs(200)).await;
    assert_eq!(cluster.condition(2).await, "False RouteCreated");
}

#[tokio::test(start_paused = true)]
async fn while_routes_are_not_listed_nothing_is_done() {
    let cluster = Cluster::settled(1).await;
    cluster.fake.fail(Operation::ListRoutes, Fault::Error(away()));
    cluster.delete(0).await;
    cluster.register(1).await;
    let lists = calls_at(&cluster, Operation::ListRoutes, [1, 2, 5, 10]).await;
    assert_eq!(lists, [1, 2, 3, 4]);
    cluster.counted("error", "node_change", 1);
    cluster.counted("error", "periodic", 3);
    cluster.made(4, 0, 0);
    cluster.fake.mend();
    sleep(Duration::from_secs(10)).await;
    cluster.made(5, 1, 1);
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1))]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_tried_again() {
    let cluster = Cluster::settled(1).await;
    cluster.fake.fail_next(Operation::DeleteRoute, away());
    cluster.delete(0).await;
    sleep(Duration::from_secs(3)).await;
    cluster.made(2, 0, 2);
    assert!(cluster.routes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_is_tried_again_without_the_route() {
    let cluster = Cluster::settled(0).await;
    let patches = Matcher::any().verb("patch").resource("nodes").subresource("status");
    cluster.sandbox.faults().inject(ApiFault::new(patches, Action::InternalError).times(2));
    cluster.register(1).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    assert_eq!(cluster.fake.count(Operation::CreateRoute), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_or_panics_is_a_failure_of_its_own_route() {
    for fault in [Fault::Hang, Fault::HangThenPanic, Fault::Panic] {
        let cluster = Cluster::settled(0).await;
        cluster.fake.fail_next(Operation::CreateRoute, fault);
        cluster.register(1).await;
        cluster.register(2).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(
            cluster.routes().len(),
            if cluster.fake.count(Operation::CreateRoute) == 2 { 1 } else { 2 }
        );
        assert!(!cluster.condition(1).await.is_empty() || !cluster.condition(2).await.is_empty());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(cluster.routes().len(), 2);
        for index in [1, 2] {
            assert_eq!(cluster.condition(index).await, "False RouteCreated");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_finished_when_it_stops() {
    let cluster = Cluster::new();
    for index in 0..300 {
        cluster.register(index).await;
    }
    cluster.fake.set_latency(Duration::from_secs(2));
    let (task, stop) = cluster.start_with(PERIOD, false);
    sleep(Duration::from_secs(3)).await;
    stop.cancel();
    task.await.expect("it ends");
    cluster.made(1, 200, 0);
    assert_eq!(cluster.routes().len(), 200);
}

/// The process dies at any moment of a pass, before, in or after each call, and another one goes on.
#[tokio::test(start_paused = true)]
async fn a_crash_leaves_neither_two_routes_nor_none() {
    for milliseconds in (0..12_000).step_by(500) {
        let cluster = Cluster::new();
        cluster.register(1).await;
        cluster.register(2).await;
        // Its route must go before that of n2 can be made.
        cluster.fake.put_route("c", route("gone", &cidr(2)));
        cluster.fake.set_latency(Duration::from_secs(2));
        let slow = Matcher::any().verb("patch").resource("nodes").subresource("status");
        cluster.sandbox.faults().inject(ApiFault::new(slow, Action::Delay(Duration::from_secs(2))));
        let (task, _) = cluster.start_with(PERIOD, false);
        sleep(Duration::from_millis(milliseconds)).await;
        task.abort();
        cluster.start();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(
            cluster.routes(),
            [("n1".into(), cidr(1)), ("n2".into(), cidr(2))],
            "after {milliseconds} ms"
        );
        for index in [1, 2] {
            assert_eq!(cluster.condition(index).await, "False RouteCreated", "after {milliseconds} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_term_no_route_is_made_or_deleted() {
    let mut cluster = Cluster::new();
    cluster.fence = component::leader_election::Fence::default().into();
    cluster.register(0).await;
    let nobody = Route {
        name: "old".into(),
        target_node: "nobody".into(),
        destination_cidr: cidr(7),
        ..Route::default()
    };
    cluster.fake.put_route("c", nobody);
    cluster.start();
    sleep(PERIOD).await;
    let routes = cluster.fake.routes().into_iter().map(|route| route.name).collect::<Vec<_>>();
    assert_eq!(routes, ["old"]);
}

#[tokio::test(start_paused = true)]
async fn the_clouds_wish_for_a_pause_outlasts_the_period() {
    let cluster = Cluster::new();
    let later = away().with_retry_after(Duration::from_secs(200));
    cluster.fake.fail(Operation::ListRoutes, Fault::Error(later));
    cluster.start_with(Duration::from_secs(10), false);
    assert_eq!(calls_at(&cluster, Operation::ListRoutes, [1, 195, 205]).await, [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn retries_are_a_second_apart_at_least() {
    let cluster = Cluster::settled(0).await;
    let soon = away().with_retry_after(Duration::ZERO);
    cluster.fake.fail(Operation::CreateRoute, Fault::Error(soon));
    cluster.register(1).await;
    sleep(Duration::from_secs(10)).await;
    let tries = cluster.fake.count(Operation::CreateRoute);
    assert!((8..=11).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_cannot_be_made_yet_is_no_failure() {
    let cluster = Cluster::settled(0).await;
    let waits = Error::in_progress(Duration::from_secs(10), "the node has no address yet");
    cluster.fake.fail(Operation::CreateRoute, Fault::Error(waits));
    cluster.register(1).await;
    sleep(Duration::from_secs(3)).await;
    // Another pass, in which its time has not come.
    cluster.register(2).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!((cluster.condition(1).await, cluster.condition(2).await), (String::new(), String::new()));
    let events: Api<Event> = Api::namespaced(cluster.sandbox.client(), "default");
    assert!(events.list(&ListParams::default()).await.expect("events").items.is_empty());
    cluster.fake.mend();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.condition(1).await, "False RouteCreated");
    assert_eq!(cluster.status_writes(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_update_is_finished_when_it_stops() {
    let cluster = Cluster::new();
    cluster.register(1).await;
    cluster.register(2).await;
    // Its route must go before that of n1 can be made.
    cluster.fake.put_route("c", route("gone", &cidr(1)));
    cluster.fake.set_latency(Duration::from_secs(2));
    let (task, stop) = cluster.start_with(PERIOD, false);
    // While the old route is deleted.
    sleep(Duration::from_secs(3)).await;
    stop.cancel();
    task.await.expect("it ends");
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1)), ("n2".into(), cidr(2))]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_cache_lacks_keeps_its_route() {
    let mut cluster = Cluster::new();
    cluster.register(1).await;
    for (name, index) in [("n1", 1), ("gone", 2)] {
        cluster.fake.put_route("c", route(name, &cidr(index)));
    }
    // A cache that was filled before n1 came.
    cluster.nodes = NodeStore::new();
    let empty = Sandbox::new();
    tokio::spawn(watch_nodes(empty.client(), cluster.nodes.clone(), cluster.stop.clone()));
    let reads = Matcher::any().verb("list").resource("nodes");
    sleep(Duration::from_secs(1)).await;
    cluster.sandbox.reset_requests();
    cluster.start();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(cluster.routes(), [("n1".into(), cidr(1))], "only the route of nobody is deleted");
    assert_eq!(cluster.sandbox.requests_matching(&reads).len(), 2, "one read for each");
    // Now it is gone.
    cluster.delete(1).await;
    sleep(Duration::from_secs(5)).await;
    assert!(cluster.routes().is_empty());
}
