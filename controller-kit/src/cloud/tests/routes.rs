//! What a provider's routes may do, and what the route controller sees of it.

use cloudprovider::Route;

use super::{super::guarded::CALL_TIMEOUT, *};

fn route() -> Route {
    Route { target_node: "n".into(), destination_cidr: "10.0.0.0/24".into(), ..Route::default() }
}

#[tokio::test(start_paused = true)]
async fn a_call_neither_panics_nor_hangs() {
    let fake = FakeCloud::new().with_routes();
    let metrics = Metrics::new("test").expect("metrics");
    let started = Started::new(fake.provider(), CancellationToken::new());
    let cloud = Cloud::new(started, metrics.get().expect("metrics"));
    for (fault, kind, words) in [
        (Fault::Panic, ErrorKind::Internal, "create_route: the cloud provider panicked; the log says more"),
        (Fault::Hang, ErrorKind::Timeout, "create_route: no answer within 60s"),
        (Fault::HangThenPanic, ErrorKind::Timeout, "create_route: no answer within 60s"),
        (Error::new(ErrorKind::Conflict, "taken").into(), ErrorKind::Conflict, "taken"),
    ] {
        fake.fail_next(Operation::CreateRoute, fault);
        let began = Instant::now();
        let error = cloud.routes().create("c", "u", &route()).await.expect_err("a fault");
        assert_eq!((error.kind(), &*error.report()), (kind, words));
        assert!(began.elapsed() <= CALL_TIMEOUT);
    }
    cloud.routes().create("c", "u", &route()).await.expect("it works again");
    let listed = cloud.routes().list("c").await.expect("a list");
    assert_eq!(listed.len(), 1);
    cloud.routes().delete("c", &listed[0]).await.expect("deleted");
    assert!(fake.routes().is_empty());
    let text = metrics.text();
    for (operation, result, count) in [
        ("create_route", "ok", 1),
        ("create_route", "internal", 1),
        ("create_route", "timeout", 2),
        ("create_route", "conflict", 1),
        ("list_routes", "ok", 1),
        ("delete_route", "ok", 1),
    ] {
        let line = format!(
            "provider_calls_total{{operation=\"{operation}\",provider=\"fake\",result=\"{result}\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(
        text.contains(
            "provider_call_duration_seconds_count{operation=\"create_route\",provider=\"fake\"} 5\n"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn without_routes_every_call_says_so() {
    let fake = FakeCloud::new();
    let cloud = with(&fake, CancellationToken::new());
    assert!(!cloud.has_routes());
    assert_eq!(cloud.routes().list("c").await.expect_err("no routes").kind(), ErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_replaced_ends_after_its_last_call() {
    let fake = FakeCloud::new().with_routes();
    let stop = CancellationToken::new();
    let cloud = with(&fake, stop.clone());
    let mut replacements = cloud.replacements();
    fake.set_latency(Duration::from_secs(5));
    let call = tokio::spawn({
        let cloud = cloud.clone();
        async move { cloud.routes().create("c", "u", &route()).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    cloud.replace_with(&with(&FakeCloud::new(), CancellationToken::new()));
    assert!(replacements.has_changed().expect("the cloud is there") && !stop.is_cancelled());
    replacements.mark_unchanged();
    call.await.expect("no panic").expect("made by the first one");
    assert!(stop.is_cancelled());
    assert_eq!(fake.routes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn routes_stay_with_their_provider() {
    let (first, second) = (FakeCloud::new().with_routes(), FakeCloud::new().with_routes());
    let stop = CancellationToken::new();
    let cloud = with(&first, stop.clone());
    let routes = cloud.routes();
    cloud.replace_with(&with(&second, CancellationToken::new()));
    routes.create("c", "u", &route()).await.expect("made by the first one");
    assert_eq!((first.routes().len(), second.routes().len()), (1, 0));
    assert!(!stop.is_cancelled(), "it is still needed");
    drop(routes);
    assert!(stop.is_cancelled());
    cloud.routes().create("c", "u", &route()).await.expect("made by the second one");
    assert_eq!((first.routes().len(), second.routes().len()), (1, 1));
}
